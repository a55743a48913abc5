// Implements DirectSums: the plan; direct_kernels.cc has the loops.
#include "dynamic_scatter/direct.h"

#include <algorithm>
#include <cstring>

#include "core/dtypes.h"
#include "runtime/parallel.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
namespace {

// Sums that do not stay in the cache are added to in main memory, which takes longer than grouping the rows,
// unless rows are so short that the grouping takes most of the time.
constexpr std::int64_t kCachedBytes = 1 << 20, kMostBytes = 8 << 20;
constexpr std::int64_t kSliceBytes = 64;  // threads do not share the cache lines of a sum
constexpr int kFewThreads = 4;            // with more, threads that group rows are faster than one that adds

}  // namespace

DirectSums::DirectSums(std::int64_t rows, const Tensor& out, Reduce reduce_type)
    : rows_(rows),
      groups_(out.shape[0]),
      channels_(out.shape[1]),
      dtype_(out.dtype),
      out_(out),
      reduce_type_(reduce_type) {}

bool DirectSums::pays(int threads) const {
  const std::int64_t row_bytes = channels_ * std::max<std::int64_t>(size_of(dtype_), 4);
  const std::int64_t bytes = groups_ * row_bytes;
  if (groups_ > 2 * rows_ || bytes > (row_bytes <= kSliceBytes ? kMostBytes : kCachedBytes)) return false;
  return rows_ * row_bytes < kParallelBytes || threads <= std::max<std::int64_t>(slices(), kFewThreads);
}

std::int64_t DirectSums::slices() const {
  const std::int64_t row_bytes = channels_ * std::max<std::int64_t>(size_of(dtype_), 4);
  return rows_ * row_bytes < kParallelBytes ? 1 : std::max<std::int64_t>(1, row_bytes / kSliceBytes / 2);
}

std::size_t DirectSums::scratch_bytes() const {
  const bool is_half = size_of(dtype_) == 2;
  return (is_half ? array_bytes<float>(groups_ * channels_) : 0) +
         (reduce_type_ == Reduce::mean ? array_bytes<std::int32_t>(groups_) : 0);
}

void DirectSums::run(Context& context, Call& call, const std::int32_t* map, const void* src,
                     Scratch& scratch) const {
  const DirectKernels::Add add = direct_kernels(context.isa()).add(dtype_);
  const DirectKernels::Finish finish = direct_kernels(context.isa()).finish(dtype_, reduce_type_);
  const bool is_half = size_of(dtype_) == 2;
  void* sums = is_half ? scratch.take<float>(groups_ * channels_) : out_.data;
  const std::int64_t lane_bytes = is_half ? 4 : size_of(dtype_);
  std::memset(sums, 0, static_cast<std::size_t>(groups_ * channels_ * lane_bytes));
  const std::int64_t most = slices();
  const std::int64_t parts = std::min<std::int64_t>(most, context.threads());
  call.chose("in order", static_cast<int>(parts));
  const DirectTask task{map, channels_, src, sums};
  const std::int64_t per_line = kSliceBytes / lane_bytes;
  const auto first_of = [&](std::int64_t part) {
    return part == parts ? channels_ : channels_ * part / parts / per_line * per_line;
  };
  parallel_for(context, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    const Stop stop;
    for (std::int64_t part = begin; part < end; ++part)
      static_cast<void>(stop.blocks(0, rows_, [&](std::int64_t first, std::int64_t last) {
        add(task, first, last, first_of(part), first_of(part + 1));
      }));
  });
  if (!is_half && reduce_type_ != Reduce::mean) return;
  std::int32_t* counts = nullptr;
  if (reduce_type_ == Reduce::mean) {
    counts = scratch.take<std::int32_t>(groups_);
    std::fill_n(counts, groups_, 0);
    serial_for(0, rows_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t x = begin; x < end; ++x) ++counts[map[x]];
    });
  }
  const FpEnvironment environment;
  finish(sums, counts, groups_, channels_, out_.data);
}

}  // namespace turnout::families::dynamic_scatter
