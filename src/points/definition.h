// The definitions as functions of tensors in their own dtypes, with the parameters of the operators.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "core/dtypes.h"
#include "points/reference.h"
#include "turnout/points.h"

namespace turnout::definition {

inline std::int64_t index_at(const ConstTensor& tensor, std::int64_t i) {
  return core::visit_index(tensor.dtype, [&](auto type) {
    return std::int64_t{static_cast<const typename decltype(type)::type*>(tensor.data)[i]};
  });
}
inline void set_index(const Tensor& tensor, std::int64_t i, std::int64_t value) {
  core::visit_index(tensor.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    static_cast<Index*>(tensor.data)[i] = static_cast<Index>(value);
  });
}
template <class Real>
const Real* numbers_of(const ConstTensor& tensor, std::int64_t first = 0) {
  return static_cast<const Real*>(tensor.data) + first;
}
template <class Real>
Real* numbers_of(const Tensor& tensor, std::int64_t first = 0) {
  return static_cast<Real*>(tensor.data) + first;
}

// The samples of the points first .. first + count - 1, written to idx[at ..] as shift + k.
template <class Real, class ToLast>
void sample_points(const ConstTensor& initial, const Tensor& idx, const Tensor& distances, std::int64_t first,
                   std::int64_t count, std::int64_t at, std::int64_t samples, std::int64_t shift,
                   const ToLast& to_last) {
  std::vector<Real> least(static_cast<std::size_t>(count), static_cast<Real>(1e10));
  if (!initial.is_absent()) std::copy_n(numbers_of<Real>(initial, first), count, least.begin());
  const auto chosen = reference::furthest_points(least, samples, to_last);
  for (std::int64_t i = 0; i < samples; ++i)
    set_index(idx, at + i, shift + chosen[static_cast<std::size_t>(i)]);
  if (!distances.is_absent()) std::copy(least.begin(), least.end(), numbers_of<Real>(distances, first));
}

inline void furthest_point_sample(const ConstTensor& xyz, const ConstTensor& initial, const Tensor& idx,
                                  const Tensor& distances) {
  const std::int64_t batch = xyz.rank == 3 ? xyz.shape[0] : 1, count = xyz.shape[xyz.rank - 2];
  const std::int64_t samples = idx.shape[idx.rank - 1];
  core::visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto* p = numbers_of<Real>(xyz, b * count * 3);
      sample_points<Real>(initial, idx, distances, b * count, count, b * samples, samples, 0,
                          [&](std::int64_t k, std::int64_t last) {
                            return reference::square_distance(p + 3 * k, p + 3 * last);
                          });
    }
  });
}
inline void furthest_point_sample_stacked(const ConstTensor& xyz, const ConstTensor& counts,
                                          const ConstTensor& sample_counts, const ConstTensor& initial,
                                          const Tensor& idx, const Tensor& distances) {
  core::visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    std::int64_t first = 0, at = 0;
    for (std::int64_t b = 0; b < counts.shape[0]; ++b) {
      const auto* p = numbers_of<Real>(xyz, first * 3);
      const std::int64_t count = index_at(counts, b), samples = index_at(sample_counts, b);
      sample_points<Real>(initial, idx, distances, first, count, at, samples, first,
                          [&](std::int64_t k, std::int64_t last) {
                            return reference::square_distance(p + 3 * k, p + 3 * last);
                          });
      first += count;
      at += samples;
    }
  });
}
inline void furthest_point_sample_by_distances(const ConstTensor& matrix, const ConstTensor& initial,
                                               const Tensor& idx, const Tensor& distances) {
  const std::int64_t batch = matrix.rank == 3 ? matrix.shape[0] : 1, count = matrix.shape[matrix.rank - 1];
  const std::int64_t samples = idx.shape[idx.rank - 1];
  core::visit_lane(matrix.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto* rows = numbers_of<Real>(matrix, b * count * count);
      sample_points<Real>(initial, idx, distances, b * count, count, b * samples, samples, 0,
                          [&](std::int64_t k, std::int64_t last) { return rows[last * count + k]; });
    }
  });
}

// Calls of_cloud(first point, points, first query, queries) for each element of a batch.
template <class OfCloud>
void for_batch(const ConstTensor& points, const ConstTensor& queries, const OfCloud& of_cloud) {
  const std::int64_t batch = points.rank == 3 ? points.shape[0] : 1;
  const std::int64_t count = points.shape[points.rank - 2], asked = queries.shape[queries.rank - 2];
  for (std::int64_t b = 0; b < batch; ++b) of_cloud(b * count, count, b * asked, asked);
}
template <class OfCloud>
void for_stack(const ConstTensor& counts, const ConstTensor& query_counts, const OfCloud& of_cloud) {
  std::int64_t first = 0, first_query = 0;
  for (std::int64_t b = 0; b < counts.shape[0]; ++b) {
    of_cloud(first, index_at(counts, b), first_query, index_at(query_counts, b));
    first += index_at(counts, b);
    first_query += index_at(query_counts, b);
  }
}

inline void write_found(const std::vector<std::int64_t>& rows, std::int64_t query, const Tensor& idx,
                        const Tensor& found) {
  const std::int64_t nsample = idx.shape[idx.rank - 1];
  for (std::int64_t i = 0; i < nsample; ++i) {
    const auto at = static_cast<std::size_t>(i);
    set_index(idx, query * nsample + i, rows.empty() ? 0 : at < rows.size() ? rows[at] : rows[0]);
  }
  numbers_of<std::int32_t>(found)[query] = static_cast<std::int32_t>(rows.size());
}

