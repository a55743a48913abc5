// Builds the index: from sites to cells, from cells to leaves, from leaves to ranks.
#include "sparse_conv/index.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>
#include <utility>

#include "core/dtypes.h"
#include "runtime/parallel.h"

namespace turnout::families::sparse_conv {

using namespace core;
namespace {

constexpr std::int64_t kSteps = 65536;  // words of a bitmap in one range of a thread
constexpr std::int64_t kBitmapBytes =
    256;  // bytes of a bitmap that are cleared and counted in the time that sorting one site takes

// Computes the cell, leaf * 32 + bit, of coordinate x in the row that begins with leaf_base. 32-bit cells
// have so few leaves that a multiplication replaces the division.
struct LeafDivider {
  std::uint64_t cells, factor;
  explicit LeafDivider(std::int64_t leaf_cells)
      : cells(static_cast<std::uint64_t>(leaf_cells)), factor(((std::uint64_t{1} << 37) - 1) / cells + 1) {}

  template <class Cell>
  Cell cell(std::uint64_t leaf_base, std::uint64_t x) const {
    const std::uint64_t leaf = sizeof(Cell) == 4 ? x * factor >> 37 : x / cells;
    return static_cast<Cell>((leaf_base + leaf) * 32 + (x - leaf * cells));
  }
};

std::int64_t blocks_of(std::int64_t rows) { return (rows + kSiteGrain - 1) / kSiteGrain; }

// Upper bounds for the numbers of classes and slots that depend only on the parameters.
std::int64_t class_bound(const IndicePairsParams& p) {
  std::int64_t classes = 1;
  for (int d = 0; d < p.kernel_size.count() && p.mode != ConvMode::transposed; ++d)
    classes *= std::min(p.kernel_size[d], p.stride[d]);
  return classes;
}
std::int64_t slot_bound(const IndicePairsParams& p) {
  const int last = p.kernel_size.count() - 1;
  const std::int64_t stride = p.mode == ConvMode::transposed ? 1 : p.stride[last];
  const std::int64_t common = std::gcd(stride, p.dilation[last]);
  // Neighbouring offsets of a class are stride / common apart, their deltas dilation / common.
  const std::int64_t taps = (p.kernel_size[last] - 1) * common / stride + 1;
  const std::int64_t taps_of_window = (kMaxWidth - 1) * common / p.dilation[last] + 1;
  return (taps - 1) / taps_of_window + 1;
}

// A coordinate or the batch number of a site, limited to `last`, because indices may have changed since they
// were checked. All later code relies on the range.
template <class Index>
std::int64_t bounded(const Index& given, std::int64_t last) {
  using Unsigned = std::make_unsigned_t<Index>;  // a negative value is large
  return static_cast<std::int64_t>(std::min(static_cast<Unsigned>(given), static_cast<Unsigned>(last)));
}

template <int kDims>
struct Placer {
  GeometryDim dim[kDims];
  std::uint64_t first, batch_leaves;
  std::int64_t last_batch;

