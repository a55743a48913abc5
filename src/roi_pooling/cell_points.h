// The points of each cell of each box, compressed: only cells with points have an entry.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "roi_pooling/roi_points.h"
#include "runtime/context.h"

namespace turnout::families::roi_pooling {

// How boxes are divided into cells, and how many points a cell keeps.
struct CellRule {
  std::int64_t size[3];
  std::int64_t max_points;

  CellRule(std::span<const std::int64_t> out_size, std::int64_t most)
      : size{out_size[0], out_size[1], out_size[2]}, max_points(most) {}
  std::int64_t cells() const { return size[0] * size[1] * size[2]; }
};

// Lists of the points of cells, in f32 or f64 geometry alike.
class CellPoints {
 public:
  template <class Real>
  CellPoints(Context& context, const Real* rois, std::int64_t roi_count, const Real* points,
             std::int64_t point_count, const BoxRule& box_rule, const CellRule& cell_rule);

  // The number of pairs of a cell and a point.
  std::int64_t pairs() const { return pairs_; }
  std::int64_t pairs_before(std::int64_t roi) const { return pairs_before_[roi]; }
  // Calls f(cell, points, count) for the cells of a box that have points, in ascending order.
  template <class F>
  void for_cells(std::int64_t roi, const F& f) const {
    const std::int64_t start = starts_[roi];
    for (std::int64_t v = 0; v < filled_[roi]; ++v) {
      const std::int64_t first = first_[start + roi + v], last = first_[start + roi + v + 1];
      f(std::int64_t{cell_[start + v]}, points_ + start + first, last - first);
    }
  }

 private:
  std::int64_t pairs_ = 0;
  std::int64_t* starts_ = nullptr;        // of each box in points_ and cell_
  std::int64_t* pairs_before_ = nullptr;  // pairs of the boxes before each box
  std::int32_t* filled_ = nullptr;        // the number of cells with points of each box
  std::int32_t* cell_ = nullptr;
  std::int32_t* first_ = nullptr;  // the first point of each, and the end: one more for each box
  std::int32_t* points_ = nullptr;
  std::optional<core::Scratch> memory_;
};

}  // namespace turnout::families::roi_pooling
