// Copies that bypass the cache (non-temporal stores), and the sizes above which they pay.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/grain.h"
#include "core/pieces.h"
#include "turnout/context.h"

namespace turnout::core {

// Whether an output of this size is streamed, because it would evict everything else from the cache. What
// fits the cache is stored through it, which takes half the time. See caches.cc.
std::int64_t stream_limit();
void set_stream_limit(std::int64_t bytes);  // for tests
inline bool is_streamed(std::int64_t bytes) { return bytes >= stream_limit(); }

// The bytes of input that a thread takes at a time: enough to amortise the scheduling, few enough to balance
// the threads. Operators that move rows read sequentially and write to scattered rows, not the other way
// round: the hardware prefetches sequential reads, and a streamed store does not wait. That takes 1.0 times
// as long as a plain copy; scattered reads take 1.1 to 1.3 times as long.
inline constexpr std::int64_t kRangeBytes = (256 << 10) / kGrainDivisor;

// Copies a few bytes inline: for rows of a few elements, calling memcpy takes longer than the copy.
inline void copy_short(void* to, const void* from, std::int64_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  for (; bytes >= 16; bytes -= 16, out += 16, in += 16) std::memcpy(out, in, 16);
  for (; bytes >= 4; bytes -= 4, out += 4, in += 4) std::memcpy(out, in, 4);
  for (; bytes > 0; --bytes) *out++ = *in++;
}

// Copies of rows of kWord .. 2 * kWord bytes: the words at both ends, which may overlap.
template <int kWord>
struct EndsCopy {
  std::int64_t second;  // where the second word begins
  void operator()(void* to, const void* from) const {
    struct Word {
      std::byte bytes[kWord];
    } first, last;
    std::memcpy(&first, from, kWord);
    std::memcpy(&last, static_cast<const std::byte*>(from) + second, kWord);
    std::memcpy(to, &first, kWord);
    std::memcpy(static_cast<std::byte*>(to) + second, &last, kWord);
  }
};
struct AnyCopy {
  std::size_t bytes;
  void operator()(void* to, const void* from) const { std::memcpy(to, from, bytes); }
};
// Returns f(copy), where copy(to, from) copies `bytes` bytes. Up to 64 bytes it is inline code without
// branches: for such rows, calling memcpy takes longer than the copy.
inline constexpr std::int64_t kShortRow = 64;
template <class F>
auto with_row_copy(std::int64_t bytes, const F& f) {
  if (bytes > kShortRow) return f(AnyCopy{static_cast<std::size_t>(bytes)});
  if (bytes >= 32) return f(EndsCopy<32>{bytes - 32});
  if (bytes >= 16) return f(EndsCopy<16>{bytes - 16});
  if (bytes >= 8) return f(EndsCopy<8>{bytes - 8});
  if (bytes >= 4) return f(EndsCopy<4>{bytes - 4});
  if (bytes >= 2) return f(EndsCopy<2>{bytes - 2});
  if (bytes == 1) return f(EndsCopy<1>{0});
  return f(AnyCopy{0});
}

struct CopyKernels {
  // to[0 .. bytes-1] = from[0 .. bytes-1]; whole cache lines are streamed. Any alignment, no overlap.
  // Call finish() before another thread reads the result.
  void (*stream)(void* to, const void* from, std::int64_t bytes);
  // to[0 .. bytes-1] = 0, under the same conditions.
  void (*clear)(void* to, std::int64_t bytes);
  void (*finish)();
};
const CopyKernels& copy_kernels(Isa isa);

// Fills rows [first, last) of `to` tile by tile: make(begin, end, tile) writes rows [begin, end) into a tile
// on the stack, which is then streamed. Requires row_bytes <= kTileBytes: otherwise no row fits the tile and
// the loop does not end.
inline constexpr std::int64_t kTileBytes = 16 << 10;
template <class Make>
void stream_rows(const CopyKernels& copy, std::byte* to, std::int64_t row_bytes, std::int64_t first,
                 std::int64_t last, const Make& make) {
  assert(row_bytes <= kTileBytes);
  alignas(64) std::byte tile[kTileBytes];
  const std::int64_t together = kTileBytes / std::max<std::int64_t>(row_bytes, 1);
  for (const Piece rows : pieces(first, last, together)) {
    make(rows.begin, rows.end(), tile);
    copy.stream(to + rows.begin * row_bytes, tile, rows.count * row_bytes);
  }
  copy.finish();
}

}  // namespace turnout::core