  explicit Placer(const Geometry& g)
      : first(static_cast<std::uint64_t>(g.bias - g.row_leaves)),
        batch_leaves(static_cast<std::uint64_t>(g.batch_leaves)),
        last_batch(g.batch_size - 1) {
    std::copy_n(g.dim, kDims, dim);
  }
  template <class Cell, class Index>
  PairIndex::Place<Cell> place(const Index* site) const {
    const auto part_of = [&](int d) { return dim[d].part(bounded(site[d + 1], dim[d].last_site)); };
    const SitePart x = part_of(kDims - 1);
    std::uint64_t base = first + static_cast<std::uint64_t>(bounded(site[0], last_batch)) * batch_leaves;
    std::int64_t cls = x.cls;
    for (int d = 0; d < kDims - 1; ++d) {
      const SitePart part = part_of(d);
      cls += part.cls;
      base += part.leaf;
    }
    return {static_cast<Cell>(base), static_cast<std::uint32_t>(x.leaf),
            static_cast<std::int32_t>(std::max<std::int64_t>(cls, -1)), static_cast<std::int32_t>(x.cls)};
  }
};

// Calls f(integral_constant<int, dims>).
template <class F>
void visit_dims(int dims, const F& f) {
  switch (dims) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    default:
      return f(std::integral_constant<int, 4>());
  }
}

// One pass without a branch on the data, at the speed of memory. The inner loop covers whole rows and whole
// vectors.
template <int kColumns, class Index>
bool columns_in_range(const Index* data, std::int64_t rows, const std::int64_t* limits) {
  using Unsigned = std::make_unsigned_t<Index>;  // a negative value is large
  constexpr int kRows = 16 / sizeof(Index), kValues = kRows * kColumns;
  Unsigned most[kValues] = {};
  std::int64_t i = 0;
  for (; i + kRows <= rows; i += kRows, data += kValues)
    for (int j = 0; j < kValues; ++j) most[j] = std::max(most[j], static_cast<Unsigned>(data[j]));
  for (; i < rows; ++i, data += kColumns)
    for (int c = 0; c < kColumns; ++c) most[c] = std::max(most[c], static_cast<Unsigned>(data[c]));
  bool fits = true;
  for (int j = 0; j < kValues; ++j) fits &= most[j] < static_cast<std::uint64_t>(limits[j % kColumns]);
  return fits;
}

}  // namespace

bool all_in_range(const ConstTensor& indices, const std::int64_t* limits) {
  bool fits = false;
  visit_dims(static_cast<int>(indices.shape[1]) - 1, [&](auto dims) {
    visit_index(indices.dtype, [&](auto type) {
      const auto* data = static_cast<const typename decltype(type)::type*>(indices.data);
      fits = true;
      serial_for(0, indices.shape[0], [&](std::int64_t begin, std::int64_t end) {
        fits &= columns_in_range<dims() + 1>(data + begin * (dims() + 1), end - begin, limits);
      });
    });
  });
  return fits;
}

PairIndexPlan::PairIndexPlan(std::int64_t site_rows, const IndicePairsParams& p)
    : rows(site_rows),
      params(p),
      slots(slot_bound(p) + (p.mode == ConvMode::submanifold)),
      classes(class_bound(p)),
      sorts_sites(has_classes(p)),
      site_blocks(blocks_of(site_rows)) {}

std::size_t PairIndexPlan::scratch_bytes() const {
  const std::size_t sorting =
      array_bytes<std::int64_t>(classes * site_blocks) + array_bytes<PairIndex::Place<std::uint64_t>>(rows);
  return geometry_bytes(params) + array_bytes<std::uint64_t>(rows * slots) +
         array_bytes<std::uint32_t>(rows * slots) + array_bytes<std::uint8_t>(rows * slots) +
         array_bytes<std::int32_t>(rows) + array_bytes<std::int64_t>(classes + 1) +
         (sorts_sites ? sorting : 0);
}

