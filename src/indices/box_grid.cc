// Lists boxes by the cells of a grid.
#include "indices/box_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/padding.h"
#include "runtime/interrupt.h"

namespace turnout::core {

namespace {

constexpr std::int64_t kMostCells = 256;    // in each direction
constexpr std::int64_t kCellsOfBox = 64;    // on average; otherwise the cells are larger
constexpr std::int64_t kFewestPoints = 64;  // fewer are compared with all boxes

// The least number of Real that is not less than the bound, and the largest that is not greater.
template <class Real>
Real rounded_up(double bound) {
  const Real nearest = static_cast<Real>(bound);
  return double{nearest} < bound ? std::nextafter(nearest, std::numeric_limits<Real>::infinity()) : nearest;
}
template <class Real>
Real rounded_down(double bound) {
  return -rounded_up<Real>(-bound);
}

}  // namespace

template <class Real>
PointBox<Real>::PointBox(const Real* box, bool z_is_bottom, float margin)
    : x(box[0]),
      y(box[1]),
      middle(z_is_bottom ? static_cast<Real>(double{box[2]} + double{box[5]} / 2) : box[2]),
      cosine(static_cast<Real>(std::cos(-double{box[6]}))),
      sine(static_cast<Real>(std::sin(-double{box[6]}))),
      limit_x(rounded_up<Real>(double{box[3]} / 2 + double{margin})),
      limit_y(rounded_up<Real>(double{box[4]} / 2 + double{margin})),
      half_height(rounded_down<Real>(double{box[5]} / 2)) {}

template <class Real>
std::size_t BoxGrid<Real>::bytes(std::int64_t boxes) {
  return array_bytes<PointBox<Real>>(boxes) + 2 * array_bytes<Real>(boxes) +
         array_bytes<std::int32_t>(kMostCells * kMostCells + 1) +
         array_bytes<std::int32_t>(kCellsOfBox * boxes);
}

template <class Real>
BoxGrid<Real>::BoxGrid(Scratch& scratch, std::int64_t boxes)
    : count_(boxes),
      box_(scratch.take<PointBox<Real>>(boxes)),
      extent_x_(scratch.take<Real>(boxes)),
      extent_y_(scratch.take<Real>(boxes)),
      starts_(scratch.take<std::int32_t>(kMostCells * kMostCells + 1)),
      listed_(scratch.take<std::int32_t>(kCellsOfBox * boxes)) {}

template <class Real>
void BoxGrid<Real>::set(const Real* boxes, std::int64_t points, bool z_is_bottom, float margin) {
  least_x_ = least_y_ = std::numeric_limits<double>::infinity();
  most_x_ = most_y_ = -least_x_;
  bool has_bounds = true;
  serial_for(0, count_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Real* numbers = boxes + 7 * i;
      const PointBox<Real>& box = box_[i] = PointBox<Real>(numbers, z_is_bottom, margin);
      const bool is_nan = std::any_of(numbers, numbers + 7, [](Real v) { return std::isnan(v); });
      extent_x_[i] = extent_y_[i] = -1;
      if (is_nan || !(box.limit_x > 0 && box.limit_y > 0 && box.half_height >= 0)) continue;
      // The rounding errors of a point's position in the box are some 1e-7 of the extents.
      const Real error = Real(1e-5) * (box.limit_x + box.limit_y);
      extent_x_[i] = std::abs(box.cosine) * box.limit_x + std::abs(box.sine) * box.limit_y + error;
      extent_y_[i] = std::abs(box.sine) * box.limit_x + std::abs(box.cosine) * box.limit_y + error;
      for (const Real v : {box.x, box.y, extent_x_[i], extent_y_[i]}) has_bounds &= std::abs(v) <= Real(1e8);
      least_x_ = std::min(least_x_, double{box.x} - double{extent_x_[i]});
      least_y_ = std::min(least_y_, double{box.y} - double{extent_y_[i]});
      most_x_ = std::max(most_x_, double{box.x} + double{extent_x_[i]});
      most_y_ = std::max(most_y_, double{box.y} + double{extent_y_[i]});
    }
  });
  std::int64_t cells = 1;
  if (has_bounds && points >= kFewestPoints && least_x_ <= most_x_)
    cells = std::clamp(static_cast<std::int64_t>(8 * std::sqrt(static_cast<double>(count_))), std::int64_t{1},
                       kMostCells);
  for (set_cells(cells); !fits(); set_cells(cells)) cells /= 2;
  list();
}

