// Streamed copies, compiled once per instruction set.
#include "core/copy.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/copy.cc"
#include "core/simd.h"

TURNOUT_ISA_BEGIN

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
TURNOUT_KERNELS(CopyKernels, copy_kernels, kCopyKernels)

namespace turnout::core {

void stream_copy(Context& context, void* to, const void* from, std::int64_t bytes) {
  const CopyKernels& copy = copy_kernels(context.isa());
  parallel_for(context, bytes, kRangeBytes, [&](std::int64_t begin, std::int64_t end) {
    copy.stream(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                end - begin);
    copy.finish();
  });
}

}  // namespace turnout::core
#endif
