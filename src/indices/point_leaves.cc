// Sorts points along a space-filling curve and bounds them by boxes.
#include "indices/point_leaves.h"

#include <algorithm>
#include <cmath>

#include "core/padding.h"
#include "indices/sort.h"

namespace turnout::core {
namespace {

constexpr int kAxisBits = 10;
constexpr std::int64_t kUnsorted = 128;  // so few points stay in their order

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
         2 * array_bytes<std::uint64_t>(most);
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
}

// Leaves the order of the points in keys_.
template <class Real>
void PointLeaves<Real>::sort(const Real* points) {
  constexpr Real kMost = std::numeric_limits<Real>::max();
  Real low[3] = {kMost, kMost, kMost}, high[3] = {-kMost, -kMost, -kMost};
  for (std::int64_t i = 0; i < count_; ++i)
    for (int k = 0; k < 3; ++k) {
      const Real v = points[3 * i + k];
      if (v < low[k] && v >= -kMost) low[k] = v;
      if (v > high[k] && v <= kMost) high[k] = v;
    }
  double extent = 0;
  for (int k = 0; k < 3; ++k) extent = std::max(extent, double{high[k]} - double{low[k]});
  constexpr double kCells = (1 << kAxisBits) - 1;
  const Real scale = extent > 0 && extent < double{kMost} ? static_cast<Real>(kCells / extent) : Real(0);
  const auto cell = [&](Real v, int axis) {
    const Real at = (v - low[axis]) * scale;  // NaN and numbers below the first cell are put into it
    return at > 0 ? static_cast<std::uint32_t>(std::min<Real>(at, kCells)) : 0U;
  };
  for (std::int64_t i = 0; i < count_; ++i) {
    const Real* p = points + 3 * i;
    const std::uint32_t key = spread(cell(p[0], 0)) | spread(cell(p[1], 1)) << 1 | spread(cell(p[2], 2)) << 2;
    keys_[i] = std::uint64_t{key} << 32 | static_cast<std::uint64_t>(i);
  }
  const SortArrays arrays = sort_bits(SortArrays{keys_, spare_keys_}, count_, 32, 3 * kAxisBits);
  keys_ = arrays.sorted;
  spare_keys_ = arrays.spare;
}

template <class Real>
void PointLeaves<Real>::divide(const Real* points) {
  constexpr std::int64_t kMost = kLeaf * kGroup;
  Ordered<Real> group[kMost];
  for (std::int64_t first = 0; first < count_; first += kMost) {
    const std::int64_t its_count = std::min(count_ - first, kMost);
    for (std::int64_t j = 0; j < its_count; ++j) group[j].set(points, rows_[first + j]);
    divide_by_medians(group, group + its_count, kLeaf);
    for (std::int64_t j = 0; j < its_count; ++j) rows_[first + j] = group[j].row;
  }
}

// Box i is around elements i * per_box .. (i + 1) * per_box - 1, of which `used` are there.
template <class Real>
void PointLeaves<Real>::bound(std::int64_t boxes, std::int64_t used, std::int64_t per_box,
                              const Real* const* low, const Real* const* high, const Boxes& to) const {
  constexpr Real kInfinite = std::numeric_limits<Real>::infinity();
  for (int k = 0; k < 3; ++k)
    for (std::int64_t i = 0; i < boxes; ++i) {
      Real least = kInfinite, most = -kInfinite;
      for (std::int64_t j = i * per_box; j < std::min((i + 1) * per_box, used); ++j) {
        least = low[k][j] < least ? low[k][j] : least;  // false for NaN
        most = high[k][j] > most ? high[k][j] : most;
      }
      to.low[k][i] = least;
      to.high[k][i] = most;
    }
}

template <class Real>
void PointLeaves<Real>::build(const Real* points, std::int64_t count, LeafOrder order) {
  count_ = count;
  groups_ = groups_for(count, kLeaf * kGroup);
  if (order != LeafOrder::own && count > kUnsorted) {
    sort(points);
  } else {
    for (std::int64_t i = 0; i < count; ++i) keys_[i] = static_cast<std::uint64_t>(i);
  }
  for (std::int64_t j = 0; j < count; ++j)
    rows_[j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(keys_[j]));
  if (order == LeafOrder::medians) divide(points);
  for (std::int64_t j = 0; j < count; ++j)
    for (int k = 0; k < 3; ++k) coordinates_[k][j] = points[3 * std::int64_t{rows_[j]} + k];
  for (std::int64_t j = count; j < leaves() * kLeaf; ++j) {
    rows_[j] = kNoRow;
    for (Real* axis : coordinates_) axis[j] = std::numeric_limits<Real>::quiet_NaN();
  }
  bound(leaves(), leaves() * kLeaf, kLeaf, coordinates_, coordinates_, leaf_boxes_);
  bound(padded_groups(groups_), leaves(), kGroup, leaf_boxes_.low, leaf_boxes_.high, group_boxes_);
}

template class PointLeaves<float>;
template class PointLeaves<double>;

}  // namespace turnout::core
