// The index behind the pairs of one convolution: where each site's windows lie, and which outputs exist.
#pragma once

#include <cstdint>
#include <optional>

#include "core/call.h"
#include "core/indices_rank.h"
#include "sparse_conv/geometry.h"

namespace turnout::core {

// Bytes of scratch memory that depend on the shapes alone; the rest follows the data.
std::size_t pair_index_bytes(std::int64_t rows, const IndicePairsParams& params);

class PairIndex {
 public:
  // `params` and `indices` as checked.
  PairIndex(Context& context, Call& call, const ConstTensor& indices, const IndicePairsParams& params,
            Scratch& memory);

  // A cell is (leaf * 32 + bit of the window's first cell); 32 bits wide when the leaves are in a bitmap.
  bool is_bitmap() const { return is_bitmap_; }
  const Geometry& geometry() const { return geometry_; }
  const BitmapLeaves& bitmap() const { return bitmap_; }
  const SortedLeaves& sorted() const { return sorted_; }
  const RankWord* leaves() const { return leaves_; }
  std::int64_t active() const { return active_; }
  // Submanifold: the row of each rank; nullptr when they are the same.
  const std::int32_t* row_of() const { return row_of_; }

  // Class c has positions class_start(c) .. class_start(c+1)-1 of the cells.
  std::int64_t class_start(std::int64_t c) const { return class_start_[c]; }
  template <class Cell>
  const Cell* cells(std::int32_t slot) const {
    return static_cast<const Cell*>(cells_) + slot * rows_;
  }
  // The row of each position; nullptr when they are the same.
  const std::int32_t* rows() const { return position_rows_; }

  // Where leaves are sorted: positions begin .. end-1 of window w under row offset o. The pairs of tap t are
  // appended at[t] behind the start of its two rows of pairs [kernel_volume, 2, row_count].
  void probe_sorted(const RowOffset& offset, const Window& window, std::int64_t begin, std::int64_t end,
                    std::int32_t* pairs, std::int64_t* at) const;

  // Writes the outputs (n, x_0, ..) in order.
  void write_outputs(Context& context, const Tensor& out_indices) const;

 private:
  template <class Cell, class Index>
  void place_sites(Context& context, const Index* indices);
  template <class Cell, class Index>
  void place_in_classes(Context& context, const Index* indices, std::int64_t* counts);
  template <class Cell, class F>
  void for_each_window(const F& f) const;
  template <class Cell, class Leaves>
  void mark_sites(Leaves& leaves);
  template <class Cell, class Leaves>
  void mark_outputs(Leaves& leaves);
  template <class Cell, class Leaves>
  void rank_sites(Leaves& leaves);
  template <class Cell, class Leaves>
  void rank_outputs(Leaves& leaves);
  template <class Cell, class Leaves>
  void build(Call& call, Leaves& leaves);
  template <class Leaves, class Index>
  void write_outputs(Context& context, const Leaves& leaves, Index* out) const;

  Geometry geometry_;
  std::int64_t rows_;
  bool is_bitmap_;
  BitmapLeaves bitmap_;
  SortedLeaves sorted_;
  std::optional<Scratch> leaf_memory_, key_memory_;
  RankWord* leaves_ = nullptr;
  std::int64_t leaf_count_ = 0;
  void* cells_ = nullptr;
  std::int32_t* position_rows_ = nullptr;
  std::int64_t* class_start_ = nullptr;
  std::int32_t* row_of_ = nullptr;
  std::int64_t active_ = 0;
};

}  // namespace turnout::core
