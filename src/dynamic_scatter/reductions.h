// Reductions and gradients of points that are grouped by voxel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "simd/fp_environment.h"

namespace turnout::families::dynamic_scatter {

// Whether there is enough to read or to write for several threads.
inline bool is_parallel(const VoxelGroups& groups, std::int64_t row_bytes) {
  return std::max(groups.grouped(), groups.voxels) * row_bytes >= core::kParallelBytes;
}

// [rows, channels..] as [rows, channels].
template <class Data>
BasicTensor<Data> as_rows(const BasicTensor<Data>& given, std::int64_t channels) {
  return {given.data, given.dtype, {given.shape[0], channels}};
}

// Calls f(first, last) for ranges of voxels with about equal work, including voxels without points. It may
// also be f(first, last, worker), with workers as in parallel_for.
template <class F>
void for_voxel_ranges(Context& context, const VoxelGroups& groups, std::int64_t row_bytes, bool parallel,
                      const F& f, int limit = core::kMaxThreads) {
  const std::int64_t work = groups.work();
  const std::int64_t grain =
      parallel ? std::max<std::int64_t>(1, core::kRangeBytes / std::max<std::int64_t>(row_bytes, 1))
               : std::max<std::int64_t>(work, 1);
  const auto range = [&](std::int64_t begin, std::int64_t end, int worker) {
    const std::int64_t first = groups.voxel_from(begin), last = groups.voxel_from(end);
    if (first >= last) return;
    if constexpr (std::is_invocable_v<const F&, std::int64_t, std::int64_t, int>) {
      f(first, last, worker);
    } else {
      f(first, last);
    }
  };
  core::parallel_for(context, work, grain, range, limit);
}

// Calls make(first, last, there) for ranges of `rows` rows; it writes the rows consecutively from `there` on.
// Large results are computed in tiles in the cache and streamed.
template <class Make>
void make_rows(Context& context, core::Call& call, std::int64_t rows, std::int64_t row_bytes, void* to,
               const Make& make) {
  const std::int64_t bytes = rows * row_bytes;
  const bool parallel = bytes >= core::kParallelBytes,
             stream = core::is_streamed(bytes) && row_bytes <= core::kTileBytes;
  const std::int64_t grain =
      parallel ? std::max<std::int64_t>(1, core::kRangeBytes / row_bytes) : core::kSizeMax;
  const core::CopyKernels& copy = core::copy_kernels(context.isa());
  auto* const all = static_cast<std::byte*>(to);
  call.chose(stream ? "by point, streamed" : "by point", parallel ? context.threads() : 1);
  core::parallel_for(context, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    if (!stream) return make(begin, end, all + begin * row_bytes);
    core::stream_rows(copy, all, row_bytes, begin, end, make);
  });
}

// Writes the rows of all voxels, and fills those after the last voxel as the public header says. A voxel
// without points is 0, or -inf for max.
void reduce_rows(Context& context, core::Call& call, const VoxelGroups& groups, const ConstTensor& feats,
                 const Tensor& voxel_feats, Reduce reduce_type);

// Writes the maxima or minima of all voxels, and the points that they come from unless `arg` is absent. Those
// of a voxel without points are 0 and the number of points.
void extreme_rows(Context& context, core::Call& call, const VoxelGroups& groups, const ConstTensor& src,
                  const Tensor& out, const Tensor& arg, Extreme which);

void write_map(Context& context, const VoxelGroups& groups, const Tensor& map);
void write_counts(Context& context, const VoxelGroups& groups, const Tensor& counts);
void write_first_points(Context& context, const VoxelGroups& groups, const Tensor& first_point);
void write_coors(Context& context, const VoxelGroups& groups, const ConstTensor& coors,
                 const Tensor& voxel_coors);

// Writes the gradients of all points. The caller sets task.groups and, for mean, task.counts; the rest of the
// task is set here.
void spread_rows(Context& context, core::Call& call, BackwardTask task, const ConstTensor& grad_voxel_feats,
                 const ConstTensor& feats, const ConstTensor& voxel_feats, const Tensor& grad_feats,
                 Reduce reduce_type);

// Means whose task has groups and counts. If voxels have several points each, each gradient is divided once.
std::size_t shares_bytes(std::int64_t points, std::int64_t voxels, std::int64_t row_bytes);
void spread_means(Context& context, core::Call& call, const BackwardTask& task,
                  const ConstTensor& grad_voxel_feats, const Tensor& grad_feats, core::Scratch& scratch);

// Returns count_of(v) for each voxel, in the type that means are computed in.
template <class CountOf>
const void* lane_counts(DType feats, std::int64_t voxels, core::Scratch& scratch, const CountOf& count_of) {
  const core::FpEnvironment environment;  // the caller's rounding mode may differ
  const auto fill = [&](auto* to) -> const void* {
    core::serial_for(0, voxels, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t v = begin; v < end; ++v)
        to[v] = static_cast<std::remove_reference_t<decltype(*to)>>(count_of(v));
    });
    return to;
  };
  return feats == DType::f64 ? fill(scratch.take<double>(voxels)) : fill(scratch.take<float>(voxels));
}
inline std::size_t lane_counts_bytes(std::int64_t voxels) { return core::array_bytes<double>(voxels); }

}  // namespace turnout::families::dynamic_scatter
