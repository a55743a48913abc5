// Plans of the reductions over voxels and of their gradients.
#include "dynamic_scatter/dynamic_scatter.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>

#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/signature.h"
#include "indices/indices.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "simd/fp_environment.h"
#include "simd/half.h"

namespace turnout {
namespace families::dynamic_scatter {
namespace {

// -- what a reduction writes -------------------------------------------------------------------------------

void fill_rows(const Tensor& rows, std::int64_t first, Reduce reduce_type) {
  const std::int64_t begin = first * rows.shape[1], count = (rows.shape[0] - first) * rows.shape[1];
  if (count <= 0) return;
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
    std::fill_n(static_cast<T*>(rows.data) + begin, count, value);
  });
}

// Calls f(first, last) for ranges of voxels with about as many points each.
template <class F>
void for_voxel_ranges(Context& context, const VoxelGroups& groups, std::int64_t row_bytes, bool parallel,
                      const F& f) {
  const std::int64_t grouped = groups.grouped();
  const std::int64_t grain =
      parallel ? std::max<std::int64_t>(1, kRangeBytes / std::max<std::int64_t>(row_bytes, 1))
               : std::max<std::int64_t>(grouped, 1);
  parallel_for(context, grouped, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = groups.voxel_from(begin), last = groups.voxel_from(end);
    if (first < last) f(first, last);
  });
}

void reduce_rows(Context& context, Call& call, const VoxelGroups& groups, const ConstTensor& feats,
                 const Tensor& voxel_feats, Reduce reduce_type) {
  const std::int64_t channels = feats.shape[1], row_bytes = channels * size_of(feats.dtype);
  const ReduceTask task{groups, channels, feats.data};
  const auto reduce = reduce_kernels(context.isa()).reduce(feats.dtype, reduce_type);
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* to = static_cast<std::byte*>(voxel_feats.data);
  const bool parallel = groups.grouped() * row_bytes >= kParallelBytes;
  const bool stream = groups.voxels * row_bytes >= kStreamBytes && row_bytes <= kTileBytes;
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

void write_map(Context& context, const VoxelGroups& groups, const Tensor& map) {
  visit_index(map.dtype, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(map.data);
    parallel_for(context, groups.points, kPointGrain, [&](std::int64_t begin, std::int64_t end) {
      std::copy(groups.map + begin, groups.map + end, to + begin);
    });
  });
}

void write_counts(Context& context, const VoxelGroups& groups, const Tensor& counts) {
  visit_index(counts.dtype, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(counts.data);
    parallel_for(context, groups.voxels, kPointGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t v = begin; v < end; ++v) to[v] = static_cast<std::int32_t>(groups.count(v));
    });
  });
}

