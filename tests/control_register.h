// Reads and writes the floating-point control register, for tests of callers that have changed it.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace turnout::test {

#if defined(__x86_64__)
inline constexpr unsigned kDefaultControl = 0x1F80, kFlush = 0x8040, kUp = 0x4000, kDown = 0x2000;
inline constexpr unsigned kTraps = 0x680;  // traps on invalid operations, division by zero and overflow
inline unsigned control_register() { return _mm_getcsr() & 0xFFC0; }  // without the sticky status flags
inline void set_control_register(unsigned value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
inline constexpr unsigned kDefaultControl = 0, kFlush = 1 << 24, kUp = 1 << 22, kDown = 2 << 22;
inline constexpr unsigned kTraps = 0x700;  // CPUs without traps leave these bits 0
inline unsigned control_register() {
  unsigned long value = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
  return static_cast<unsigned>(value);
}
inline void set_control_register(unsigned value) {
  __asm__ volatile("msr fpcr, %0" : : "r"(static_cast<unsigned long>(value)) : "memory");
}
#endif

}  // namespace turnout::test
