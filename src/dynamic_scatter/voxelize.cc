// Implements voxelize and voxelize_hard.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "dynamic_scatter/dynamic_scatter.h"
#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "simd/fp_environment.h"

namespace turnout {
namespace families::dynamic_scatter {

using namespace core;
namespace {

using Numbers = std::span<const double>;

// Converts the grid to the type that coordinates are computed in, and checks it in that type: voxel_size is
// positive and finite, and the range has 1 .. 2^31 - 1 voxels in each direction.
template <class Real>
GridOf<Real> read_grid(Call& call, Numbers voxel_size, Numbers range) {
  GridOf<Real> grid;
  for (std::size_t j = 0; j < 3; ++j) {
    const auto size = static_cast<Real>(voxel_size[j]);
    const auto least = static_cast<Real>(range[j]), most = static_cast<Real>(range[3 + j]);
    const Real extent = std::round((most - least) / size);
    if (!(size > 0) || !std::isfinite(size))
      call.refuse(concat(call.name("voxel_size"), "[", static_cast<std::int64_t>(j), "] is ",
                         number_text(size), ", expected a positive finite number"));
    if (!(extent >= 1 && extent < Real{0x1p31}))
      call.refuse(concat(call.name("point_cloud_range"), " is ", number_text(least), " .. ",
                         number_text(most), " in direction ", std::string_view("xyz").substr(j, 1),
                         ", which is ", number_text(extent), " voxels, expected 1 .. 2147483647"));
    grid.voxel_size[j] = size;
    grid.least[j] = least;
    grid.extent[j] = extent;
  }
  return grid;
}

// Writes the coordinates of all points to `coors` [points, 3]. Throws for a bad grid before the first write.
void write_coordinates(Context& context, Call& call, const ConstTensor& points, Numbers voxel_size,
                       Numbers range, const Tensor& coors) {
  const FpEnvironment environment;  // the caller's may round differently, or trap
  const auto voxelize_range = coordinate_kernels(context.isa()).voxelize(points.dtype, coors.dtype);
  const auto run = [&](auto grid) {
    grid = read_grid<std::remove_cvref_t<decltype(grid.extent[0])>>(call, voxel_size, range);
    parallel_for(context, points.shape[0], kPointGrain, [&](std::int64_t begin, std::int64_t end) {
      voxelize_range(&grid, points.data, points.shape[1], coors.data, begin, end);
    });
  };
  points.dtype == DType::f64 ? run(GridOf<double>()) : run(GridOf<float>());
}

// Lists at most `room` voxels, in the order of their first points. `passing` is temporary memory for one
// number per point. Returns the number of listed voxels.
std::int64_t order_by_first_point(const VoxelGroups& groups, std::int64_t room, std::int32_t* voxels,
                                  std::int32_t* passing) {
  std::fill_n(passing, groups.points, -1);
  serial_for(0, groups.voxels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t v = begin; v < end; ++v) passing[groups.first_point(v)] = static_cast<std::int32_t>(v);
  });
  std::int64_t count = 0;
  serial_for(0, groups.points, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t x = begin; x < end && count < room; ++x)
      if (passing[x] >= 0) voxels[count++] = passing[x];
  });
  return count;
}

// The results of voxelize_hard. Result `slot` is voxel voxels[slot] of the groups.
struct HardTask {
  VoxelGroups groups;
  const std::int32_t* voxels;  // in the order of their first points
  const std::byte* points;
  const std::int32_t* coors;  // of each point
  std::int64_t point_bytes, max_points;
  std::int64_t used = 0;  // the number of results that have a voxel

  std::int64_t voxel_bytes() const { return max_points * point_bytes; }
  std::int64_t stored(std::int64_t slot) const { return std::min(groups.count(voxels[slot]), max_points); }
  const std::int32_t* points_of(std::int64_t slot) const {
    return groups.order + groups.starts[voxels[slot]];
  }

  // Writes the points of results first .. last-1, with zeros after the points of each.
  void put_points(std::int64_t first, std::int64_t last, std::byte* to) const {
    for (std::int64_t slot = first; slot < last; ++slot, to += voxel_bytes()) {
      constexpr std::int64_t kAhead = 8;  // prefetch, because points are scattered in memory
      if (slot + kAhead < used) {
        const std::int32_t* next = points_of(slot + kAhead);
        for (std::int64_t k = 0; k < stored(slot + kAhead); ++k)
          __builtin_prefetch(points + next[k] * point_bytes);
      }
      const std::int64_t count = stored(slot);
      const std::int32_t* x = points_of(slot);
      for (std::int64_t k = 0; k < count; ++k)
        copy_short(to + k * point_bytes, points + x[k] * point_bytes, point_bytes);
      std::memset(to + count * point_bytes, 0, static_cast<std::size_t>(voxel_bytes() - count * point_bytes));
    }
  }

  template <class CoorIndex, class NumIndex>
  void put_indices(std::int64_t first, std::int64_t last, CoorIndex* coors_to, NumIndex* num_to) const {
    for (std::int64_t slot = first; slot < last; ++slot) {
      std::copy_n(coors + 3 * std::int64_t{*points_of(slot)}, 3, coors_to + 3 * slot);
      num_to[slot] = static_cast<std::int32_t>(stored(slot));
    }
  }
};

