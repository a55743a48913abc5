// Streamed copies and zero fills, compiled once per instruction set.
#include "simd/copy.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/copy.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(core)

void stream(void* to, const void* from, std::int64_t bytes) { stream_bytes(to, from, bytes); }

void clear(void* to, std::int64_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  auto* out = static_cast<std::uint8_t*>(to);
  by_lines(
      to, bytes, [&](std::int64_t i) HWY_ATTR { hn::Stream(hn::Zero(d), d, out + i); },
      [&](std::int64_t i, std::size_t n) { std::memset(out + i, 0, n); });
}

void finish() { hwy::FlushStream(); }

constexpr CopyKernels kCopyKernels = {&stream, &clear, &finish};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(core, CopyKernels, copy_kernels, kCopyKernels)
#endif
