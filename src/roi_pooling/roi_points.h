// The points in each box, in ascending order.
#pragma once

#include <cstdint>
#include <optional>

#include "indices/box_grid.h"
#include "runtime/context.h"

namespace turnout::families::roi_pooling {

// How a point is in a box.
struct BoxRule {
  bool z_is_bottom;
  float margin;
};

template <class Real>
class RoiPoints {
 public:
  // For the points of up to `rois` boxes. find() takes memory for the lists.
  RoiPoints(Context& context, std::int64_t rois) : RoiPoints(context, rois, core::kSizeMax, 0) {}
  // For lists of at most `most` points of each box; has their memory from the start.
  RoiPoints(Context& context, std::int64_t rois, std::int64_t most)
      : RoiPoints(context, rois, most, rois * most) {}

  // Throws Error(alloc_failed) if there is no memory for the lists.
  void find(const Real* rois, const Real* points, std::int64_t count, const BoxRule& rule);

  const core::PointBox<Real>& box(std::int64_t roi) const { return grid_.box(roi); }
  // The points of box r are at start(r) .. start(r + 1) - 1.
  std::int64_t start(std::int64_t roi) const { return starts_[roi]; }
  std::int64_t count(std::int64_t roi) const { return starts_[roi + 1] - starts_[roi]; }
  std::int64_t total() const { return starts_[rois_]; }
  const std::int32_t* of(std::int64_t roi) const { return lists_ + starts_[roi]; }

 private:
  static constexpr std::int64_t kMostChunks = 32;

  RoiPoints(Context& context, std::int64_t rois, std::int64_t most, std::int64_t entries);
  void take_lists(std::int64_t entries);

  Context& context_;
  const std::int64_t rois_, most_;
  core::Scratch memory_;
  core::BoxGrid<Real> grid_;
  std::int64_t* const starts_;
  std::int64_t* const next_;  // [chunks, rois]: where the points of a chunk begin in a box's list
  std::int64_t entries_ = 0;  // that lists_ has memory for
  std::optional<core::Scratch> list_memory_;
  std::int32_t* lists_ = nullptr;
};

}  // namespace turnout::families::roi_pooling
