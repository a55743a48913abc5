// Data for the example calls of this family whose arguments must not be zero. Both registries use it.
#pragma once

#include <cstdint>

#include "turnout/tensor.h"

namespace turnout::families::dynamic_scatter {

// Voxels of size 1 in a range of 4 x 4 x 4 that begins at the origin.
inline void fill_grid(const Tensor& voxel_size, const Tensor& point_cloud_range) {
  const auto set = [](const Tensor& t, int i, float value) {
    if (t.dtype == DType::f64) {
      static_cast<double*>(t.data)[i] = value;
    } else {
      static_cast<float*>(t.data)[i] = value;
    }
  };
  for (int j = 0; j < 3; ++j) {
    set(voxel_size, j, 1);
    set(point_cloud_range, 3 + j, 4);
  }
}

// All rows are voxels, and no point is in one.
inline void fill_map(const Tensor& grad_voxel_feats, const Tensor& map, const Tensor& voxel_num) {
  const auto set = [](const Tensor& t, std::int64_t i, std::int64_t value) {
    if (t.dtype == DType::i64) {
      static_cast<std::int64_t*>(t.data)[i] = value;
    } else {
      static_cast<std::int32_t*>(t.data)[i] = static_cast<std::int32_t>(value);
    }
  };
  for (std::int64_t x = 0; x < map.shape[0]; ++x) set(map, x, -1);
  if (voxel_num.data != nullptr) set(voxel_num, 0, grad_voxel_feats.shape[0]);
}

}  // namespace turnout::families::dynamic_scatter
