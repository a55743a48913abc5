// Finds the points in each box: chunks of the points count them for each box, then write them.
#include "roi_pooling/roi_points.h"

#include <algorithm>

#include "core/padding.h"
#include "runtime/parallel.h"

namespace turnout::families::roi_pooling {

using namespace core;
namespace {

constexpr std::int64_t kChunkPoints = 2048 / kGrainDivisor + 1;  // at least

template <class Real>
std::size_t memory_bytes(std::int64_t rois, std::int64_t chunks) {
  return BoxGrid<Real>::bytes(rois) + array_bytes<std::int64_t>(rois + 1) +
         array_bytes<std::int64_t>(chunks * rois);
}

}  // namespace

template <class Real>
RoiPoints<Real>::RoiPoints(Context& context, std::int64_t rois, std::int64_t most, std::int64_t entries)
    : context_(context),
      rois_(rois),
      most_(most),
      memory_(context, memory_bytes<Real>(rois, kMostChunks)),
      grid_(memory_, rois),
      starts_(memory_.take<std::int64_t>(rois + 1)),
      next_(memory_.take<std::int64_t>(kMostChunks * rois)) {
  if (entries > 0) take_lists(entries);
}

template <class Real>
void RoiPoints<Real>::take_lists(std::int64_t entries) {
  list_memory_.reset();
  list_memory_.emplace(context_, array_bytes<std::int32_t>(entries));
  lists_ = list_memory_->template take<std::int32_t>(entries);
  entries_ = entries;
}

template <class Real>
void RoiPoints<Real>::find(const Real* rois, const Real* points, std::int64_t count, const BoxRule& rule) {
  grid_.set(rois, count, rule.z_is_bottom, rule.margin);
  const std::int64_t chunks = std::clamp<std::int64_t>(count / kChunkPoints, 1, kMostChunks);
  // Calls f(chunk's numbers, box, point) for the points in boxes, in ascending order within a chunk.
  const auto for_points = [&](const auto& f) {
    const Stop stop;
    parallel_for(context_, chunks, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t chunk = first; chunk < last; ++chunk) {
        std::int64_t* its = next_ + chunk * rois_;
        for (std::int64_t k = count * chunk / chunks; k < count * (chunk + 1) / chunks; ++k) {
          if (k % (1 << 14) == 0 && stop.is_asked()) return;
          grid_.for_boxes_of(points + 3 * k, [&](std::int32_t roi) {
            f(its[roi], roi, static_cast<std::int32_t>(k));
            return true;
          });
        }
      }
    });
  };
  std::fill_n(next_, chunks * rois_, std::int64_t{0});
  for_points([](std::int64_t& number, std::int32_t, std::int32_t) { ++number; });
  std::int64_t sum = 0;
  for (std::int64_t roi = 0; roi < rois_; ++roi) {
    starts_[roi] = sum;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      std::int64_t& number = next_[chunk * rois_ + roi];
      sum += number;
      number = sum - number;
    }
    sum = starts_[roi] + std::min(sum - starts_[roi], most_);
  }
  starts_[rois_] = sum;
  if (sum > entries_) take_lists(sum);
  // The caller's points may change after they were counted: entries that are not written then are 0, and no
  // entry is written beyond those of its box.
  std::fill_n(lists_, sum, 0);
  for_points([this](std::int64_t& next, std::int32_t roi, std::int32_t k) {
    if (next < starts_[roi + 1]) lists_[next++] = k;
  });
}

template class RoiPoints<float>;
template class RoiPoints<double>;

}  // namespace turnout::families::roi_pooling
