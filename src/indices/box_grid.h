// Boxes as points are compared with them, in a grid of cells: each cell lists the boxes that may have a point
// of it. A box is x, y, z, dx, dy, dz, heading.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/context.h"

namespace turnout::core {

template <class Real>
struct PointBox {
  Real x, y, middle, cosine, sine;  // of the negative heading
  // A point inside has |l_x| < limit_x, |l_y| < limit_y and |z - middle| <= half_height. The definition
  // compares with bounds in double; these are rounded so that the comparisons have the same results.
  Real limit_x, limit_y, half_height;

  PointBox() = default;
  // z is the centre of the box or its bottom. The margin widens the box in x and y.
  PointBox(const Real* box, bool z_is_bottom, float margin);

  // The position of a point in the box's own directions.
  Real local_x(const Real* point) const { return (point[0] - x) * cosine + (point[1] - y) * -sine; }
  Real local_y(const Real* point) const { return (point[0] - x) * sine + (point[1] - y) * cosine; }
  bool has(const Real* point) const {
    const Real lx = local_x(point), ly = local_y(point), sz = point[2] - middle;
    return (sz < 0 ? -sz : sz) <= half_height && (lx < 0 ? -lx : lx) < limit_x &&
           (ly < 0 ? -ly : ly) < limit_y;
  }
};

// The boxes as they are, for a few points: most boxes are far from all of them, and need no sine and cosine.
template <class Real>
struct BoxList {
  const Real* boxes;
  std::int64_t count;
  bool z_is_bottom;
  float margin;

  // Whether a point may be in a box, which is never false for one that is. Twice the bound, because errors
  // of rounding are small. False for NaN.
  bool may_have(const Real* box, const Real* point) const {
    const Real reach = std::abs(box[3]) + std::abs(box[4]) + 2 * static_cast<Real>(margin);
    return std::abs(point[0] - box[0]) <= reach && std::abs(point[1] - box[1]) <= reach &&
           std::abs(point[2] - box[2]) <= 2 * std::abs(box[5]);
  }
  // The same as BoxGrid::for_boxes_of().
  template <class Found>
  void for_boxes_of(const Real* point, const Found& found) const {
    for (std::int64_t i = 0; i < count; ++i)
      if (const Real* box = boxes + 7 * i; may_have(box, point) &&
                                           PointBox<Real>(box, z_is_bottom, margin).has(point) &&
                                           !found(static_cast<std::int32_t>(i)))
        return;
  }
};

template <class Real>
class BoxGrid {
 public:
  static std::size_t bytes(std::int64_t boxes);
  BoxGrid(Scratch& scratch, std::int64_t boxes);

  // Lists new boxes, for `points` points.
  void set(const Real* boxes, std::int64_t points, bool z_is_bottom, float margin);

  const PointBox<Real>& box(std::int64_t i) const { return box_[i]; }

  // Calls found(box) for the boxes that have the point, in ascending order, until it returns false.
  template <class Found>
  void for_boxes_of(const Real* point, const Found& found) const {
    const Real column = (point[0] - low_x_) * scale_x_, row = (point[1] - low_y_) * scale_y_;
    if (!(column >= 0 && column < columns_ && row >= 0 && row < rows_)) return;  // also for NaN
    const std::int64_t cell = static_cast<std::int64_t>(row) * cells_ + static_cast<std::int64_t>(column);
    for (std::int32_t k = starts_[cell]; k < starts_[cell + 1]; ++k)
      if (box_[listed_[k]].has(point) && !found(listed_[k])) return;
  }

 private:
  // The cells that a box covers.
  struct Cells {
    std::int64_t first_column, last_column, first_row, last_row;
    std::int64_t count() const { return (last_column - first_column + 1) * (last_row - first_row + 1); }
  };
  Cells cells_of(std::int64_t box) const;
  void set_cells(std::int64_t cells);
  bool fits() const;
  void list();

  const std::int64_t count_;
  PointBox<Real>* const box_;
  Real* const extent_x_;  // half the size of the rectangle around a box; negative: it has no points
  Real* const extent_y_;
  std::int32_t* const starts_;  // of each cell in listed_
  std::int32_t* const listed_;
  std::int64_t cells_ = 1;  // in each direction
  Real columns_ = 1, rows_ = 1;
  double least_x_ = 0, least_y_ = 0, most_x_ = 0, most_y_ = 0;
  Real low_x_ = 0, low_y_ = 0, scale_x_ = 0, scale_y_ = 0;
};

}  // namespace turnout::core
