// The floating-point control register during a range of work: defaults, whatever the caller's thread has set.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace turnout::core {

class FpEnvironment {
 public:
#if defined(__x86_64__)
  FpEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~FpEnvironment() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kDefault = 0x1F80;  // all exceptions masked, to nearest even, no flush to zero
  unsigned saved_;
#elif defined(__aarch64__)
  FpEnvironment() {
    std::uint64_t zero = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved_));
    __asm__ volatile("msr fpcr, %0" : : "r"(zero));
  }
  ~FpEnvironment() { __asm__ volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  std::uint64_t saved_;
#endif
 public:
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;
};

}  // namespace turnout::core
