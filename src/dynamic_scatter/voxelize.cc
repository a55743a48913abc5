// Plans of voxelize and voxelize_hard: the voxel of each point.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/call.h"
#include "core/copy.h"
#include "core/parallel.h"
#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/signature.h"
#include "turnout/dynamic_scatter.h"

namespace turnout {
namespace {

using namespace core;

constexpr std::int64_t kPointGrain = 8192;  // points that are worth a thread

// Element i of voxel_size or point_cloud_range.
template <class Real>
Real value_at(const Slot& slot, int i) {
  return slot.dtype == DType::f64 ? static_cast<Real>(static_cast<const double*>(slot.data)[i])
                                  : static_cast<Real>(static_cast<const float*>(slot.data)[i]);
}

template <class Real>
GridOf<Real> grid_of(const Slot& voxel_size, const Slot& range) {
  GridOf<Real> grid;
  for (int j = 0; j < 3; ++j) {
    grid.voxel_size[j] = value_at<Real>(voxel_size, j);
    grid.least[j] = value_at<Real>(range, j);
    const Real length = value_at<Real>(range, 3 + j) - grid.least[j];
    grid.extent[j] = std::round(length / grid.voxel_size[j]);
  }
  return grid;
}

template <class Real>
void check_grid_in(const Arguments& arguments, const Slot& voxel_size, const Slot& range) {
  const GridOf<Real> grid = grid_of<Real>(voxel_size, range);
  for (int j = 0; j < 3; ++j) {
    const std::int64_t d = j;
    if (!(grid.voxel_size[j] > 0) || !std::isfinite(grid.voxel_size[j]))
      arguments.fail(ErrorCode::bad_param,
                     concat("voxel_size[", d, "] is ", std::to_string(grid.voxel_size[j]),
                            ", expected a positive finite number"));
    if (!(grid.extent[j] >= 1 && grid.extent[j] < Real{0x1p31}))
      arguments.fail(ErrorCode::bad_param,
                     concat("point_cloud_range is ", std::to_string(grid.least[j]), " .. ",
                            std::to_string(value_at<Real>(range, 3 + j)), " in direction ",
                            std::string_view("xyz").substr(static_cast<std::size_t>(j), 1), ", which is ",
                            std::to_string(grid.extent[j]), " voxels, expected 1 .. 2147483647"));
  }
}

// Coordinates of all points; `coors` is [points, 3].
void write_coordinates(Context& context, const ConstTensor& points, const ConstTensor& voxel_size,
                       const ConstTensor& range, const Tensor& coors) {
  const auto voxelize_range = coordinate_kernels(context.isa()).voxelize(points.dtype, coors.dtype);
  const bool is_double = points.dtype == DType::f64;
  const auto single = grid_of<float>(voxel_size, range);
  const auto twice = grid_of<double>(voxel_size, range);
  const void* grid = is_double ? static_cast<const void*>(&twice) : &single;
  parallel_for(context, points.shape[0], kPointGrain, [&](std::int64_t begin, std::int64_t end) {
    voxelize_range(grid, points.data, points.shape[1], coors.data, begin, end);
  });
}

// Gives the voxels numbers in the order of their first points: to[v] for voxel v of `groups`, -1 for those
// that there is no room for. Returns how many there is room for.
std::int64_t number_by_first_point(const VoxelGroups& groups, std::int64_t room, std::int32_t* to) {
  std::int64_t next = 0;
  for (std::int64_t x = 0; x < groups.points; ++x) {
    const std::int32_t v = groups.map[x];
    if (v >= 0 && groups.order[groups.starts[v]] == x)
      to[v] = next < room ? static_cast<std::int32_t>(next++) : -1;
  }
  return next;
}

}  // namespace

void core::check_grid(const Arguments& arguments) {
  const Signature& signature = arguments.signature();
  const Slot& voxel_size = arguments.slot(signature.argument("voxel_size"));
  const Slot& range = arguments.slot(signature.argument("point_cloud_range"));
  if (arguments.slot(signature.argument("points")).dtype == DType::f64) {
    check_grid_in<double>(arguments, voxel_size, range);
  } else {
    check_grid_in<float>(arguments, voxel_size, range);
  }
}

void voxelize(Context& context, const ConstTensor& points, const ConstTensor& voxel_size,
              const ConstTensor& point_cloud_range, const Tensor& coors) {
  Call call(context, kVoxelize, {points, voxel_size, point_cloud_range, coors}, {});
  if (call.nothing_to_do()) return;
  call.chose("point by point", points.shape[0] > kPointGrain ? context.threads() : 1);
  write_coordinates(context, points, voxel_size, point_cloud_range, coors);
}

std::size_t core::voxelize_hard_scratch(std::int64_t points) {
  return array_bytes<std::int32_t>(3 * points) + groups_bytes(points) + grouping_bytes(points) +
         array_bytes<std::int32_t>(points);
}

std::int64_t voxelize_hard(Context& context, const ConstTensor& points, const ConstTensor& voxel_size,
                           const ConstTensor& point_cloud_range, const Tensor& voxels, const Tensor& coors,
                           const Tensor& num_points_per_voxel) {
  Call call(context, kVoxelizeHard,
            {points, voxel_size, point_cloud_range, voxels, coors, num_points_per_voxel}, {});
  if (call.nothing_to_do()) return 0;
  const std::int64_t rows = points.shape[0], room = voxels.shape[0], max_points = voxels.shape[1];
  Scratch& scratch = call.scratch(voxelize_hard_scratch(rows));
  const Tensor all_coors = view(scratch.take<std::int32_t>(3 * rows), {rows, 3});
  write_coordinates(context, points, voxel_size, point_cloud_range, all_coors);
  const VoxelGroups groups = group_by_coordinates(context, all_coors, scratch, scratch);
  auto* slot_of = scratch.take<std::int32_t>(rows);
  const std::int64_t used = number_by_first_point(groups, room, slot_of);

  const std::int64_t point_bytes = points.shape[1] * size_of(points.dtype);
  const std::int64_t voxel_bytes = max_points * point_bytes;
  const auto* from = static_cast<const std::byte*>(points.data);
  auto* to = static_cast<std::byte*>(voxels.data);
  const bool parallel = room * voxel_bytes >= kParallelBytes, stream = room * voxel_bytes >= kStreamBytes;
  call.chose(stream ? "sorted keys, streamed" : "sorted keys", parallel ? context.threads() : 1);
  const CopyKernels& copy = copy_kernels(context.isa());
  const auto write_voxel = [&](std::int64_t v, auto* coors_to, auto* num_to) {
    const std::int64_t slot = slot_of[v];
    if (slot < 0) return;
    const std::int64_t stored = std::min(groups.count(v), max_points);
    const std::int32_t* order = groups.order + groups.starts[v];
    std::byte* row = to + slot * voxel_bytes;
    for (std::int64_t k = 0; k < stored; ++k)
      std::memcpy(row + k * point_bytes, from + order[k] * point_bytes,
                  static_cast<std::size_t>(point_bytes));
    std::byte* rest = row + stored * point_bytes;
    const std::int64_t left = (max_points - stored) * point_bytes;
    if (stream) {
      copy.clear(rest, left);
    } else if (left > 0) {
      std::memset(rest, 0, static_cast<std::size_t>(left));
    }
    const auto* zyx = static_cast<const std::int32_t*>(all_coors.data) + 3 * std::int64_t{order[0]};
    std::copy_n(zyx, 3, coors_to + 3 * slot);
    num_to[slot] = static_cast<std::int32_t>(stored);
  };
  const std::int64_t grain =
      parallel ? std::max<std::int64_t>(1, kRangeBytes / std::max<std::int64_t>(voxel_bytes, 1)) : kSizeMax;
  visit_index(coors.dtype, [&](auto coor_type) {
    auto* coors_to = static_cast<typename decltype(coor_type)::type*>(coors.data);
    visit_index(num_points_per_voxel.dtype, [&](auto num_type) {
      auto* num_to = static_cast<typename decltype(num_type)::type*>(num_points_per_voxel.data);
      parallel_for(context, groups.voxels, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t v = begin; v < end; ++v) write_voxel(v, coors_to, num_to);
        if (stream) copy.finish();
      });
      std::fill_n(coors_to + 3 * used, 3 * (room - used), 0);
      std::fill_n(num_to + used, room - used, 0);
    });
  });
  parallel_for(context, room - used, grain, [&](std::int64_t begin, std::int64_t end) {
    copy.clear(to + (used + begin) * voxel_bytes, (end - begin) * voxel_bytes);
    copy.finish();
  });
  return used;
}

}  // namespace turnout