template <class Clouds>
void query_balls(const ConstTensor& xyz, const ConstTensor& new_xyz, const Tensor& idx, const Tensor& found,
                 double radius, double min_radius, const Clouds& for_clouds) {
  core::visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for_clouds([&](std::int64_t first, std::int64_t count, std::int64_t first_query, std::int64_t queries) {
      for (std::int64_t q = first_query; q < first_query + queries; ++q) {
        const auto rows = reference::first_points(
            numbers_of<Real>(xyz, 3 * first), count, numbers_of<Real>(new_xyz, 3 * q),
            idx.shape[idx.rank - 1], [&](Real square, const Real*) {
              return reference::is_in_ball(square, static_cast<Real>(radius), static_cast<Real>(min_radius));
            });
        write_found(rows, q, idx, found);
      }
    });
  });
}
inline void ball_query(const ConstTensor& xyz, const ConstTensor& new_xyz, const Tensor& idx,
                       const Tensor& found, double radius, double min_radius) {
  query_balls(xyz, new_xyz, idx, found, radius, min_radius,
              [&](const auto& of_cloud) { for_batch(xyz, new_xyz, of_cloud); });
}
inline void ball_query_stacked(const ConstTensor& xyz, const ConstTensor& counts, const ConstTensor& new_xyz,
                               const ConstTensor& new_counts, const Tensor& idx, const Tensor& found,
                               double radius, double min_radius) {
  query_balls(xyz, new_xyz, idx, found, radius, min_radius,
              [&](const auto& of_cloud) { for_stack(counts, new_counts, of_cloud); });
}

inline void voxel_query(const ConstTensor& xyz, const ConstTensor& new_xyz, const ConstTensor& new_coords,
                        const ConstTensor& point_indices, const Tensor& idx, const Tensor& found,
                        double radius, std::int64_t z_range, std::int64_t y_range, std::int64_t x_range) {
  const std::int64_t* extents = point_indices.shape;
  core::visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto most = static_cast<Real>(radius);
    for (std::int64_t q = 0; q < new_xyz.shape[0]; ++q) {
      std::vector<std::int64_t> rows;
      std::int64_t at[4];
      for (int k = 0; k < 4; ++k) at[k] = index_at(new_coords, 4 * q + k);
      for (std::int64_t voxel = 0; voxel < extents[1] * extents[2] * extents[3]; ++voxel) {
        if (static_cast<std::int64_t>(rows.size()) == idx.shape[1]) break;
        const std::int64_t x = voxel % extents[3], y = voxel / extents[3] % extents[2];
        const std::int64_t z = voxel / extents[3] / extents[2];
        if (std::abs(z - at[1]) > z_range || std::abs(y - at[2]) > y_range || std::abs(x - at[3]) > x_range)
          continue;
        const std::int64_t row =
            index_at(point_indices, at[0] * extents[1] * extents[2] * extents[3] + voxel);
        if (row < 0) continue;
        const Real square =
            reference::square_distance(numbers_of<Real>(xyz, 3 * row), numbers_of<Real>(new_xyz, 3 * q));
        if (square <= most * most) rows.push_back(row);
      }
      write_found(rows, q, idx, found);
    }
  });
}

template <class Clouds>
void find_nearest(const ConstTensor& points, const ConstTensor& queries, const Tensor& dist2,
                  const Tensor& idx, double limit, bool are_rows_global, const Clouds& for_clouds) {
  const std::int64_t k = idx.shape[idx.rank - 1];
  core::visit_lane(points.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for_clouds([&](std::int64_t first, std::int64_t count, std::int64_t first_query, std::int64_t asked) {
      for (std::int64_t q = first_query; q < first_query + asked; ++q) {
        const auto nearest =
            reference::nearest_points(numbers_of<Real>(points, 3 * first), count,
                                      numbers_of<Real>(queries, 3 * q), k, static_cast<Real>(limit));
        for (std::int64_t i = 0; i < k; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const bool is_there = at < nearest.size();
          numbers_of<Real>(dist2)[q * k + i] = is_there ? nearest[at].first : static_cast<Real>(limit);
          set_index(idx, q * k + i, (are_rows_global ? first : 0) + (is_there ? nearest[at].second : 0));
        }
      }
    });
  });
}
inline void three_nn(const ConstTensor& unknown, const ConstTensor& known, const Tensor& dist2,
                     const Tensor& idx) {
  find_nearest(known, unknown, dist2, idx, std::numeric_limits<double>::infinity(), false,
               [&](const auto& of_cloud) { for_batch(known, unknown, of_cloud); });
}
inline void three_nn_stacked(const ConstTensor& unknown, const ConstTensor& unknown_counts,
                             const ConstTensor& known, const ConstTensor& known_counts, const Tensor& dist2,
                             const Tensor& idx) {
  find_nearest(known, unknown, dist2, idx, std::numeric_limits<double>::infinity(), true,
               [&](const auto& of_cloud) { for_stack(known_counts, unknown_counts, of_cloud); });
}
inline void knn(const ConstTensor& xyz, const ConstTensor& new_xyz, const Tensor& idx, const Tensor& dist2) {
  find_nearest(xyz, new_xyz, dist2, idx, 1e10, false,
               [&](const auto& of_cloud) { for_batch(xyz, new_xyz, of_cloud); });
}

}  // namespace turnout::definition
