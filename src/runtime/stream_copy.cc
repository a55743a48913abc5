// Implements stream_copy(), the copy that benchmarks compare with.
#include "runtime/stream_copy.h"

#include "runtime/parallel.h"
#include "simd/copy.h"

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
