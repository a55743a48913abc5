// Random calls with boxes and points of any kind, compared bit by bit with the definitions: for the tests and
// the fuzzer.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/dtypes.h"
#include "isas.h"
#include "roi_pooling/reference.h"
#include "simd/half.h"
#include "turnout/roi_pooling.h"

namespace turnout::test {

// A number below a bound, and where all randomness of a case comes from.
using Below = std::function<std::int64_t(std::int64_t)>;

// Boxes around the origin and points in and around them, at borders of cells, and some that are not finite.
template <class Real>
struct RoiScene {
  std::vector<Real> boxes, points;

  RoiScene(const Below& below, std::int64_t box_count, std::int64_t point_count) {
    const auto uniform = [&](Real low, Real high) {
      return low + (high - low) * static_cast<Real>(below(1 << 16)) / Real(1 << 16);
    };
    const auto odd = [&](Real& v) {
      static constexpr Real kOdd[] = {std::numeric_limits<Real>::quiet_NaN(),
                                      std::numeric_limits<Real>::infinity(),
                                      -std::numeric_limits<Real>::infinity(),
                                      Real(0),
                                      Real(-1),
                                      Real(1e-6),
                                      Real(1e30),
                                      Real(-0.0)};
      if (below(40) == 0) v = kOdd[below(8)];
    };
    for (std::int64_t i = 0; i < box_count; ++i) {
      Real box[] = {uniform(-4, 4),
                    uniform(-4, 4),
                    uniform(-1, 1),
                    uniform(Real(0.5), 6),
                    uniform(Real(0.5), 4),
                    uniform(Real(0.5), 3),
                    below(3) == 0 ? Real(0) : uniform(-7, 7)};
      for (Real& v : box) odd(v);
      boxes.insert(boxes.end(), box, box + 7);
    }
    for (std::int64_t i = 0; i < point_count; ++i) {
      Real p[] = {uniform(-6, 6), uniform(-6, 6), uniform(-2, 3)};
      if (box_count > 0 && below(2) == 0) {  // at a border of a box or of a cell
        const Real* box = &boxes[static_cast<std::size_t>(7 * below(box_count))];
        const Real u = static_cast<Real>(below(13) - 6) / 12 * box[3];
        const Real v = static_cast<Real>(below(13) - 6) / 12 * box[4];
        const Real c = std::cos(box[6]), s = std::sin(box[6]);
        p[0] = box[0] + u * c - v * s;
        p[1] = box[1] + u * s + v * c;
        p[2] = box[2] + static_cast<Real>(below(13) - 6) / 12 * box[5];
      }
      for (Real& v : p) odd(v);
      points.insert(points.end(), p, p + 3);
    }
  }
};

// Numbers of type T, few different ones, so that maxima are equal.
template <class T>
std::vector<T> few_numbers(const Below& below, std::int64_t count) {
  std::vector<T> all(static_cast<std::size_t>(count));
  const bool is_odd = below(4) == 0;
  for (T& v : all) {
    float number = static_cast<float>(below(9) - 4) * 0.3125f;
    if (is_odd && below(6) == 0)
      number =
          below(2) == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    if constexpr (sizeof(T) == 2) {
      v = core::from_float<T>(number);
    } else {
      v = static_cast<T>(number);
    }
  }
  return all;
}

// Calls `run` on all instruction sets and with one and three threads; it returns the bytes of its results.
template <class Run>
std::string compare(const std::string& op, const std::vector<std::byte>& expected, const Run& run) {
  for (const Isa isa : supported_isas())
    for (const int threads : {1, 3}) {
      Context context({.threads = threads, .isa = isa});
      if (run(context) != expected)
        return op + " differs from its definition on " + std::string(name_of(isa)) + " with " +
               std::to_string(threads) + " threads";
    }
  return "";
}
template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& numbers) {
  const auto* data = reinterpret_cast<const std::byte*>(numbers.data());
  return {data, data + numbers.size() * sizeof(T)};
}

