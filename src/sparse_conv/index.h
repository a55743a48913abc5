// The index behind the pairs of one convolution: where each site looks, and which outputs exist.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "indices/rank.h"
#include "runtime/call.h"
#include "sparse_conv/geometry.h"

namespace turnout::families::sparse_conv {

using namespace core;

inline constexpr std::int64_t kSiteGrain = 16384;               // sites that a thread takes
inline constexpr std::int64_t kMaxNumberedLeaves = 4294967294;  // numbers of leaves are uint32
inline constexpr std::int64_t kPlacedBytes = 24;                // moved for each site, about

// Whether column c of every row of indices is in 0 .. limits[c]-1.
bool all_in_range(const ConstTensor& indices, const std::int64_t* limits);

inline std::uint32_t low_bits(std::int64_t count) { return count >= 32 ? ~0u : (1u << count) - 1; }

// A home is a leaf in which some site's window starts, when no row offset is added. Sites look up homes, and
// for each row offset the homes, in ascending order, look up the outputs: fewer searches, and in order.
class PairIndex {
 public:
  // Where a site goes when strides sort sites into classes.
  template <class Cell>
  struct Place {
    Cell base;  // the leaf of its row, to which x is added
    std::uint32_t x;
    std::int32_t cls, x_class;  // of all dimensions, and of the last; negative: it meets no output
  };

  // Bytes of scratch memory that depend on the shapes alone; the rest follows the data.
  static std::size_t bytes(std::int64_t rows, const IndicePairsParams& params);
  // `params` and `indices` as checked.
  PairIndex(Context& context, Call& call, const ConstTensor& indices, const IndicePairsParams& params,
            Scratch& memory);

  bool is_bitmap() const { return is_bitmap_; }
  const Geometry& geometry() const { return geometry_; }
  std::int64_t active() const { return active_; }
  // Submanifold: the row of each rank; nullptr when they are the same.
  const std::int32_t* row_of() const { return row_of_; }

  // Class c has positions class_start(c) .. class_start(c+1)-1. Where their windows start: which home, which
  // bit.
  std::int64_t class_start(std::int64_t c) const { return class_start_[c]; }
  const std::uint32_t* homes(std::int32_t slot) const { return homes_ + slot * rows_; }
  const std::uint8_t* bits(std::int32_t slot) const { return bits_ + slot * rows_; }
  // The row of each position; nullptr when they are the same.
  const std::int32_t* rows() const { return position_rows_; }

  // words[h] = what home h meets under a row offset, for h = 0 .. home_count().
  std::int64_t home_count() const { return home_count_; }
  void look_up(std::uint64_t leaf_delta, RankWord* words) const;

  // Writes the outputs (n, x_0, ..) in order.
  void write_outputs(Context& context, const Tensor& out_indices) const;

 private:
  template <class Leaves>
  struct Sets {  // submanifold: the same leaves are homes and outputs
    Leaves homes, outputs;
  };

  template <class Cell, int kDims, class Index>
  void place_sites(Context& context, const Index* indices, Cell* cells);
  template <class Cell, int kDims, class Index>
  void place_in_classes(Context& context, const Index* indices, Cell* cells, std::int64_t* counts,
                        Place<Cell>* places);
  template <class Cell, class Leaves>
  void build(Context& context, Call& call, const ConstTensor& indices, Sets<Leaves>& sets, void* cells,
             std::int64_t* counts, void* places);
  template <class F>
  void for_each_list(const F& f) const;
  template <class Leaves, class Mark>
  std::int64_t collect(Call& call, Leaves& leaves, std::optional<Scratch>& memory, const Mark& mark) const;
  template <class Cell, class Leaves>
  void mark_homes(const Cell* cells, Leaves& leaves) const;
  template <class Cell, class Leaves>
  void settle(Context& context, const Leaves& leaves, const Cell* cells);
  void rank_sites(Context& context, Call& call);
  template <class Key, class F>
  void for_each_output(const Key* keys, std::uint32_t* starts, const F& f) const;
  template <class Key, class Leaves>
  void rank_outputs(Call& call, Leaves& leaves, const Key* keys);
  template <class Leaves, class Index>
  void write_outputs(Context& context, const Leaves& leaves, Index* out) const;

  Geometry geometry_;
  std::int64_t rows_;
  bool is_bitmap_;
  // Where a window of a site reaches the site itself, submanifold: the slot of that window, and the bit in
  // it.
  std::int32_t self_slot_ = 0;
  std::uint32_t self_bit_ = 0;
  Sets<BitmapLeaves> bitmap_;
  Sets<SortedLeaves> sorted_;
  std::optional<Scratch> home_memory_, output_memory_, word_memory_, key_memory_;
  const void* home_keys_ = nullptr;  // the leaf of each home: 32 bits with a bitmap, else 64
  std::int64_t home_count_ = 0;
  RankWord* words_ = nullptr;  // of the outputs' leaves
  std::int64_t word_count_ = 0;
  std::uint32_t* homes_ = nullptr;
  std::uint8_t* bits_ = nullptr;
  std::int32_t* position_rows_ = nullptr;
  std::int64_t* class_start_ = nullptr;
  std::int32_t* row_of_ = nullptr;
  std::int64_t active_ = 0;
};

// Numbers what mark(leaves) marks; returns how many leaves that are. Error(not_supported) for 2^32 or more.
template <class Leaves, class Mark>
std::int64_t PairIndex::collect(Call& call, Leaves& leaves, std::optional<Scratch>& memory,
                                const Mark& mark) const {
  if constexpr (std::is_same_v<Leaves, BitmapLeaves>) {
    const std::int64_t bytes = BitmapLeaves::bytes(geometry_.leaves);
    memory.emplace(call.lease(static_cast<std::size_t>(bytes)));
    leaves = BitmapLeaves(memory->take<RankWord>(bytes / std::int64_t{sizeof(RankWord)}), geometry_.leaves);
    leaves.clear();
  } else {
    mark(leaves);  // counts only
    memory.emplace(call.lease(SortedLeaves::bytes(leaves.marks())));
    leaves.start(*memory);
  }
  mark(leaves);
  const std::int64_t count = leaves.number();
  if (count > kMaxNumberedLeaves)
    call.check([&] {
      throw Error(ErrorCode::not_supported,
                  concat("get_indice_pairs: sites or outputs lie in ", count,
                         " words of 32 cells, expected at most ", kMaxNumberedLeaves));
    });
  return count;
}

}  // namespace turnout::families::sparse_conv
