// Movement of bytes: copies that bypass the cache, and from which size on they pay.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "turnout/context.h"

namespace turnout::core {

// From here on an output does not fit the caches it would displace; below, streaming costs twice as much.
inline constexpr std::int64_t kStreamBytes = 2 << 20;

// One range of input that a thread takes: long enough to amortise handing it out, short enough to balance
// threads. Movers read in order and write wherever the data says: the hardware fetches ahead what is read in
// order, and a streamed store waits for nothing. The other way round took 1.1 to 1.3 times as long as a plain
// copy, this way 1.0.
inline constexpr std::int64_t kRangeBytes = 256 << 10;

// A few bytes, in line: for rows of some elements a call of memcpy takes longer than the copy.
inline void copy_short(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  for (; bytes >= 16; bytes -= 16, out += 16, in += 16) std::memcpy(out, in, 16);
  for (; bytes >= 4; bytes -= 4, out += 4, in += 4) std::memcpy(out, in, 4);
  for (; bytes > 0; --bytes) *out++ = *in++;
}

struct CopyKernels {
  // to[0 .. bytes-1] = from[0 .. bytes-1]; whole lines are stored past the cache. Any alignment. No overlap.
  // Call finish() before another thread may look.
  void (*stream)(void* to, const void* from, std::int64_t bytes);
  // to[0 .. bytes-1] = 0, likewise.
  void (*clear)(void* to, std::int64_t bytes);
  void (*finish)();
};
const CopyKernels& copy_kernels(Isa isa);

// Rows first .. last-1 of `to`, of which make(first, last, there) makes some at a time: in the cache, from
// where they are streamed. Longer rows than kTileBytes are none of this function's.
inline constexpr std::int64_t kTileBytes = 16 << 10;
template <class Make>
void stream_rows(const CopyKernels& copy, std::byte* to, std::int64_t row_bytes, std::int64_t first,
                 std::int64_t last, const Make& make) {
  alignas(64) std::byte tile[kTileBytes];
  const std::int64_t together = kTileBytes / std::max<std::int64_t>(row_bytes, 1);
  for (std::int64_t row = first; row < last; row += together) {
    const std::int64_t end = std::min(row + together, last);
    make(row, end, tile);
    copy.stream(to + row * row_bytes, tile, (end - row) * row_bytes);
  }
  copy.finish();
}

}  // namespace turnout::core
