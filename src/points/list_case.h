// Random calls of the operators on lists of neighbours, and of any operator of this family.
#pragma once

#include "points/point_case.h"

namespace turnout::test {

// Lists of any rows, with the positions where they begin.
template <class Index>
struct DrawnLists {
  std::vector<Index> rows, starts{0};
  DrawnLists(const Below& below, std::int64_t points, std::int64_t queries) {
    for (std::int64_t q = 0; q < queries; ++q) {
      const std::int64_t length = points == 0 || below(5) == 0 ? 0 : below(12);
      for (std::int64_t i = 0; i < length; ++i) rows.push_back(static_cast<Index>(below(points)));
      starts.push_back(static_cast<Index>(rows.size()));
    }
  }
  std::int64_t entries() const { return static_cast<std::int64_t>(rows.size()); }
  Owned of_rows() const { return Owned(rows, {entries()}); }
  Owned of_starts() const { return Owned(starts, {static_cast<std::int64_t>(starts.size())}); }
};

inline double drawn_radius(const Below& below) {
  static constexpr double kRadii[] = {0.5, 1, 2, 0.8, 0, 1e-3, 1e5, std::numeric_limits<double>::infinity()};
  return kRadii[below(8)];
}

template <class Real, class Index>
std::string compare_lists(std::string_view op, const Below& below, std::int64_t most) {
  const std::int64_t points = below(most), queries = below(most < 100 ? most : 130);
  CloudMaker<Real> maker(below);
  const Asked<Real> made(maker, below, points, queries);
  const Owned cloud(made.cloud, {points, 3}), asked(made.queries, {queries, 3});
  const DrawnLists<Index> lists(below, points, queries);
  const auto drawn = [&](std::int64_t count) {
    std::vector<Real> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(below(40) == 0 ? maker.not_finite() : maker.uniform(-3, 3));
    return values;
  };
  const std::int64_t nsample = below(2) == 0 ? 2147483647 : below(8);
  if (op == "neighbor_lists") {
    const std::int64_t batch = 1 + below(3);
    return compare(op,
                   {cloud, Owned(divide(below, points, batch), {batch}), asked,
                    Owned(divide(below, queries, batch), {batch}),
                    Owned::painted<Index>({std::min(nsample, points) * queries}),
                    Owned::painted<std::int64_t>({queries + 1})},
                   {drawn_radius(below), nsample, below(2)});
  }
  if (op == "three_nn_of_lists") {
    const std::int64_t cells = below(5);
    return compare(
        op,
        {cloud, Owned(maker.make(queries * cells), {queries, cells, 3}), lists.of_rows(), lists.of_starts(),
         Owned::painted<Real>({queries, cells, 3}), Owned::painted<Index>({queries, cells, 3})},
        {});
  }
  const std::int64_t grid[] = {1 + below(3), 1 + below(3), 1 + below(4)};
  const std::int64_t cells = grid[0] * grid[1] * grid[2], channels = below(8), slots = below(5);
  const core::ScalarValue extents{grid, 3};
  if (op == "vector_pool")
    return compare(op,
                   {cloud, Owned(drawn(points * channels), {points, channels}), asked, lists.of_rows(),
                    lists.of_starts(), Owned::painted<Real>({queries, cells, slots}),
                    Owned::painted<Real>({queries, cells, 3}), Owned::painted<std::int32_t>({queries, cells}),
                    Owned::painted<std::int32_t>({lists.entries(), 3})},
                   {drawn_radius(below), extents, below(3), nsample});
  std::vector<Index> counts, grouped;
  for (std::int64_t i = 0; i < queries * cells; ++i) counts.push_back(static_cast<Index>(below(9) - 2));
  for (std::int64_t q = 0; q < queries; ++q)
    for (auto e = lists.starts[static_cast<std::size_t>(q)];
         e < lists.starts[static_cast<std::size_t>(q + 1)]; ++e) {
      grouped.push_back(lists.rows[static_cast<std::size_t>(e)]);
      grouped.push_back(static_cast<Index>(q));
      grouped.push_back(static_cast<Index>(below(cells + 1) - 1));
    }
  return compare(
      op,
      {Owned(drawn(queries * cells * slots), {queries, cells, slots}), Owned(counts, {queries, cells}),
       Owned(grouped, {lists.entries(), 3}), Owned::painted<Real>({points, channels})},
      {below(3)});
}

// A random call of any operator of this family.
inline std::string compare_any(std::string_view op, const Below& below, std::int64_t most) {
  if (op != "neighbor_lists" && op != "three_nn_of_lists" && !op.starts_with("vector_pool"))
    return compare_with_definition(op, below, most);
  if (below(3) == 0) return compare_lists<double, std::int64_t>(op, below, most);
  return below(3) == 0 ? compare_lists<float, std::int64_t>(op, below, most)
                       : compare_lists<float, std::int32_t>(op, below, most);
}

}  // namespace turnout::test
