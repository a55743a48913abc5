// One call of an operator: checks its arguments, and writes a log line when it ends.
#pragma once

#include <chrono>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/check.h"
#include "runtime/caller.h"
#include "runtime/context.h"
#include "runtime/parallel.h"
#include "runtime/record.h"

namespace turnout::core {

class Call {
 public:
  // Throws Error if the arguments do not match the signature.
  Call(const Caller& caller, const Signature& signature, std::initializer_list<Slot> slots,
       std::span<const ScalarValue> scalars);
  Call(const Caller& caller, const Signature& signature, std::initializer_list<Slot> slots,
       std::initializer_list<ScalarValue> scalars)
      : Call(caller, signature, slots, std::span(scalars.begin(), scalars.size())) {}
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Context& context() const { return context_; }
  bool nothing_to_do() const { return skipped_; }
  std::int64_t size(int name) const { return arguments_.size(name); }

  // The memory whose size the plan knows from the shapes: the caller's workspace if there is one, otherwise
  // memory of the context. At most once per call; throws Error(alloc_failed).
  Scratch& scratch(std::size_t bytes);
  // Additional memory of the context, whose size depends on the data or which outlives the call.
  Scratch lease(std::size_t bytes);

  // The caller's name for an argument or scalar of the operator.
  std::string_view name(std::string_view own) const { return arguments_.name(own); }
  // Rejects the call for a reason that the plan finds: throws Error(code) "function: what". Logged and
  // recorded like a failure of the signature's checks.
  [[noreturn]] void refuse(const std::string& what, ErrorCode code = ErrorCode::bad_param);

  // For the log line: the last instruction set that the kernels of this call are compiled for.
  void uses(Isa last) { last_isa_ = last; }
  // What the plan decided, for the log line.
  void chose(const char* algorithm, int threads) {
    algorithm_ = algorithm;
    threads_ = threads;
  }

 private:
  [[noreturn]] void fail(const Error& error);  // logs and records the error, then throws it
  [[noreturn]] void refuse_memory(std::size_t bytes);
  void report(const char* error);
  double shared_microseconds() const { return shared_microseconds_ + (loops_ ? loops_->microseconds() : 0); }

  Context& context_;
  const CallDetails details_;
  Arguments arguments_;
  bool skipped_ = false;
  bool watched_;
  const int exceptions_ = std::uncaught_exceptions();  // when the call began
  const char* algorithm_ = "";
  int threads_ = 1;
  Isa last_isa_ = Isa::avx512;
  std::size_t scratch_bytes_ = 0;
  double shared_microseconds_ = 0;    // of earlier steps
  std::optional<SharedLoops> loops_;  // if watched
  std::optional<Scratch> scratch_;
  std::unique_ptr<CallFolder> folder_;  // if the call is recorded
  std::string described_;               // if watched; made by the constructor, because it outlives the slots
  std::chrono::steady_clock::time_point start_;
};

// Log levels: kCallLevel and above log calls and failures, kSkippedLevel also skipped calls.
inline constexpr int kCallLevel = 1, kSkippedLevel = 5;

// The kinds of lines in the log, as bits. TURNOUT_LOG and set_log() choose by level.
enum LogLines : unsigned { kNoLines = 0, kFailures = 1, kCalls = 2, kSkippedCalls = 4 };
unsigned logged_lines();
// Throws Error if TURNOUT_LOG is not a level. logged_lines() ignores such a value.
void check_log_environment();
// What is logged if neither TURNOUT_LOG nor set_log() has chosen a level.
void set_default_log(unsigned lines);

// Log lines of calls that end in a binding's own checks, before an operator starts. `arguments` is as from
// Arguments::describe().
void log_failure(const char* message, const std::string& arguments);
void log_skipped(std::string_view op, const std::string& arguments);
// A line of its own in a log that has calls.
void log_note(const std::string& text);
// Arguments::check() of such a binding. A call that ends here is logged here, and recorded if it fails; the
// operator logs and records a call that reaches it.
bool check_and_log(Arguments& arguments);
// Arguments::check_metadata() of a binding that allocates results, logged and recorded likewise.
void check_metadata_and_log(Arguments& arguments);

}  // namespace turnout::core
