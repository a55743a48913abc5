// The index of one convolution: where each site looks up its pairs, and which outputs exist. README.md,
// "Terms and an example", defines leaf, home, window, slot, class and rank.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "core/grain.h"
#include "indices/rank.h"
#include "runtime/call.h"
#include "sparse_conv/geometry.h"

namespace turnout::families::sparse_conv {

inline constexpr std::int64_t kSiteGrain = 16384 / core::kGrainDivisor;  // sites in one range of a thread
inline constexpr std::int64_t kMaxNumberedLeaves = 4294967294;           // numbers of leaves are uint32
inline constexpr std::int64_t kPlacedBytes = 24;                         // approximate bytes moved per site

// Whether column c of every row of indices is in 0 .. limits[c]-1.
bool all_in_range(const ConstTensor& indices, const std::int64_t* limits);

inline std::uint32_t low_bits(std::int64_t count) { return count >= 32 ? ~0u : (1u << count) - 1; }

// The sizes of the index's arrays that follow from the shapes and parameters of a convolution. The index
// leases further memory whose size depends on the data.
class PairIndexPlan {
 public:
  // `params` is from resolved().
  PairIndexPlan(std::int64_t rows, const IndicePairsParams& params);
  std::size_t scratch_bytes() const;

  const std::int64_t rows;
  const IndicePairsParams params;
  const std::int64_t slots, classes;  // upper bounds
  const bool sorts_sites;             // by class, because strides make several
  const std::int64_t site_blocks;     // that are sorted independently
};

// Sites look up their homes once. For each row offset the homes, in ascending order, look up the leaves of
// the outputs: neighbouring sites share a home, so there are fewer lookups than sites, and they go through
// memory in order.
class PairIndex {
 public:
  // One site, if strides make classes.
  template <class Cell>
  struct Place {
    Cell base;                  // the first leaf of its row
    std::uint32_t x;            // its base in the last dimension
    std::int32_t cls, x_class;  // class in all dimensions, in the last; cls < 0: it has no output
  };

  // Parameters and `indices` have been checked. If indices change later, pairs may be wrong, but no access
  // leaves the arrays.
  PairIndex(const PairIndexPlan& plan, Context& context, core::Call& call, const ConstTensor& indices,
            core::Scratch& memory);

  bool is_bitmap() const { return is_bitmap_; }
  const Geometry& geometry() const { return geometry_; }
  std::int64_t active() const { return active_; }
  // Submanifold: the row of each rank. nullptr: a rank is its row.
  const std::int32_t* row_of() const { return row_of_; }

  // Sites are sorted by class: class c has the positions class_start(c) .. class_start(c+1)-1. The window of
  // a position in a slot starts in leaf homes(slot)[position], at bit bits(slot)[position].
  std::int64_t class_start(std::int64_t c) const { return class_start_[c]; }
  const std::uint32_t* homes(std::int32_t slot) const { return homes_ + slot * rows_; }
  const std::uint8_t* bits(std::int32_t slot) const { return bits_ + slot * rows_; }
  // The row of each position. nullptr: a position is its row.
  const std::int32_t* rows() const { return position_rows_; }

  // words[h] = the leaf of outputs that home h reaches under a row offset, for h = 0 .. home_count().
  std::int64_t home_count() const { return home_count_; }
  void look_up(std::uint64_t leaf_delta, core::RankWord* words) const;

  // Writes the outputs (n, x_0, ..) in order.
  void write_outputs(Context& context, const Tensor& out_indices) const;

 private:
  template <class Leaves>
  struct Sets {  // in submanifold mode both are the same leaves
    Leaves homes, outputs;
  };

  template <class Cell, int kDims, class Index>
  void place_sites(Context& context, const Index* indices, Cell* cells);
  template <class Cell, int kDims, class Index>
  void place_in_classes(Context& context, const Index* indices, Cell* cells, std::int64_t* counts,
                        Place<Cell>* places);
  template <class Cell, class Leaves>
  void build(Context& context, core::Call& call, const ConstTensor& indices, Sets<Leaves>& sets, void* cells,
             std::int64_t* counts, void* places);
  template <class F>
  void for_each_list(const F& f) const;
  template <class Leaves, class Mark>
  std::int64_t collect(core::Call& call, Leaves& leaves, std::optional<core::Scratch>& memory,
                       const Mark& mark) const;
  template <class Cell, class Leaves>
  void mark_homes(const Cell* cells, Leaves& leaves) const;
  template <class Cell, class Leaves>
  void settle(Context& context, const Leaves& leaves, const Cell* cells);
  void rank_sites(Context& context, core::Call& call);
  template <class Key, class F>
  void for_each_output(const Key* keys, std::uint32_t* starts, std::uint32_t* named, const F& f) const;
  template <class Key, class Leaves>
  void rank_outputs(core::Call& call, Leaves& leaves, const Key* keys);
  template <class Leaves, class Index>
  void write_outputs(Context& context, const Leaves& leaves, Index* out) const;

  Geometry geometry_;
  std::int64_t rows_;
  bool is_bitmap_;
  // Submanifold: the slot of the window that contains the site itself, and the site's bit in that window.
  std::int32_t self_slot_ = 0;
  std::uint32_t self_bit_ = 0;
  Sets<core::BitmapLeaves> bitmap_;
  Sets<core::SortedLeaves> sorted_;
  std::optional<core::Scratch> home_memory_, output_memory_, word_memory_, key_memory_;
  // [home_count_ + 1] the leaf of each home; 32 bits with a bitmap, otherwise 64.
  const void* home_keys_ = nullptr;
  std::int64_t home_count_ = 0;
  core::RankWord* words_ = nullptr;  // [word_count_ + 1] the leaves of the outputs
  std::int64_t word_count_ = 0;
  std::uint32_t* homes_ = nullptr;
  std::uint8_t* bits_ = nullptr;
  std::int32_t* position_rows_ = nullptr;
  std::int64_t* class_start_ = nullptr;
  std::int32_t* row_of_ = nullptr;
  std::int64_t active_ = 0;
};

// Numbers the leaves that mark(leaves) marks, and returns their count. Throws Error(not_supported) if it does
// not fit 32 bits.
template <class Leaves, class Mark>
std::int64_t PairIndex::collect(core::Call& call, Leaves& leaves, std::optional<core::Scratch>& memory,
                                const Mark& mark) const {
  if constexpr (std::is_same_v<Leaves, core::BitmapLeaves>) {
    const std::int64_t bytes = core::BitmapLeaves::bytes(geometry_.leaves);
    memory.emplace(call.lease(static_cast<std::size_t>(bytes)));
    leaves = core::BitmapLeaves(memory->take<core::RankWord>(bytes / std::int64_t{sizeof(core::RankWord)}),
                                geometry_.leaves);
    leaves.clear();
  } else {
    mark(leaves);  // only counts, because there is no memory yet
    memory.emplace(call.lease(core::SortedLeaves::bytes(leaves.marks())));
    leaves.start(*memory);
  }
  mark(leaves);
  const std::int64_t count = leaves.number();
  if (count > kMaxNumberedLeaves)
    call.refuse(core::concat("sites or outputs occupy ", count, " words of 32 cells, expected at most ",
                             kMaxNumberedLeaves),
                ErrorCode::not_supported);
  return count;
}

}  // namespace turnout::families::sparse_conv
