// The definition of each operator of this family: serial, readable, one point at a time, in the numbers' own
// types. The operators have its bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "core/dtypes.h"
#include "simd/half.h"
#include "turnout/roi_pooling.h"

namespace turnout::definition {

// As in points_in_boxes().
template <class Real>
struct RoiBox {
  Real x, y, z, dx, dy, dz, middle, cosine, sine;
  bool is_nan, z_is_bottom;
  float margin;

  RoiBox(const Real* box, BoxZ z_of, double its_margin)
      : x(box[0]),
        y(box[1]),
        z(box[2]),
        dx(box[3]),
        dy(box[4]),
        dz(box[5]),
        middle(z_of == BoxZ::center ? z : static_cast<Real>(double{z} + double{dz} / 2)),
        cosine(static_cast<Real>(std::cos(-double{box[6]}))),
        sine(static_cast<Real>(std::sin(-double{box[6]}))),
        is_nan(std::any_of(box, box + 7, [](Real v) { return std::isnan(v); })),
        z_is_bottom(z_of == BoxZ::bottom),
        margin(static_cast<float>(its_margin)) {}

  Real local_x(const Real* p) const { return (p[0] - x) * cosine + (p[1] - y) * -sine; }
  Real local_y(const Real* p) const { return (p[0] - x) * sine + (p[1] - y) * cosine; }
  bool has(const Real* p) const {
    return !is_nan && double{std::abs(p[2] - middle)} <= double{dz} / 2 &&
           double{std::abs(local_x(p))} < double{dx} / 2 + double{margin} &&
           double{std::abs(local_y(p))} < double{dy} / 2 + double{margin};
  }
  std::int64_t cell(const Real* p, std::span<const std::int64_t> size) const {
    const auto index = [](Real quotient, std::int64_t n) -> std::int64_t {
      if (!(quotient > 0)) return 0;  // also NaN
      return quotient >= static_cast<Real>(n) ? n - 1 : static_cast<std::int64_t>(quotient);
    };
    const Real height = z_is_bottom ? p[2] - z : p[2] - z + dz / 2;
    const std::int64_t ix = index((local_x(p) + dx / 2) / (dx / static_cast<Real>(size[0])), size[0]);
    const std::int64_t iy = index((local_y(p) + dy / 2) / (dy / static_cast<Real>(size[1])), size[1]);
    const std::int64_t iz = index(height / (dz / static_cast<Real>(size[2])), size[2]);
    return (ix * size[1] + iy) * size[2] + iz;
  }
};

// Calls f(cell of all RoIs, points of the cell), cells in ascending order.
template <class F>
void for_roi_cells(const ConstTensor& rois, const ConstTensor& points, std::span<const std::int64_t> size,
                   std::int64_t max_points, BoxZ z, double margin, const F& f) {
  const std::int64_t cells = size[0] * size[1] * size[2];
  core::visit_lane(rois.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for (std::int64_t roi = 0; roi < rois.shape[0]; ++roi) {
      const RoiBox<Real> box(static_cast<const Real*>(rois.data) + 7 * roi, z, margin);
      std::vector<std::vector<std::int64_t>> lists(static_cast<std::size_t>(cells));
      for (std::int64_t k = 0; k < points.shape[0]; ++k) {
        const Real* p = static_cast<const Real*>(points.data) + 3 * k;
        if (!box.has(p)) continue;
        auto& list = lists[static_cast<std::size_t>(box.cell(p, size))];
        if (static_cast<std::int64_t>(list.size()) < max_points) list.push_back(k);
      }
      for (std::int64_t c = 0; c < cells; ++c) f(roi * cells + c, lists[static_cast<std::size_t>(c)]);
    }
  });
}

// Calls f(features, lane type's zero) with the typed data of a tensor.
template <class T>
using PoolLane = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
T pool_rounded(PoolLane<T> v) {
  if constexpr (sizeof(T) == 2) {
    return core::from_float<T>(v);
  } else {
    return v;
  }
}

// The first of the points with the largest number above -inf, or -1.
template <class T>
std::int64_t first_maximum(const T* features, std::int64_t channels, std::int64_t c,
                           const std::vector<std::int64_t>& list) {
  std::int64_t at = -1;
  PoolLane<T> best = -std::numeric_limits<PoolLane<T>>::infinity();
  for (const std::int64_t k : list)
    if (const PoolLane<T> v = core::to_float(features[k * channels + c]); v > best) {
      best = v;
      at = k;
    }
  return at;
}

