// The operators of this family.
#include <algorithm>
#include <limits>

#include "core/dtypes.h"
#include "indices/indices.h"
#include "points/definition.h"
#include "points/signature.h"
#include "registry.h"
#include "turnout/points.h"

namespace turnout::families::points {

using namespace core;
namespace {

// The sum of sample_counts. Those that are negative, and a sum that is too large, are left to the operator:
// it refuses them, because the result has no such size.
std::unique_ptr<Prepared> find_samples(const Caller&, const Tensor* arguments, const ScalarValue*,
                                       std::int64_t* sizes) {
  const Tensor& counts = arguments[kFurthestPointSampleStacked.argument("sample_counts")];
  std::int64_t& samples = sizes[kFurthestPointSampleStacked.size("samples")];
  samples = visit_index(counts.dtype, [&](auto type) {
    const auto* from = static_cast<const typename decltype(type)::type*>(counts.data);
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < counts.shape[0]; ++b) {
      const std::int64_t count = load_once(from + b);
      sum += std::clamp<std::int64_t>(count, 0, std::numeric_limits<std::int32_t>::max());
      if (sum > std::numeric_limits<std::int32_t>::max()) return std::int64_t{0};
    }
    return sum;
  });
  return nullptr;
}

// Divides `rows` among the samples.
void fill_counts(const Tensor& counts, std::int64_t rows) {
  if (counts.is_absent() || counts.rank != 1) return;
  const std::int64_t samples = counts.shape[0];
  visit_index(counts.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    for (std::int64_t b = 0; b < samples; ++b)
      static_cast<Index*>(counts.data)[b] = static_cast<Index>(rows * (b + 1) / samples - rows * b / samples);
  });
}
void fill_stacked_samples(const Tensor* t) {
  fill_counts(t[1], t[0].shape[0]);
  // About half of the points; none of a cloud without points.
  visit_index(t[2].dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    for (std::int64_t b = 0; b < t[2].shape[0]; ++b)
      static_cast<Index*>(t[2].data)[b] = static_cast<Index>((definition::index_at(t[1], b) + 1) / 2);
  });
}

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&furthest_point_sample>(
          kFurthestPointSample, "batch=2 points=7 samples=4",
          {.definition = define<&definition::furthest_point_sample>, .is_exact = true}),
      op<&furthest_point_sample_by_distances>(
          kFurthestPointSampleByDistances, "batch=2 points=7 samples=4",
          {.definition = define<&definition::furthest_point_sample_by_distances>, .is_exact = true}),
      op<&furthest_point_sample_stacked>(
          kFurthestPointSampleStacked, "points=7 batch=2 samples=4",
          {.definition = define<&definition::furthest_point_sample_stacked>,
           .is_exact = true,
           .prepare = fill_stacked_samples,
           .find_sizes = find_samples}),
  };
  return kOperators;
}

}  // namespace turnout::families::points
