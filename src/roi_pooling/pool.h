// Pools channels of the points of one cell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "rows/channel_sums.h"
#include "simd/half.h"

namespace turnout::families::roi_pooling {

template <class T>
using Lane = rows::LaneOf<T>;

template <class T>
T rounded(Lane<T> v) {
  if constexpr (sizeof(T) == 2) {
    return core::from_float<T>(v);
  } else {
    return v;
  }
}

inline constexpr std::int64_t kChannels = 128;  // that are pooled at once

// features[point * channels + c] of the cell's points, for c = 0 .. width-1. width is at most kChannels.
template <class T>
void pool_max(const T* features, std::int64_t channels, const std::int32_t* points, std::int64_t count,
              std::int64_t width, T* to) {
  constexpr Lane<T> kLowest = -std::numeric_limits<Lane<T>>::infinity();
  Lane<T> best[kChannels];
  std::fill_n(best, width, kLowest);
  for (std::int64_t i = 0; i < count; ++i) {
    const T* row = features + points[i] * channels;
    for (std::int64_t c = 0; c < width; ++c) {
      const Lane<T> value = core::to_float(row[c]);
      best[c] = value > best[c] ? value : best[c];
    }
  }
  for (std::int64_t c = 0; c < width; ++c) to[c] = rounded<T>(best[c] > kLowest ? best[c] : Lane<T>(0));
}

template <class T>
void pool_avg(const T* features, std::int64_t channels, const std::int32_t* points, std::int64_t count,
              std::int64_t width, T* to) {
  Lane<T> sum[kChannels];
  std::fill_n(sum, width, Lane<T>(0));
  for (std::int64_t i = 0; i < count; ++i) {
    const T* row = features + points[i] * channels;
    for (std::int64_t c = 0; c < width; ++c) sum[c] += core::to_float(row[c]);
  }
  for (std::int64_t c = 0; c < width; ++c) to[c] = rounded<T>(sum[c] / static_cast<Lane<T>>(count));
}

// The first point with the maximum of each channel, or -1.
template <class T>
void first_maxima(const T* features, std::int64_t channels, const std::int32_t* points, std::int64_t count,
                  std::int64_t width, std::int32_t* at) {
  Lane<T> best[kChannels];
  std::fill_n(best, width, -std::numeric_limits<Lane<T>>::infinity());
  std::fill_n(at, width, -1);
  for (std::int64_t i = 0; i < count; ++i) {
    const T* row = features + points[i] * channels;
    for (std::int64_t c = 0; c < width; ++c) {
      const Lane<T> value = core::to_float(row[c]);
      at[c] = value > best[c] ? points[i] : at[c];
      best[c] = value > best[c] ? value : best[c];
    }
  }
}

}  // namespace turnout::families::roi_pooling