template <class Real, class T>
std::string compare_roiaware(const Below& below, std::int64_t most) {
  const std::int64_t rois = below(most), count = below(8 * most), channels = below(40);
  const std::int64_t size[] = {1 + below(5), 1 + below(4), 1 + below(4)};
  const std::int64_t cells = size[0] * size[1] * size[2], max_points = below(6);
  const auto method = below(2) == 0 ? PoolMethod::max : PoolMethod::avg;
  const auto z = below(2) == 0 ? BoxZ::center : BoxZ::bottom;
  const double margin = below(2) == 0 ? 1e-5 : 0;
  RoiScene<Real> scene(below, rois, count);
  const ConstTensor boxes = view(scene.boxes.data(), {rois, 7}),
                    points = view(scene.points.data(), {count, 3});
  std::vector<T> features = few_numbers<T>(below, count * channels);
  std::vector<T> pooled(static_cast<std::size_t>(rois * cells * channels)), grad(features.size());
  const ConstTensor from = view(features.data(), {count, channels});
  definition::roiaware_pool3d(boxes, points, from, view(pooled.data(), {rois, cells, channels}), size,
                              max_points, method, z, margin);
  const std::string wrong = compare("roiaware_pool3d", bytes_of(pooled), [&](Context& context) {
    std::vector<T> found(pooled.size(), few_numbers<T>(below, 1)[0]);
    roiaware_pool3d(boxes, points, from, view(found.data(), {rois, cells, channels}), size, max_points,
                    method, z, margin, context);
    return bytes_of(found);
  });
  if (!wrong.empty()) return wrong;
  std::vector<T> grads = few_numbers<T>([&](std::int64_t bound) { return bound == 4 ? 1 : below(bound); },
                                        rois * cells * channels);
  const ConstTensor grad_pooled = view(grads.data(), {rois, cells, channels});
  definition::roiaware_pool3d_backward(grad_pooled, boxes, points, from, view(grad.data(), {count, channels}),
                                       size, max_points, method, z, margin);
  return compare("roiaware_pool3d_backward", bytes_of(grad), [&](Context& context) {
    std::vector<T> found(grad.size());
    roiaware_pool3d_backward(grad_pooled, boxes, points, from, view(found.data(), {count, channels}), size,
                             max_points, method, z, margin, context);
    return bytes_of(found);
  });
}

template <class Real>
std::string compare_roipoint(const Below& below, std::int64_t most) {
  const std::int64_t batch = below(3), boxes = below(most), count = below(8 * most), channels = below(9);
  const std::int64_t samples = below(20);
  RoiScene<Real> scene(below, batch * boxes, batch * count);
  std::vector<Real> features = few_numbers<Real>(below, batch * count * channels);
  const auto z = below(2) == 0 ? BoxZ::center : BoxZ::bottom;
  const ConstTensor points = view(scene.points.data(), {batch, count, 3});
  const ConstTensor from = view(features.data(), {batch, count, channels});
  const ConstTensor in = view(scene.boxes.data(), {batch, boxes, 7});
  const auto run = [&](const auto& function, auto&&... caller) {
    std::vector<Real> pooled(static_cast<std::size_t>(batch * boxes * samples * (3 + channels)));
    std::vector<std::int32_t> empty(static_cast<std::size_t>(batch * boxes), 7);
    function(points, from, in, view(pooled.data(), {batch, boxes, samples, 3 + channels}),
             view(empty.data(), {batch, boxes}), z, 1e-5, caller...);
    std::vector<std::byte> all = bytes_of(pooled), more = bytes_of(empty);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  return compare("roipoint_pool3d", run(definition::roipoint_pool3d),
                 [&](Context& context) { return run(roipoint_pool3d, context); });
}

inline std::string compare_with_definition(const Below& below, std::int64_t most) {
  if (below(3) == 0)
    return below(3) == 0 ? compare_roipoint<double>(below, most) : compare_roipoint<float>(below, most);
  static constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
  return core::visit_float(kDTypes[below(4)], [&](auto type) {
    using T = typename decltype(type)::type;
    return below(3) == 0 ? compare_roiaware<double, T>(below, most) : compare_roiaware<float, T>(below, most);
  });
}

}  // namespace turnout::test
