// Points for the tests of this family, and calls compared with the definition, bit by bit.
#pragma once

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/half.h"
#include "dynamic_scatter/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {

inline constexpr Reduce kReductions[] = {Reduce::sum, Reduce::mean, Reduce::max};

// What features are computed in.
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

// Features and coordinates of points, and everything that both directions make of them.
template <class T, class Index>
struct ScatterCase {
  std::int64_t points, channels, dims;
  std::vector<T> feats = {};      // [points, channels]
  std::vector<Index> coors = {};  // [points, dims]

  struct Forward {
    std::int64_t voxels = 0;
    std::vector<T> voxel_feats;
    std::vector<Index> voxel_coors;
    std::vector<std::int32_t> map, count;
  };

  reference::Voxels voxels() const {
    std::vector<reference::Coordinates> rows;
    for (std::int64_t x = 0; x < points; ++x)
      rows.emplace_back(coors.begin() + x * dims, coors.begin() + (x + 1) * dims);
    return reference::voxels_of(rows);
  }

  // By the definition, with `room` rows for voxels; the rest of the rows as the operator leaves zeros.
  Forward expected_forward(Reduce reduce_type, std::int64_t room) const {
    Forward r = empty_forward(room);
    const LaneOf<T> none = reduce_type == Reduce::max ? -std::numeric_limits<LaneOf<T>>::infinity() : 0;
    std::fill(r.voxel_feats.begin(), r.voxel_feats.end(), rounded<T>(none));
    std::fill(r.map.begin(), r.map.end(), -1);
    for (const auto& [cell, inside] : voxels()) {
      const auto v = static_cast<std::size_t>(r.voxels++);
      for (std::int64_t c = 0; c < channels; ++c)
        r.voxel_feats[v * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)] =
            rounded<T>(reference::reduced(channel(inside, c), reduce_type));
      for (std::size_t d = 0; d < cell.size(); ++d)
        r.voxel_coors[v * cell.size() + d] = static_cast<Index>(cell[d]);
      for (const std::int64_t x : inside) r.map[static_cast<std::size_t>(x)] = static_cast<std::int32_t>(v);
      r.count[v] = static_cast<std::int32_t>(inside.size());
    }
    return r;
  }

  Forward empty_forward(std::int64_t room) const {
    const auto rows = static_cast<std::size_t>(room);
    return {0, std::vector<T>(rows * static_cast<std::size_t>(channels)),
            std::vector<Index>(rows * static_cast<std::size_t>(dims)),
            std::vector<std::int32_t>(static_cast<std::size_t>(points)), std::vector<std::int32_t>(rows)};
  }

  Forward forward(Context& context, Reduce reduce_type, std::int64_t room) const {
    Forward r = empty_forward(room);
    r.voxels = dynamic_scatter_forward(
        context, view(feats.data(), {points, channels}), view(coors.data(), {points, dims}),
        view(r.voxel_feats.data(), {room, channels}), view(r.voxel_coors.data(), {room, dims}),
        view(r.map.data(), {points}), view(r.count.data(), {room}), reduce_type);
    return r;
  }

  // The gradient of every point, for any map and any voxel_feats.
  std::vector<T> expected_backward(const std::vector<T>& grad, const std::vector<T>& voxel_feats,
                                   const std::vector<std::int32_t>& map,
                                   const std::vector<std::int32_t>& count, Reduce reduce_type) const {
    std::vector<T> result(feats.size());
    std::vector<std::vector<std::int64_t>> points_of(count.size());
    for (std::size_t x = 0; x < map.size(); ++x)
      if (map[x] >= 0) points_of[static_cast<std::size_t>(map[x])].push_back(static_cast<std::int64_t>(x));
    for (std::size_t v = 0; v < count.size(); ++v) {
      const std::vector<std::int64_t>& inside = points_of[v];
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::size_t at = v * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c);
        // Where the gradient is the voxel's own, its bits are copied.
        const auto grads = reference::reduced_backward<LaneOf<T>>(
            core::to_float(grad[at]), channel(inside, c), core::to_float(voxel_feats[at]),
            static_cast<LaneOf<T>>(count[v]), reduce_type);
        const auto marks = reference::reduced_backward<LaneOf<T>>(
            1, channel(inside, c), core::to_float(voxel_feats[at]), 1, reduce_type);
        for (std::size_t i = 0; i < inside.size(); ++i) {
          const T value = reduce_type == Reduce::mean ? rounded<T>(grads[i]) : marks[i] == 1 ? grad[at] : T{};
          result[static_cast<std::size_t>(inside[i] * channels + c)] = value;
        }
      }
    }
    return result;
  }

  std::vector<T> backward(Context& context, const std::vector<T>& grad, const std::vector<T>& voxel_feats,
                          const std::vector<std::int32_t>& map, const std::vector<std::int32_t>& count,
                          Reduce reduce_type) const {
    const auto room = static_cast<std::int64_t>(count.size());
    std::vector<T> result(feats.size());
    const ConstTensor f = view(feats.data(), {points, channels});
    const ConstTensor w = view(voxel_feats.data(), {room, channels});
    const ConstTensor n = view(count.data(), {room});
    dynamic_scatter_backward(context, view(grad.data(), {room, channels}),
                             {.point2voxel_map = view(map.data(), {points}),
                              .feats = &f,
                              .voxel_feats = &w,
                              .voxel_points_count = &n},
                             view(result.data(), {points, channels}), reduce_type);
    return result;
  }

 private:
  std::vector<LaneOf<T>> channel(const std::vector<std::int64_t>& inside, std::int64_t c) const {
    std::vector<LaneOf<T>> values;
    for (const std::int64_t x : inside)
      values.push_back(core::to_float(feats[static_cast<std::size_t>(x * channels + c)]));
    return values;
  }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace turnout::test
