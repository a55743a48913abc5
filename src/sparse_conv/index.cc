// Builds the index: sites to cells, cells to leaves, leaves to ranks.
#include "sparse_conv/index.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/dtypes.h"
#include "core/parallel.h"

namespace turnout::core {
namespace {

constexpr std::int64_t kBlock = 16384;  // sites that a thread takes

// The cell of coordinate x, counted from leaf_base. 32-bit cells have few enough leaves to multiply.
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

struct Quotient {
  std::uint64_t q, r;
};
// t / stride for t below 2^32: exact with a reciprocal that is rounded up.
Quotient divide(std::uint64_t t, const GeometryDim& dim) {
  if (dim.stride == 1) return {t, 0};
  const auto q = static_cast<std::uint64_t>(static_cast<unsigned __int128>(t) * dim.reciprocal >> 64);
  return {q, t - q * static_cast<std::uint64_t>(dim.stride)};
}

std::int32_t class_of(const GeometryDim& dim, std::uint64_t residue) {
  if (dim.class_of != nullptr) return dim.class_of[residue];
  const auto* end = dim.residues + dim.classes;
  const auto* found = std::lower_bound(dim.residues, end, static_cast<std::int64_t>(residue));
  const bool is_one = found != end && *found == static_cast<std::int64_t>(residue);
  return is_one ? static_cast<std::int32_t>(found - dim.residues) : -1;
}

std::int64_t blocks_of(std::int64_t rows) { return (rows + kBlock - 1) / kBlock; }

// Residue classes, and windows of one site, at most.
std::int64_t class_bound(const IndicePairsParams& p) {
  std::int64_t classes = 1;
  for (int d = 0; d < p.kernel_size.count() && p.mode != ConvMode::transposed; ++d)
    classes *= std::min(p.kernel_size[d], p.stride[d]);
  return classes;
}
// Strides sort sites into classes, or leave some without any output.
bool has_classes(const IndicePairsParams& p) {
  const std::int64_t* end = p.stride.data() + p.stride.count();
  return p.mode != ConvMode::transposed &&
         std::any_of(p.stride.data(), end, [](std::int64_t s) { return s > 1; });
}
std::int64_t slot_bound(const IndicePairsParams& p) {
  const int last = p.kernel_size.count() - 1;
  const std::int64_t stride = p.mode == ConvMode::transposed ? 1 : p.stride[last];
  const std::int64_t common = std::gcd(stride, p.dilation[last]);
  const std::int64_t step = stride / common;  // from one offset of a class to its next
  const std::int64_t taps = (p.kernel_size[last] - 1) / step + 1;
  const std::int64_t taps_of_window = (kMaxWidth - 1) / (p.dilation[last] / common) + 1;
  return (taps - 1) / taps_of_window + 1;
}

// Which row of the output a leaf is in; leaves come in ascending order, and mostly in the same row.
class RowDecoder {
 public:
  explicit RowDecoder(const Geometry& geometry) : g_(geometry) {}

  std::int64_t site(int column) const { return site_[column]; }  // all but the last
  std::int64_t first_x(std::uint64_t leaf) {
    find_row(leaf);
    return static_cast<std::int64_t>(leaf - row_begin_) * g_.leaf_cells;
  }
  // Which cells of a leaf are in the output shape.
  std::uint32_t valid(std::uint64_t leaf) {
    const std::int64_t x = first_x(leaf), left = g_.last().out_size - x;
    if (!is_valid_ || left <= 0) return 0;
    return left >= 32 ? ~0u : (1u << left) - 1;
  }

 private:
  void find_row(std::uint64_t leaf) {
    const auto row_leaves = static_cast<std::uint64_t>(g_.row_leaves);
    if (leaf - row_begin_ < row_leaves) return;
    std::uint64_t row = leaf / row_leaves;
    row_begin_ = row * row_leaves;
    const std::uint64_t bias = static_cast<std::uint64_t>(g_.bias) / row_leaves;
    is_valid_ = row >= bias;
    row -= bias;
    for (int d = g_.dims - 2; d >= 0; --d) {
      const auto extent = static_cast<std::uint64_t>(g_.dim[d].extent);
      site_[d + 1] = static_cast<std::int64_t>(row % extent);
      is_valid_ &= site_[d + 1] < g_.dim[d].out_size;
      row /= extent;
    }
    site_[0] = static_cast<std::int64_t>(row);
    is_valid_ &= site_[0] < g_.batch_size;
  }

