// Implements Call and the log.
#include "runtime/call.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "simd/isa.h"

namespace turnout {
namespace core {
namespace {

constexpr unsigned kUnread = ~0u;
constexpr unsigned kNobodySaid = ~1u;
std::atomic<unsigned> chosen_lines{kUnread};
std::atomic<unsigned> default_lines{kNoLines};
// Never destroyed: calls may arrive until the process ends.
WatcherSlot<LogSink>& sink() {
  static auto& slot = *new WatcherSlot<LogSink>;
  return slot;
}

unsigned lines_of(int level) {
  if (level >= kSkippedLevel) return kFailures | kCalls | kSkippedCalls;
  return level >= kCallLevel ? kFailures | kCalls : kNoLines;
}

// The value of TURNOUT_LOG: no level if it is empty or not set. `bad` is a value that is not a level.
struct LogVariable {
  std::optional<int> level;
  const char* bad = nullptr;
};
LogVariable log_variable() {
  const char* wanted = std::getenv("TURNOUT_LOG");
  if (wanted == nullptr || *wanted == '\0') return {};
  const bool is_level = wanted[0] >= '0' && wanted[0] <= '0' + kSkippedLevel && wanted[1] == '\0';
  if (!is_level) return {{}, wanted};
  return {wanted[0] - '0'};
}

void write_line(int level, const std::string& line) {
  if (const auto* to = sink().get()) {
    to->call(level, line.c_str(), to->user);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

// Before the first line of a log with calls, writes once which settings of the environment have no effect.
void write_notes() {
  static std::atomic<bool> written{false};
  if (written.exchange(true)) return;
  const std::string note = isa_note();
  if (!note.empty()) write_line(kCallLevel, concat("[turnout] ", note));
}

void log_line(LogLines kind, const std::string& line) {
  const unsigned lines = logged_lines();
  if ((lines & kind) == 0) return;
  if (lines & kCalls) write_notes();
  write_line(kind == kSkippedCalls ? kSkippedLevel : kCallLevel, line);
}

// A logfmt value: text that is not one word is quoted.
std::string logfmt(std::string_view text) {
  constexpr std::string_view kQuoted = " ,=";
  return !text.empty() && text.find_first_of(kQuoted) == text.npos ? std::string(text)
                                                                   : concat("\"", text, "\"");
}

void log_call(const CallRecord& record) {
  char tail[160];
  std::snprintf(tail, sizeof(tail), " isa=%s threads=%d scratch=%lld us=%.1f serial_us=%.1f",
                name_of(record.isa), record.threads, static_cast<long long>(record.scratch_bytes),
                record.microseconds, record.serial_microseconds);
  log_line(kCalls, concat("[turnout] ", record.op, "(", record.arguments,
                          "): algorithm=", logfmt(record.algorithm), tail));
}

}  // namespace

unsigned logged_lines() {
  unsigned lines = chosen_lines.load(std::memory_order_relaxed);
  if (lines == kUnread) {
    const std::optional<int> level = log_variable().level;
    const unsigned read = level ? lines_of(*level) : kNobodySaid;
    // A concurrent set_log() wins.
    if (chosen_lines.compare_exchange_strong(lines, read)) lines = read;
  }
  return lines == kNobodySaid ? default_lines.load(std::memory_order_relaxed) : lines;
}

void check_log_environment() {
  if (const char* bad = log_variable().bad)
    throw Error(ErrorCode::bad_param,
                concat("TURNOUT_LOG is '", bad, "', expected a level, 0 .. ", std::int64_t{kSkippedLevel}));
}

void set_default_log(unsigned lines) { default_lines = lines; }

void log_failure(const char* message, const std::string& arguments) {
  log_line(kFailures, concat("[turnout] failed: ", message, arguments.empty() ? "" : " (", arguments,
                             arguments.empty() ? "" : ")"));
}

void log_skipped(std::string_view op, const std::string& arguments) {
  log_line(kSkippedCalls, concat("[turnout] ", op, "(", arguments, "): skipped, nothing to do"));
}

void log_note(const std::string& text) { log_line(kCalls, concat("[turnout] ", text)); }

namespace {

// Runs f(). A failure ends the call: it is logged and recorded.
template <class F>
auto log_and_record(const Arguments& arguments, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (logged_lines() & kFailures) log_failure(error.what(), arguments.describe());
    if (recorded() != Recorded::none) CallFolder(arguments, arguments.op(), Isa::best).end(error.what());
    throw;
  }
}

}  // namespace

void check_metadata_and_log(Arguments& arguments) {
  log_and_record(arguments, [&] { arguments.check_metadata(); });
}

bool check_and_log(Arguments& arguments) {
  if (log_and_record(arguments, [&] { return arguments.check(); })) return true;
  if (logged_lines() & kSkippedCalls) log_skipped(arguments.signature().op, arguments.describe());
  return false;
}

Call::Call(const Caller& caller, const Signature& signature, std::initializer_list<Slot> slots,
           std::span<const ScalarValue> scalars)
    : context_(caller.context()),
      details_(CallDetails::of(caller)),
      arguments_(signature, slots.begin(), static_cast<int>(slots.size()), scalars.data(),
                 static_cast<int>(scalars.size()), {}, 1, Isa::best, details_.names),
      watched_(logged_lines() != kNoLines || context_.state().observer.get() != nullptr) {
  if (watched_) {
    const bool continues = details_.steps != nullptr && details_.steps->has_begun;
    start_ = continues ? details_.steps->start : std::chrono::steady_clock::now();
    if (continues) {
      scratch_bytes_ = details_.steps->scratch_bytes;
      shared_microseconds_ = details_.steps->shared_microseconds;
    }
    loops_.emplace();
    described_ = arguments_.describe();
  }
  if (recorded() != Recorded::none)
    folder_ = std::make_unique<CallFolder>(arguments_, arguments_.op(), context_.isa(),
                                           /*only_failures=*/!details_.is_last);
  try {
    skipped_ = !arguments_.check();
  } catch (const Error& error) {
    fail(error);
  }
}

Call::~Call() {
  if (!watched_ && folder_ == nullptr) return;
  try {
    const char* error =
        std::uncaught_exceptions() > exceptions_ ? "turnout: the call ended with an exception" : nullptr;
    if (folder_ != nullptr) folder_->end(error);
    if (!watched_) return;
    if (error == nullptr && !details_.is_last) {
      *details_.steps = {true, start_, scratch_bytes_, shared_microseconds()};
    } else {
      report(error);
    }
  } catch (...) {  // do not end the process because a line cannot be written
  }
}

Scratch& Call::scratch(std::size_t bytes) {
  try {
    scratch_.emplace(context_, details_.workspace, bytes);
  } catch (const Error&) {
    refuse_memory(bytes);
  }
  scratch_bytes_ += bytes;
  return *scratch_;
}

Scratch Call::lease(std::size_t bytes) {
  try {
    Scratch memory(context_, bytes);
    scratch_bytes_ += bytes;
    return memory;
  } catch (const Error&) {
    refuse_memory(bytes);
  }
}

void Call::refuse_memory(std::size_t bytes) {
  refuse(concat(static_cast<std::int64_t>(bytes), " bytes of scratch memory are not available"),
         ErrorCode::alloc_failed);
}

void Call::refuse(const std::string& what, ErrorCode code) {
  fail(Error(code, concat(arguments_.op(), ": ", what)));
}

void Call::fail(const Error& error) {
  if (const auto folder = std::exchange(folder_, nullptr)) folder->end(error.what());
  if (std::exchange(watched_, false)) report(error.what());  // one line per call
  throw error;  // NOLINT: a copy, because the log line of the original is written
}

void Call::report(const char* error) {
  const std::string op(arguments_.op());
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start_;
  const CallRecord record{op.c_str(),    described_.c_str(),
                          algorithm_,    error,
                          skipped_,      at_most(context_.isa(), last_isa_),
                          threads_,      static_cast<std::int64_t>(scratch_bytes_),
                          spent.count(), std::max(0.0, spent.count() - shared_microseconds())};
  if (const auto* observer = context_.state().observer.get()) observer->call(record, observer->user);
  if (error != nullptr) {
    log_failure(error, described_);
  } else if (skipped_) {
    log_skipped(op, described_);
  } else {
    log_call(record);
  }
}

}  // namespace core

void set_log(int level, LogSink sink, void* user) {
  core::sink().set(sink, user);
  core::chosen_lines = core::lines_of(level);
}

}  // namespace turnout
