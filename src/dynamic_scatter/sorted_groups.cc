// Groups points by a sort. The number of a point's cell and the point's number are packed into 64 bits and
// sorted by radix. If they do not fit, points are sorted by comparing their rows.
#include <algorithm>
#include <utility>

#include "core/dtypes.h"
#include "dynamic_scatter/grouping.h"
#include "indices/sort.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
namespace {

// -1 if a coordinate is negative, otherwise 0.
template <int kDims, class Index>
Index negative(const Index* row) {
  Index any = row[0];
  for (int d = 1; d < kDims; ++d) any |= row[d];
  return any >> (sizeof(Index) * 8 - 1);
}

template <int kDims, class Index>
class Sorting {
 public:
  Sorting(Context& context, const ConstTensor& coors, const Packing& packing, const GroupMemory& to,
          Scratch& passing)
      : context_(context),
        coors_(static_cast<const Index*>(coors.data)),
        points_(coors.shape[0]),
        packing_(packing),
        to_(to),
        elements_(passing.take<std::uint64_t>(points_)),
        other_(passing.take<std::uint64_t>(points_)),
        counters_(passing.take<std::int64_t>(sort_counters(points_))),
        row_memory_(passing.take<std::int64_t>(points_ * kDims)) {}

  VoxelGroups run() {
    const bool fits = packing_.cells > 0 && packing_.cell_bits() + packing_.point_bits <= 64;
    if (fits) {
      point_bits_ = packing_.point_bits;
      // If coordinates have changed, the mask keeps the cell within the sorted bits.
      const std::uint64_t mask = (std::uint64_t{1} << packing_.cell_bits()) - 1;
      make_elements([packing = packing_, mask](const Index* row) {
        std::uint64_t cell = 0;
        for (int d = 0; d < kDims; ++d)
          cell += (static_cast<std::uint64_t>(row[d]) - static_cast<std::uint64_t>(packing.least[d])) *
                  packing.weight[d];
        return (cell & mask) << packing.point_bits;
      });
      elements_ = sort_bits(context_, {elements_, other_}, packing_.valid, point_bits_, packing_.cell_bits(),
                            counters_)
                      .sorted;
    } else {
      copy_rows();
      make_elements([](const Index*) { return std::uint64_t{0}; });
      sort_rows();
    }
    return {points_, number_voxels(), to_.map, to_.order, to_.starts, fits ? "sorted cells" : "sorted rows"};
  }

 private:
  // Points in a voxel become elements; the others go to the end of the order. Every chunk fills exactly the
  // slots that make_packing() counted for it, even if coordinates have changed since: a point whose kind has
  // no slot left is treated as the other kind.
  template <class KeyOf>
  void make_elements(const KeyOf& key_of) {
    const Chunks chunks(points_);
    chunks.run(context_, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      const KeyOf key = key_of;  // a local copy, which stores cannot change
      const std::int64_t before = packing_.valid_before[part];
      std::uint64_t* next = elements_ + before;
      std::uint64_t* const last =
          elements_ + (part + 1 < chunks.parts ? packing_.valid_before[part + 1] : packing_.valid);
      std::int32_t* next_none = to_.order + packing_.valid + begin - before;
      std::int32_t* const last_none = next_none + (end - begin) - (last - next);
      const Index* row = coors_ + begin * kDims;
      for (std::int64_t x = begin; x < end; ++x, row += kDims) {
        const bool in_voxel = negative<kDims>(row) == 0 ? next != last : next_none == last_none;
        if (in_voxel) {
          *next++ = key(row) | static_cast<std::uint64_t>(x);
        } else {
          to_.map[x] = -1;
          *next_none++ = static_cast<std::int32_t>(x);
        }
      }
    });
  }

  void copy_rows() {
    auto* rows = reinterpret_cast<Index*>(row_memory_);
    parallel_for(context_, points_, point_grain(points_), [&](std::int64_t begin, std::int64_t end) {
      std::copy(coors_ + begin * kDims, coors_ + end * kDims, rows + begin * kDims);
    });
    coors_ = rows;
  }

