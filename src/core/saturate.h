// Sums and products of sizes that saturate at the limits of int64. No shape has such a size, and no
// allocation of it succeeds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace turnout::core {

constexpr std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a ^ b) < 0 ? -kMost : kMost;
}

constexpr std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? -kMost : kMost;
}

// The product of sizes; 0 if one is negative.
constexpr std::int64_t saturating_volume(const std::int64_t* sizes, std::int64_t count) {
  std::int64_t volume = 1;
  for (std::int64_t k = 0; k < count; ++k)
    volume = saturating_product(volume, std::max<std::int64_t>(0, sizes[k]));
  return volume;
}

}  // namespace turnout::core
