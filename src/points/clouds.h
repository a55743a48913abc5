// Queries of clouds: cloud by cloud, with the queries of a cloud on all threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "points/kernels.h"
#include "points/stacked.h"
#include "runtime/parallel.h"

namespace turnout::families::points {

inline constexpr std::int64_t kQueryGrain = 64 / core::kGrainDivisor + 1;  // queries of a range
inline constexpr int kMostWorkers = 64;

inline int workers_for(const Context& context, std::int64_t ranges) {
  return static_cast<int>(std::clamp<std::int64_t>(ranges, 1, std::min(context.threads(), kMostWorkers)));
}

// Calls begin(b, points of b), then query(first, last, worker) for ranges of the queries of b.
template <class Begin, class Query>
void for_clouds(Context& context, const Starts& points, const Starts& queries, int workers,
                const Begin& begin, const Query& query) {
  for (std::int64_t b = 0; b < points.samples(); ++b) {
    if (queries.count(b) == 0) continue;
    core::throw_if_interrupted();
    begin(b);
    const std::int64_t shift = queries.first(b);
    core::parallel_for(
        context, queries.count(b), kQueryGrain,
        [&](std::int64_t first, std::int64_t last, int worker) {
          query(shift + first, shift + last, worker);
        },
        workers);
  }
}

}  // namespace turnout::families::points
