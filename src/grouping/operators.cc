// The operators of this family.
#include <algorithm>
#include <cstdint>

#include "core/dtypes.h"
#include "grouping/reference.h"
#include "grouping/signature.h"
#include "registry.h"
#include "turnout/grouping.h"

namespace turnout::families::grouping {

using namespace core;
namespace {

// Writes to[i] = f(to[i]), which are indices or counts.
template <class F>
void change(const Tensor& t, std::int64_t begin, std::int64_t end, const F& f) {
  visit_index(t.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    for (std::int64_t i = begin; i < end; ++i) {
      Index& value = static_cast<Index*>(t.data)[i];
      value = static_cast<Index>(f(std::int64_t{value}));
    }
  });
}

// Makes the counts of random calls add up to `all`.
void fill_counts(const Tensor& counts, std::int64_t all) {
  std::int64_t left = all;
  const std::int64_t batch = counts.shape[0];
  for (std::int64_t b = 0; b < batch; ++b)
    change(counts, b, b + 1, [&](std::int64_t value) {
      const std::int64_t count = b + 1 == batch ? left : std::clamp<std::int64_t>(value, 0, left);
      left -= count;
      return count;
    });
}

// Makes the indices of random calls valid, except negative ones.
void fill_stacked(const Tensor& counts, const Tensor& indices, const Tensor& index_counts,
                  std::int64_t rows) {
  if (indices.rank != 2 || counts.rank != 1 || index_counts.rank != 1) return;
  fill_counts(counts, rows);
  fill_counts(index_counts, indices.shape[0]);
  std::int64_t center = 0;
  for (std::int64_t b = 0; b < std::min(counts.shape[0], index_counts.shape[0]); ++b) {
    std::int64_t count = 0, its = 0;
    change(counts, b, b + 1, [&](std::int64_t value) { return count = value; });
    change(index_counts, b, b + 1, [&](std::int64_t value) { return its = value; });
    if (count > 0)
      change(indices, center * indices.shape[1], (center + its) * indices.shape[1],
             [&](std::int64_t value) { return value < 0 ? value : value % count; });
    center += its;
  }
}
void prepare_group(const Tensor* t) { fill_stacked(t[1], t[2], t[3], t[0].shape[0]); }
// Random calls have no result yet, and many have as many rows as the example.
void prepare_gradient(const Tensor* t) {
  fill_stacked(t[1], t[2], t[3], t[4].is_absent() ? 5 : t[4].shape[0]);
}

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&group_points>(kGroupPoints, "batch=2 channels=6 rows=5 centers=4 samples=3",
                        {.definition = define<&definition::group_points>}),
      op<&group_points_backward>(kGroupPointsBackward, "batch=2 channels=6 centers=4 samples=3 rows=5",
                                 {.definition = define<&definition::group_points_backward>}),
      op<&gather_points>(kGatherPoints, "batch=2 channels=6 rows=5 centers=4",
                         {.definition = define<&definition::gather_points>}),
      op<&gather_points_backward>(kGatherPointsBackward, "batch=2 channels=6 centers=4 rows=5",
                                  {.definition = define<&definition::gather_points_backward>}),
      op<&group_points_stacked>(
          kGroupPointsStacked, "rows=5 channels=6 batch=2 centers=4 samples=3",
          {.definition = define<&definition::group_points_stacked>, .prepare = prepare_group}),
      op<&group_points_stacked_backward>(
          kGroupPointsStackedBackward, "centers=4 channels=6 samples=3 batch=2 rows=5",
          {.definition = define<&definition::group_points_stacked_backward>, .prepare = prepare_gradient}),
      op<&three_interpolate>(kThreeInterpolate, "batch=2 channels=6 rows=5 centers=4",
                             {.definition = define<&definition::three_interpolate>}),
      op<&three_interpolate_backward>(kThreeInterpolateBackward, "batch=2 channels=6 centers=4 rows=5",
                                      {.definition = define<&definition::three_interpolate_backward>}),
      op<&three_interpolate_stacked>(kThreeInterpolateStacked, "rows=5 channels=6 centers=4",
                                     {.definition = define<&definition::three_interpolate_stacked>}),
      op<&three_interpolate_stacked_backward>(
          kThreeInterpolateStackedBackward, "centers=4 channels=6 rows=5",
          {.definition = define<&definition::three_interpolate_stacked_backward>}),
  };
  return kOperators;
}

}  // namespace turnout::families::grouping
