// The definitions as functions of tensors in their own dtypes, with the parameters of the operators.
#pragma once

#include <algorithm>
#include <cstdint>
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

}  // namespace turnout::definition
