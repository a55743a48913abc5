// Runs reductions over the points of each voxel, and their gradients, on all threads.
#include "dynamic_scatter/reductions.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "simd/half.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
namespace {

void fill_rows(const Tensor& rows, std::int64_t first, Reduce reduce_type) {
  const std::int64_t begin = first * rows.shape[1], count = (rows.shape[0] - first) * rows.shape[1];
  visit_float(rows.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T value{};
    if (reduce_type == Reduce::max) {
      if constexpr (sizeof(T) == 2) {
        value = from_float<T>(-std::numeric_limits<float>::infinity());
      } else {
        value = -std::numeric_limits<T>::infinity();
      }
    }
    auto* const to = static_cast<T*>(rows.data) + begin;
    serial_for(0, count, [&](std::int64_t at, std::int64_t end) { std::fill(to + at, to + end, value); });
  });
}

// The coordinates of a voxel are those of its first point.
template <class Index, int kDims>
void write_coors_of(Context& context, const VoxelGroups& groups, const Index* from, Index* to) {
  parallel_for(context, groups.voxels, point_grain(groups.voxels), [&](std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kAhead = 16;  // prefetch, because rows are scattered in memory
    for (std::int64_t v = begin; v < end; ++v) {
      if (v + kAhead < groups.voxels) __builtin_prefetch(from + groups.first_point(v + kAhead) * kDims);
      std::copy_n(from + groups.first_point(v) * kDims, kDims, to + v * kDims);
    }
  });
}

}  // namespace

void reduce_rows(Context& context, Call& call, const VoxelGroups& groups, const ConstTensor& feats,
                 const Tensor& voxel_feats, Reduce reduce_type) {
  const std::int64_t channels = feats.shape[1], row_bytes = channels * size_of(feats.dtype);
  const ReduceTask task{groups, channels, feats.data};
  const auto reduce = reduce_kernels(context.isa()).reduce(feats.dtype, reduce_type);
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* to = static_cast<std::byte*>(voxel_feats.data);
  const bool parallel = is_parallel(groups, row_bytes);
  const bool stream = is_streamed(groups.voxels * row_bytes) && row_bytes <= kTileBytes;
  call.chose(stream ? "by voxel, streamed" : "by voxel", parallel ? context.threads() : 1);
  if (row_bytes > 0) {
    for_voxel_ranges(context, groups, row_bytes, parallel, [&](std::int64_t first, std::int64_t last) {
      if (!stream) return reduce(task, first, last, to + first * row_bytes);
      stream_rows(copy, to, row_bytes, first, last,
                  [&](std::int64_t v, std::int64_t end, std::byte* there) { reduce(task, v, end, there); });
    });
  }
  fill_rows(voxel_feats, groups.voxels, reduce_type);
}

void extreme_rows(Context& context, Call& call, const VoxelGroups& groups, const ConstTensor& src,
                  const Tensor& out, const Tensor& arg, Extreme which) {
  const bool has_arg = !arg.is_absent();
  const std::int64_t channels = src.shape[1];
  const ExtremeTask task{groups, channels, src.data, has_arg ? size_of(arg.dtype) : 0};
  const std::int64_t row_bytes = channels * size_of(src.dtype), arg_bytes = channels * task.arg_bytes;
  const std::int64_t longer = std::max(row_bytes, arg_bytes);
  auto* const to = static_cast<std::byte*>(out.data);
  auto* const to_arg = static_cast<std::byte*>(arg.data);
  const auto arg_at = [&](std::int64_t voxel) { return has_arg ? to_arg + voxel * arg_bytes : nullptr; };
  const bool parallel = is_parallel(groups, row_bytes);
  const bool stream = is_streamed(groups.voxels * longer) && longer <= kTileBytes;
  call.chose(stream ? "by voxel, streamed" : "by voxel", parallel ? context.threads() : 1);
  const auto reduce = extreme_kernels(context.isa()).reduce(which, src.dtype, has_arg);
  const CopyKernels& copy = copy_kernels(context.isa());
  for_voxel_ranges(context, groups, row_bytes, parallel, [&](std::int64_t first, std::int64_t last) {
    if (!stream) return reduce(task, first, last, to + first * row_bytes, arg_at(first));
    alignas(64) std::byte values[kTileBytes], numbers[kTileBytes];
    for (const Piece tile : pieces(first, last, kTileBytes / longer)) {
      reduce(task, tile.begin, tile.end(), values, numbers);
      copy.stream(to + tile.begin * row_bytes, values, tile.count * row_bytes);
      if (has_arg) copy.stream(arg_at(tile.begin), numbers, tile.count * arg_bytes);
    }
    copy.finish();
  });
}

void write_map(Context& context, const VoxelGroups& groups, const Tensor& map) {
  visit_index(map.dtype, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(map.data);
    parallel_for(context, groups.points, point_grain(groups.points),
                 [&](std::int64_t begin, std::int64_t end) {
                   std::copy(groups.map + begin, groups.map + end, to + begin);
                 });
  });
}

