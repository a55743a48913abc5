// Sorts the points of each box by their cells.
#include "roi_pooling/cell_points.h"

#include <algorithm>

#include "core/padding.h"
#include "runtime/parallel.h"

namespace turnout::families::roi_pooling {

using namespace core;
namespace {

// The cell of a quotient: 0 for negative ones and NaN.
template <class Real>
std::int64_t cell_of(Real quotient, std::int64_t size) {
  if (!(quotient > 0)) return 0;
  return quotient >= static_cast<Real>(size) ? size - 1 : static_cast<std::int64_t>(quotient);
}

template <class Real>
class Cells {
 public:
  Cells(const Real* roi, const PointBox<Real>& box, const BoxRule& box_rule, const CellRule& rule)
      : box_(box), rule_(rule), half_x_(roi[3] / 2), half_y_(roi[4] / 2), z_(roi[2]), half_z_(roi[5] / 2) {
    for (int d = 0; d < 3; ++d) step_[d] = roi[3 + d] / static_cast<Real>(rule.size[d]);
    if (box_rule.z_is_bottom) half_z_ = 0;  // exact: z - bottom + 0
  }
  std::int32_t of(const Real* point) const {
    const std::int64_t x = cell_of((box_.local_x(point) + half_x_) / step_[0], rule_.size[0]);
    const std::int64_t y = cell_of((box_.local_y(point) + half_y_) / step_[1], rule_.size[1]);
    const std::int64_t z = cell_of((point[2] - z_ + half_z_) / step_[2], rule_.size[2]);
    return static_cast<std::int32_t>((x * rule_.size[1] + y) * rule_.size[2] + z);
  }

 private:
  const PointBox<Real>& box_;
  const CellRule& rule_;
  Real step_[3];
  const Real half_x_, half_y_, z_;
  Real half_z_;
};

}  // namespace

template <class Real>
CellPoints::CellPoints(Context& context, const Real* rois, std::int64_t roi_count, const Real* points,
                       std::int64_t point_count, const BoxRule& box_rule, const CellRule& rule) {
  RoiPoints<Real> inside(context, roi_count);
  inside.find(rois, points, point_count, box_rule);
  const std::int64_t total = inside.total(), cells = rule.cells();
  const int workers =
      static_cast<int>(std::min<std::int64_t>(context.threads(), std::max<std::int64_t>(roi_count, 1)));
  memory_.emplace(context, 2 * array_bytes<std::int64_t>(roi_count + 1) +
                               array_bytes<std::int32_t>(roi_count) + 2 * array_bytes<std::int32_t>(total) +
                               array_bytes<std::int32_t>(total + roi_count));
  starts_ = memory_->take<std::int64_t>(roi_count + 1);
  pairs_before_ = memory_->take<std::int64_t>(roi_count + 1);
  filled_ = memory_->take<std::int32_t>(roi_count);
  cell_ = memory_->take<std::int32_t>(total);
  points_ = memory_->take<std::int32_t>(total);
  first_ = memory_->take<std::int32_t>(total + roi_count);
  Scratch spare(context, 2 * array_bytes<std::int32_t>(total) + array_bytes<std::int32_t>(workers * cells));
  auto* const cell_of_point = spare.take<std::int32_t>(total);
  auto* const next = spare.take<std::int32_t>(total);  // where the next point of a cell goes
  auto* const tables =
      spare.take<std::int32_t>(workers * cells);  // of each worker: numbers by cell, 0 between boxes
  std::fill_n(tables, workers * cells, 0);

  const auto sort_box = [&](std::int64_t roi, std::int32_t* table) {
    const std::int64_t start = inside.start(roi), count = inside.count(roi);
    const std::int32_t* its = inside.of(roi);
    const Cells<Real> of_box(rois + 7 * roi, inside.box(roi), box_rule, rule);
    for (std::int64_t i = 0; i < count; ++i)
      ++table[cell_of_point[start + i] = of_box.of(points + 3 * std::int64_t{its[i]})];
    // Cells with points get numbers, which replace their counts in the table.
    std::int32_t filled = 0, kept = 0;
    for (std::int64_t c = 0; count > 0 && c < cells; ++c) {
      if (table[c] == 0) continue;
      cell_[start + filled] = static_cast<std::int32_t>(c);
      next[start + filled] = first_[start + roi + filled] = kept;
      kept += static_cast<std::int32_t>(std::min<std::int64_t>(table[c], rule.max_points));
      table[c] = filled++;
    }
    first_[start + roi + filled] = kept;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t number = table[cell_of_point[start + i]];
      std::int32_t& place = next[start + number];
      if (place < first_[start + roi + number + 1]) points_[start + place++] = its[i];
    }
    for (std::int64_t v = 0; v < filled; ++v) table[cell_[start + v]] = 0;
    starts_[roi] = start;
    filled_[roi] = filled;
    pairs_before_[roi + 1] = kept;
  };
  const std::int64_t grain = total + roi_count * cells < (1 << 17) / kGrainDivisor ? roi_count : 1;
  parallel_for(
      context, roi_count, grain,
      [&](std::int64_t begin, std::int64_t end, int worker) {
        for (std::int64_t roi = begin; roi < end; ++roi) sort_box(roi, tables + worker * cells);
      },
      workers);
  pairs_before_[0] = 0;
  for (std::int64_t roi = 0; roi < roi_count; ++roi) pairs_before_[roi + 1] += pairs_before_[roi];
  pairs_ = pairs_before_[roi_count];
}

template CellPoints::CellPoints(Context&, const float*, std::int64_t, const float*, std::int64_t,
                                const BoxRule&, const CellRule&);
template CellPoints::CellPoints(Context&, const double*, std::int64_t, const double*, std::int64_t,
                                const BoxRule&, const CellRule&);

}  // namespace turnout::families::roi_pooling
