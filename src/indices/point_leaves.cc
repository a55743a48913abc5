// Sorts points along a space-filling curve and bounds them by boxes.
#include "indices/point_leaves.h"

#include <algorithm>
#include <cmath>

#include "core/grain.h"
#include "core/padding.h"
#include "indices/sort.h"
#include "runtime/parallel.h"

namespace turnout::core {
namespace {

constexpr int kAxisBits = 10;
constexpr std::int64_t kUnsorted = 128;  // so few points stay in their order

// Groups whose points are worth a thread: their extent and keys are computed, they are copied, or divided.
constexpr std::int64_t kPassGrain = 48 / kGrainDivisor + 1;
constexpr std::int64_t kDivideGrain = 4 / kGrainDivisor + 1;

template <class Body>
void for_groups(Context* context, std::int64_t groups, std::int64_t grain, const Body& body) {
  if (context != nullptr) return parallel_for(*context, groups, grain, body);
  body(std::int64_t{0}, groups);
}

constexpr std::int64_t groups_for(std::int64_t points, std::int64_t per_group) {
  return (points + per_group - 1) / per_group;
}

// Moves bit i to bit 3 * i.
constexpr std::uint32_t spread(std::uint32_t v) {
  v = (v | v << 16) & 0x030000FF;
  v = (v | v << 8) & 0x0300F00F;
  v = (v | v << 4) & 0x030C30C3;
  return (v | v << 2) & 0x09249249;
}

// A point whose coordinates have an order: NaN is the largest.
template <class Real>
struct Ordered {
  Real at[3];
  std::int32_t row;

  void set(const Real* points, std::int32_t its_row) {
    row = its_row;
    for (int k = 0; k < 3; ++k) {
      const Real v = points[3 * std::int64_t{row} + k];
      at[k] = std::isnan(v) ? std::numeric_limits<Real>::infinity() : v;
    }
  }
};

// Divides points into leaves by medians of the longest axis.
template <class Real>
void divide_by_medians(Ordered<Real>* first, Ordered<Real>* last, std::int64_t leaf) {
  while (last - first > leaf) {
    Real longest = -1;
    int axis = 0;
    for (int k = 0; k < 3; ++k) {
      Real low = first->at[k], high = low;
      for (const Ordered<Real>* p = first; p < last; ++p) {
        low = std::min(low, p->at[k]);
        high = std::max(high, p->at[k]);
      }
      if (high - low > longest) {
        longest = high - low;
        axis = k;
      }
    }
    const std::int64_t leaves = (last - first + leaf - 1) / leaf;
    Ordered<Real>* const middle = first + (leaves + 1) / 2 * leaf;
    std::nth_element(first, middle, last, [axis](const Ordered<Real>& a, const Ordered<Real>& b) {
      return a.at[axis] < b.at[axis];
    });
    divide_by_medians(middle, last, leaf);
    last = middle;
  }
}

}  // namespace

template <class Real>
std::size_t PointLeaves<Real>::bytes(std::int64_t most) {
  const std::int64_t groups = groups_for(most, kLeaf * kGroup);
  return 3 * array_bytes<Real>(groups * kGroup * kLeaf) + array_bytes<std::int32_t>(groups * kGroup * kLeaf) +
         6 * array_bytes<Real>(groups * kGroup) + 6 * array_bytes<Real>(padded_groups(groups)) +
         2 * array_bytes<std::uint64_t>(most) + array_bytes<std::int64_t>(sort_counters(most));
}

template <class Real>
PointLeaves<Real>::PointLeaves(Scratch& scratch, std::int64_t most) {
  const std::int64_t groups = groups_for(most, kLeaf * kGroup);
  for (Real*& axis : coordinates_) axis = scratch.take<Real>(groups * kGroup * kLeaf);
  rows_ = scratch.take<std::int32_t>(groups * kGroup * kLeaf);
  for (int k = 0; k < 3; ++k) {
    leaf_boxes_.low[k] = scratch.take<Real>(groups * kGroup);
    leaf_boxes_.high[k] = scratch.take<Real>(groups * kGroup);
    group_boxes_.low[k] = scratch.take<Real>(padded_groups(groups));
    group_boxes_.high[k] = scratch.take<Real>(padded_groups(groups));
  }
  keys_ = scratch.take<std::uint64_t>(most);
  spare_keys_ = scratch.take<std::uint64_t>(most);
  counters_ = scratch.take<std::int64_t>(sort_counters(most));
}

// The grid of the curve, over the finite coordinates of all points.
template <class Real>
struct PointLeaves<Real>::Cells {
  static constexpr double kMost = (1 << kAxisBits) - 1;
  Real low[3], scale;

