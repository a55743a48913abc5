// The operators of this family.
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

// The sum of sample_counts.
std::unique_ptr<Prepared> find_samples(const Caller&, const Tensor* arguments, const ScalarValue*,
                                       std::int64_t* sizes) {
  const Tensor& counts = arguments[kFurthestPointSampleStacked.argument("sample_counts")];
  std::int64_t& samples = sizes[kFurthestPointSampleStacked.size("samples")];
  samples = visit_index(counts.dtype, [&](auto type) {
    const auto* from = static_cast<const typename decltype(type)::type*>(counts.data);
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < counts.shape[0]; ++b) {
      const std::int64_t count = load_once(from + b), left = std::numeric_limits<std::int32_t>::max() - sum;
      if (!in_range(count, left + 1))
        throw Error(ErrorCode::bad_param, concat(kFurthestPointSampleStacked.op, ": sample_counts[", b,
                                                 "] is ", count, ", expected 0 .. ", left));
      sum += count;
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
  constexpr int kIdx = kFurthestPointSampleStacked.argument("idx");
  fill_counts(t[1], t[0].shape[0]);
  if (!t[kIdx].is_absent()) return fill_counts(t[2], t[kIdx].shape[0]);
  for (std::int64_t b = 0; b < t[2].shape[0]; ++b)
    definition::set_index(t[2], b, (definition::index_at(t[1], b) + 1) / 2);
}
void fill_ball_counts(const Tensor* t) {
  fill_counts(t[1], t[0].shape[0]);
  fill_counts(t[3], t[2].shape[0]);
}
// Queries of batch element 0, if there is one, and one point in every other voxel.
void fill_voxels(const Tensor* t) {
  const Tensor &coordinates = t[2], &grid = t[3];
  for (std::int64_t q = 0; q < coordinates.shape[0]; ++q) definition::set_index(coordinates, 4 * q, 0);
  const std::int64_t* extents = grid.shape;
  const std::int64_t rows = t[0].shape[0];
  for (std::int64_t i = 0; i < extents[0] * extents[1] * extents[2] * extents[3]; ++i)
    definition::set_index(grid, i, i % 2 == 0 && rows > 0 ? i / 2 % rows : -1);
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
      op<&furthest_point_sample_stacked>(kFurthestPointSampleStacked, "points=7 batch=2 samples=4",
                                         {.definition = define<&definition::furthest_point_sample_stacked>,
                                          .is_exact = true,
                                          .prepare = fill_stacked_samples,
                                          .find_sizes = find_samples}),
      op<&ball_query>(kBallQuery, "radius=1 min_radius=0 batch=2 points=7 queries=3 nsample=4",
                      {.definition = define<&definition::ball_query>, .is_exact = true}),
      op<&ball_query_stacked>(kBallQueryStacked, "radius=1 min_radius=0 points=7 batch=2 queries=3 nsample=4",
                              {.definition = define<&definition::ball_query_stacked>,
                               .is_exact = true,
                               .prepare = fill_ball_counts}),
      op<&voxel_query>(
          kVoxelQuery,
          "radius=1 z_range=1 y_range=2 x_range=2 points=7 queries=3 batch=2 depth=3 height=4 "
          "width=5 nsample=4",
          {.definition = define<&definition::voxel_query>, .is_exact = true, .prepare = fill_voxels}),
      op<&three_nn>(kThreeNn, "batch=2 queries=3 points=7",
                    {.definition = define<&definition::three_nn>, .is_exact = true}),
      op<&three_nn_stacked>(kThreeNnStacked, "queries=3 batch=2 points=7",
                            {.definition = define<&definition::three_nn_stacked>,
                             .is_exact = true,
                             .prepare = fill_ball_counts}),
      op<&knn>(kKnn, "batch=2 points=7 queries=3 k=4",
               {.definition = define<&definition::knn>, .is_exact = true}),
  };
  return kOperators;
}

}  // namespace turnout::families::points
