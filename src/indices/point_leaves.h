// Points in leaves of near points, with the box around each leaf: an index for searches by distance.
//
// The points are sorted along a space-filling curve and cut into leaves of kLeaf points; kGroup leaves are a
// group. A box bounds the rounded distances of its points exactly: subtraction, multiplication and addition
// are monotone after rounding, so the distance of a position from the box, computed in the order of the
// distance of two points, does not exceed that of any point inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "runtime/context.h"

namespace turnout::core {

enum class LeafOrder : std::uint8_t {
  own,      // not sorted, for few searches
  curve,    // sorted along the curve; some leaves reach from one part of it to another
  medians,  // then each group is divided by medians: its leaves do not overlap, but it takes longer
};

template <class Real>
class PointLeaves {
 public:
  static constexpr std::int64_t kLeaf = 32, kGroup = 16;
  static constexpr std::int32_t kNoRow = std::numeric_limits<std::int32_t>::max();

  // Boxes of leaves or groups. A box without points has low = infinity and high = -infinity.
  struct Boxes {
    Real *low[3], *high[3];
  };

  static std::size_t bytes(std::int64_t most);
  PointLeaves(Scratch& scratch, std::int64_t most);  // `most` points at most

  // Takes new points, rows of 3 numbers. A point with NaN is in a leaf but in no box. Runs on the threads of
  // `context`, or on this thread if it is nullptr, as it must be within a range of parallel_for.
  void build(Context* context, const Real* points, std::int64_t count, LeafOrder order);

  std::int64_t count() const { return count_; }
  std::int64_t leaves() const { return groups_ * kGroup; }
  std::int64_t groups() const { return groups_; }

  // leaves() * kLeaf points; those after the last one have NaN and kNoRow.
  const Real* x() const { return coordinates_[0]; }
  const Real* y() const { return coordinates_[1]; }
  const Real* z() const { return coordinates_[2]; }
  const std::int32_t* rows() const { return rows_; }
  const Boxes& leaf_boxes() const { return leaf_boxes_; }
  // Padded with empty boxes to a multiple of kGroup.
  const Boxes& group_boxes() const { return group_boxes_; }

 private:
  struct Cells;
  Cells cells(Context* context, const Real* points) const;
  void sort(Context* context, const Real* points);
  void divide(const Real* points, std::int64_t first, std::int64_t last);
  void fill_leaves(const Real* points, std::int64_t first_group, std::int64_t last_group, LeafOrder order);
  void bound(std::int64_t first, std::int64_t last, std::int64_t used, std::int64_t per_box,
             const Real* const* low, const Real* const* high, const Boxes& to) const;

  std::int64_t count_ = 0, groups_ = 0;
  Real* coordinates_[3];
  std::int32_t* rows_;
  Boxes leaf_boxes_, group_boxes_;
  std::uint64_t *keys_, *spare_keys_;  // of points: the position on the curve, then the row
  std::int64_t* counters_;             // of their sort
};

// The elements of arrays of that many groups.
constexpr std::int64_t padded_groups(std::int64_t groups) { return (groups + 15) / 16 * 16; }

}  // namespace turnout::core
