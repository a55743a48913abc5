// Implements neighbor_lists.
#include "points/neighbor_lists.h"

#include <algorithm>

#include "points/ball.h"
#include "points/clouds.h"
#include "points/signature.h"

namespace turnout {
namespace families::points {

using namespace core;

// Calls visit_list(query, found, first row of its cloud). To count, `found` has no rows.
template <bool kCount, class Visit>
void NeighborSearch::visit(Context& context, const Visit& visit_list) const {
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const int workers = workers_for(context, queries_.most() / kQueryGrain + 1);
  visit_lane(xyz_.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto radius = static_cast<Real>(rule_.radius);
    const std::int64_t room = std::min(rule_.nsample, points_.most());
    const bool is_cube = rule_.region == NeighborRegion::cube;
    const Search<Real> search{is_cube ? Region::cube : Region::closed_ball, 0,
                              is_cube ? radius : radius * radius, room};
    Scratch scratch(context, RegionSearch<Real>::bytes(points_.most(), room, workers));
    RegionSearch<Real> cloud(scratch, points_.most(), room, workers, context.isa());
    const auto* from = static_cast<const Real*>(new_xyz_.data);
    std::int64_t shift = 0;
    for_clouds(
        context, points_, queries_, workers,
        [&](std::int64_t b) {
          shift = points_.first(b);
          cloud.set(context, static_cast<const Real*>(xyz_.data) + 3 * shift, points_.count(b),
                    queries_.count(b));
        },
        [&](std::int64_t first, std::int64_t last, int number) {
          auto worker = cloud.worker(number);
          for (std::int64_t q = first; q < last; ++q) {
            if constexpr (kCount) {
              cloud.count(from + 3 * q, search, worker);
            } else {
              cloud.find(from + 3 * q, search, worker);
            }
            visit_list(q, worker.found, shift);
          }
        });
  });
}

void NeighborSearch::count(Context& context, std::int64_t* starts) const {
  visit<true>(context, [&](std::int64_t q, const Found& found, std::int64_t /*shift*/) {
    starts[q + 1] = found.count;
  });
  starts[0] = 0;
  for (std::int64_t q = 0; q < new_xyz_.shape[0]; ++q) starts[q + 1] += starts[q];
}

void NeighborSearch::write(Context& context, const std::int64_t* starts, const Tensor& rows) const {
  visit_index(rows.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    auto* to = static_cast<Index*>(rows.data);
    visit<false>(context, [&](std::int64_t q, const Found& found, std::int64_t shift) {
      // Fewer or more are found only if another thread modifies the points during the call.
      const std::int64_t count = std::min(found.count, starts[q + 1] - starts[q]);
      for (std::int64_t i = 0; i < count; ++i) to[starts[q] + i] = static_cast<Index>(shift + found.rows[i]);
      std::fill(to + starts[q] + count, to + starts[q + 1], static_cast<Index>(shift));
    });
  });
}

std::int64_t write_lists(Call& call, const NeighborSearch& search, const std::int64_t* counted,
                         const Tensor& rows, const Tensor& starts) {
  const std::int64_t queries = starts.shape[0] - 1, entries = counted[queries];
  if (entries > rows.shape[0])
    call.refuse(concat(call.name("rows"), ".shape[0] is ", rows.shape[0], ", expected at least ", entries,
                       ", the neighbours of all queries"));
  call.chose("leaves", workers_for(call.context(), queries / kQueryGrain + 1));
  if (entries > 0) search.write(call.context(), counted, rows);
  std::copy_n(counted, queries + 1, static_cast<std::int64_t*>(starts.data));
  return entries;
}

}  // namespace families::points

using namespace families::points;

std::int64_t neighbor_lists(const ConstTensor& xyz, const ConstTensor& counts, const ConstTensor& new_xyz,
                            const ConstTensor& new_counts, const Tensor& rows, const Tensor& starts,
                            double radius, std::int64_t nsample, NeighborRegion region,
                            const Caller& caller) {
  Call call(caller, kNeighborLists, {xyz, counts, new_xyz, new_counts, rows, starts},
            {radius, nsample, region});
  const std::int64_t queries = new_xyz.shape[0];
  Scratch& scratch =
      call.scratch(2 * Starts::bytes(counts.shape[0]) + array_bytes<std::int64_t>(queries + 1));
  const Starts points(call, scratch, "counts", counts, xyz.shape[0], "xyz");
  const Starts of_queries(call, scratch, "new_counts", new_counts, queries, "new_xyz");
  auto* const counted = scratch.take<std::int64_t>(queries + 1);
  const NeighborSearch search(xyz, points, new_xyz, of_queries, {radius, nsample, region});
  search.count(call.context(), counted);
  return write_lists(call, search, counted, rows, starts);
}

}  // namespace turnout