  const Geometry& g_;
  std::uint64_t row_begin_ = std::uint64_t{1} << 63;  // no leaf is in that row
  std::int64_t site_[Dims::kMax] = {};
  bool is_valid_ = false;
};

std::size_t array_bytes(std::int64_t count, std::size_t size) {
  return padded(static_cast<std::size_t>(count) * size);
}

}  // namespace

std::size_t pair_index_bytes(std::int64_t rows, const IndicePairsParams& p) {
  const bool submanifold = p.mode == ConvMode::submanifold;
  const std::int64_t classes = class_bound(p);
  return geometry_bytes(p) + array_bytes(rows * (slot_bound(p) + submanifold), sizeof(std::uint64_t)) +
         array_bytes(rows, sizeof(std::int32_t)) + array_bytes(classes + 1, sizeof(std::int64_t)) +
         array_bytes(has_classes(p) ? classes * blocks_of(rows) : 0, sizeof(std::int64_t));
}

PairIndex::PairIndex(Context& context, Call& call, const ConstTensor& indices,
                     const IndicePairsParams& params, Scratch& memory)
    : rows_(indices.shape[0]) {
  call.check([&] { make_geometry(params, memory, geometry_); });
  const bool submanifold = geometry_.submanifold;
  is_bitmap_ = BitmapLeaves::fits(geometry_.leaves);
  cells_ = memory.take<std::uint64_t>(rows_ * (slot_bound(params) + submanifold));
  auto* row_memory = memory.take<std::int32_t>(rows_);
  if (submanifold) row_of_ = row_memory;
  if (has_classes(params)) position_rows_ = row_memory;  // never submanifold
  const std::int64_t classes = class_bound(params);
  class_start_ = memory.take<std::int64_t>(classes + 1);
  auto* counts = memory.take<std::int64_t>(has_classes(params) ? classes * blocks_of(rows_) : 0);

  visit_index(indices.dtype, [&](auto type) {
    const auto* sites = static_cast<const typename decltype(type)::type*>(indices.data);
    const auto place = [&](auto cell) {
      using Cell = decltype(cell);
      if (has_classes(params)) {
        place_in_classes<Cell>(context, sites, counts);
      } else {
        place_sites<Cell>(context, sites);
      }
    };
    is_bitmap_ ? place(std::uint32_t{}) : place(std::uint64_t{});
  });

  const auto mark = [&](auto cell, auto& leaves) {
    submanifold ? mark_sites<decltype(cell)>(leaves) : mark_outputs<decltype(cell)>(leaves);
  };
  if (is_bitmap_) {
    const std::int64_t bytes = BitmapLeaves::bytes(geometry_.leaves);
    key_memory_.emplace(call.lease(static_cast<std::size_t>(bytes)));
    bitmap_ = BitmapLeaves(key_memory_->take<RankWord>(bytes / static_cast<std::int64_t>(sizeof(RankWord))),
                           geometry_.leaves);
    bitmap_.clear();
    mark(std::uint32_t{}, bitmap_);
    build<std::uint32_t>(call, bitmap_);
  } else {
    mark(std::uint64_t{}, sorted_);  // counts only
    key_memory_.emplace(call.lease(SortedLeaves::bytes(sorted_.marks())));
    sorted_.start(*key_memory_);
    mark(std::uint64_t{}, sorted_);
    build<std::uint64_t>(call, sorted_);
  }
}

// One class: the position of a site is its row, and its cell a sum of products.
template <class Cell, class Index>
void PairIndex::place_sites(Context& context, const Index* indices) {
  const Geometry& g = geometry_;
  const int columns = g.dims + 1, last = g.dims - 1;
  const auto scale = [&](int d) { return g.transposed ? static_cast<std::uint64_t>(g.dim[d].stride) : 1; };
  const auto shift = [&](int d) { return g.transposed ? 0 : static_cast<std::uint64_t>(g.dim[d].padding); };
  // A coordinate below 0 is in the row before, where `extent` makes it positive.
  std::uint64_t first = static_cast<std::uint64_t>(g.bias - g.row_leaves), factor[Dims::kMax] = {};
  factor[0] = static_cast<std::uint64_t>(g.batch_leaves);
  for (int d = 0; d < last; ++d) {
    const auto stride = static_cast<std::uint64_t>(g.dim[d].leaf_stride);
    first += shift(d) * stride;
    factor[d + 1] = scale(d) * stride;
  }
  const LeafDivider leaf(g.leaf_cells);
  const std::uint64_t x_scale = scale(last);
  const int slots = g.slots + (g.submanifold ? 1 : 0);
  auto* cells = static_cast<Cell*>(cells_);
  class_start_[0] = 0;
  class_start_[1] = rows_;
  parallel_for(
      context, rows_, rows_ * 16 >= kParallelBytes ? kBlock : rows_,
      [&](std::int64_t begin, std::int64_t end) {
        for (int slot = 0; slot < slots; ++slot) {
          // The site itself comes after its windows.
          const std::int64_t delta = slot < g.slots ? g.windows[slot].delta : -g.dim[last].padding;
          const std::uint64_t x_first = shift(last) + static_cast<std::uint64_t>(delta + g.dim[last].extent);
          for (std::int64_t i = begin; i < end; ++i) {
            const Index* site = indices + i * columns;
            std::uint64_t base = first;
            for (int c = 0; c < columns - 1; ++c) base += factor[c] * static_cast<std::uint64_t>(site[c]);
            const std::uint64_t x = static_cast<std::uint64_t>(site[columns - 1]) * x_scale + x_first;
            cells[slot * rows_ + i] = leaf.cell<Cell>(base, x);
          }
        }
      });
}

// Sites sorted by class, in their order within each: counted by blocks, then placed.
template <class Cell, class Index>
void PairIndex::place_in_classes(Context& context, const Index* indices, std::int64_t* counts) {
  const Geometry& g = geometry_;
  const int columns = g.dims + 1, last = g.dims - 1;
  const std::int64_t blocks = blocks_of(rows_);
  if (g.classes == 0 || rows_ == 0) {
    std::fill_n(class_start_, g.classes + 1, std::int64_t{0});
    return;
  }
  struct Place {
    std::int64_t cls;
    std::uint64_t base, x;
  };
  const auto place = [&](const Index* site) -> Place {
    Place p{0,
            static_cast<std::uint64_t>(g.bias - g.row_leaves) +
                static_cast<std::uint64_t>(site[0]) * static_cast<std::uint64_t>(g.batch_leaves),
            0};
    bool meets = true;
    std::int64_t radix = 1;
    std::int64_t x_class = 0;
    for (int d = last; d >= 0; --d) {
      const GeometryDim& dim = g.dim[d];
      const Quotient t = divide(static_cast<std::uint64_t>(site[d + 1] + dim.padding), dim);
      const std::int32_t cls = class_of(dim, t.r);
      meets &= cls >= 0;
      if (d == last) {
        x_class = cls;
        p.x = t.q;
      } else {
        p.cls += cls * radix;
        radix *= dim.classes;
        p.base += t.q * static_cast<std::uint64_t>(dim.leaf_stride);
      }
    }
    p.cls = meets ? p.cls * g.dim[last].classes + x_class : -1;
    return p;
  };
  parallel_for(context, blocks, 1, [&](std::int64_t block, std::int64_t) {
    std::int64_t* count = counts + block * g.classes;
    std::fill_n(count, g.classes, std::int64_t{0});
    for (std::int64_t i = block * kBlock; i < std::min(rows_, (block + 1) * kBlock); ++i) {
      const std::int64_t cls = place(indices + i * columns).cls;
      if (cls >= 0) ++count[cls];
    }
  });
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c < g.classes; ++c) {
    class_start_[c] = sum;
    for (std::int64_t block = 0; block < blocks; ++block)
      sum += std::exchange(counts[block * g.classes + c], sum);
  }
  class_start_[g.classes] = sum;

