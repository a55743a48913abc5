// The definitions of lists of neighbours and of vector pooling, as functions of tensors in their own dtypes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "points/definition.h"

namespace turnout::definition {

inline std::int64_t neighbor_lists(const ConstTensor& xyz, const ConstTensor& counts,
                                   const ConstTensor& new_xyz, const ConstTensor& new_counts,
                                   const Tensor& rows, const Tensor& starts, double radius,
                                   std::int64_t nsample, NeighborRegion region) {
  std::int64_t entries = 0;
  set_index(starts, 0, 0);
  core::visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto most = static_cast<Real>(radius);
    for_stack(counts, new_counts,
              [&](std::int64_t first, std::int64_t count, std::int64_t first_query, std::int64_t asked) {
                for (std::int64_t q = first_query; q < first_query + asked; ++q) {
                  const Real* query = numbers_of<Real>(new_xyz, 3 * q);
                  const auto is_near = [&](Real square, const Real* p) {
                    return region == NeighborRegion::ball ? square <= most * most
                                                          : reference::is_in_cube(p, query, most);
                  };
                  for (const std::int64_t row : reference::first_points(numbers_of<Real>(xyz, 3 * first),
                                                                        count, query, nsample, is_near))
                    set_index(rows, entries++, first + row);
                  set_index(starts, q + 1, entries);
                }
              });
  });
  return entries;
}

inline void three_nn_of_lists(const ConstTensor& xyz, const ConstTensor& centers, const ConstTensor& rows,
                              const ConstTensor& starts, const Tensor& dist2, const Tensor& idx) {
  const std::int64_t cells = centers.shape[1];
  core::visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for (std::int64_t i = 0; i < centers.shape[0] * cells; ++i) {
      const std::int64_t first = index_at(starts, i / cells), last = index_at(starts, i / cells + 1);
      std::vector<Real> listed;
      for (std::int64_t e = first; e < last; ++e) {
        const Real* p = numbers_of<Real>(xyz, 3 * index_at(rows, e));
        listed.insert(listed.end(), p, p + 3);
      }
      const auto nearest =
          reference::nearest_points(listed.data(), last - first, numbers_of<Real>(centers, 3 * i), 3,
                                    std::numeric_limits<Real>::infinity());
      for (std::size_t k = 0; k < 3; ++k) {
        const auto at = 3 * i + static_cast<std::int64_t>(k);
        if (nearest.empty()) {
          numbers_of<Real>(dist2)[at] = std::numeric_limits<Real>::infinity();
          set_index(idx, at, -1);
        } else {
          const auto& [square, place] = nearest[k < nearest.size() ? k : 0];
          numbers_of<Real>(dist2)[at] = square;
          set_index(idx, at, index_at(rows, first + place));
        }
      }
    }
  });
}

inline void vector_pool(const ConstTensor& xyz, const ConstTensor& features, const ConstTensor& new_xyz,
                        const ConstTensor& rows, const ConstTensor& starts, const Tensor& pooled,
                        const Tensor& local_xyz, const Tensor& cell_counts, const Tensor& grouped,
                        double radius, std::span<const std::int64_t> grid, VectorPoolMode mode,
                        std::int64_t nsample) {
  const std::int64_t cells = grid[0] * grid[1] * grid[2], channels = features.shape[1];
  const std::int64_t slots = pooled.shape[2], queries = new_xyz.shape[0];
  const bool is_first = mode == VectorPoolMode::first;
  core::visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    Real *sums = numbers_of<Real>(pooled), *locals = numbers_of<Real>(local_xyz);
    std::fill_n(sums, queries * cells * slots, Real(0));
    std::fill_n(locals, queries * cells * 3, Real(0));
    for (std::int64_t i = 0; i < queries * cells; ++i) set_index(cell_counts, i, 0);
    for (std::int64_t q = 0; q < queries; ++q) {
      std::int64_t taken = 0;
      for (std::int64_t e = index_at(starts, q); e < index_at(starts, q + 1); ++e) {
        const std::int64_t row = index_at(rows, e);
        const Real *p = numbers_of<Real>(xyz, 3 * row), *query = numbers_of<Real>(new_xyz, 3 * q);
        std::int64_t cell = reference::cell_of_cube(p, query, static_cast<Real>(radius), grid.data());
        const auto is_taken = [&] {
          return taken < nsample && cell >= 0 && !(is_first && index_at(cell_counts, q * cells + cell) > 0);
        };
        if (!is_taken()) cell = -1;
        set_index(grouped, 3 * e, row);
        set_index(grouped, 3 * e + 1, q);
        set_index(grouped, 3 * e + 2, cell);
        if (cell < 0) continue;
        ++taken;
        const std::int64_t at = q * cells + cell;
        set_index(cell_counts, at, index_at(cell_counts, at) + 1);
        for (std::int64_t i = 0; slots > 0 && i < channels; ++i) {
          Real& sum = sums[at * slots + i % slots];
          const Real feature = numbers_of<Real>(features)[row * channels + i];
          sum = is_first ? feature : sum + feature;
        }
        for (int k = 0; k < 3; ++k)
          locals[3 * at + k] = is_first ? p[k] - query[k] : locals[3 * at + k] + (p[k] - query[k]);
      }
    }
    if (mode != VectorPoolMode::mean) return;
    for (std::int64_t i = 0; i < queries * cells; ++i) {
      const auto count = static_cast<Real>(std::max<std::int64_t>(index_at(cell_counts, i), 1));
      for (std::int64_t j = 0; j < slots; ++j) sums[i * slots + j] /= count;
      for (int k = 0; k < 3; ++k) locals[3 * i + k] /= count;
    }
  });
}

inline void vector_pool_backward(const ConstTensor& grad_pooled, const ConstTensor& cell_counts,
                                 const ConstTensor& grouped, const Tensor& grad_features,
                                 VectorPoolMode mode) {
  const std::int64_t channels = grad_features.shape[1], slots = grad_pooled.shape[2];
  if (grad_features.shape[0] * channels == 0) return;  // entries of a call without results are not checked
  core::visit_lane(grad_pooled.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    Real* to = numbers_of<Real>(grad_features);
    std::fill_n(to, grad_features.shape[0] * channels, Real(0));
    for (std::int64_t e = 0; e < grouped.shape[0]; ++e) {
      const std::int64_t cell = index_at(grouped, 3 * e + 2);
      if (cell < 0) continue;
      const std::int64_t at = index_at(grouped, 3 * e + 1) * grad_pooled.shape[1] + cell;
      const std::int64_t count =
          mode == VectorPoolMode::mean ? std::max<std::int64_t>(index_at(cell_counts, at), 1) : 1;
      for (std::int64_t i = 0; slots > 0 && i < channels; ++i)
        if (mode != VectorPoolMode::first || i + slots >= channels)
          to[index_at(grouped, 3 * e) * channels + i] +=
              numbers_of<Real>(grad_pooled)[at * slots + i % slots] * (Real(1) / static_cast<Real>(count));
    }
  });
}

}  // namespace turnout::definition
