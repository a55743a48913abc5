// The operators of this family.
#include <limits>

#include "core/dtypes.h"
#include "indices/indices.h"
#include "points/list_definition.h"
#include "points/neighbor_lists.h"
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

// Equally long lists, and rows that exist if there are points.
void fill_lists(const Tensor& rows, const Tensor& starts, std::int64_t points) {
  if (rows.rank != 1 || starts.rank != 1) return;
  const std::int64_t entries = rows.shape[0], queries = starts.shape[0] - 1;
  for (std::int64_t q = 0; q <= queries; ++q)
    definition::set_index(starts, q, queries > 0 ? entries * q / queries : 0);
  for (std::int64_t i = 0; i < entries; ++i) definition::set_index(rows, i, points > 0 ? i % points : 0);
}
void fill_lists_of_centers(const Tensor* t) { fill_lists(t[2], t[3], t[0].shape[0]); }
void fill_lists_to_pool(const Tensor* t) { fill_lists(t[3], t[4], t[0].shape[0]); }
// Shapes may be invalid: each tensor is filled by its own extents.
void fill_grouped(const Tensor* t) {
  const Tensor &counts = t[1], &grouped = t[2];
  if (t[0].rank != 3 || counts.rank != 2 || grouped.rank != 2) return;
  const std::int64_t limits[] = {t[3].rank == 2 ? t[3].shape[0] : 1, t[0].shape[0], t[0].shape[1]};
  for (std::int64_t i = 0; i < grouped.shape[0] * grouped.shape[1]; ++i) {
    const std::int64_t entry = i / 3, limit = limits[i % 3];
    definition::set_index(grouped, i, limit > 0 ? entry % limit : i % 3 == 2 ? -1 : 0);
  }
  for (std::int64_t i = 0; i < counts.shape[0] * counts.shape[1]; ++i)
    definition::set_index(counts, i, i % 3);
}

// neighbor_lists after it has counted the neighbours.
class PreparedLists : public Prepared {
 public:
  PreparedLists(const Caller& caller, const Tensor* t, const ScalarValue* scalars)
      : xyz_(t[0]),
        new_xyz_(t[2]),
        memory_(caller.context(),
                2 * Starts::bytes(t[1].shape[0]) + array_bytes<std::int64_t>(t[2].shape[0] + 1)),
        points_(memory_, kNeighborLists.op, "counts", t[1], t[0].shape[0], "xyz"),
        queries_(memory_, kNeighborLists.op, "new_counts", t[3], t[2].shape[0], "new_xyz"),
        counted_(memory_.take<std::int64_t>(t[2].shape[0] + 1)),
        search_(xyz_, points_, new_xyz_, queries_,
                {scalars[0].real, scalars[1].value, to_enum<NeighborRegion>(scalars[2])}) {
    search_.count(caller.context(), counted_);
  }

  std::int64_t entries() const { return counted_[new_xyz_.shape[0]]; }
  std::int64_t run(const Caller& caller, const Tensor* t, const ScalarValue* scalars) override {
    Call call(caller, kNeighborLists, {t[0], t[1], t[2], t[3], t[4], t[5]},
              {scalars[0], scalars[1], scalars[2]});
    return write_lists(call, search_, counted_, t[4], t[5]);
  }

 private:
  const ConstTensor xyz_, new_xyz_;
  Scratch memory_;
  const Starts points_, queries_;
  std::int64_t* const counted_;
  const NeighborSearch search_;
};
std::unique_ptr<Prepared> find_entries(const Caller& caller, const Tensor* arguments,
                                       const ScalarValue* scalars, std::int64_t* sizes) {
  auto prepared = std::make_unique<PreparedLists>(caller, arguments, scalars);
  sizes[kNeighborLists.size("entries")] = prepared->entries();
  return prepared;
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
      op<&neighbor_lists>(kNeighborLists,
                          "radius=1 nsample=100 region=0 points=7 batch=2 queries=3 entries=21",
                          {.definition = define<&definition::neighbor_lists>,
                           .is_exact = true,
                           .prepare = fill_ball_counts,
                           .find_sizes = find_entries}),
      op<&three_nn_of_lists>(kThreeNnOfLists, "points=7 queries=3 cells=4 entries=9",
                             {.definition = define<&definition::three_nn_of_lists>,
                              .is_exact = true,
                              .prepare = fill_lists_of_centers}),
      op<&vector_pool>(
          kVectorPool, "radius=2 grid=2 mode=0 nsample=100 points=7 channels=6 queries=3 entries=9 slots=3",
          {.definition = define<&definition::vector_pool>, .is_exact = true, .prepare = fill_lists_to_pool}),
      op<&vector_pool_backward>(kVectorPoolBackward,
                                "mode=0 queries=3 cells=8 slots=3 entries=9 points=7 channels=6",
                                {.definition = define<&definition::vector_pool_backward>,
                                 .is_exact = true,
                                 .prepare = fill_grouped}),
  };
  return kOperators;
}

}  // namespace turnout::families::points
