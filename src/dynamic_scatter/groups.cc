// Points by voxel: a sort of coordinates packed into one number, or a count of a map's values.
#include "dynamic_scatter/groups.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/dtypes.h"
#include "core/indices_sort.h"
#include "core/parallel.h"
#include "dynamic_scatter/kernels.h"

namespace turnout::core {
namespace {

constexpr std::int64_t kMaxChunks = 64;

// `count` items in consecutive parts of about the same size, few enough for tables on the stack.
struct Chunks {
  std::int64_t count, parts;

  explicit Chunks(std::int64_t items)
      : count(items), parts(std::clamp<std::int64_t>(items / kPointGrain, 1, kMaxChunks)) {}
  std::int64_t begin(std::int64_t part) const { return count / parts * part + count % parts * part / parts; }

  template <class F>
  void run(Context& context, const F& f) const {
    parallel_for(context, parts, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t part = first; part < last; ++part) f(part, begin(part), begin(part + 1));
    });
  }
};

// -1 when a coordinate is negative, else 0.
template <int kDims, class Index>
Index negative(const Index* row) {
  Index any = row[0];
  for (int d = 1; d < kDims; ++d) any |= row[d];
  return any >> (sizeof(Index) * 8 - 1);
}

// How coordinates become one number that orders like them, in front of the point's own number.
struct Packing {
  std::uint64_t weight[kMaxDims];
  std::int64_t least[kMaxDims];
  int point_bits, key_bits;
};

// False when the numbers would not fit 64 bits.
bool make_packing(const Extremes& all, int dims, std::int64_t points, Packing* packing) {
  packing->point_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(points - 1)));
  std::uint64_t cells = 1;
  for (int d = dims - 1; d >= 0; --d) {
    packing->weight[d] = cells;
    packing->least[d] = all.least[d];
    const std::uint64_t extent = static_cast<std::uint64_t>(all.most[d] - all.least[d]) + 1;
    if (__builtin_mul_overflow(cells, extent, &cells)) return false;
  }
  packing->key_bits = static_cast<int>(std::bit_width(cells - 1));
  return packing->key_bits + packing->point_bits <= 64;
}

// One call of group_by_coordinates.
template <int kDims, class Index>
class Grouping {
 public:
  Grouping(Context& context, const ConstTensor& coors, Scratch& kept, Scratch& passing)
      : context_(context),
        coors_(static_cast<const Index*>(coors.data)),
        points_(coors.shape[0]),
        map_(kept.take<std::int32_t>(points_)),
        order_(kept.take<std::int32_t>(points_)),
        starts_(kept.take<std::int32_t>(points_ + 1)),
        elements_(passing.take<std::uint64_t>(points_)),
        other_(passing.take<std::uint64_t>(points_)),
        counters_(passing.take<std::int64_t>(sort_counters(points_))) {}

  VoxelGroups run() {
    const Extremes all = find_extremes();
    const bool fits = valid_ > 0 && make_packing(all, kDims, points_, &packing_);
    if (fits) {
      make_elements([packing = packing_](const Index* row) {
        std::uint64_t key = 0;
        for (int d = 0; d < kDims; ++d)
          key += static_cast<std::uint64_t>(row[d] - packing.least[d]) * packing.weight[d];
        return key << packing.point_bits;
      });
      elements_ =
          sort_bits(context_, elements_, other_, valid_, packing_.point_bits, packing_.key_bits, counters_);
    } else {
      make_elements([](const Index*) { return std::uint64_t{0}; });
      sort_rows();
    }
    return {points_, number_voxels(), map_, order_, starts_, fits ? "sorted keys" : "sorted rows"};
  }

