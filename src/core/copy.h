// Movement of bytes: copies that bypass the cache, and from which size on they pay.
#pragma once

#include <cstdint>

#include "turnout/context.h"

namespace turnout::core {

// From here on an output does not fit the caches it would displace; below, streaming costs twice as much.
inline constexpr std::int64_t kStreamBytes = 2 << 20;

// One range of output that a thread takes: long enough that its first row, which nothing has fetched ahead,
// does not matter, short enough to balance the threads.
inline constexpr std::int64_t kRangeBytes = 256 << 10;

// While the end of a row is moved, this much of the next row's start is fetched; inside a row the hardware
// runs ahead by itself. Whole rows ahead were slower for rows of 16 KB (1.17 against 1.08 times a plain
// copy), and nothing ahead for rows of 2 KB (1.21 against 1.08).
inline constexpr std::int64_t kAheadBytes = 2048;

struct CopyKernels {
  // to[0 .. bytes-1] = from[0 .. bytes-1]; whole lines are stored past the cache. Any alignment. No overlap.
  // `next` is what will be read after this, or nullptr. Call finish() before another thread may look.
  void (*stream)(void* to, const void* from, std::int64_t bytes, const void* next);
  void (*finish)();
};
const CopyKernels& copy_kernels(Isa isa);

// One long copy on all threads of the context.
void stream_copy(Context& context, void* to, const void* from, std::int64_t bytes);

}  // namespace turnout::core