inline void roiaware_pool3d(const ConstTensor& rois, const ConstTensor& points, const ConstTensor& features,
                            const Tensor& pooled, std::span<const std::int64_t> out_size,
                            std::int64_t max_points, PoolMethod pool_method, BoxZ z, double margin) {
  core::visit_float(features.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = static_cast<const T*>(features.data);
    const std::int64_t channels = features.shape[1];
    for_roi_cells(rois, points, out_size, max_points, z, margin, [&](std::int64_t cell, const auto& list) {
      for (std::int64_t c = 0; c < channels; ++c) {
        T& to = static_cast<T*>(pooled.data)[cell * channels + c];
        to = pool_rounded<T>(0);
        if (pool_method == PoolMethod::max) {
          if (const std::int64_t k = first_maximum(from, channels, c, list); k >= 0)
            to = from[k * channels + c];
        } else if (!list.empty()) {
          PoolLane<T> sum = 0;
          for (const std::int64_t k : list) sum += core::to_float(from[k * channels + c]);
          to = pool_rounded<T>(sum / static_cast<PoolLane<T>>(list.size()));
        }
      }
    });
  });
}

inline void roiaware_pool3d_backward(const ConstTensor& grad_pooled, const ConstTensor& rois,
                                     const ConstTensor& points, const ConstTensor& features,
                                     const Tensor& grad_features, std::span<const std::int64_t> out_size,
                                     std::int64_t max_points, PoolMethod pool_method, BoxZ z, double margin) {
  core::visit_float(grad_pooled.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto *from = static_cast<const T*>(features.data), *grad = static_cast<const T*>(grad_pooled.data);
    const std::int64_t channels = grad_features.shape[1];
    std::vector<PoolLane<T>> sums(static_cast<std::size_t>(grad_features.shape[0] * channels), 0);
    for_roi_cells(rois, points, out_size, max_points, z, margin, [&](std::int64_t cell, const auto& list) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const PoolLane<T> g = core::to_float(grad[cell * channels + c]);
        if (pool_method == PoolMethod::max) {
          if (const std::int64_t k = first_maximum(from, channels, c, list); k >= 0)
            sums[static_cast<std::size_t>(k * channels + c)] += g;
        } else {
          for (const std::int64_t k : list)
            sums[static_cast<std::size_t>(k * channels + c)] +=
                g * (PoolLane<T>(1) / static_cast<PoolLane<T>>(list.size()));
        }
      }
    });
    for (std::size_t i = 0; i < sums.size(); ++i)
      static_cast<T*>(grad_features.data)[i] = pool_rounded<T>(sums[i]);
  });
}

inline std::int64_t roiaware_points(const ConstTensor& rois, const ConstTensor& points, const Tensor& cell_of,
                                    const Tensor& point_of, std::span<const std::int64_t> out_size,
                                    std::int64_t max_points, BoxZ z, double margin) {
  std::int64_t pairs = 0;
  for_roi_cells(rois, points, out_size, max_points, z, margin, [&](std::int64_t cell, const auto& list) {
    for (const std::int64_t k : list) {
      static_cast<std::int64_t*>(cell_of.data)[pairs] = cell;
      static_cast<std::int64_t*>(point_of.data)[pairs++] = k;
    }
  });
  return pairs;
}

inline void roipoint_pool3d(const ConstTensor& points, const ConstTensor& features, const ConstTensor& boxes,
                            const Tensor& pooled, const Tensor& empty, BoxZ z, double margin) {
  core::visit_lane(points.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const std::int64_t count = points.shape[1], channels = features.shape[2], samples = pooled.shape[2];
    for (std::int64_t i = 0; i < boxes.shape[0] * boxes.shape[1]; ++i) {
      const std::int64_t b = i / boxes.shape[1];
      const RoiBox<Real> box(static_cast<const Real*>(boxes.data) + 7 * i, z, margin);
      std::vector<std::int64_t> inside;
      for (std::int64_t k = b * count; k < (b + 1) * count; ++k)
        if (box.has(static_cast<const Real*>(points.data) + 3 * k)) inside.push_back(k);
      static_cast<std::int32_t*>(empty.data)[i] = inside.empty();
      const std::int64_t used = std::min(samples, static_cast<std::int64_t>(inside.size()));
      for (std::int64_t s = 0; s < samples; ++s)
        for (std::int64_t c = 0; c < 3 + channels; ++c) {
          Real& to = static_cast<Real*>(pooled.data)[(i * samples + s) * (3 + channels) + c];
          if (used == 0) {
            to = 0;
            continue;
          }
          const std::int64_t k = inside[static_cast<std::size_t>(s % used)];
          to = c < 3 ? static_cast<const Real*>(points.data)[3 * k + c]
                     : static_cast<const Real*>(features.data)[k * channels + c - 3];
        }
    }
  });
}

}  // namespace turnout::definition
