// Copies of bytes that bypass the cache: for operators that move whole rows, and the floor they are measured by.
#pragma once

#include <cstdint>

#include "turnout/context.h"

namespace turnout::core {

struct CopyKernels {
  // to[0 .. bytes-1] = from[0 .. bytes-1]; whole lines are stored past the cache. Any alignment. No overlap.
  void (*stream)(void* to, const void* from, std::int64_t bytes);
};
const CopyKernels& copy_kernels(Isa isa);

// The same on all threads of the context.
void stream_copy(Context& context, void* to, const void* from, std::int64_t bytes);

}  // namespace turnout::core
