// Plans of scatter_sum, scatter_mean and scatter_max, and of their gradients.
#include <algorithm>
#include <limits>

#include "core/dtypes.h"
#include "dynamic_scatter/grouping.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/maps.h"
#include "dynamic_scatter/reductions.h"
#include "dynamic_scatter/signature.h"
#include "runtime/call.h"
#include "turnout/dynamic_scatter.h"

namespace turnout {
namespace {

using namespace core;
using namespace families::dynamic_scatter;

[[noreturn]] void refuse_index(std::string_view op, const ConstTensor& index, std::int64_t position,
                               std::int64_t groups) {
  throw Error(ErrorCode::bad_param,
              concat(op, ": index[", position, "] is ", map_value(index, position), ", expected ",
                     groups > 0 ? concat("0 .. ", groups - 1) : "no elements, since there are no groups"));
}

// A checked copy of the index, and memory for what comes after it.
class ReadIndex {
 public:
  ReadIndex(Context& context, Call& call, const Signature& signature, const ConstTensor& index,
            std::int64_t groups, std::size_t more_bytes)
      : points_(index.shape[0]),
        groups_(groups),
        scratch_(call.scratch(array_bytes<std::int32_t>(points_) + more_bytes)),
        map_(scratch_.take<std::int32_t>(points_)) {
    call.check([&] {
      const MapRead read = read_map(context, index, 0, groups, map_);
      if (read.bad >= 0) refuse_index(signature.op, index, read.bad, groups);
      is_sorted_ = read.is_sorted;
    });
  }
  const std::int32_t* map() const { return map_; }
  Scratch& scratch() const { return scratch_; }
  // Takes map_groups_bytes() of the memory.
  VoxelGroups grouped(Context& context) const {
    return is_sorted_ ? group_by_sorted_map(context, map_, points_, groups_, scratch_)
                      : group_by_map(context, map_, points_, groups_, scratch_);
  }
  VoxelGroups ungrouped() const { return {.points = points_, .voxels = groups_, .map = map_}; }

 private:
  std::int64_t points_, groups_;
  Scratch& scratch_;
  std::int32_t* map_;
  bool is_sorted_ = false;
};

void reduce(Context& context, const Signature& signature, const ConstTensor& src, const ConstTensor& index,
            const Tensor& out, Reduce reduce_type) {
  Call call(context, signature, {src, index, out}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t groups = out.shape[0];
  const ReadIndex read(context, call, signature, index, groups, map_groups_bytes(src.shape[0], groups));
  reduce_rows(context, call, read.grouped(context), src, out, reduce_type);
}

}  // namespace

std::int64_t scatter_dim_size(Context& context, const ConstTensor& index) {
  Call call(context, kScatterDimSize, {index}, {});
  const Chunks chunks(index.shape[0]);
  std::int64_t most_of[kMaxChunks];
  std::int64_t least_of[kMaxChunks];
  visit_index(index.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    const auto* values = static_cast<const Index*>(index.data);
    chunks.run(context, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      Index least = 0, most = -1;
      for (std::int64_t x = begin; x < end; ++x) {
        least = std::min(least, values[x]);
        most = std::max(most, values[x]);
      }
      least_of[part] = least;
      most_of[part] = most;
    });
  });
  const std::int64_t least = *std::min_element(least_of, least_of + chunks.parts);
  const std::int64_t most = *std::max_element(most_of, most_of + chunks.parts);
  call.check([&] {
    if (least == 0 && most < kMaxPoints) return;
    for (std::int64_t x = 0; x < index.shape[0]; ++x)
      if (const std::int64_t value = map_value(index, x); value < 0 || value >= kMaxPoints)
        refuse_index(kScatterDimSize.op, index, x, kMaxPoints);
  });
  call.chose("by element", index.shape[0] > kPointGrain ? context.threads() : 1);
  return most + 1;
}

void scatter_sum(Context& context, const ConstTensor& src, const ConstTensor& index, const Tensor& out) {
  reduce(context, kScatterSum, src, index, out, Reduce::sum);
}

void scatter_mean(Context& context, const ConstTensor& src, const ConstTensor& index, const Tensor& out) {
  reduce(context, kScatterMean, src, index, out, Reduce::mean);
}

void scatter_max(Context& context, const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                 const Tensor& argmax) {
  Call call(context, kScatterMax, {src, index, out, argmax}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t rows = src.shape[0], groups = out.shape[0];
  const ReadIndex read(context, call, kScatterMax, index, groups, map_groups_bytes(rows, groups));
  const MaximumTask task{read.grouped(context), src.shape[1], src.data, out.data, argmax.data};
  const std::int64_t row_bytes = src.shape[1] * size_of(src.dtype);
  const bool parallel = is_parallel(task.groups, row_bytes);
  call.chose(task.groups.found_by, parallel ? context.threads() : 1);
  const auto maximum = maximum_kernels(context.isa()).maximum(src.dtype, argmax.dtype);
  for_voxel_ranges(context, task.groups, row_bytes, parallel,
                   [&](std::int64_t first, std::int64_t last) { maximum(task, first, last); });
}

void scatter_sum_backward(Context& context, const ConstTensor& grad_out, const ConstTensor& index,
                          const Tensor& grad_src) {
  Call call(context, kScatterSumBackward, {grad_out, index, grad_src}, {});
  if (call.nothing_to_do()) return;
  const ReadIndex read(context, call, kScatterSumBackward, index, grad_out.shape[0], 0);
  BackwardTask task{};
  task.groups = read.ungrouped();
  spread_rows(context, call, task, grad_out, nullptr, nullptr, grad_src, Reduce::sum);
}

void scatter_mean_backward(Context& context, const ConstTensor& grad_out, const ConstTensor& index,
                           const Tensor& grad_src) {
  Call call(context, kScatterMeanBackward, {grad_out, index, grad_src}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t groups = grad_out.shape[0];
  const ReadIndex read(context, call, kScatterMeanBackward, index, groups,
                       array_bytes<std::int32_t>(groups) + lane_counts_bytes(groups));
  auto* counts = read.scratch().take<std::int32_t>(groups);
  std::fill_n(counts, groups, 0);
  for (std::int64_t x = 0; x < index.shape[0]; ++x) ++counts[read.map()[x]];
  BackwardTask task{};
  task.groups = read.ungrouped();
  task.counts =
      lane_counts(grad_src.dtype, groups, read.scratch(), [&](std::int64_t g) { return counts[g]; });
  spread_rows(context, call, task, grad_out, nullptr, nullptr, grad_src, Reduce::mean);
}

void scatter_max_backward(Context& context, const ConstTensor& grad_out, const ConstTensor& index,
                          const ConstTensor& argmax, const Tensor& grad_src) {
  Call call(context, kScatterMaxBackward, {grad_out, index, argmax, grad_src}, {});
  if (call.nothing_to_do()) return;
  const ReadIndex read(context, call, kScatterMaxBackward, index, grad_out.shape[0], 0);
  const MaximumBackwardTask task{read.map(), grad_out.shape[1], grad_out.data, argmax.data};
  const auto backward = maximum_kernels(context.isa()).backward(grad_out.dtype, argmax.dtype);
  make_rows(context, call, grad_src.shape[0], grad_src.shape[1] * size_of(grad_src.dtype), grad_src.data,
            [&](std::int64_t first, std::int64_t last, std::byte* to) { backward(task, first, last, to); });
}

}  // namespace turnout