 private:
  Extremes find_extremes() {
    const Chunks chunks(points_);
    Extremes part_of[kMaxChunks];
    const auto extremes = coordinate_kernels(context_.isa()).extremes(dtype_of<Index>, kDims);
    chunks.run(context_, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      part_of[part] = extremes(coors_, begin, end);
    });
    Extremes all = part_of[0];
    for (std::int64_t part = 0; part < chunks.parts; ++part) {
      for (int d = 0; d < kDims; ++d) {
        all.least[d] = std::min(all.least[d], part_of[part].least[d]);
        all.most[d] = std::max(all.most[d], part_of[part].most[d]);
      }
      first_valid_[part] = valid_;
      valid_ += part_of[part].valid;
    }
    return all;
  }

  // Points that are in a voxel become elements, the others go behind them in the order.
  template <class KeyOf>
  void make_elements(const KeyOf& key_of) {
    Chunks(points_).run(context_, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      const KeyOf key = key_of;  // here, where stores are known to leave it alone
      std::uint64_t* next = elements_ + first_valid_[part];
      std::int32_t* next_none = order_ + valid_ + begin - first_valid_[part];
      const Index* row = coors_ + begin * kDims;
      for (std::int64_t x = begin; x < end; ++x, row += kDims) {
        if (negative<kDims>(row) != 0) {
          map_[x] = -1;
          *next_none++ = static_cast<std::int32_t>(x);
        } else {
          *next++ = key(row) | static_cast<std::uint64_t>(x);
        }
      }
    });
  }

  // Coordinates too far apart to be packed: compared one by one. Then the elements have the voxels' numbers.
  void sort_rows() {
    std::sort(elements_, elements_ + valid_, [&](std::uint64_t a, std::uint64_t b) {
      const Index *row_a = coors_ + a * kDims, *row_b = coors_ + b * kDims;
      for (int d = 0; d < kDims; ++d)
        if (row_a[d] != row_b[d]) return row_a[d] < row_b[d];
      return a < b;
    });
    packing_.point_bits = 32;
    std::uint64_t voxel = 0;
    for (std::int64_t i = 0; i < valid_; ++i) {
      const std::uint64_t x = elements_[i];
      if (i > 0) {
        const auto before = elements_[i - 1] & 0xFFFFFFFFu;
        voxel += !std::equal(coors_ + x * kDims, coors_ + (x + 1) * kDims, coors_ + before * kDims);
      }
      elements_[i] = voxel << 32 | x;
    }
  }

  // Each run of equal keys is a voxel. Returns how many.
  std::int64_t number_voxels() {
    const Chunks chunks(valid_);
    const int shift = packing_.point_bits;
    const std::uint64_t* elements = elements_;
    const auto is_head = [=, valid = valid_](std::int64_t i) {  // or the end of all
      return i == 0 || i == valid || (elements[i] ^ elements[i - 1]) >> shift != 0;
    };
    std::int64_t heads[kMaxChunks + 1] = {};
    if (chunks.parts > 1) {  // only then must a part know what is before it
      chunks.run(context_, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) heads[part + 1] += is_head(i);
      });
      for (std::int64_t part = 1; part < chunks.parts; ++part) heads[part] += heads[part - 1];
    }
    starts_[0] = 0;
    chunks.run(context_, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
      std::int32_t *map = map_, *order = order_;
      std::int32_t* ends = starts_ + heads[part];  // of the voxel of the element before
      auto voxel = static_cast<std::int32_t>(heads[part]) - 1;
      // A run that goes on in the next chunk has its end there.
      std::int64_t last = end;
      while (last > begin && !is_head(last)) --last;
      for (std::int64_t i = begin; i < end; ++i) {
        const bool head = is_head(i);
        const auto x = static_cast<std::int32_t>(elements[i] & mask);
        voxel += head;
        ends += head;
        order[i] = x;
        map[x] = voxel;
        // Not only where a run ends, which would be hard to foresee: what its last element says stays.
        if (i < last) *ends = static_cast<std::int32_t>(i + 1);
      }
      if (part + 1 == chunks.parts) heads[chunks.parts] = voxel + 1;
    });
    return heads[chunks.parts];
  }

  Context& context_;
  const Index* coors_;
  std::int64_t points_, valid_ = 0;
  std::int64_t first_valid_[kMaxChunks];  // of each chunk of points: how many there are before it
  Packing packing_ = {};
  std::int32_t *map_, *order_, *starts_;
  std::uint64_t *elements_, *other_;
  std::int64_t* counters_;
};