  // The windows of a class of the last dimension, by slot.
  const LeafDivider leaf(g.leaf_cells);
  auto* cells = static_cast<Cell*>(cells_);
  parallel_for(context, blocks, 1, [&](std::int64_t block, std::int64_t) {
    std::int64_t* next = counts + block * g.classes;
    for (std::int64_t i = block * kBlock; i < std::min(rows_, (block + 1) * kBlock); ++i) {
      const Place p = place(indices + i * columns);
      if (p.cls < 0) continue;
      const std::int64_t position = next[p.cls]++;
      position_rows_[position] = static_cast<std::int32_t>(i);
      const std::int64_t x_class = p.cls % g.dim[last].classes;
      for (std::int32_t w = g.class_windows[x_class]; w < g.class_windows[x_class + 1]; ++w) {
        const Window& window = g.windows[w];
        cells[window.slot * rows_ + position] =
            leaf.cell<Cell>(p.base, p.x + static_cast<std::uint64_t>(window.delta + g.dim[last].extent));
      }
    }
  });
}

// f(cell, mask of the taps) for every window of every site.
template <class Cell, class F>
void PairIndex::for_each_window(const F& f) const {
  const Geometry& g = geometry_;
  for (std::int64_t o = 0; o < g.offset_count; ++o) {
    const auto delta = static_cast<Cell>(g.offsets[o].leaf_delta * 32);
    for (std::int32_t w = 0; w < g.window_count; ++w) {
      const Window& window = g.windows[w];
      const std::int64_t cls = std::int64_t{g.offsets[o].cls} * g.last().classes + window.cls;
      const Cell* const end = cells<Cell>(window.slot) + class_start_[cls + 1];
      for (const Cell* cell = cells<Cell>(window.slot) + class_start_[cls]; cell < end; ++cell)
        f(static_cast<Cell>(*cell + delta), window.mask);
    }
  }
}

