// Finds the outputs of a convolution, their ranks and their coordinates. In submanifold mode they are the
// sites.
#include <algorithm>

#include "core/dtypes.h"
#include "runtime/parallel.h"
#include "sparse_conv/index.h"

namespace turnout::families::sparse_conv {

using namespace core;
namespace {

constexpr std::int64_t kHomesForASite = 8;  // homes that can be scanned in the time of one site
constexpr int kMarkParts = 4;               // parts of the sites that are marked at the same time

// Finds the output row of a leaf. Leaves are given in ascending order, and most are in the row of the
// previous one.
class RowDecoder {
 public:
  explicit RowDecoder(const Geometry& geometry) : g_(geometry) {}

  std::int64_t site(int column) const { return site_[column]; }  // of all columns but the last
  std::int64_t first_x(std::uint64_t leaf) {
    find_row(leaf);
    return static_cast<std::int64_t>(leaf - row_begin_) * g_.leaf_cells;
  }
  // The cells of a leaf that are in the output shape, as bits.
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
  std::uint64_t row_begin_ = std::uint64_t{1} << 63;  // beyond every leaf
  std::int64_t site_[Dims::kMax] = {};
  bool is_valid_ = false;
};

}  // namespace

void PairIndex::rank_sites(Context& context, Call& call) {
  const Geometry& g = geometry_;
  const std::uint32_t* home = homes(self_slot_);
  const std::uint8_t* bit = bits(self_slot_);
  const auto overlap = static_cast<std::uint32_t>(g.width - 1);
  const auto leaf_cells = static_cast<std::uint32_t>(g.leaf_cells);
  const std::int64_t stride = word_count_ + 1;
  const bool in_parts = rows_ * kPlacedBytes >= kParallelBytes;
  const std::int64_t parts = in_parts ? std::clamp(context.threads(), 1, kMarkParts) : 1;
  // Each part of the sites marks its cells in a separate table.
  Scratch memory = call.lease(array_bytes<std::uint32_t>(parts * stride));
  auto* marks = memory.take<std::uint32_t>(parts * stride);
  bool is_ascending[kMarkParts] = {};
  const Stop stop;
  parallel_for(context, parts, 1, [&](std::int64_t part, std::int64_t) {
    std::uint32_t* own = marks + part * stride;
    std::fill_n(own, stride, 0u);
    const std::int64_t begin = rows_ * part / parts, end = rows_ * (part + 1) / parts;
    const auto cell_of = [&](std::int64_t i) { return std::uint64_t{home[i]} * 32 + bit[i]; };
    std::uint64_t before = begin > 0 ? cell_of(begin - 1) : 0;  // below every cell, since the first home is 1
    bool ascending = true;
    static_cast<void>(stop.blocks(begin, end, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; ++i) {
        const std::uint32_t position = bit[i] + self_bit_;
        std::uint32_t* word = own + home[i];
        *word |= 1u << position;
        // mark_homes() has marked these neighbouring leaves, so their numbers are adjacent.
        if (position < overlap) word[-1] |= 1u << (position + leaf_cells);
        if (position >= leaf_cells) word[1] |= 1u << (position - leaf_cells);
        const std::uint64_t cell = cell_of(i);
        ascending &= cell > before;
        before = cell;
      }
    }));
    is_ascending[part] = ascending;
  });
  const std::uint32_t own = low_bits(g.leaf_cells);
  std::uint32_t base = 0;
  words_[0] = {};
  for (std::int64_t l = 1; l <= word_count_; ++l) {
    std::uint32_t word = marks[l];
    for (std::int64_t part = 1; part < parts; ++part) word |= marks[part * stride + l];
    words_[l] = {word, base};
    base += static_cast<std::uint32_t>(std::popcount(word & own));
  }
  if (std::all_of(is_ascending, is_ascending + parts, [](bool part) { return part; })) {
    row_of_ = nullptr;
    return;
  }
  // The last of equal sites must win, so they are written in order. If all differ, the order does not matter.
  const bool parallel = base == rows_ && in_parts;
  parallel_for(context, rows_, parallel ? kSiteGrain : rows_, [&](std::int64_t begin, std::int64_t end) {
    static_cast<void>(stop.blocks(begin, end, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; ++i)
        row_of_[words_[home[i]].rank(bit[i] + self_bit_)] = static_cast<std::int32_t>(i);
    }));
  });
}

