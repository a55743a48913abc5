// The nearest points of each query.
#include <algorithm>
#include <limits>

#include "points/clouds.h"
#include "points/signature.h"
#include "turnout/points.h"

namespace turnout {
namespace families::points {

using namespace core;
namespace {

constexpr std::int64_t kFewQueries = 64;  // sorting the points does not pay for so few
constexpr std::int64_t kFewNearest = 8;   // for which dividing the queries does not pay
// Blocks of queries in a range. Their time depends on the points if these are few.
constexpr std::int64_t kBlockGrain = 16 / kGrainDivisor + 1;
std::int64_t block_grain(std::int64_t points) {
  return kBlockGrain * std::clamp<std::int64_t>(128 / std::max<std::int64_t>(points, 1), 1, 8);
}

// Points are found below `limit`, which is the distance of missing ones. Rows of idx begin with 0 in each
// cloud, unless they are those of the tensor.
void find_nearest(Call& call, const ConstTensor& xyz, const Starts& points, const ConstTensor& new_xyz,
                  const Starts& queries, const Tensor& dist2, const Tensor& idx, double limit,
                  bool are_rows_global) {
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const std::int64_t k = idx.shape[idx.rank - 1];
  const int workers = workers_for(call.context(), queries.most() / (4 * kBlockGrain) + 1);
  call.chose("leaves", workers);
  visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    using Room = NearestRoom<Real>;
    const NearestKernels<Real>& kernels = nearest_kernels(call.context().isa()).of<Real>();
    const std::int64_t elements = Room::kMostLanes * k * workers;
    Scratch scratch =
        call.lease(PointLeaves<Real>::bytes(points.most()) + PointLeaves<Real>::bytes(queries.most()) +
                   array_bytes<Real>(elements) + array_bytes<typename Room::Row>(elements));
    PointLeaves<Real> leaves(scratch, points.most()), positions(scratch, queries.most());
    const Room rooms{scratch.take<Real>(elements), scratch.take<typename Room::Row>(elements)};
    auto* distances = static_cast<Real*>(dist2.data);
    visit_index(idx.dtype, [&](auto index) {
      using Index = typename decltype(index)::type;
      auto* to = static_cast<Index*>(idx.data);
      for (std::int64_t b = 0; b < points.samples(); ++b) {
        if (queries.count(b) == 0) continue;
        throw_if_interrupted();
        const bool is_sorted = queries.count(b) > kFewQueries;
        const LeafOrder own = LeafOrder::own;
        const LeafOrder of_queries = k > kFewNearest ? LeafOrder::medians : LeafOrder::curve;
        leaves.build(&call.context(), static_cast<const Real*>(xyz.data) + 3 * points.first(b),
                     points.count(b), is_sorted ? LeafOrder::medians : own);
        positions.build(&call.context(), static_cast<const Real*>(new_xyz.data) + 3 * queries.first(b),
                        queries.count(b), is_sorted ? of_queries : own);
        const std::int64_t shift = are_rows_global ? points.first(b) : 0, first_query = queries.first(b);
        const std::int64_t blocks = (queries.count(b) + kernels.lanes - 1) / kernels.lanes;
        const auto find = [&](std::int64_t begin, std::int64_t end, int worker) {
          const std::int64_t skipped = Room::kMostLanes * k * worker;
          const Room room{rooms.distances + skipped, rooms.rows + skipped};
          for (std::int64_t first = begin * kernels.lanes; first < end * kernels.lanes;
               first += kernels.lanes) {
            kernels.nearest(leaves, positions, first, room, k, static_cast<Real>(limit));
            for (std::int64_t lane = 0; lane < std::min(kernels.lanes, queries.count(b) - first); ++lane) {
              const std::int64_t at = (first_query + positions.rows()[first + lane]) * k;
              for (std::int64_t i = 0; i < k; ++i) {
                distances[at + i] = room.distances[i * kernels.lanes + lane];
                const std::int64_t row = room.rows[i * kernels.lanes + lane];
                to[at + i] = static_cast<Index>(shift + std::max<std::int64_t>(row, 0));
              }
            }
          }
        };
        parallel_for(call.context(), blocks, block_grain(points.count(b)), find, workers);
      }
    });
  });
}

[[noreturn]] void refuse_no_points(Call& call, std::int64_t queries) {
  call.refuse(concat("there are no points in ", call.name("known"), ", expected at least 1 for the ", queries,
                     " rows of ", call.name("unknown")));
}

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kKnnLimit = 1e10;

}  // namespace
}  // namespace families::points

using namespace families::points;

void three_nn(const ConstTensor& unknown, const ConstTensor& known, const Tensor& dist2, const Tensor& idx,
              const Caller& caller) {
  Call call(caller, kThreeNn, {unknown, known, dist2, idx}, {});
  if (call.nothing_to_do()) return;
  const Batched cloud(known, 1), query(unknown, 1);
  if (cloud.rows == 0) refuse_no_points(call, query.rows);
  Scratch& scratch = call.scratch(2 * Starts::bytes(cloud.batch));
  const Starts points(scratch, cloud.batch, cloud.rows), queries(scratch, cloud.batch, query.rows);
  find_nearest(call, known, points, unknown, queries, dist2, idx, kInfinite, false);
}

void three_nn_stacked(const ConstTensor& unknown, const ConstTensor& unknown_counts, const ConstTensor& known,
                      const ConstTensor& known_counts, const Tensor& dist2, const Tensor& idx,
                      const Caller& caller) {
  Call call(caller, kThreeNnStacked, {unknown, unknown_counts, known, known_counts, dist2, idx}, {});
  if (call.nothing_to_do()) return;
  Scratch& scratch = call.scratch(2 * Starts::bytes(known_counts.shape[0]));
  const Starts queries(call, scratch, "unknown_counts", unknown_counts, unknown.shape[0], "unknown");
  const Starts points(call, scratch, "known_counts", known_counts, known.shape[0], "known");
  if (known.shape[0] == 0) refuse_no_points(call, unknown.shape[0]);
  for (std::int64_t b = 0; b < points.samples(); ++b)
    if (points.count(b) == 0 && queries.count(b) > 0)
      call.refuse(concat(call.name("known_counts"), "[", b, "] is 0, expected at least 1, because ",
                         call.name("unknown_counts"), "[", b, "] is ", queries.count(b)));
  find_nearest(call, known, points, unknown, queries, dist2, idx, kInfinite, true);
}

void knn(const ConstTensor& xyz, const ConstTensor& new_xyz, const Tensor& idx, const Tensor& dist2,
         const Caller& caller) {
  Call call(caller, kKnn, {xyz, new_xyz, idx, dist2}, {});
  if (call.nothing_to_do()) return;
  const Batched cloud(xyz, 1), query(new_xyz, 1);
  Scratch& scratch = call.scratch(2 * Starts::bytes(cloud.batch));
  const Starts points(scratch, cloud.batch, cloud.rows), queries(scratch, cloud.batch, query.rows);
  find_nearest(call, xyz, points, new_xyz, queries, dist2, idx, kKnnLimit, false);
}

}  // namespace turnout