// Submanifold: the cell of each site, also in the leaf before it when a window that starts there can reach
// it.
template <class Cell, class Leaves>
void PairIndex::mark_sites(Leaves& leaves) {
  const Cell* self = cells<Cell>(geometry_.slots);
  const auto delta = static_cast<Cell>(geometry_.self_delta * 32);
  const auto overlap = static_cast<Cell>(geometry_.width - 1);
  for (std::int64_t i = 0; i < rows_; ++i) {
    const Cell cell = self[i] + delta;
    leaves.mark(cell >> 5);
    if ((cell & 31) < overlap) leaves.mark((cell >> 5) - 1);
  }
}

// Other modes: each window of each site.
template <class Cell, class Leaves>
void PairIndex::mark_outputs(Leaves& leaves) {
  for_each_window<Cell>([&](Cell cell, std::uint32_t mask) {
    leaves.mark(cell >> 5);
    if (std::uint64_t{mask} << (cell & 31) >> geometry_.leaf_cells != 0) leaves.mark((cell >> 5) + 1);
  });
}

template <class Cell, class Leaves>
void PairIndex::build(Call& call, Leaves& leaves) {
  leaf_count_ = leaves.number();
  const std::int64_t words = leaf_count_ + 1;
  leaf_memory_.emplace(call.lease(static_cast<std::size_t>(words) * sizeof(RankWord)));
  leaves_ = leaf_memory_->take<RankWord>(words);
  std::fill_n(leaves_, words, RankWord{});
  geometry_.submanifold ? rank_sites<Cell>(leaves) : rank_outputs<Cell>(leaves);
  if (active_ > 2147483647)
    call.check([&] {
      throw Error(ErrorCode::not_supported,
                  concat("get_indice_pairs: ", active_, " active outputs, expected at most 2147483647"));
    });
  if (geometry_.submanifold) active_ = rows_;
}

template <class Cell, class Leaves>
void PairIndex::rank_sites(Leaves& leaves) {
  auto* self = static_cast<Cell*>(cells_) + geometry_.slots * rows_;
  const auto delta = static_cast<Cell>(geometry_.self_delta * 32);
  const auto overlap = static_cast<std::uint32_t>(geometry_.width - 1);
  const auto leaf_cells = static_cast<std::uint32_t>(geometry_.leaf_cells);
  bool ascending = true;
  Cell before = 0;
  for (std::int64_t i = 0; i < rows_; ++i) {
    const Cell cell = self[i] + delta;
    ascending &= i == 0 || cell > before;
    before = cell;
    const std::uint32_t leaf = leaves.find(cell >> 5);
    const auto bit = static_cast<std::uint32_t>(cell & 31);
    leaves_[leaf].bits |= 1u << bit;
    if (bit < overlap)
      leaves_[leaf - 1].bits |= 1u << (bit + leaf_cells);  // marked too, so it is the one before
    self[i] = static_cast<Cell>(leaf) * 32 + bit;
  }
  const std::uint32_t own = leaf_cells == 32 ? ~0u : (1u << leaf_cells) - 1;
  std::uint32_t base = 0;
  for (std::int64_t l = 1; l <= leaf_count_; ++l) {
    leaves_[l].base = base;
    base += static_cast<std::uint32_t>(std::popcount(leaves_[l].bits & own));
  }
  if (ascending) {
    row_of_ = nullptr;
    return;
  }
  for (std::int64_t i = 0; i < rows_; ++i)  // ascending: of equal sites the last one stays
    row_of_[leaves_[self[i] >> 5].rank(static_cast<std::uint32_t>(self[i] & 31))] =
        static_cast<std::int32_t>(i);
}