template <class Index>
VoxelGroups group_typed(Context& context, const ConstTensor& coors, Scratch& kept, Scratch& passing) {
  switch (coors.shape[1]) {
    case 1:
      return Grouping<1, Index>(context, coors, kept, passing).run();
    case 2:
      return Grouping<2, Index>(context, coors, kept, passing).run();
    case 3:
      return Grouping<3, Index>(context, coors, kept, passing).run();
    default:
      return Grouping<4, Index>(context, coors, kept, passing).run();
  }
}

// Parts of a map that are counted at the same time, at most: each has a table with all voxels, which must
// cost less than its points.
std::int64_t most_counted_parts(std::int64_t points, std::int64_t voxels) {
  return std::clamp<std::int64_t>(std::min(points / kPointGrain, points / (voxels + 1)), 1, 4);
}

}  // namespace

std::int64_t VoxelGroups::voxel_from(std::int64_t position) const {
  return std::lower_bound(starts, starts + voxels, position) - starts;
}

std::size_t groups_bytes(std::int64_t points) {
  return 2 * array_bytes<std::int32_t>(points) + array_bytes<std::int32_t>(points + 1);
}

std::size_t grouping_bytes(std::int64_t points) {
  return 2 * array_bytes<std::uint64_t>(points) + array_bytes<std::int64_t>(sort_counters(points));
}

VoxelGroups group_by_coordinates(Context& context, const ConstTensor& coors, Scratch& kept,
                                 Scratch& passing) {
  return visit_index(coors.dtype, [&](auto type) {
    return group_typed<typename decltype(type)::type>(context, coors, kept, passing);
  });
}

std::size_t map_groups_bytes(std::int64_t points, std::int64_t voxels) {
  return array_bytes<std::int32_t>(points) +
         array_bytes<std::int32_t>((voxels + 2) * (most_counted_parts(points, voxels) + 1));
}

VoxelGroups group_by_map(Context& context, const std::int32_t* map, std::int64_t points, std::int64_t voxels,
                         Scratch& scratch) {
  const std::int64_t stride = voxels + 2;
  const std::int64_t parts = std::min<std::int64_t>(most_counted_parts(points, voxels), context.threads());
  auto* order = scratch.take<std::int32_t>(points);
  auto* starts = scratch.take<std::int32_t>(stride * (parts + 1));
  std::int32_t* tables = starts + stride;
  const auto begin = [&](std::int64_t part) { return points * part / parts; };
  const auto bucket = [&](std::int64_t x) {  // -1 is behind the last voxel
    return map[x] < 0 ? voxels : std::int64_t{map[x]};
  };
  parallel_for(context, parts, 1, [&](std::int64_t part, std::int64_t) {
    std::int32_t* table = tables + part * stride;
    std::fill_n(table, stride, 0);
    for (std::int64_t x = begin(part); x < begin(part + 1); ++x) ++table[bucket(x)];
  });
  std::int32_t sum = 0;
  for (std::int64_t v = 0; v <= voxels; ++v) {
    starts[v] = sum;
    for (std::int64_t part = 0; part < parts; ++part) sum += std::exchange(tables[part * stride + v], sum);
  }
  parallel_for(context, parts, 1, [&](std::int64_t part, std::int64_t) {
    std::int32_t* next = tables + part * stride;
    for (std::int64_t x = begin(part); x < begin(part + 1); ++x)
      order[next[bucket(x)]++] = static_cast<std::int32_t>(x);
  });
  return {points, voxels, map, order, starts, "counted map"};
}

}  // namespace turnout::core
