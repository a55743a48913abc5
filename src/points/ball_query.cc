// The first points within a radius of each query.
#include <algorithm>

#include "points/ball.h"
#include "points/clouds.h"
#include "points/signature.h"
#include "turnout/points.h"

namespace turnout {
namespace families::points {

using namespace core;
namespace {

template <class Index>
void write_rows(const Found& found, Index* to, std::int64_t nsample) {
  for (std::int64_t i = 0; i < found.count; ++i) to[i] = static_cast<Index>(found.rows[i]);
  if (found.count < nsample)
    std::fill(to + found.count, to + nsample, found.count > 0 ? static_cast<Index>(found.rows[0]) : Index{0});
}

void query_balls(Call& call, const ConstTensor& xyz, const Starts& points, const ConstTensor& new_xyz,
                 const Starts& queries, const Tensor& idx, const Tensor& found, double radius,
                 double min_radius) {
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const std::int64_t nsample = idx.shape[idx.rank - 1];
  const int workers = workers_for(call.context(), queries.most() / kQueryGrain + 1);
  call.chose("leaves", workers);
  auto* counts = static_cast<std::int32_t*>(found.data);
  visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto most = static_cast<Real>(radius), least = static_cast<Real>(min_radius);
    const std::int64_t room = std::min(nsample, points.most());
    const Search<Real> search{Region::ball, least * least, most * most, room};
    Scratch scratch = call.lease(RegionSearch<Real>::bytes(points.most(), room, workers));
    RegionSearch<Real> cloud(scratch, points.most(), room, workers, call.context().isa());
    const auto* from = static_cast<const Real*>(new_xyz.data);
    visit_index(idx.dtype, [&](auto index) {
      auto* to = static_cast<typename decltype(index)::type*>(idx.data);
      for_clouds(
          call.context(), points, queries, workers,
          [&](std::int64_t b) {
            cloud.set(call.context(), static_cast<const Real*>(xyz.data) + 3 * points.first(b),
                      points.count(b), queries.count(b));
          },
          [&](std::int64_t first, std::int64_t last, int number) {
            auto worker = cloud.worker(number);
            for (std::int64_t q = first; q < last; ++q) {
              cloud.find(from + 3 * q, search, worker);
              write_rows(worker.found, to + q * nsample, nsample);
              counts[q] = static_cast<std::int32_t>(worker.found.count);
            }
          });
    });
  });
}

}  // namespace
}  // namespace families::points

using namespace families::points;

void ball_query(const ConstTensor& xyz, const ConstTensor& new_xyz, const Tensor& idx, const Tensor& found,
                double radius, double min_radius, const Caller& caller) {
  Call call(caller, kBallQuery, {xyz, new_xyz, idx, found}, {radius, min_radius});
  if (call.nothing_to_do()) return;
  const Batched cloud(xyz, 1), query(new_xyz, 1);
  Scratch& scratch = call.scratch(2 * Starts::bytes(cloud.batch));
  const Starts points(scratch, cloud.batch, cloud.rows), queries(scratch, cloud.batch, query.rows);
  query_balls(call, xyz, points, new_xyz, queries, idx, found, radius, min_radius);
}

void ball_query_stacked(const ConstTensor& xyz, const ConstTensor& counts, const ConstTensor& new_xyz,
                        const ConstTensor& new_counts, const Tensor& idx, const Tensor& found, double radius,
                        double min_radius, const Caller& caller) {
  Call call(caller, kBallQueryStacked, {xyz, counts, new_xyz, new_counts, idx, found}, {radius, min_radius});
  if (call.nothing_to_do()) return;
  Scratch& scratch = call.scratch(2 * Starts::bytes(counts.shape[0]));
  const Starts points(call, scratch, "counts", counts, xyz.shape[0], "xyz");
  const Starts queries(call, scratch, "new_counts", new_counts, new_xyz.shape[0], "new_xyz");
  query_balls(call, xyz, points, new_xyz, queries, idx, found, radius, min_radius);
}

}  // namespace turnout