template <class Cell, class Leaves>
void PairIndex::rank_outputs(Leaves& leaves) {
  for_each_window<Cell>(
      [&](Cell cell, std::uint32_t mask) { leaves_[leaves.find(cell >> 5)].bits |= mask << (cell & 31); });

  // What a window set beyond its leaf goes to the next one, what lies outside the output shape goes, and the
  // overlap shows what the next leaf has.
  const Geometry& g = geometry_;
  const auto leaf_cells = static_cast<std::uint32_t>(g.leaf_cells);
  const std::uint32_t own = leaf_cells == 32 ? ~0u : (1u << leaf_cells) - 1;
  std::uint64_t last_leaf = ~std::uint64_t{0} - 1;
  std::uint32_t beyond = 0;
  std::int64_t base = 0;
  RowDecoder rows(g);
  leaves.for_each(0, leaves.steps(), [&](std::uint64_t leaf, std::uint32_t number) {
    RankWord& word = leaves_[number];
    const bool adjacent = leaf == last_leaf + 1;
    const std::uint32_t set = (word.bits | (adjacent ? beyond : 0)) & rows.valid(leaf) & own;
    beyond = leaf_cells == 32 ? 0 : word.bits >> leaf_cells;
    if (number > 1) {
      std::uint32_t& before = leaves_[number - 1].bits;
      before &= own;
      if (adjacent && leaf_cells < 32) before |= set << leaf_cells;
    }
    word.bits = set;
    word.base = static_cast<std::uint32_t>(base);
    base += std::popcount(set);
    last_leaf = leaf;
  });
  active_ = base;
}

void PairIndex::probe_sorted(const RowOffset& offset, const Window& window, std::int64_t begin,
                             std::int64_t end, std::int32_t* pairs, std::int64_t* at) const {
  const auto* from = cells<std::uint64_t>(window.slot);
  const Tap* taps = geometry_.taps + window.first_tap;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint64_t cell = from[i] + offset.leaf_delta * 32;
    const std::uint32_t leaf = sorted_.find(cell >> 5);
    if (leaf == 0) continue;
    const auto first = static_cast<std::uint32_t>(cell & 31);
    for (std::int32_t t = 0; t < window.taps; ++t) {
      const std::uint32_t bit = first + static_cast<std::uint32_t>(taps[t].bit);
      if ((leaves_[leaf].bits >> bit & 1) == 0) continue;
      const auto rank = leaves_[leaf].rank(bit);
      std::int32_t* in = pairs + (offset.k + taps[t].k) * 2 * rows_ + at[t]++;
      in[0] = position_rows_ != nullptr ? position_rows_[i] : static_cast<std::int32_t>(i);
      in[rows_] = row_of_ != nullptr ? row_of_[rank] : static_cast<std::int32_t>(rank);
    }
  }
}

template <class Leaves, class Index>
void PairIndex::write_outputs(Context& context, const Leaves& leaves, Index* out) const {
  const Geometry& g = geometry_;
  const int columns = g.dims + 1;
  const std::uint32_t own = g.leaf_cells == 32 ? ~0u : (1u << g.leaf_cells) - 1;
  const std::int64_t steps = leaves.steps();
  const bool parallel = active_ * columns * std::int64_t{sizeof(Index)} >= kParallelBytes;
  const std::int64_t grain = parallel ? std::max<std::int64_t>(1, steps / (8 * context.threads())) : steps;
  parallel_for(context, steps, grain, [&](std::int64_t begin, std::int64_t end) {
    RowDecoder rows(g);
    leaves.for_each(begin, end, [&](std::uint64_t leaf, std::uint32_t number) {
      std::uint32_t bits = leaves_[number].bits & own;
      if (bits == 0) return;
      const std::int64_t x = rows.first_x(leaf);
      Index* to = out + std::int64_t{leaves_[number].base} * columns;
      for (; bits != 0; bits &= bits - 1) {
        for (int c = 0; c < columns - 1; ++c) *to++ = static_cast<Index>(rows.site(c));
        *to++ = static_cast<Index>(x + std::countr_zero(bits));
      }
    });
  });
}

void PairIndex::write_outputs(Context& context, const Tensor& out_indices) const {
  visit_index(out_indices.dtype, [&](auto type) {
    auto* out = static_cast<typename decltype(type)::type*>(out_indices.data);
    is_bitmap_ ? write_outputs(context, bitmap_, out) : write_outputs(context, sorted_, out);
  });
}

}  // namespace turnout::core
