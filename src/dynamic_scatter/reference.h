// The definition of each operator of this family: serial and readable, point by point. Features are float or
// double; the tests convert.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "turnout/dynamic_scatter.h"

namespace turnout::reference {

using Coordinates = std::vector<std::int64_t>;

// Real is the type that coordinates are computed in.
template <class Real>
struct Grid {
  Real voxel_size[3], point_cloud_range[6];

  Real extent(int j) const {
    const Real length = point_cloud_range[3 + j] - point_cloud_range[j];
    return std::round(length / voxel_size[j]);
  }
  // Whether each direction has a voxel and coordinates fit int32.
  bool is_legal() const {
    for (int j = 0; j < 3; ++j) {
      if (!(voxel_size[j] > 0 && std::isfinite(voxel_size[j]))) return false;
      if (!(extent(j) >= 1 && extent(j) < Real(0x1p31))) return false;
    }
    return true;
  }
  // (z, y, x), or (-1, -1, -1).
  Coordinates coordinates(const Real* point) const {
    Coordinates zyx(3);
    for (int j = 0; j < 3; ++j) {
      const Real difference = point[j] - point_cloud_range[j];
      const Real quotient = difference / voxel_size[j];
      const Real cell = std::floor(quotient);
      const bool is_inside = cell >= 0 && cell < extent(j);  // false for NaN
      if (!is_inside) return {-1, -1, -1};
      zyx[static_cast<std::size_t>(2 - j)] = static_cast<std::int64_t>(cell);
    }
    return zyx;
  }
};

struct HardVoxel {
  Coordinates coors;
  std::vector<std::int64_t> points;      // the rows that are stored
  std::vector<std::int64_t> all_points;  // also those that are dropped because the voxel is full
};
template <class Real>
std::vector<HardVoxel> voxelize_hard(const std::vector<std::vector<Real>>& points, const Grid<Real>& grid,
                                     std::size_t max_points, std::size_t max_voxels) {
  std::vector<HardVoxel> voxels;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Coordinates coors = grid.coordinates(points[i].data());
    if (coors[0] < 0) continue;
    std::size_t v = 0;
    while (v < voxels.size() && voxels[v].coors != coors) ++v;
    if (v == voxels.size()) {
      if (v == max_voxels) continue;
      voxels.push_back({coors, {}, {}});
    }
    voxels[v].all_points.push_back(static_cast<std::int64_t>(i));
    if (voxels[v].points.size() < max_points) voxels[v].points.push_back(static_cast<std::int64_t>(i));
  }
  return voxels;
}

// The voxels in ascending order, each with its points in ascending order.
using Voxels = std::map<Coordinates, std::vector<std::int64_t>>;
inline Voxels voxels_of(const std::vector<Coordinates>& coors) {
  Voxels voxels;
  for (std::size_t x = 0; x < coors.size(); ++x) {
    bool is_valid = true;
    for (const std::int64_t c : coors[x]) is_valid &= c >= 0;
    if (is_valid) voxels[coors[x]].push_back(static_cast<std::int64_t>(x));
  }
  return voxels;
}

// Reduces one channel of one voxel; feats are the features of its points, in ascending order.
template <class Real>
Real reduced(const std::vector<Real>& feats, Reduce reduce_type) {
  Real result = reduce_type == Reduce::max ? -std::numeric_limits<Real>::infinity() : Real(0);
  for (const Real f : feats) {
    if (reduce_type != Reduce::max) {
      result += f;
    } else if (f > result) {
      result = f;
    }
  }
  return reduce_type == Reduce::mean ? result / static_cast<Real>(feats.size()) : result;
}

// One channel: the gradient of each point of one voxel.
template <class Real>
std::vector<Real> reduced_backward(Real grad, const std::vector<Real>& feats, Real voxel_feat, Real count,
                                   Reduce reduce_type) {
  std::vector<Real> grads(feats.size(), Real(0));
  for (std::size_t i = 0; i < feats.size(); ++i) {
    if (reduce_type == Reduce::max) {
      if (feats[i] != voxel_feat) continue;
      grads[i] = grad;
      break;
    }
    grads[i] = reduce_type == Reduce::sum ? grad : grad / count;
  }
  return grads;
}

// -- reduction by an index ---------------------------------------------------------------------------------

// The rows of each group, ascending.
inline std::vector<std::vector<std::int64_t>> rows_of(const std::vector<std::int64_t>& index,
                                                      std::size_t groups) {
  std::vector<std::vector<std::int64_t>> rows(groups);
  for (std::size_t i = 0; i < index.size(); ++i)
    rows[static_cast<std::size_t>(index[i])].push_back(static_cast<std::int64_t>(i));
  return rows;
}

// One channel of one group: the sum or the mean of its values, which are in ascending order of their rows.
template <class Number>
Number scattered(const std::vector<Number>& values, Reduce reduce_type) {
  return values.empty() ? Number(0) : reduced(values, reduce_type);
}

// One channel of one group: the maximum of the values of these rows and the row it comes from, or 0 and
// `none` if no value is larger than `lowest`; and the minimum, of the values smaller than `greatest`.
template <class Number>
struct Extreme {
  Number value;
  std::int64_t row;
};
template <class Number>
Extreme<Number> maximum(const std::vector<Number>& values, const std::vector<std::int64_t>& rows,
                        Number lowest, std::int64_t none) {
  Extreme<Number> result{lowest, none};
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (values[i] > result.value) result = {values[i], rows[i]};
  return result.row == none ? Extreme<Number>{Number(0), none} : result;
}
template <class Number>
Extreme<Number> minimum(const std::vector<Number>& values, const std::vector<std::int64_t>& rows,
                        Number greatest, std::int64_t none) {
  Extreme<Number> result{greatest, none};
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (values[i] < result.value) result = {values[i], rows[i]};
  return result.row == none ? Extreme<Number>{Number(0), none} : result;
}

}  // namespace turnout::reference
