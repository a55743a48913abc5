// One call of an operator: its arguments checked, its log line written when it ends.
#pragma once

#include <chrono>
#include <initializer_list>
#include <optional>
#include <string>

#include "core/check.h"
#include "core/context.h"

namespace turnout::core {

class Call {
 public:
  // Throws Error when the arguments do not fit the signature.
  Call(Context& context, const Signature& signature, std::initializer_list<Slot> slots,
       std::initializer_list<ScalarValue> scalars);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool nothing_to_do() const { return skipped_; }
  std::int64_t size(int name) const { return arguments_.size(name); }

  // Leases memory for this call; Error(alloc_failed).
  Scratch& scratch(std::size_t bytes);

  // What the plan decided, for the log line.
  void chose(const char* algorithm, int threads) {
    algorithm_ = algorithm;
    threads_ = threads;
  }

 private:
  void report(const char* error);

  Context& context_;
  Arguments arguments_;
  bool skipped_ = false;
  bool watched_;
  const char* algorithm_ = "";
  int threads_ = 1;
  std::size_t scratch_bytes_ = 0;
  std::optional<Scratch> scratch_;
  std::string described_;  // only when watched: the slots do not outlive the constructor
  std::chrono::steady_clock::time_point start_;
};

// Level 0: off. Read once from TURNOUT_LOG; set_log() changes it.
int log_level();
void log_line(int level, const std::string& line);

}  // namespace turnout::core
