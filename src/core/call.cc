// The life of one call, and the log.
#include "core/call.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace turnout {
namespace core {
namespace {

constexpr int kUnread = -1;
std::atomic<int> level{kUnread};
std::atomic<LogSink> sink{nullptr};
std::atomic<void*> sink_user{nullptr};

constexpr int kCallLevel = 1;
constexpr int kSkippedLevel = 5;

std::string line_of(const CallRecord& record) {
  if (record.error != nullptr) return concat("[turnout] failed: ", record.error, " (", record.arguments, ")");
  if (record.skipped)
    return concat("[turnout] ", record.op, "(", record.arguments, "): skipped, no output has an element");
  char tail[160];
  std::snprintf(tail, sizeof(tail), " isa=%s threads=%d scratch=%lld us=%.1f", name_of(record.isa),
                record.threads, static_cast<long long>(record.scratch_bytes), record.microseconds);
  return concat("[turnout] ", record.op, "(", record.arguments, "): algorithm=", record.algorithm, tail);
}

}  // namespace

int log_level() {
  int now = level.load(std::memory_order_relaxed);
  if (now != kUnread) return now;
  const char* wanted = std::getenv("TURNOUT_LOG");
  now = wanted == nullptr ? 0 : std::atoi(wanted);
  level = now;
  return now;
}

void log_line(int line_level, const std::string& line) {
  if (line_level > log_level()) return;
  if (LogSink to = sink.load()) {
    to(line_level, line.c_str(), sink_user.load());
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

Call::Call(Context& context, const Signature& signature, std::initializer_list<Slot> slots,
           std::initializer_list<ScalarValue> scalars)
    : context_(context),
      arguments_(signature, slots.begin(), static_cast<int>(slots.size()), scalars.begin(),
                 static_cast<int>(scalars.size())),
      watched_(log_level() > 0 || context.state().observer.load(std::memory_order_relaxed) != nullptr) {
  if (watched_) {
    start_ = std::chrono::steady_clock::now();
    described_ = arguments_.describe();
  }
  try {
    skipped_ = !arguments_.check();
  } catch (const Error& error) {
    if (watched_) report(error.what());
    throw;
  }
}

Call::~Call() {
  if (watched_) report(nullptr);
}

Scratch& Call::scratch(std::size_t bytes) {
  try {
    scratch_.emplace(context_, bytes);
  } catch (const Error& error) {
    if (watched_) report(error.what());
    watched_ = false;
    throw;
  }
  scratch_bytes_ = bytes;
  return *scratch_;
}

void Call::report(const char* error) {
  const std::string op(arguments_.signature().op);
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start_;
  const CallRecord record{op.c_str(),
                          described_.c_str(),
                          algorithm_,
                          error,
                          skipped_,
                          context_.isa(),
                          threads_,
                          static_cast<std::int64_t>(scratch_bytes_),
                          spent.count()};
  if (Observer observer = context_.state().observer.load())
    observer(record, context_.state().observer_user.load());
  if (log_level() > 0) log_line(skipped_ ? kSkippedLevel : kCallLevel, line_of(record));
}

}  // namespace core

void set_log(int level, LogSink sink, void* user) {
  core::sink = nullptr;  // no line goes to the old sink with the new user
  core::sink_user = user;
  core::sink = sink;
  core::level = level;
}

}  // namespace turnout
