// Implements Interruption: the polling clock and each thread's active interruption.
#include "runtime/interrupt.h"

#include <time.h>

#include "runtime/thread_pointer.h"
#include "simd/fp_environment.h"

namespace turnout::core {
namespace {

const ThreadPointer& newest() {
  static const ThreadPointer pointer;
  return pointer;
}

// The coarse clock takes a third of the time of the exact one and is at most a few milliseconds late.
std::int64_t milliseconds_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

Interrupted::~Interrupted() = default;
const char* Interrupted::what() const noexcept { return "turnout: the call was interrupted"; }

Interruption* Interruption::of_this_thread() { return static_cast<Interruption*>(newest().get()); }

// If there is no memory for the pointer, the call cannot be interrupted.
Interruption::Interruption(Ask ask, void* user) : ask_(ask), user_(user), outer_(of_this_thread()) {
  newest().set(this);
}
Interruption::~Interruption() { newest().set(outer_); }

bool Interruption::ask_if_due() {
  if (due_ != 0 && milliseconds_now() < due_) return false;
  if (due_ != 0) {
    const FpEnvironment environment;  // a kernel may have changed the control register
    if (ask_(user_)) is_stopped_.store(true, std::memory_order_relaxed);
  }
  due_ = milliseconds_now() + kInterval.count();
  return is_stopped();
}

void throw_if_interrupted() {
  Interruption* const call = Interruption::of_this_thread();
  if (call != nullptr && !call->in_ranges() && call->look()) throw Interrupted();
}

}  // namespace turnout::core
