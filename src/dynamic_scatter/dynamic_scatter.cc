// Implements dynamic_scatter_forward, dynamic_scatter_backward and VoxelIndex.
#include "dynamic_scatter/dynamic_scatter.h"

#include <algorithm>
#include <memory>
#include <new>

#include "core/dtypes.h"
#include "dynamic_scatter/maps.h"
#include "dynamic_scatter/reductions.h"
#include "dynamic_scatter/signature.h"
#include "indices/indices.h"

namespace turnout {
namespace families::dynamic_scatter {

using namespace core;
namespace {

// The number of voxels: voxel_num if it is given, otherwise all rows.
std::int64_t read_voxel_num(Call& call, const ConstTensor& voxel_num, std::int64_t voxels) {
  if (voxel_num.is_absent()) return voxels;
  const std::int64_t num = visit_index(voxel_num.dtype, [&](auto type) -> std::int64_t {
    return load_once(static_cast<const typename decltype(type)::type*>(voxel_num.data));
  });
  if (num < 0 || num > voxels)
    call.refuse(concat(call.name("voxel_num"), "[0] is ", num, ", expected 0 .. ", voxels, " = ",
                       call.name("grad_voxel_feats"), ".shape[0]"));
  return num;
}

// Copies voxel_points_count into the type that means are computed in. Voxels with points must have a count of
// 1 or more; a voxel without points may have any.
const void* read_counts(Call& call, const ConstTensor& given, DType feats, std::int64_t voxels,
                        const std::int32_t* map, std::int64_t points, Scratch& scratch) {
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
        call.refuse(concat(call.name("voxel_points_count"), "[", std::int64_t{map[x]}, "] is ",
                           std::int64_t{counts[map[x]]}, ", expected 1 or more: point ", x,
                           " is in that voxel"));
    return copy;
  });
}

void write_forward(Context& context, Call& call, const VoxelGroups& groups, const ConstTensor& feats,
                   const ConstTensor& coors, const Tensor& voxel_feats, const Tensor& voxel_coors,
                   const Tensor& point2voxel_map, const Tensor& voxel_points_count, Reduce reduce_type) {
  reduce_rows(context, call, groups, feats, voxel_feats, reduce_type);
  call.chose(groups.found_by, context.threads());
  write_map(context, groups, point2voxel_map);
  write_counts(context, groups, voxel_points_count);
  write_coors(context, groups, coors, voxel_coors);
}

}  // namespace

BackwardPlan::BackwardPlan(std::int64_t points, std::int64_t voxels, Reduce reduce_type, int threads)
    : points_(points), voxels_(voxels), reduce_type_(reduce_type), grouping_(points, voxels, threads) {}

std::size_t BackwardPlan::scratch_bytes() const {
  return array_bytes<std::int32_t>(points_) + (reduce_type_ == Reduce::max ? grouping_.scratch_bytes() : 0) +
         (reduce_type_ == Reduce::mean ? lane_counts_bytes(voxels_) : 0);
}

void BackwardPlan::run(Call& call, const ConstTensor& grad_voxel_feats, const ConstTensor& feats,
                       const ConstTensor& voxel_feats, const ConstTensor& point2voxel_map,
                       const ConstTensor& voxel_points_count, const Tensor& grad_feats) const {
  Context& context = call.context();
  const bool is_mean = reduce_type_ == Reduce::mean;
  const std::int64_t row_bytes = grad_feats.shape[1] * size_of(grad_feats.dtype);
  Scratch& scratch =
      call.scratch(scratch_bytes() + (is_mean ? shares_bytes(points_, voxels_, row_bytes) : 0));
  auto* map = scratch.take<std::int32_t>(points_);
  BackwardTask task{};
  if (const std::int64_t bad = read_map(context, point2voxel_map, -1, voxels_, map).bad; bad >= 0)
    call.refuse(concat(call.name("point2voxel_map"), "[", bad, "] is ", map_value(point2voxel_map, bad),
                       ", expected -1 .. ", voxels_ - 1));
  if (is_mean)
    task.counts = read_counts(call, voxel_points_count, grad_feats.dtype, voxels_, map, points_, scratch);
  if (reduce_type_ == Reduce::max) {
    task.groups = grouping_.run(context, map, scratch);
  } else {
    task.groups = {.points = points_, .voxels = voxels_, .map = map};
  }
  if (is_mean) return spread_means(context, call, task, grad_voxel_feats, grad_feats, scratch);
  spread_rows(context, call, task, grad_voxel_feats, feats, voxel_feats, grad_feats, reduce_type_);
}

