// Points for the tests and the fuzzer of this family, and their expected results.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "dynamic_scatter/reference.h"
#include "simd/half.h"
#include "turnout/turnout.h"

namespace turnout::test {

inline constexpr Reduce kReductions[] = {Reduce::sum, Reduce::mean, Reduce::max};
inline constexpr int kOld = 7;  // the value of results before a call, if a test checks what is not written

template <class T>
std::vector<T> sized(std::int64_t count, T value = T{}) {
  return std::vector<T>(static_cast<std::size_t>(count), value);
}

// The type that features are computed in.
template <class T>
using LaneOf = decltype(core::to_float(T{}));
template <class T>
T rounded(LaneOf<T> v) {
  if constexpr (sizeof(T) == 2) {
    return core::from_float<T>(v);
  } else {
    return v;
  }
}

// Compares bit for bit, except that in computed results any NaN equals any other, because the payload of a
// sum is unspecified.
template <class T>
bool same_value(const T& a, const T& b) {
  if (std::memcmp(&a, &b, sizeof(T)) == 0) return true;
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    const auto x = core::to_float(a), y = core::to_float(b);
    return x != x && y != y;
  }
}
// The first element that differs, or -1.
template <class T>
std::int64_t first_difference(const T* actual, const std::vector<T>& expected) {
  if (expected.empty() || std::memcmp(actual, expected.data(), expected.size() * sizeof(T)) == 0) return -1;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!same_value(actual[i], expected[i])) return static_cast<std::int64_t>(i);
  return -1;
}

// The results of dynamic_scatter_forward().
template <class T, class Index, class Map>
struct ForwardResults {
  T* voxel_feats;
  Index* voxel_coors;
  Map* map;
  Map* count;
};

// Features and coordinates of points.
template <class T, class Index>
struct ScatterCase {
  std::int64_t points, channels, dims;
  std::vector<T> feats = {};      // [points, channels]
  std::vector<Index> coors = {};  // [points, dims]

  ConstTensor feats_view() const { return view(feats.data(), {points, channels}); }
  ConstTensor coors_view() const { return view(coors.data(), {points, dims}); }

  reference::Voxels voxels() const {
    std::vector<reference::Coordinates> rows;
    for (std::int64_t x = 0; x < points; ++x)
      rows.emplace_back(coors.begin() + x * dims, coors.begin() + (x + 1) * dims);
    return reference::voxels_of(rows);
  }

  // All results by the definition, with `room` rows for voxels; elements that are not written are kOld.
  template <class Map>
  struct Forward {
    std::int64_t voxels = 0;
    std::vector<T> voxel_feats;
    std::vector<Index> voxel_coors;
    std::vector<Map> map, count;
  };
  template <class Map = std::int32_t>
  Forward<Map> expected_forward(const reference::Voxels& all, Reduce reduce_type, std::int64_t room) const {
    const LaneOf<T> none = reduce_type == Reduce::max ? -std::numeric_limits<LaneOf<T>>::infinity() : 0;
    Forward<Map> r{0, sized<T>(room * channels, rounded<T>(none)), sized<Index>(room * dims, kOld),
                   sized<Map>(points, -1), sized<Map>(room, kOld)};
    for (const auto& [cell, inside] : all) {
      const std::int64_t v = r.voxels++;
      for (std::int64_t c = 0; c < channels; ++c)
        r.voxel_feats.data()[v * channels + c] =
            rounded<T>(reference::reduced(channel(inside, c), reduce_type));
      for (std::int64_t d = 0; d < dims; ++d)
        r.voxel_coors.data()[v * dims + d] = static_cast<Index>(cell.data()[d]);
      for (const std::int64_t x : inside) r.map.data()[x] = static_cast<Map>(v);
      r.count.data()[v] = static_cast<Map>(inside.size());
    }
    return r;
  }

  template <class Map>
  std::int64_t forward(Context& context, Reduce reduce_type, std::int64_t room,
                       const ForwardResults<T, Index, Map>& to) const {
    return dynamic_scatter_forward(feats_view(), coors_view(), view(to.voxel_feats, {room, channels}),
                                   view(to.voxel_coors, {room, dims}), view(to.map, {points}),
                                   view(to.count, {room}), reduce_type, context);
  }

  // The gradient of every point, for any map and any voxel_feats.
  template <class Map>
  std::vector<T> expected_backward(const std::vector<T>& grad, const std::vector<T>& voxel_feats,
                                   const std::vector<Map>& map, const std::vector<Map>& count,
                                   Reduce reduce_type) const {
    std::vector<T> result(feats.size());
    std::vector<std::vector<std::int64_t>> points_of(count.size());
    for (std::size_t x = 0; x < map.size(); ++x)
      if (map[x] >= 0) points_of[static_cast<std::size_t>(map[x])].push_back(static_cast<std::int64_t>(x));
    for (std::size_t v = 0; v < count.size(); ++v) {
      const std::vector<std::int64_t>& inside = points_of[v];
      for (std::int64_t c = 0; !inside.empty() && c < channels; ++c) {
        const std::int64_t at = static_cast<std::int64_t>(v) * channels + c;
        const T g = grad.data()[at];
        const auto values = channel(inside, c);
        const auto wanted = core::to_float(voxel_feats.data()[at]);
        const auto grads = reference::reduced_backward<LaneOf<T>>(
            core::to_float(g), values, wanted, static_cast<LaneOf<T>>(count[v]), reduce_type);
        // Where the gradient is that of the voxel, its bits are copied.
        const auto marks = reference::reduced_backward<LaneOf<T>>(1, values, wanted, 1, reduce_type);
        for (std::size_t i = 0; i < inside.size(); ++i)
          result.data()[inside[i] * channels + c] =
              reduce_type == Reduce::mean ? rounded<T>(grads[i]) : (marks[i] == 1 ? g : T{});
      }
    }
    return result;
  }

  template <class Map>
  void backward(Context& context, const std::vector<T>& grad, const std::vector<T>& voxel_feats,
                const std::vector<Map>& map, const std::vector<Map>& count, Reduce reduce_type,
                T* grad_feats) const {
    const auto room = static_cast<std::int64_t>(count.size());
    const ConstTensor f = feats_view();
    const ConstTensor w = view(voxel_feats.data(), {room, channels});
    const ConstTensor n = view(count.data(), {room});
    dynamic_scatter_backward(view(grad.data(), {room, channels}), f, w, view(map.data(), {points}), n,
                             nullptr, view(grad_feats, {points, channels}), reduce_type, context);
  }

 private:
  std::vector<LaneOf<T>> channel(const std::vector<std::int64_t>& inside, std::int64_t c) const {
    std::vector<LaneOf<T>> values;
    values.reserve(inside.size());
    for (const std::int64_t x : inside) values.push_back(core::to_float(feats.data()[x * channels + c]));
    return values;
  }
};

}  // namespace turnout::test
