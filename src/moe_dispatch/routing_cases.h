// Shapes, routing patterns and values for the tests of this family.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "guarded.h"
#include "simd/half.h"

namespace turnout::test {

enum class Routing { distinct, dropped, all_equal, sorted, reversed, random, all_dropped, extremes };
inline constexpr Routing kRoutings[] = {Routing::distinct,    Routing::dropped,  Routing::all_equal,
                                        Routing::sorted,      Routing::reversed, Routing::random,
                                        Routing::all_dropped, Routing::extremes};

struct Shape {
  std::int64_t choices, samples, hidden, num_experts, capacity;
};

template <class Index, class Location>
void route(Routing routing, const Shape& s, std::mt19937& random, Guarded<Index>& indices,
           Guarded<Location>& locations) {
  const std::int64_t rows = s.num_experts * s.capacity;
  const auto put = [&](std::int64_t q, std::int64_t expert, std::int64_t slot) {
    indices[q] = static_cast<Index>(expert);
    locations[q] = static_cast<Location>(slot);
  };
  std::vector<std::int64_t> shuffled(static_cast<std::size_t>(rows));
  for (std::size_t r = 0; r < shuffled.size(); ++r) shuffled[r] = static_cast<std::int64_t>(r);
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  const Index index_extremes[] = {std::numeric_limits<Index>::min(), std::numeric_limits<Index>::max(), -1,
                                  static_cast<Index>(s.num_experts), 0};
  const Location slot_extremes[] = {std::numeric_limits<Location>::min(),
                                    std::numeric_limits<Location>::max(), -1,
                                    static_cast<Location>(s.capacity), 0};
  for (std::int64_t q = 0; q < indices.size(); ++q) {
    std::int64_t row = rows > 0 ? q % rows : 0;
    if (routing == Routing::distinct && rows > 0) row = shuffled[static_cast<std::size_t>(q % rows)];
    if (routing == Routing::all_equal) row = rows / 2;
    if (routing == Routing::reversed && rows > 0) row = rows - 1 - q % rows;
    if ((routing == Routing::random || routing == Routing::dropped) && rows > 0)
      row = static_cast<std::int64_t>(random() % static_cast<unsigned>(rows));
    const std::int64_t capacity = std::max<std::int64_t>(s.capacity, 1);
    put(q, row / capacity, row % capacity);
    if (routing == Routing::dropped && random() % 3 == 0) put(q, row / capacity, s.capacity + row % 3);
    if (routing == Routing::dropped && random() % 3 == 0) put(q, -1 - row % 2, row % capacity);
    if (routing == Routing::all_dropped) put(q, s.num_experts, s.capacity);
    if (routing == Routing::extremes) {
      indices[q] = index_extremes[random() % 5];
      locations[q] = slot_extremes[random() % 5];
    }
  }
}

template <class T>
void fill_values(Guarded<T>& values, std::mt19937& random) {
  constexpr float kSpecial[] = {0.0f, -0.0f, INFINITY, -INFINITY, 1e-41f, 6e-8f, 65504.0f, 3e38f};
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const auto r = static_cast<unsigned>(random());
    const float v = r % 16 < 8 ? kSpecial[r % 8] : static_cast<float>(static_cast<int>(random())) * 0x1p-30f;
    if constexpr (std::is_same_v<T, double>) {
      values[i] = r % 16 == 9 ? 5e-324 : static_cast<double>(v) * 1.1;
    } else {
      values[i] = core::from_float<T>(v);
    }
  }
}

// Equal bits, or both NaN: the payload of a product of two NaNs depends on the order of the operands.
template <class T>
bool same(T a, T b) {
  if (std::memcmp(&a, &b, sizeof(T)) == 0) return true;
  return std::isnan(core::to_float(a)) && std::isnan(core::to_float(b));
}

}  // namespace turnout::test