PointIndex::PointIndex(const ConstTensor& coors, const Caller& caller) : coors_(coors) {
  Call call(caller, kVoxelIndex, {coors}, {});
  const std::int64_t points = coors.shape[0];
  const CoordinateGrouping plan(points);
  memory_.emplace(call.lease(plan.kept_bytes()));
  groups_ = plan.run(caller.context(), coors, *memory_, call.scratch(plan.passing_bytes()));
  call.chose(groups_.found_by, points >= kSharedPoints ? caller.context().threads() : 1);
}

void PointIndex::write(const Tensor& voxel_coors, const Tensor& point2voxel_map,
                       const Tensor& voxel_points_count, const Caller& caller) const {
  Call call(caller, kVoxelIndexWrite, {coors_, voxel_coors, point2voxel_map, voxel_points_count},
            {points(), voxels()});
  if (call.nothing_to_do()) return;
  call.chose(groups_.found_by, points() >= kSharedPoints ? caller.context().threads() : 1);
  write_map(caller.context(), groups_, point2voxel_map);
  write_counts(caller.context(), groups_, voxel_points_count);
  write_coors(caller.context(), groups_, coors_, voxel_coors);
}

void PointIndex::scatter(const ConstTensor& feats, const Tensor& voxel_feats, const Tensor& voxel_coors,
                         const Tensor& point2voxel_map, const Tensor& voxel_points_count, Reduce reduce_type,
                         const Caller& caller) const {
  Call call(caller, kDynamicScatterForward,
            {feats, coors_, voxel_feats, voxel_coors, point2voxel_map, voxel_points_count}, {reduce_type});
  if (call.nothing_to_do()) return;
  write_forward(caller.context(), call, groups_, feats, coors_, voxel_feats, voxel_coors, point2voxel_map,
                voxel_points_count, reduce_type);
}

void PointIndex::first_points(const Tensor& first_point, const Caller& caller) const {
  Call call(caller, kVoxelIndexFirstPoints, {Slot(), first_point}, {points(), voxels()});
  if (call.nothing_to_do()) return;
  call.chose("copied", voxels() >= kSharedPoints ? caller.context().threads() : 1);
  write_first_points(caller.context(), groups_, first_point);
}

void PointIndex::reduce(const ConstTensor& feats, const Tensor& voxel_feats, Reduce reduce_type,
                        const Caller& caller) const {
  Call call(caller, kVoxelIndexReduce, {feats, voxel_feats}, {points(), voxels(), reduce_type});
  if (call.nothing_to_do()) return;
  reduce_rows(caller.context(), call, groups_, feats, voxel_feats, reduce_type);
}

void PointIndex::reduce_backward(const ConstTensor& grad_voxel_feats, const ConstTensor& feats,
                                 const ConstTensor& voxel_feats, const Tensor& grad_feats, Reduce reduce_type,
                                 const Caller& caller) const {
  Call call(caller, kVoxelIndexReduceBackward, {grad_voxel_feats, feats, voxel_feats, grad_feats},
            {points(), voxels(), reduce_type});
  if (call.nothing_to_do()) return;
  BackwardTask task{};
  task.groups = groups_;
  if (reduce_type == Reduce::mean) {
    const std::int64_t row_bytes = grad_feats.shape[1] * size_of(grad_feats.dtype);
    Scratch& scratch =
        call.scratch(lane_counts_bytes(voxels()) + shares_bytes(points(), voxels(), row_bytes));
    task.counts = lane_counts(grad_feats.dtype, voxels(), scratch,
                              [&](std::int64_t v) { return task.groups.count(v); });
    return spread_means(caller.context(), call, task, grad_voxel_feats, grad_feats, scratch);
  }
  spread_rows(caller.context(), call, task, grad_voxel_feats, feats, voxel_feats, grad_feats, reduce_type);
}

}  // namespace families::dynamic_scatter