// Calls f(leaf, bits) for the outputs that the sites of each home reach, window by window. Bits from
// leaf_cells on are cells of the next leaf. `starts` and `named` are memory for home_count_ + 1 elements
// each.
//
// A window scans all homes only if that takes no longer than reading its sites. A large kernel has many
// windows with different homes; scanning all homes for each window would take time quadratic in the kernel's
// size.
template <class Key, class F>
void PairIndex::for_each_output(const Key* keys, std::uint32_t* starts, std::uint32_t* named,
                                const F& f) const {
  const Geometry& g = geometry_;
  std::fill_n(starts, home_count_ + 1, 0u);
  for (std::int64_t c = 0; c < g.classes; ++c) {
    const std::int64_t first = class_start_[c], last = class_start_[c + 1], x_class = c % g.last().classes;
    if (first == last) continue;
    for (std::int32_t w = g.class_windows[x_class]; w < g.class_windows[x_class + 1]; ++w) {
      throw_if_interrupted();
      const Window& window = g.windows[w];
      const std::uint32_t* home = homes(window.slot);
      const std::uint8_t* bit = bits(window.slot);
      std::int64_t count = 0;
      if (home_count_ / kHomesForASite <= last - first) {
        serial_for(first, last, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) starts[home[i]] |= 1u << bit[i];
        });
        for (std::int64_t h = 1; h <= home_count_; ++h) {
          named[count] = static_cast<std::uint32_t>(h);
          count += starts[h] != 0;
        }
      } else {
        for (std::int64_t i = first; i < last; ++i) {
          if (starts[home[i]] == 0) named[count++] = home[i];
          starts[home[i]] |= 1u << bit[i];
        }
        std::sort(named, named + count);  // leaves are found faster in ascending order
      }
      for (std::int64_t n = 0; n < count; ++n) {
        std::uint32_t met = 0;
        for (std::int32_t t = 0; t < window.taps; ++t)
          met |= starts[named[n]] << g.taps[window.first_tap + t].bit;
        starts[named[n]] = met;
      }
      for (std::int64_t o = 0; o < g.offset_count; ++o) {
        if (g.offsets[o].cls != c / g.last().classes) continue;
        const auto delta = static_cast<Key>(g.offsets[o].leaf_delta);
        serial_for(0, count, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t n = begin; n < end; ++n)
            f(static_cast<Key>(keys[named[n]] + delta), starts[named[n]]);
        });
      }
      for (std::int64_t n = 0; n < count; ++n) starts[named[n]] = 0;
    }
  }
}

template <class Key, class Leaves>
void PairIndex::rank_outputs(Call& call, Leaves& leaves, const Key* keys) {
  const Geometry& g = geometry_;
  auto* starts = key_memory_->take<std::uint32_t>(home_count_ + 1);
  auto* named = key_memory_->take<std::uint32_t>(home_count_ + 1);
  const auto leaf_cells = static_cast<std::uint32_t>(g.leaf_cells);
  word_count_ = collect(call, leaves, output_memory_, [&](Leaves& marked) {
    for_each_output(keys, starts, named, [&](Key leaf, std::uint32_t bits) {
      marked.mark(leaf);
      if (std::uint64_t{bits} >> leaf_cells != 0) marked.mark(leaf + 1);
    });
  });
  word_memory_.emplace(call.lease(array_bytes<RankWord>(word_count_ + 1)));
  words_ = word_memory_->take<RankWord>(word_count_ + 1);
  std::fill_n(words_, word_count_ + 1, RankWord{});
  typename Leaves::Cursor cursor(leaves);
  for_each_output(keys, starts, named,
                  [&](Key leaf, std::uint32_t bits) { words_[cursor.find(leaf)].bits |= bits; });

  // Three fix-ups for each leaf: (1) carry the bits from leaf_cells on into the next leaf; (2) clear the bits
  // outside the output shape; (3) mirror the first width - 1 bits of the next leaf into this leaf's overlap.
  const std::uint32_t own = low_bits(g.leaf_cells);
  std::uint64_t last_leaf = ~std::uint64_t{0} - 1;
  std::uint32_t beyond = 0;
  RowDecoder rows(g);
  leaves.for_each(0, leaves.steps(), [&](std::uint64_t leaf, std::uint32_t number) {
    RankWord& word = words_[number];
    const bool adjacent = leaf == last_leaf + 1;
    const std::uint32_t set = (word.bits | (adjacent ? beyond : 0)) & rows.valid(leaf) & own;
    beyond = static_cast<std::uint32_t>(std::uint64_t{word.bits} >> leaf_cells);
    std::uint32_t& before = words_[number - 1].bits;  // word 0 stays empty, since no leaf precedes the first
    if (adjacent) before |= static_cast<std::uint32_t>(std::uint64_t{set} << leaf_cells);
    word.bits = set;
    word.base = static_cast<std::uint32_t>(active_);
    active_ += std::popcount(set);
    last_leaf = leaf;
  });
}
template void PairIndex::rank_outputs(Call& call, BitmapLeaves& leaves, const std::uint32_t* keys);
template void PairIndex::rank_outputs(Call& call, SortedLeaves& leaves, const std::uint64_t* keys);

template <class Leaves, class Index>
void PairIndex::write_outputs(Context& context, const Leaves& leaves, Index* out) const {
  const int columns = geometry_.dims + 1;
  const std::uint32_t own = low_bits(geometry_.leaf_cells);
  const std::int64_t steps = leaves.steps();
  const bool parallel = active_ * columns * std::int64_t{sizeof(Index)} >= kParallelBytes;
  const std::int64_t grain = parallel ? std::max<std::int64_t>(1, steps / (8 * context.threads())) : steps;
  parallel_for(context, steps, grain, [&](std::int64_t begin, std::int64_t end) {
    RowDecoder rows(geometry_);
    leaves.for_each(begin, end, [&](std::uint64_t leaf, std::uint32_t number) {
      std::uint32_t bits = words_[number].bits & own;
      if (bits == 0) return;
      const std::int64_t x = rows.first_x(leaf);
      Index* to = out + std::int64_t{words_[number].base} * columns;
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
    is_bitmap_ ? write_outputs(context, bitmap_.outputs, out) : write_outputs(context, sorted_.outputs, out);
  });
}

}  // namespace turnout::families::sparse_conv