// The coordinates of a voxel are those of its first point.
template <class Index, int kDims>
void write_coors_of(Context& context, const VoxelGroups& groups, const Index* from, Index* to) {
  parallel_for(context, groups.voxels, kPointGrain, [&](std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kAhead = 16;  // prefetch: rows lie anywhere in memory
    for (std::int64_t v = begin; v < end; ++v) {
      if (v + kAhead < groups.voxels) __builtin_prefetch(from + groups.first_point(v + kAhead) * kDims);
      std::copy_n(from + groups.first_point(v) * kDims, kDims, to + v * kDims);
    }
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

// -- gradients ---------------------------------------------------------------------------------------------

// count_of(v) for each voxel, in the type that means are computed in.
template <class CountOf>
const void* lane_counts(DType feats, std::int64_t voxels, Scratch& scratch, const CountOf& count_of) {
  const FpEnvironment environment;  // the caller's rounding mode may be another
  const auto fill = [&](auto* to) -> const void* {
    for (std::int64_t v = 0; v < voxels; ++v)
      to[v] = static_cast<std::remove_reference_t<decltype(*to)>>(count_of(v));
    return to;
  };
  return feats == DType::f64 ? fill(scratch.take<double>(voxels)) : fill(scratch.take<float>(voxels));
}
std::size_t lane_counts_bytes(std::int64_t voxels) { return array_bytes<double>(voxels); }

// task.groups is given, and task.counts for mean; the rest of the task is filled in here.
void spread_rows(Context& context, Call& call, BackwardTask task, const ConstTensor& grad_voxel_feats,
                 const ConstTensor* feats, const ConstTensor* voxel_feats, const Tensor& grad_feats,
                 Reduce reduce_type) {
  const VoxelGroups& groups = task.groups;
  const std::int64_t row_bytes = grad_feats.shape[1] * size_of(grad_feats.dtype);
  const std::int64_t bytes = groups.points * row_bytes;
  const bool parallel = bytes >= kParallelBytes, stream = bytes >= kStreamBytes;
  const GradientKernels& kernels = gradient_kernels(context.isa());
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* to = static_cast<std::byte*>(grad_feats.data);
  task.channels = grad_feats.shape[1];
  task.grad_voxel_feats = grad_voxel_feats.data;
  const std::int64_t grain = parallel ? std::max<std::int64_t>(1, kRangeBytes / row_bytes) : kSizeMax;
  if (reduce_type != Reduce::max) {
    const auto spread = kernels.each(grad_feats.dtype, reduce_type);
    const bool in_tiles = stream && row_bytes <= kTileBytes;
    call.chose(in_tiles ? "by point, streamed" : "by point", parallel ? context.threads() : 1);
    parallel_for(context, groups.points, grain, [&](std::int64_t begin, std::int64_t end) {
      if (!in_tiles) return spread(task, begin, end, to + begin * row_bytes);
      stream_rows(copy, to, row_bytes, begin, end,
                  [&](std::int64_t x, std::int64_t last, std::byte* there) { spread(task, x, last, there); });
    });
    return;
  }
  call.chose(stream ? "by voxel, streamed" : "by voxel", parallel ? context.threads() : 1);
  task.feats = feats->data;
  task.voxel_feats = voxel_feats->data;
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

Slot slot_of(const ConstTensor* tensor) { return tensor == nullptr ? Slot() : Slot(*tensor); }

[[noreturn]] void refuse_backward(const std::string& what) {
  throw Error(ErrorCode::bad_param, concat("dynamic_scatter_backward: ", what));
}

// How many voxels there are: what voxel_num says, or all rows.
std::int64_t read_voxel_num(const ConstTensor* voxel_num, std::int64_t voxels) {
  if (voxel_num == nullptr) return voxels;
  const std::int64_t num = visit_index(voxel_num->dtype, [&](auto type) -> std::int64_t {
    return load_once(static_cast<const typename decltype(type)::type*>(voxel_num->data));
  });
  if (num < 0 || num > voxels)
    refuse_backward(concat("voxel_num[0] is ", num, ", expected 0 .. voxels = ", voxels));
  return num;
}

// A copy of point2voxel_map whose values are -1 .. voxels - 1. Each value is read once: the copy has what was
// checked.
void read_map(const ConstTensor& given, std::int64_t voxels, std::int32_t* map) {
  constexpr std::int32_t kBad = -2;
  const std::int64_t points = given.shape[0];
  visit_index(given.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    const auto* values = static_cast<const Index*>(given.data);
    const auto limit = static_cast<Index>(voxels);
    std::int32_t least = 0;
    for (std::int64_t x = 0; x < points; ++x) {
      const Index value = values[x];
      map[x] = value >= -1 && value < limit ? static_cast<std::int32_t>(value) : kBad;
      least = std::min(least, map[x]);
    }
    if (least > kBad) return;
    const std::int64_t x = std::find(map, map + points, kBad) - map;
    refuse_backward(
        concat("point2voxel_map[", x, "] is ", std::int64_t{values[x]}, ", expected -1 .. ", voxels - 1));
  });
}

// A copy of voxel_points_count in the type that means are computed in. The voxels of points have a count of 1
// or more; a voxel without points may have any.
const void* read_counts(const ConstTensor& given, DType feats, std::int64_t voxels, const std::int32_t* map,
                        std::int64_t points, Scratch& scratch) {
  return visit_index(given.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    const auto* counts = static_cast<const Index*>(given.data);
    Index least = 1;
    const void* copy = lane_counts(feats, voxels, scratch, [&](std::int64_t v) {
      const Index count = counts[v];
      least = std::min(least, count);
      return count;
    });
    for (std::int64_t x = 0; x < points && least < 1; ++x)
      if (map[x] >= 0 && counts[map[x]] < 1)
        refuse_backward(concat("voxel_points_count[", std::int64_t{map[x]}, "] is ",
                               std::int64_t{counts[map[x]]}, ", expected 1 or more: point ", x,
                               " is in that voxel"));
    return copy;
  });
}

}  // namespace

// -- operators ---------------------------------------------------------------------------------------------

std::size_t dynamic_scatter_forward_scratch(std::int64_t points) {
  return groups_bytes(points) + grouping_bytes(points);
}

std::int64_t dynamic_scatter_forward(const Frame& frame, const ConstTensor& feats, const ConstTensor& coors,
                                     const Tensor& voxel_feats, const Tensor& voxel_coors,
                                     const Tensor& point2voxel_map, const Tensor& voxel_points_count,
                                     Reduce reduce_type) {
  Context& context = frame.context;
  Call call(frame, kDynamicScatterForward,
            {feats, coors, voxel_feats, voxel_coors, point2voxel_map, voxel_points_count}, {reduce_type});
  if (call.nothing_to_do()) return 0;
  Scratch& scratch = call.scratch(dynamic_scatter_forward_scratch(coors.shape[0]));
  const VoxelGroups groups = group_by_coordinates(context, coors, scratch, scratch);
  call.check([&] {
    if (groups.voxels > voxel_coors.shape[0])
      throw Error(ErrorCode::bad_param,
                  concat("dynamic_scatter_forward: voxel_feats.shape[0] is ", voxel_coors.shape[0],
                         ", expected ", groups.voxels, " or more: the voxels that coors has"));
  });
  reduce_rows(context, call, groups, feats, voxel_feats, reduce_type);
  call.chose(groups.found_by, context.threads());
  write_map(context, groups, point2voxel_map);
  write_counts(context, groups, voxel_points_count);
  write_coors(context, groups, coors, voxel_coors);
  return groups.voxels;
}

std::size_t dynamic_scatter_backward_scratch(std::int64_t points, std::int64_t voxels) {
  return array_bytes<std::int32_t>(points) +
         std::max(map_groups_bytes(points, voxels), lane_counts_bytes(voxels));
}

void dynamic_scatter_backward(const Frame& frame, const ConstTensor& grad_voxel_feats,
                              const DynamicScatterResult& result, const Tensor& grad_feats,
                              Reduce reduce_type) {
  const ConstTensor& given_map = result.point2voxel_map;
  Context& context = frame.context;
  Call call(frame, kDynamicScatterBackward,
            {grad_voxel_feats, slot_of(result.feats), slot_of(result.voxel_feats), given_map,
             slot_of(result.voxel_points_count), slot_of(result.voxel_num), grad_feats},
            {reduce_type});
  if (call.nothing_to_do()) return;
  const std::int64_t points = given_map.shape[0];
  std::int64_t voxels = 0;
  call.check([&] { voxels = read_voxel_num(result.voxel_num, grad_voxel_feats.shape[0]); });
  Scratch& scratch = call.scratch(dynamic_scatter_backward_scratch(points, voxels));
  auto* map = scratch.take<std::int32_t>(points);
  BackwardTask task{};
  call.check([&] {
    read_map(given_map, voxels, map);
    if (reduce_type == Reduce::mean)
      task.counts = read_counts(*result.voxel_points_count, grad_feats.dtype, voxels, map, points, scratch);
  });
  if (reduce_type == Reduce::max) {
    task.groups = group_by_map(context, map, points, voxels, scratch);
  } else {
    task.groups = {.points = points, .voxels = voxels, .map = map};
  }
  spread_rows(context, call, task, grad_voxel_feats, result.feats, result.voxel_feats, grad_feats,
              reduce_type);
}

PointIndex::PointIndex(const Frame& frame, const ConstTensor& coors) : coors_(coors) {
  Call call(frame, kVoxelIndex, {coors}, {});
  const std::int64_t points = coors.shape[0];
  memory_.emplace(call.lease(groups_bytes(points)));
  Scratch passing = call.lease(grouping_bytes(points));
  groups_ = group_by_coordinates(frame.context, coors, *memory_, passing);
  call.chose(groups_.found_by, points > kPointGrain ? frame.context.threads() : 1);
}

void PointIndex::write(const Frame& frame, const Tensor& voxel_coors, const Tensor& point2voxel_map,
                       const Tensor& voxel_points_count) const {
  Call call(frame, kVoxelIndexWrite, {coors_, voxel_coors, point2voxel_map, voxel_points_count},
            {points(), voxels()});
  if (call.nothing_to_do()) return;
  call.chose("copied", points() > kPointGrain ? frame.context.threads() : 1);
  write_map(frame.context, groups_, point2voxel_map);
  write_counts(frame.context, groups_, voxel_points_count);
  write_coors(frame.context, groups_, coors_, voxel_coors);
}

void PointIndex::reduce(const Frame& frame, const ConstTensor& feats, const Tensor& voxel_feats,
                        Reduce reduce_type) const {
  Call call(frame, kVoxelIndexReduce, {feats, voxel_feats}, {points(), voxels(), reduce_type});
  if (call.nothing_to_do()) return;
  reduce_rows(frame.context, call, groups_, feats, voxel_feats, reduce_type);
}

void PointIndex::reduce_backward(const Frame& frame, const ConstTensor& grad_voxel_feats,
                                 const ConstTensor* feats, const ConstTensor* voxel_feats,
                                 const Tensor& grad_feats, Reduce reduce_type) const {
  Call call(frame, kVoxelIndexReduceBackward,
            {grad_voxel_feats, slot_of(feats), slot_of(voxel_feats), grad_feats},
            {points(), voxels(), reduce_type});
  if (call.nothing_to_do()) return;
  BackwardTask task{};
  task.groups = groups_;
  if (reduce_type == Reduce::mean) {
    task.counts = lane_counts(grad_feats.dtype, voxels(), call.scratch(lane_counts_bytes(voxels())),
                              [&](std::int64_t v) { return task.groups.count(v); });
  }
  spread_rows(frame.context, call, task, grad_voxel_feats, feats, voxel_feats, grad_feats, reduce_type);
}

}  // namespace families::dynamic_scatter