// One cell has all points: the position of each is 0.
template <class Real>
void BoxGrid<Real>::set_cells(std::int64_t cells) {
  cells_ = cells;
  columns_ = rows_ = static_cast<Real>(cells);
  low_x_ = low_y_ = scale_x_ = scale_y_ = 0;
  if (cells == 1) return;
  // Numbers of Real may be farther apart than the cells.
  const auto set_one = [&](double least, double most, Real& low, Real& scale) {
    low = rounded_down<Real>(least - 0.01 * (most - least));
    const double size = std::max((most - double{low}) * 1.01, 1e-6) / static_cast<double>(cells);
    scale = static_cast<Real>(1 / size);
  };
  set_one(least_x_, most_x_, low_x_, scale_x_);
  set_one(least_y_, most_y_, low_y_, scale_y_);
}

template <class Real>
typename BoxGrid<Real>::Cells BoxGrid<Real>::cells_of(std::int64_t i) const {
  if (cells_ == 1) return {0, 0, 0, 0};
  // A point at the border of a cell may be rounded into its neighbour.
  const auto cell = [&](double v, Real low, Real scale, double error) {
    const double position = (v - double{low}) * double{scale} + error;
    return std::clamp(static_cast<std::int64_t>(std::floor(position)), std::int64_t{0}, cells_ - 1);
  };
  const double x = box_[i].x, y = box_[i].y, extent_x = extent_x_[i], extent_y = extent_y_[i];
  return {cell(x - extent_x, low_x_, scale_x_, -0.01), cell(x + extent_x, low_x_, scale_x_, 0.01),
          cell(y - extent_y, low_y_, scale_y_, -0.01), cell(y + extent_y, low_y_, scale_y_, 0.01)};
}

template <class Real>
bool BoxGrid<Real>::fits() const {
  std::int64_t listed = 0;
  for (std::int64_t i = 0; i < count_; ++i)
    if (extent_x_[i] >= 0) listed += cells_of(i).count();
  return listed <= std::min<std::int64_t>(kCellsOfBox * count_, std::numeric_limits<std::int32_t>::max());
}

template <class Real>
void BoxGrid<Real>::list() {
  const auto for_cells = [&](const auto& f) {
    serial_for(0, count_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (extent_x_[i] < 0) continue;
        const Cells its = cells_of(i);
        for (std::int64_t row = its.first_row; row <= its.last_row; ++row)
          for (std::int64_t column = its.first_column; column <= its.last_column; ++column)
            f(row * cells_ + column, static_cast<std::int32_t>(i));
      }
    });
  };
  // starts_[c] is the start of cell c; filling the lists moves it to the end, which is the start of the next.
  std::fill_n(starts_, cells_ * cells_ + 1, 0);
  for_cells([&](std::int64_t cell, std::int32_t) { ++starts_[cell + 1]; });
  for (std::int64_t c = 0; c < cells_ * cells_; ++c) starts_[c + 1] += starts_[c];
  for_cells([&](std::int64_t cell, std::int32_t i) { listed_[starts_[cell]++] = i; });
  for (std::int64_t c = cells_ * cells_; c > 0; --c) starts_[c] = starts_[c - 1];
  starts_[0] = 0;
}

template struct PointBox<float>;
template struct PointBox<double>;
template class BoxGrid<float>;
template class BoxGrid<double>;

}  // namespace turnout::core
