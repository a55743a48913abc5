// Sorts boxes by their scores.
#include "boxes/visits.h"

#include <bit>
#include <cmath>
#include <numeric>

#include "core/dtypes.h"
#include "indices/sort.h"
#include "simd/half.h"

namespace turnout::families::boxes {

using namespace core;
namespace {

// A number that is smaller for a larger score. NaN is 0; -0 equals +0, as the sum with +0 is +0.
std::uint32_t key_of(float score) {
  if (std::isnan(score)) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  return bits >> 31 ? bits : ~(bits | 0x80000000u);
}
std::uint64_t key_of(double score) {
  if (std::isnan(score)) return 0;
  const auto bits = std::bit_cast<std::uint64_t>(score + 0.0);
  return bits >> 63 ? bits : ~(bits | std::uint64_t{1} << 63);
}

struct Visit {
  std::uint64_t key;
  std::int32_t box;
};

}  // namespace

std::size_t visits_bytes(std::int64_t count, const ConstTensor& scores) {
  const std::size_t order = array_bytes<std::int32_t>(count);
  if (scores.is_absent()) return order;
  if (scores.dtype == DType::f64) return order + array_bytes<Visit>(count);
  return order + 2 * array_bytes<std::uint64_t>(count);
}

const std::int32_t* visits_of(Scratch& scratch, std::int64_t count, const ConstTensor& scores) {
  auto* order = scratch.take<std::int32_t>(count);
  if (scores.is_absent()) {
    std::iota(order, order + count, 0);
  } else if (scores.dtype == DType::f64) {
    auto* visits = scratch.take<Visit>(count);
    const auto* from = static_cast<const double*>(scores.data);
    for (std::int64_t i = 0; i < count; ++i) visits[i] = {key_of(from[i]), static_cast<std::int32_t>(i)};
    sort_by(visits, visits + count,
            [](const Visit& a, const Visit& b) { return a.key != b.key ? a.key < b.key : a.box < b.box; });
    for (std::int64_t i = 0; i < count; ++i) order[i] = visits[i].box;
  } else {
    SortArrays arrays{scratch.take<std::uint64_t>(count), scratch.take<std::uint64_t>(count)};
    visit_float(scores.dtype, [&](auto type) {
      const auto* from = static_cast<const typename decltype(type)::type*>(scores.data);
      for (std::int64_t i = 0; i < count; ++i)
        arrays.sorted[i] = std::uint64_t{key_of(static_cast<float>(to_float(from[i])))} << 32 |
                           static_cast<std::uint64_t>(i);
    });
    arrays = sort_keys(arrays, count);
    for (std::int64_t i = 0; i < count; ++i) order[i] = static_cast<std::int32_t>(arrays.sorted[i]);
  }
  return order;
}

}  // namespace turnout::families::boxes