// Writes the result of each point's voxel, or -1. `slot_of` is temporary memory for one number per voxel.
void write_slots(Context& context, const HardTask& task, std::int32_t* slot_of, const Tensor& map) {
  const VoxelGroups& groups = task.groups;
  std::fill_n(slot_of, groups.voxels, -1);
  serial_for(0, task.used, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t slot = begin; slot < end; ++slot)
      slot_of[task.voxels[slot]] = static_cast<std::int32_t>(slot);
  });
  visit_index(map.dtype, [&](auto type) {
    auto* to = static_cast<typename decltype(type)::type*>(map.data);
    parallel_for(context, groups.points, kPointGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t x = begin; x < end; ++x) to[x] = groups.map[x] < 0 ? -1 : slot_of[groups.map[x]];
    });
  });
}

}  // namespace

std::size_t VoxelizeHardPlan::scratch_bytes() const {
  return array_bytes<std::int32_t>(3 * points_) + grouping_.scratch_bytes() +
         2 * array_bytes<std::int32_t>(points_);
}

std::int64_t VoxelizeHardPlan::run(Call& call, const ConstTensor& points, const Tensor& voxels,
                                   const Tensor& coors, const Tensor& num_points_per_voxel,
                                   const Tensor& point2voxel_map, Numbers voxel_size,
                                   Numbers point_cloud_range) const {
  Context& context = call.context();
  Scratch& scratch = call.scratch(scratch_bytes());
  const std::int64_t room = voxels.shape[0];
  auto* all_coors = scratch.take<std::int32_t>(3 * points_);
  write_coordinates(context, call, points, voxel_size, point_cloud_range, view(all_coors, {points_, 3}));

  HardTask task{grouping_.run(context, view(all_coors, {points_, 3}), scratch, scratch),
                nullptr,
                static_cast<const std::byte*>(points.data),
                all_coors,
                points.shape[1] * size_of(points.dtype),
                voxels.shape[1]};
  auto* ordered = scratch.take<std::int32_t>(points_);
  auto* passing = scratch.take<std::int32_t>(points_);
  const std::int64_t used = order_by_first_point(task.groups, room, ordered, passing);
  task.voxels = ordered;
  task.used = used;

  const std::int64_t voxel_bytes = task.voxel_bytes(), bytes = room * voxel_bytes;
  const bool parallel = bytes >= kParallelBytes;
  const bool stream = is_streamed(bytes) && voxel_bytes <= kTileBytes;
  call.chose(task.groups.found_by, parallel ? context.threads() : 1);
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* to = static_cast<std::byte*>(voxels.data);
  const std::int64_t grain =
      parallel ? std::max<std::int64_t>(1, kRangeBytes / std::max<std::int64_t>(voxel_bytes, 1)) : kSizeMax;
  // If max_points is 0, there may be no memory to write to.
  parallel_for(context, voxel_bytes > 0 ? used : 0, grain, [&](std::int64_t begin, std::int64_t end) {
    if (!stream) return task.put_points(begin, end, to + begin * voxel_bytes);
    stream_rows(copy, to, voxel_bytes, begin, end,
                [&](std::int64_t first, std::int64_t last, std::byte* there) {
                  task.put_points(first, last, there);
                });
  });
  parallel_for(context, room - used, grain, [&](std::int64_t begin, std::int64_t end) {
    copy.clear(to + (used + begin) * voxel_bytes, (end - begin) * voxel_bytes);
    copy.finish();
  });
  visit_index(coors.dtype, [&](auto coor_type) {
    auto* coors_to = static_cast<typename decltype(coor_type)::type*>(coors.data);
    visit_index(num_points_per_voxel.dtype, [&](auto num_type) {
      auto* num_to = static_cast<typename decltype(num_type)::type*>(num_points_per_voxel.data);
      parallel_for(context, used, kPointGrain, [&](std::int64_t begin, std::int64_t end) {
        task.put_indices(begin, end, coors_to, num_to);
      });
      std::fill_n(coors_to + 3 * used, 3 * (room - used), 0);
      std::fill_n(num_to + used, room - used, 0);
    });
  });
  if (!point2voxel_map.is_absent()) write_slots(context, task, passing, point2voxel_map);
  return used;
}

}  // namespace families::dynamic_scatter

using namespace families::dynamic_scatter;

void voxelize(const ConstTensor& points, const Tensor& coors, std::span<const double> voxel_size,
              std::span<const double> point_cloud_range, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kVoxelize, {points, coors}, {voxel_size, point_cloud_range});
  if (call.nothing_to_do()) return;
  write_coordinates(context, call, points, voxel_size, point_cloud_range, coors);
  call.chose("by point", points.shape[0] > kPointGrain ? context.threads() : 1);
}

std::int64_t voxelize_hard(const ConstTensor& points, const Tensor& voxels, const Tensor& coors,
                           const Tensor& num_points_per_voxel, const Tensor& point2voxel_map,
                           std::span<const double> voxel_size, std::span<const double> point_cloud_range,
                           const Caller& caller) {
  Call call(caller, kVoxelizeHard, {points, voxels, coors, num_points_per_voxel, point2voxel_map},
            {voxel_size, point_cloud_range});
  if (call.nothing_to_do()) return 0;
  return VoxelizeHardPlan(points.shape[0])
      .run(call, points, voxels, coors, num_points_per_voxel, point2voxel_map, voxel_size, point_cloud_range);
}

}  // namespace turnout