  std::uint32_t along(Real v, int axis) const {
    const Real at = (v - low[axis]) * scale;  // NaN and numbers below the first cell are put into it
    return at > 0 ? static_cast<std::uint32_t>(std::min<Real>(at, kMost)) : 0U;
  }
  std::uint32_t key(const Real* p) const {
    return spread(along(p[0], 0)) | spread(along(p[1], 1)) << 1 | spread(along(p[2], 2)) << 2;
  }
};

template <class Real>
auto PointLeaves<Real>::cells(Context* context, const Real* points) const -> Cells {
  constexpr Real kMost = std::numeric_limits<Real>::max();
  // The boxes of groups are not used yet. They take the extents of the points in their given order.
  const Boxes& extents = group_boxes_;
  for_groups(context, groups_, kPassGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t g = first; g < last; ++g) {
      Real low[3] = {kMost, kMost, kMost}, high[3] = {-kMost, -kMost, -kMost};
      const std::int64_t begin = g * kLeaf * kGroup, end = std::min(begin + kLeaf * kGroup, count_);
      for (std::int64_t i = begin; i < end; ++i)
        for (int k = 0; k < 3; ++k) {
          const Real v = points[3 * i + k];
          low[k] = v < low[k] && v >= -kMost ? v : low[k];
          high[k] = v > high[k] && v <= kMost ? v : high[k];
        }
      for (int k = 0; k < 3; ++k) {
        extents.low[k][g] = low[k];
        extents.high[k][g] = high[k];
      }
    }
  });
  Cells result;
  double extent = 0;
  for (int k = 0; k < 3; ++k) {
    result.low[k] = *std::min_element(extents.low[k], extents.low[k] + groups_);
    const Real high = *std::max_element(extents.high[k], extents.high[k] + groups_);
    extent = std::max(extent, double{high} - double{result.low[k]});
  }
  result.scale = extent > 0 && extent < double{kMost} ? static_cast<Real>(Cells::kMost / extent) : Real(0);
  return result;
}

// Leaves the order of the points in keys_.
template <class Real>
void PointLeaves<Real>::sort(Context* context, const Real* points) {
  const Cells grid = cells(context, points);
  for_groups(context, groups_, kPassGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first * kLeaf * kGroup; i < std::min(last * kLeaf * kGroup, count_); ++i)
      keys_[i] = std::uint64_t{grid.key(points + 3 * i)} << 32 | static_cast<std::uint64_t>(i);
  });
  const SortArrays unsorted{keys_, spare_keys_};
  const SortArrays arrays = context != nullptr
                                ? sort_bits(*context, unsorted, count_, 32, 3 * kAxisBits, counters_)
                                : sort_bits(unsorted, count_, 32, 3 * kAxisBits);
  keys_ = arrays.sorted;
  spare_keys_ = arrays.spare;
}

// Divides the points first .. last - 1, which are a group.
template <class Real>
void PointLeaves<Real>::divide(const Real* points, std::int64_t first, std::int64_t last) {
  Ordered<Real> group[kLeaf * kGroup];
  for (std::int64_t j = first; j < last; ++j) group[j - first].set(points, rows_[j]);
  divide_by_medians(group, group + (last - first), kLeaf);
  for (std::int64_t j = first; j < last; ++j) rows_[j] = group[j - first].row;
}

// Box i is around elements i * per_box .. (i + 1) * per_box - 1, of which `used` are there.
template <class Real>
void PointLeaves<Real>::bound(std::int64_t first, std::int64_t last, std::int64_t used, std::int64_t per_box,
                              const Real* const* low, const Real* const* high, const Boxes& to) const {
  constexpr Real kInfinite = std::numeric_limits<Real>::infinity();
  for (int k = 0; k < 3; ++k)
    for (std::int64_t i = first; i < last; ++i) {
      Real least = kInfinite, most = -kInfinite;
      for (std::int64_t j = i * per_box; j < std::min((i + 1) * per_box, used); ++j) {
        least = low[k][j] < least ? low[k][j] : least;  // false for NaN
        most = high[k][j] > most ? high[k][j] : most;
      }
      to.low[k][i] = least;
      to.high[k][i] = most;
    }
}

// Takes the points of some groups in the order of keys_.
template <class Real>
void PointLeaves<Real>::fill_leaves(const Real* points, std::int64_t first_group, std::int64_t last_group,
                                    LeafOrder order) {
  for (std::int64_t g = first_group; g < last_group; ++g) {
    const std::int64_t first = g * kLeaf * kGroup, after = first + kLeaf * kGroup;
    const std::int64_t last = std::min(after, count_);
    for (std::int64_t j = first; j < last; ++j)
      rows_[j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(keys_[j]));
    if (order == LeafOrder::medians) divide(points, first, last);
    for (std::int64_t j = first; j < last; ++j)
      for (int k = 0; k < 3; ++k) coordinates_[k][j] = points[3 * std::int64_t{rows_[j]} + k];
    for (std::int64_t j = last; j < after; ++j) {
      rows_[j] = kNoRow;
      for (Real* axis : coordinates_) axis[j] = std::numeric_limits<Real>::quiet_NaN();
    }
    bound(g * kGroup, (g + 1) * kGroup, leaves() * kLeaf, kLeaf, coordinates_, coordinates_, leaf_boxes_);
    bound(g, g + 1, leaves(), kGroup, leaf_boxes_.low, leaf_boxes_.high, group_boxes_);
  }
}

template <class Real>
void PointLeaves<Real>::build(Context* context, const Real* points, std::int64_t count, LeafOrder order) {
  count_ = count;
  groups_ = groups_for(count, kLeaf * kGroup);
  if (order != LeafOrder::own && count > kUnsorted) {
    sort(context, points);
  } else {
    for (std::int64_t i = 0; i < count; ++i) keys_[i] = static_cast<std::uint64_t>(i);
  }
  for_groups(context, groups_, order == LeafOrder::medians ? kDivideGrain : kPassGrain,
             [&](std::int64_t first, std::int64_t last) { fill_leaves(points, first, last, order); });
  bound(groups_, padded_groups(groups_), leaves(), kGroup, leaf_boxes_.low, leaf_boxes_.high, group_boxes_);
}

template class PointLeaves<float>;
template class PointLeaves<double>;

}  // namespace turnout::core