std::int64_t dynamic_scatter_forward(Context& context, const ConstTensor& feats, const ConstTensor& coors,
                                     const Tensor& voxel_feats, const Tensor& voxel_coors,
                                     const Tensor& point2voxel_map, const Tensor& voxel_points_count,
                                     Reduce reduce_type) {
  return families::dynamic_scatter::dynamic_scatter_forward(context, feats, coors, voxel_feats, voxel_coors,
                                                            point2voxel_map, voxel_points_count, reduce_type);
}

void dynamic_scatter_backward(Context& context, const ConstTensor& grad_voxel_feats,
                              const DynamicScatterResult& result, const Tensor& grad_feats,
                              Reduce reduce_type) {
  families::dynamic_scatter::dynamic_scatter_backward(context, grad_voxel_feats, result, grad_feats,
                                                      reduce_type);
}

struct TURNOUT_HIDDEN VoxelIndex::State {
  Context& context;
  families::dynamic_scatter::PointIndex index;
};

VoxelIndex::VoxelIndex(Context& context, const ConstTensor& coors) {
  static_assert(sizeof(State) <= sizeof(memory_) && alignof(State) <= kAlignment);
  new (memory_) State{context, {context, coors}};
}
VoxelIndex::~VoxelIndex() { std::destroy_at(&state()); }

const VoxelIndex::State& VoxelIndex::state() const {
  return *std::launder(reinterpret_cast<const State*>(memory_));
}

std::int64_t VoxelIndex::points() const { return state().index.points(); }
std::int64_t VoxelIndex::voxels() const { return state().index.voxels(); }

void VoxelIndex::write(const Tensor& voxel_coors, const Tensor& point2voxel_map,
                       const Tensor& voxel_points_count) const {
  state().index.write(state().context, voxel_coors, point2voxel_map, voxel_points_count);
}

void VoxelIndex::reduce(const ConstTensor& feats, const Tensor& voxel_feats, Reduce reduce_type) const {
  state().index.reduce(state().context, feats, voxel_feats, reduce_type);
}

void VoxelIndex::reduce_backward(const ConstTensor& grad_voxel_feats, const ConstTensor* feats,
                                 const ConstTensor* voxel_feats, const Tensor& grad_feats,
                                 Reduce reduce_type) const {
  state().index.reduce_backward(state().context, grad_voxel_feats, feats, voxel_feats, grad_feats,
                                reduce_type);
}

}  // namespace turnout
