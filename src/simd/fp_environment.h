// Sets the floating-point control register to its defaults for a range of work, and restores the thread's
// settings afterwards.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace turnout::core {

enum class Denormals : std::uint8_t {
  kept,
  flushed,  // for kernels whose results do not need denormals: each can cost a hundred cycles
};

class FpEnvironment {
 public:
#if defined(__x86_64__)
  explicit FpEnvironment(Denormals denormals = Denormals::kept) : saved_(_mm_getcsr()) {
    _mm_setcsr(denormals == Denormals::kept ? kDefault : kDefault | kFlush);
  }
  ~FpEnvironment() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kDefault = 0x1F80;  // exceptions masked, round to nearest even, denormals kept
  static constexpr unsigned kFlush = 0x8040;    // flush-to-zero (results), denormals-are-zero (operands)
  unsigned saved_;
#elif defined(__aarch64__)  // the "memory" clobber prevents moving loads and stores across the change
  explicit FpEnvironment(Denormals denormals = Denormals::kept) {
    const std::uint64_t control = denormals == Denormals::kept ? 0 : std::uint64_t{1} << 24;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
  }
  ~FpEnvironment() { __asm__ volatile("msr fpcr, %0" : : "r"(saved_) : "memory"); }

 private:
  std::uint64_t saved_;
#endif
 public:
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;
};

}  // namespace turnout::core