PairIndex::PairIndex(const PairIndexPlan& plan, Context& context, Call& call, const ConstTensor& indices,
                     Scratch& memory)
    : rows_(plan.rows) {
  make_geometry(call, plan.params, memory, geometry_);
  const Geometry& g = geometry_;
  is_bitmap_ = BitmapLeaves::fits(g.leaves) && BitmapLeaves::bytes(g.leaves) <= kBitmapBytes * (rows_ + 1);
  void* cells = memory.take<std::uint64_t>(rows_ * plan.slots);
  homes_ = memory.take<std::uint32_t>(rows_ * plan.slots);
  bits_ = memory.take<std::uint8_t>(rows_ * plan.slots);
  auto* row_memory = memory.take<std::int32_t>(rows_);
  if (g.submanifold) row_of_ = row_memory;
  if (plan.sorts_sites) position_rows_ = row_memory;  // never submanifold
  class_start_ = memory.take<std::int64_t>(plan.classes + 1);
  std::int64_t* counts = nullptr;
  void* places = nullptr;
  if (plan.sorts_sites) {
    counts = memory.take<std::int64_t>(plan.classes * plan.site_blocks);
    places = memory.take<Place<std::uint64_t>>(rows_);
  }
  if (g.submanifold) {
    const bool in_window = g.window_count > 0 && g.windows[0].delta <= 0 && g.windows[0].delta > -g.width;
    self_slot_ = in_window ? 0 : g.slots;
    self_bit_ = in_window ? static_cast<std::uint32_t>(-g.windows[0].delta) : 0;
  }
  if (g.classes == 0) {  // no offset has an output anywhere
    active_ = g.submanifold ? rows_ : 0;
    return;
  }
  if (is_bitmap_) {
    build<std::uint32_t>(context, call, indices, bitmap_, cells, counts, places);
  } else {
    build<std::uint64_t>(context, call, indices, sorted_, cells, counts, places);
  }
}

// For one class: the position of a site is its row, and its cell is a sum of products. Both parts of the sum
// are limited to those of the last site, because indices may have changed since they were checked; every leaf
// between those of the first and the last site can be looked up under every row offset.
template <class Cell, int kDims, class Index>
void PairIndex::place_sites(Context& context, const Index* indices, Cell* cells) {
  const Geometry& g = geometry_;
  const auto scale = [&](int d) { return g.transposed ? static_cast<Cell>(g.dim[d].stride) : Cell{1}; };
  // A window may start at a negative x. Adding `extent` makes x positive and moves it one row forward;
  // `first` is one row back to compensate.
  const auto first = static_cast<Cell>(g.bias - g.row_leaves);
  std::array<Cell, kDims> factors = {static_cast<Cell>(g.batch_leaves)};
  Cell last_base = factors[0] * static_cast<Cell>(g.batch_size - 1);
  for (int d = 0; d < kDims - 1; ++d) {
    factors[d + 1] = scale(d) * static_cast<Cell>(g.dim[d].leaf_stride);
    last_base += factors[d + 1] * static_cast<Cell>(g.dim[d].last_site);
  }
  const auto x_scale = static_cast<std::uint64_t>(scale(kDims - 1));
  const std::int64_t last_x = g.last().last_site;
  class_start_[0] = 0;
  class_start_[1] = rows_;
  const bool parallel = rows_ * kPlacedBytes >= kParallelBytes;
  parallel_for(context, rows_, parallel ? kSiteGrain : rows_, [&](std::int64_t begin, std::int64_t end) {
    const std::array<Cell, kDims> factor = factors;
    const LeafDivider leaf(g.leaf_cells);
    for (std::int32_t slot = 0; slot < std::max(g.slots, self_slot_ + 1); ++slot) {
      const std::int64_t delta = slot < g.slots ? g.windows[slot].delta : 0;
      const auto x_first = static_cast<std::uint64_t>(delta + g.last().extent);
      Cell* to = cells + slot * rows_;
      for (std::int64_t i = begin; i < end; ++i) {
        const Index* site = indices + i * (kDims + 1);
        Cell base = 0;
        for (int d = 0; d < kDims; ++d) base += factor[d] * static_cast<Cell>(site[d]);
        const auto x = static_cast<std::uint64_t>(bounded(site[kDims], last_x));
        to[i] = leaf.cell<Cell>(first + std::min(base, last_base), x * x_scale + x_first);
      }
    }
  });
}

