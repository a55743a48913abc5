// Streamed copies, compiled once per instruction set.
#include "core/copy.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/copy.cc"
#include "core/simd.h"

TURNOUT_ISA_BEGIN

void stream(void* to, const void* from, std::int64_t bytes, const void* next) {
  constexpr std::int64_t kLine = 64;
  const hn::ScalableTag<std::uint8_t> d;
  auto* out = static_cast<std::uint8_t*>(to);
  const auto* in = static_cast<const std::uint8_t*>(from);
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
  std::int64_t i = std::min(bytes, (kLine - misaligned) % kLine);
  std::memcpy(out, in, static_cast<std::size_t>(i));
  const auto stream_line = [&](std::int64_t at) HWY_ATTR {
    for (std::int64_t b = at; b < at + kLine; b += HWY_MAX_BYTES)
      hn::Stream(hn::LoadU(d, in + b), d, out + b);
  };
  const std::int64_t fetch_from = next == nullptr ? bytes : bytes - kAheadBytes;
  for (; i + kLine <= std::min(bytes, fetch_from); i += kLine) stream_line(i);
  const auto* ahead = static_cast<const std::uint8_t*>(next);
  for (; i + kLine <= bytes; i += kLine, ahead += kLine) {
    hwy::Prefetch(ahead);
    stream_line(i);
  }
  std::memcpy(out + i, in + i, static_cast<std::size_t>(bytes - i));
}
void finish() { hwy::FlushStream(); }

constexpr CopyKernels kCopyKernels = {&stream, &finish};

TURNOUT_ISA_END

#if HWY_ONCE
namespace turnout::core {

const CopyKernels& copy_kernels(Isa isa) {
  static constexpr KernelTable<CopyKernels> kTable = TURNOUT_KERNEL_TABLE(kCopyKernels);
  return *kTable[static_cast<std::size_t>(isa)];
}

void stream_copy(Context& context, void* to, const void* from, std::int64_t bytes) {
  const CopyKernels& copy = copy_kernels(context.isa());
  parallel_for(context, bytes, kRangeBytes, [&](std::int64_t begin, std::int64_t end) {
    copy.stream(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin, end - begin,
                nullptr);
    copy.finish();
  });
}

}  // namespace turnout::core
#endif
