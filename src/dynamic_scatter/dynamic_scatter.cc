// Plans of the reductions over voxels and of their gradients.
#include "turnout/dynamic_scatter.h"

#include <algorithm>
#include <new>
#include <utility>

#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/maps.h"
#include "dynamic_scatter/reductions.h"
#include "dynamic_scatter/signature.h"
#include "indices/indices.h"
#include "runtime/call.h"
#include "runtime/parallel.h"

namespace turnout {
namespace {

using namespace core;
using namespace families::dynamic_scatter;

// -- what a reduction writes -------------------------------------------------------------------------------

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

std::size_t families::dynamic_scatter::dynamic_scatter_forward_scratch(std::int64_t points) {
  return groups_bytes(points) + grouping_bytes(points);
}

std::int64_t dynamic_scatter_forward(Context& context, const ConstTensor& feats, const ConstTensor& coors,
                                     const Tensor& voxel_feats, const Tensor& voxel_coors,
                                     const Tensor& point2voxel_map, const Tensor& voxel_points_count,
                                     Reduce reduce_type) {
  Call call(context, kDynamicScatterForward,
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

std::size_t families::dynamic_scatter::dynamic_scatter_backward_scratch(std::int64_t points,
                                                                        std::int64_t voxels) {
  return array_bytes<std::int32_t>(points) +
         std::max(map_groups_bytes(points, voxels), lane_counts_bytes(voxels));
}

void dynamic_scatter_backward(Context& context, const ConstTensor& grad_voxel_feats,
                              const DynamicScatterResult& result, const Tensor& grad_feats,
                              Reduce reduce_type) {
  const ConstTensor& given_map = result.point2voxel_map;
  Call call(context, kDynamicScatterBackward,
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
    const std::int64_t bad = read_map(context, given_map, -1, voxels, map).bad;
    if (bad >= 0)
      refuse_backward(concat("point2voxel_map[", bad, "] is ", map_value(given_map, bad), ", expected -1 .. ",
                             voxels - 1));
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

struct VoxelIndex::State {
  Context& context;
  ConstTensor coors;
  Scratch memory;  // this State lies there
  VoxelGroups groups;

  State(Context& where, Call& call, const ConstTensor& rows, Scratch&& scratch)
      : context(where), coors(rows), memory(std::move(scratch)) {
    groups = group_by_coordinates(where, rows, memory, call.scratch(grouping_bytes(rows.shape[0])));
    call.chose(groups.found_by, groups.points > kPointGrain ? where.threads() : 1);
  }
};

VoxelIndex::VoxelIndex(Context& context, const ConstTensor& coors) {
  Call call(context, kVoxelIndex, {coors}, {});
  Scratch memory = call.lease(padded(sizeof(State)) + groups_bytes(coors.shape[0]));
  void* place = memory.take<std::byte>(sizeof(State));
  state_ = new (place) State(context, call, coors, std::move(memory));
}

VoxelIndex::~VoxelIndex() {
  const Scratch kept = std::move(state_->memory);
  state_->~State();
}

std::int64_t VoxelIndex::points() const { return state_->groups.points; }
std::int64_t VoxelIndex::voxels() const { return state_->groups.voxels; }

void VoxelIndex::write(const Tensor& voxel_coors, const Tensor& point2voxel_map,
                       const Tensor& voxel_points_count) const {
  Call call(state_->context, kVoxelIndexWrite,
            {state_->coors, voxel_coors, point2voxel_map, voxel_points_count}, {points(), voxels()});
  if (call.nothing_to_do()) return;
  call.chose("copied", points() > kPointGrain ? state_->context.threads() : 1);
  write_map(state_->context, state_->groups, point2voxel_map);
  write_counts(state_->context, state_->groups, voxel_points_count);
  write_coors(state_->context, state_->groups, state_->coors, voxel_coors);
}

void VoxelIndex::first_points(const Tensor& first_point) const {
  Call call(state_->context, kVoxelIndexFirstPoints, {Slot(), first_point}, {points(), voxels()});
  if (call.nothing_to_do()) return;
  const VoxelGroups& groups = state_->groups;
  call.chose("copied", voxels() > kPointGrain ? state_->context.threads() : 1);
  visit_index(first_point.dtype, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(first_point.data);
    parallel_for(state_->context, groups.voxels, kPointGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t v = begin; v < end; ++v) to[v] = static_cast<std::int32_t>(groups.first_point(v));
    });
  });
}

void VoxelIndex::reduce(const ConstTensor& feats, const Tensor& voxel_feats, Reduce reduce_type) const {
  Call call(state_->context, kVoxelIndexReduce, {feats, voxel_feats}, {points(), voxels(), reduce_type});
  if (call.nothing_to_do()) return;
  reduce_rows(state_->context, call, state_->groups, feats, voxel_feats, reduce_type);
}

void VoxelIndex::reduce_backward(const ConstTensor& grad_voxel_feats, const ConstTensor* feats,
                                 const ConstTensor* voxel_feats, const Tensor& grad_feats,
                                 Reduce reduce_type) const {
  Call call(state_->context, kVoxelIndexReduceBackward,
            {grad_voxel_feats, slot_of(feats), slot_of(voxel_feats), grad_feats},
            {points(), voxels(), reduce_type});
  if (call.nothing_to_do()) return;
  BackwardTask task{};
  task.groups = state_->groups;
  if (reduce_type == Reduce::mean) {
    task.counts = lane_counts(grad_feats.dtype, voxels(), call.scratch(lane_counts_bytes(voxels())),
                              [&](std::int64_t v) { return task.groups.count(v); });
  }
  spread_rows(state_->context, call, task, grad_voxel_feats, feats, voxel_feats, grad_feats, reduce_type);
}

}  // namespace turnout