// Sorts the sites by class, stably: blocks of sites are placed and counted, then sorted.
template <class Cell, int kDims, class Index>
void PairIndex::place_in_classes(Context& context, const Index* indices, Cell* cells, std::int64_t* counts,
                                 Place<Cell>* places) {
  const Geometry& g = geometry_;
  const std::int64_t blocks = blocks_of(rows_), classes = g.classes, rows = rows_;
  const Placer<kDims> shared(g);
  parallel_for(context, blocks, 1, [&](std::int64_t block, std::int64_t) {
    const Placer<kDims> placer = shared;  // a local copy, which stores cannot change
    Place<Cell>* to = places;
    std::int64_t* count = counts + block * classes;
    std::fill_n(count, classes, std::int64_t{0});
    for (std::int64_t i = block * kSiteGrain; i < std::min(rows, (block + 1) * kSiteGrain); ++i) {
      const Place<Cell> place = placer.template place<Cell>(indices + i * (kDims + 1));
      to[i] = place;
      if (place.cls >= 0) ++count[place.cls];
    }
  });
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    class_start_[c] = sum;
    for (std::int64_t block = 0; block < blocks; ++block)
      sum += std::exchange(counts[block * classes + c], sum);
  }
  class_start_[classes] = sum;

  parallel_for(context, blocks, 1, [&](std::int64_t block, std::int64_t) {
    const LeafDivider leaf(g.leaf_cells);
    const Window* windows = g.windows;
    const std::int32_t* class_windows = g.class_windows;
    const auto extent = static_cast<std::uint64_t>(g.last().extent);
    const Place<Cell>* from = places;
    std::int32_t* row_at = position_rows_;
    std::int64_t* next = counts + block * classes;
    for (std::int64_t i = block * kSiteGrain; i < std::min(rows, (block + 1) * kSiteGrain); ++i) {
      const Place<Cell> p = from[i];
      if (p.cls < 0) continue;
      const std::int64_t position = next[p.cls]++;
      row_at[position] = static_cast<std::int32_t>(i);
      const Window* const end = windows + class_windows[p.x_class + 1];
      for (const Window* window = windows + class_windows[p.x_class]; window < end; ++window)
        cells[window->slot * rows + position] =
            leaf.cell<Cell>(p.base, p.x + static_cast<std::uint64_t>(window->delta) + extent);
    }
  });
}

// Calls f(slot, begin, end) for ranges of positions that have a window in the slot, in ascending order, slot
// by slot.
template <class F>
void PairIndex::for_each_list(const F& f) const {
  const Geometry& g = geometry_;
  for (std::int32_t slot = 0; slot < g.slots; ++slot) {
    for (std::int64_t c = 0, first = 0; c < g.classes; ++c) {
      const std::int64_t x_class = c % g.last().classes;
      const bool has_slot = slot < g.class_windows[x_class + 1] - g.class_windows[x_class];
      // Consecutive classes become one range.
      if (!has_slot && first < class_start_[c]) f(slot, first, class_start_[c]);
      if (!has_slot) first = class_start_[c + 1];
      if (c == g.classes - 1 && first < class_start_[c + 1]) f(slot, first, class_start_[c + 1]);
    }
  }
  if (self_slot_ >= g.slots && g.submanifold) f(self_slot_, 0, rows_);
}