using namespace families::dynamic_scatter;

std::int64_t dynamic_scatter_forward(const ConstTensor& feats, const ConstTensor& coors,
                                     const Tensor& voxel_feats, const Tensor& voxel_coors,
                                     const Tensor& point2voxel_map, const Tensor& voxel_points_count,
                                     Reduce reduce_type, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kDynamicScatterForward,
            {feats, coors, voxel_feats, voxel_coors, point2voxel_map, voxel_points_count}, {reduce_type});
  if (call.nothing_to_do()) return 0;
  const CoordinateGrouping plan(coors.shape[0]);
  Scratch& scratch = call.scratch(plan.scratch_bytes());
  const VoxelGroups groups = plan.run(context, coors, scratch, scratch);
  if (groups.voxels > voxel_coors.shape[0])
    call.refuse(concat(call.name("voxel_feats"), ".shape[0] is ", voxel_coors.shape[0], ", expected ",
                       groups.voxels, " or more: the number of voxels"));
  write_forward(context, call, groups, feats, coors, voxel_feats, voxel_coors, point2voxel_map,
                voxel_points_count, reduce_type);
  return groups.voxels;
}

void dynamic_scatter_backward(const ConstTensor& grad_voxel_feats, const ConstTensor& feats,
                              const ConstTensor& voxel_feats, const ConstTensor& point2voxel_map,
                              const ConstTensor& voxel_points_count, const ConstTensor& voxel_num,
                              const Tensor& grad_feats, Reduce reduce_type, const Caller& caller) {
  Call call(
      caller, kDynamicScatterBackward,
      {grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count, voxel_num, grad_feats},
      {reduce_type});
  if (call.nothing_to_do()) return;
  const std::int64_t voxels = read_voxel_num(call, voxel_num, grad_voxel_feats.shape[0]);
  const BackwardPlan plan(grad_feats.shape[0], voxels, reduce_type, caller.context().threads());
  plan.run(call, grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count, grad_feats);
}

struct TURNOUT_HIDDEN VoxelIndex::State {
  Context& context;
  families::dynamic_scatter::PointIndex index;
};

VoxelIndex::VoxelIndex(const ConstTensor& coors, const Caller& caller) {
  static_assert(sizeof(State) <= sizeof(memory_) && alignof(State) <= kAlignment);
  new (memory_) State{caller.context(), {coors, caller}};
}
VoxelIndex::~VoxelIndex() { std::destroy_at(&state()); }

const VoxelIndex::State& VoxelIndex::state() const {
  return *std::launder(reinterpret_cast<const State*>(memory_));
}

std::int64_t VoxelIndex::points() const { return state().index.points(); }
std::int64_t VoxelIndex::voxels() const { return state().index.voxels(); }

void VoxelIndex::write(const Tensor& voxel_coors, const Tensor& point2voxel_map,
                       const Tensor& voxel_points_count) const {
  state().index.write(voxel_coors, point2voxel_map, voxel_points_count, state().context);
}

void VoxelIndex::first_points(const Tensor& first_point) const {
  state().index.first_points(first_point, state().context);
}

void VoxelIndex::reduce(const ConstTensor& feats, const Tensor& voxel_feats, Reduce reduce_type) const {
  state().index.reduce(feats, voxel_feats, reduce_type, state().context);
}

void VoxelIndex::reduce_backward(const ConstTensor& grad_voxel_feats, const ConstTensor& feats,
                                 const ConstTensor& voxel_feats, const Tensor& grad_feats,
                                 Reduce reduce_type) const {
  state().index.reduce_backward(grad_voxel_feats, feats, voxel_feats, grad_feats, reduce_type,
                                state().context);
}

}  // namespace turnout
