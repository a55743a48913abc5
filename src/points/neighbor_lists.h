// Lists of the neighbours of all queries.
#pragma once

#include <cstdint>

#include "points/stacked.h"
#include "turnout/points.h"

namespace turnout::families::points {

struct ListRule {
  double radius;
  std::int64_t nsample;
  NeighborRegion region;
};

// Finds the neighbours twice, to count and to write them: lists of all queries need more memory than time.
class NeighborSearch {
 public:
  NeighborSearch(const ConstTensor& xyz, const Starts& points, const ConstTensor& new_xyz,
                 const Starts& queries, const ListRule& rule)
      : xyz_(xyz), new_xyz_(new_xyz), points_(points), queries_(queries), rule_(rule) {}

  // Writes where the list of each query begins, and the end of the last one.
  void count(Context& context, std::int64_t* starts) const;
  void write(Context& context, const std::int64_t* starts, const Tensor& rows) const;

 private:
  template <bool kCount, class Visit>
  void visit(Context& context, const Visit& visit_list) const;

  const ConstTensor &xyz_, &new_xyz_;
  const Starts &points_, &queries_;
  const ListRule rule_;
};

// Writes lists that have been counted; returns how many neighbours there are.
std::int64_t write_lists(core::Call& call, const NeighborSearch& search, const std::int64_t* counted,
                         const Tensor& rows, const Tensor& starts);

}  // namespace turnout::families::points