template <class Cell, class Leaves>
void PairIndex::build(Context& context, Call& call, const ConstTensor& indices, Sets<Leaves>& sets,
                      void* cell_memory, std::int64_t* counts, void* places) {
  auto* cells = static_cast<Cell*>(cell_memory);
  visit_index(indices.dtype, [&](auto type) {
    const auto* sites = static_cast<const typename decltype(type)::type*>(indices.data);
    visit_dims(geometry_.dims, [&](auto dims) {
      if (position_rows_ != nullptr) {
        place_in_classes<Cell, dims()>(context, sites, cells, counts, static_cast<Place<Cell>*>(places));
      } else {
        place_sites<Cell, dims()>(context, sites, cells);
      }
    });
  });
  home_count_ = collect(call, sets.homes, home_memory_, [&](Leaves& leaves) { mark_homes(cells, leaves); });
  settle(context, sets.homes, cells);

  // The keys, and two more arrays of the same length for rank_outputs().
  const std::size_t keys = array_bytes<Cell>(home_count_ + 1);
  const std::size_t more = geometry_.submanifold ? 0 : 2 * array_bytes<std::uint32_t>(home_count_ + 1);
  key_memory_.emplace(call.lease(keys + more));
  Cell* key_of = key_memory_->take<Cell>(home_count_ + 1);
  key_of[0] = 0;
  const std::int64_t steps = sets.homes.steps();
  parallel_for(context, steps, rows_ * kPlacedBytes >= kParallelBytes ? kSteps : steps,
               [&](std::int64_t begin, std::int64_t end) {
                 sets.homes.for_each(begin, end, [&](std::uint64_t leaf, std::uint32_t number) {
                   key_of[number] = static_cast<Cell>(leaf);
                 });
               });
  home_keys_ = key_of;
  if (geometry_.submanifold) {
    word_count_ = home_count_;
    word_memory_.emplace(call.lease(array_bytes<RankWord>(word_count_ + 1)));
    words_ = word_memory_->take<RankWord>(word_count_ + 1);
    rank_sites(context, call);
    sets.outputs = sets.homes;
    active_ = rows_;
  } else {
    rank_outputs(call, sets.outputs, key_of);
  }
  if (active_ > 2147483647)
    call.refuse(concat(active_, " active outputs, expected at most 2147483647"), ErrorCode::not_supported);
}

// Marks every leaf in which a window starts. Submanifold outputs are the sites, so it also marks each leaf
// whose 32 bits include the site: the one that owns it and, through the overlap, its neighbours.
template <class Cell, class Leaves>
void PairIndex::mark_homes(const Cell* cells, Leaves& leaves) const {
  const Geometry& g = geometry_;
  if (g.submanifold) {
    const Cell* self = cells + self_slot_ * rows_;
    const auto overlap = static_cast<Cell>(g.width - 1), leaf_cells = static_cast<Cell>(g.leaf_cells);
    serial_for(0, rows_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Cell leaf = self[i] >> 5, bit = (self[i] & 31) + self_bit_;
        leaves.mark(leaf);
        if (bit < overlap) leaves.mark(leaf - 1);
        if (bit >= leaf_cells) leaves.mark(leaf + 1);
      }
    });
  }
  for_each_list([&](std::int32_t slot, std::int64_t begin, std::int64_t end) {
    if (g.submanifold && slot == self_slot_) return;
    serial_for(slot * rows_ + begin, slot * rows_ + end, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) leaves.mark(cells[i] >> 5);
    });
  });
}

// Turns cells into homes and bits.
template <class Cell, class Leaves>
void PairIndex::settle(Context& context, const Leaves& leaves, const Cell* cells) {
  for_each_list([&](std::int32_t slot, std::int64_t first, std::int64_t last) {
    const std::int64_t sites = last - first, shift = slot * rows_ + first;
    const bool parallel = sites * kPlacedBytes >= kParallelBytes;
    parallel_for(context, sites, parallel ? kSiteGrain : sites, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = shift + begin; i < shift + end; ++i) {
        bits_[i] = static_cast<std::uint8_t>(cells[i] & 31);
        homes_[i] = leaves.find(cells[i] >> 5);
      }
    });
  });
}

void PairIndex::look_up(std::uint64_t leaf_delta, RankWord* words) const {
  const auto look = [&](auto key, const auto& leaves) {
    const auto* keys = static_cast<const decltype(key)*>(home_keys_);
    typename std::remove_cvref_t<decltype(leaves)>::Cursor cursor(leaves);
    words[0] = {};
    for (std::int64_t h = 1; h <= home_count_; ++h)
      words[h] = words_[cursor.find(static_cast<decltype(key)>(keys[h] + leaf_delta))];
  };
  is_bitmap_ ? look(std::uint32_t{}, bitmap_.outputs) : look(std::uint64_t{}, sorted_.outputs);
}

}  // namespace turnout::families::sparse_conv