  // Sorts by comparing rows, for coordinates too far apart to be packed, then stores voxel numbers in the
  // elements. It compares rows of a copy: if another thread changed the rows, comparisons could contradict
  // each other, and the sort could leave its array.
  void sort_rows() {
    const std::int64_t count = packing_.valid;
    sort_by(elements_, elements_ + count, [&](std::uint64_t a, std::uint64_t b) {
      const Index *row_a = coors_ + a * kDims, *row_b = coors_ + b * kDims;
      for (int d = 0; d < kDims; ++d)
        if (row_a[d] != row_b[d]) return row_a[d] < row_b[d];
      return a < b;
    });
    std::uint64_t voxel = 0;
    serial_for(0, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint64_t x = elements_[i];
        if (i > 0) {
          const auto before = elements_[i - 1] & 0xFFFFFFFFu;
          voxel += !std::equal(coors_ + x * kDims, coors_ + (x + 1) * kDims, coors_ + before * kDims);
        }
        elements_[i] = voxel << 32 | x;
      }
    });
  }

  // Numbers the voxels, which are the runs of equal keys. Returns the number of voxels.
  std::int64_t number_voxels() {
    const Chunks chunks(packing_.valid);
    const int shift = point_bits_;
    const std::uint64_t* elements = elements_;
    const auto is_head = [=, valid = packing_.valid](std::int64_t i) {  // also true at the end
      return i == 0 || i == valid || (elements[i] ^ elements[i - 1]) >> shift != 0;
    };
    std::int64_t heads[kMaxChunks + 1] = {};
    if (chunks.parts > 1) {  // a single part needs no count of the voxels before it
      chunks.run(context_, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) heads[part + 1] += is_head(i);
      });
      for (std::int64_t part = 1; part < chunks.parts; ++part) heads[part] += heads[part - 1];
    }
    to_.starts[0] = 0;
    chunks.run(context_, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
      std::int32_t *map = to_.map, *order = to_.order;
      std::int32_t* ends = to_.starts + heads[part];  // the end of the previous element's voxel
      auto voxel = static_cast<std::int32_t>(heads[part]) - 1;
      // The next chunk writes the end of a run that continues there.
      std::int64_t last = end;
      while (last > begin && !is_head(last)) --last;
      for (std::int64_t i = begin; i < end; ++i) {
        const bool head = is_head(i);
        const auto x = static_cast<std::int32_t>(elements[i] & mask);
        voxel += head;
        ends += head;
        order[i] = x;
        map[x] = voxel;
        // Store unconditionally: a store per element is cheaper than a mispredicted branch per run. The last
        // element of the run stores the right value.
        if (i < last) *ends = static_cast<std::int32_t>(i + 1);
      }
      if (part + 1 == chunks.parts) heads[chunks.parts] = voxel + 1;
    });
    return heads[chunks.parts];
  }

  Context& context_;
  const Index* coors_;
  std::int64_t points_;
  const Packing& packing_;
  GroupMemory to_;
  std::uint64_t *elements_, *other_;
  std::int64_t* counters_;
  std::int64_t* row_memory_;
  int point_bits_ = 32;  // the low bits of an element are the point's number
};

template <class Index>
VoxelGroups sort_typed(Context& context, const ConstTensor& coors, const Packing& packing,
                       const GroupMemory& to, Scratch& passing) {
  switch (coors.shape[1]) {
    case 1:
      return Sorting<1, Index>(context, coors, packing, to, passing).run();
    case 2:
      return Sorting<2, Index>(context, coors, packing, to, passing).run();
    case 3:
      return Sorting<3, Index>(context, coors, packing, to, passing).run();
    default:
      return Sorting<4, Index>(context, coors, packing, to, passing).run();
  }
}

}  // namespace

std::size_t sorting_bytes(std::int64_t points) {
  return 2 * array_bytes<std::uint64_t>(points) + array_bytes<std::int64_t>(sort_counters(points)) +
         array_bytes<std::int64_t>(kMaxDims * points);
}

VoxelGroups group_by_sort(Context& context, const ConstTensor& coors, const Packing& packing,
                          const GroupMemory& to, Scratch& passing) {
  return visit_index(coors.dtype, [&](auto type) {
    return sort_typed<typename decltype(type)::type>(context, coors, packing, to, passing);
  });
}

}  // namespace turnout::families::dynamic_scatter