void write_counts(Context& context, const VoxelGroups& groups, const Tensor& counts) {
  visit_index(counts.dtype, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(counts.data);
    parallel_for(context, groups.voxels, point_grain(groups.voxels),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t v = begin; v < end; ++v)
                     to[v] = static_cast<std::int32_t>(groups.count(v));
                 });
  });
}

void write_first_points(Context& context, const VoxelGroups& groups, const Tensor& first_point) {
  visit_index(first_point.dtype, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(first_point.data);
    parallel_for(context, groups.voxels, point_grain(groups.voxels),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t v = begin; v < end; ++v)
                     to[v] = static_cast<std::int32_t>(groups.first_point(v));
                 });
  });
}

void write_coors(Context& context, const VoxelGroups& groups, const ConstTensor& coors,
                 const Tensor& voxel_coors) {
  visit_index(coors.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    constexpr decltype(&write_coors_of<Index, 1>) kOf[] = {
        &write_coors_of<Index, 1>, &write_coors_of<Index, 2>, &write_coors_of<Index, 3>,
        &write_coors_of<Index, 4>};
    kOf[coors.shape[1] - 1](context, groups, static_cast<const Index*>(coors.data),
                            static_cast<Index*>(voxel_coors.data));
  });
}

void spread_rows(Context& context, Call& call, BackwardTask task, const ConstTensor& grad_voxel_feats,
                 const ConstTensor& feats, const ConstTensor& voxel_feats, const Tensor& grad_feats,
                 Reduce reduce_type) {
  const VoxelGroups& groups = task.groups;
  const std::int64_t row_bytes = grad_feats.shape[1] * size_of(grad_feats.dtype);
  const GradientKernels& kernels = gradient_kernels(context.isa());
  task.channels = grad_feats.shape[1];
  task.grad_voxel_feats = grad_voxel_feats.data;
  if (reduce_type != Reduce::max) {
    const auto spread = kernels.each(grad_feats.dtype, reduce_type);
    return make_rows(
        context, call, groups.points, row_bytes, grad_feats.data,
        [&](std::int64_t x, std::int64_t last, std::byte* there) { spread(task, x, last, there); });
  }
  const std::int64_t bytes = groups.points * row_bytes;
  const bool parallel = bytes >= kParallelBytes, stream = is_streamed(bytes);
  const std::int64_t grain = parallel ? std::max<std::int64_t>(1, kRangeBytes / row_bytes) : kSizeMax;
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* to = static_cast<std::byte*>(grad_feats.data);
  call.chose(stream ? "by voxel, streamed" : "by voxel", parallel ? context.threads() : 1);
  task.feats = feats.data;
  task.voxel_feats = voxel_feats.data;
  task.grad_feats = to;
  task.stream = stream;
  const auto spread = kernels.max(grad_feats.dtype);
  for_voxel_ranges(context, groups, row_bytes, parallel, [&](std::int64_t first, std::int64_t last) {
    spread(task, first, last);
    if (stream) copy.finish();
  });
  parallel_for(context, groups.points - groups.grouped(), grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int32_t* none = groups.order + groups.grouped();
    for (std::int64_t i = begin; i < end; ++i) copy.clear(to + none[i] * row_bytes, row_bytes);
    copy.finish();
  });
}

namespace {
bool divides_first(std::int64_t points, std::int64_t voxels) { return voxels <= points / 2; }
}  // namespace

std::size_t shares_bytes(std::int64_t points, std::int64_t voxels, std::int64_t row_bytes) {
  return divides_first(points, voxels)
             ? array_bytes<std::int32_t>(voxels) + array_bytes<std::byte>(voxels * row_bytes)
             : 0;
}

void spread_means(Context& context, Call& call, const BackwardTask& task, const ConstTensor& grad_voxel_feats,
                  const Tensor& grad_feats, Scratch& scratch) {
  const std::int64_t voxels = task.groups.voxels, channels = grad_feats.shape[1];
  if (!divides_first(task.groups.points, voxels))
    return spread_rows(context, call, task, grad_voxel_feats, nullptr, nullptr, grad_feats, Reduce::mean);
  auto* each = scratch.take<std::int32_t>(voxels);
  std::iota(each, each + voxels, 0);
  BackwardTask of_voxels = task;
  of_voxels.groups = {.points = voxels, .voxels = voxels, .map = each};
  const Tensor shares(scratch.take<std::byte>(voxels * channels * size_of(grad_feats.dtype)),
                      grad_feats.dtype, {voxels, channels});
  spread_rows(context, call, of_voxels, grad_voxel_feats, nullptr, nullptr, shares, Reduce::mean);
  spread_rows(context, call, task, shares, nullptr, nullptr, grad_feats, Reduce::sum);
}

}  // namespace turnout::families::dynamic_scatter
