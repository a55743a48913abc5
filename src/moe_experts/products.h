// Products of rows with blocks of columns of a weight matrix in any layout, and the threads' list of blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/grain.h"
#include "core/padding.h"
#include "core/pieces.h"
#include "matrix/bf16.h"
#include "matrix/matrix.h"
#include "moe_experts/kernels.h"

namespace turnout::families::moe_experts {

// Weights [groups, depth, columns] with strides in elements. Quantized weights also have scales
// [groups, columns, scale_count]; one u8 holds two 4-bit elements.
struct Weights {
  const void* data;
  DType dtype;
  std::int64_t depth, columns;
  std::int64_t group_stride, depth_stride, column_stride;
  const void* scales = nullptr;
  DType scale_dtype = DType::f32;
  std::int64_t scale_count = 0;

  std::int64_t column_bytes() const { return (dtype == DType::u8 ? depth / 2 : depth) * size_of(dtype); }
};

// `count` columns of a group: first, first + step, ..
struct ColumnBlock {
  std::int64_t group, first, count, step = 1;
};

// Bytes of weights per block, which stay in the L2 cache while rows are multiplied with them.
inline constexpr std::int64_t kBlockBytes = 128 << 10;
// Columns per block of weights whose columns are contiguous: few rows read that many of a line of weights.
inline constexpr std::int64_t kWideColumns = 256;
// The least contiguous depth that is read in place. For shorter ones, adding the lanes of sums takes too
// long.
inline constexpr std::int64_t kLeastDepth = 128;
inline constexpr std::int64_t kLeastColumns = 12;  // a multiple of the columns of a tile
inline constexpr std::int64_t kRowBlock = 256;     // about a multiple of the rows of a tile

// Rows of bf16 are multiplied with weights of bf16 where the CPU has instructions for it, and rows of Lane
// otherwise. Columns whose depth is contiguous are read in place. Others are packed first, unless few rows
// read them.
template <class Lane>
class Products {
 public:
  Products(Isa isa, const Weights& weights)
      : weights_(weights),
        matrix_(core::matrix::kernels<Lane>(isa)),
        dots_(expert_kernels(isa).dots(weights.dtype)),
        bf16_(weights.dtype == DType::bf16 ? core::matrix::bf16_kernels(isa) : nullptr),
        in_place_(std::is_same_v<Lane, float> && weights.depth_stride == 1 &&
                  (weights.depth >= kLeastDepth || weights.scale_count > 0)) {
    const std::int64_t bytes = std::max<std::int64_t>(weights.column_bytes(), 1);
    const std::int64_t wanted =
        weights.depth_stride == 1 ? kBlockBytes / bytes / kLeastColumns * kLeastColumns : kWideColumns;
    block_columns_ =
        std::clamp<std::int64_t>(wanted, kLeastColumns, std::max(weights.columns, kLeastColumns));
  }

  bool in_place() const { return in_place_; }
  // Whether run() takes rows of bf16.
  bool takes_bf16() const { return bf16_ != nullptr; }
  Isa last_isa() const { return takes_bf16() ? Isa::avx512_bf16 : Isa::avx512; }
  std::int64_t block_columns() const { return block_columns_; }
  // Elements of the panel that each worker passes to run().
  std::int64_t panel_size() const {
    if (takes_bf16()) return 0;
    return in_place_ ? block_columns_ * weights_.scale_count
                     : matrix_.packed_size(weights_.depth, std::min(block_columns_, kPanelColumns));
  }

  // to[r][c] = rows[r] times the columns of the block.
  void run(const Lane* const* rows, Lane* const* to, std::int64_t count, const ColumnBlock& block,
           Lane* panel) const {
    const auto* data = first_of(block);
    const std::int64_t stride = block.step * weights_.column_stride;
    if constexpr (std::is_same_v<Lane, float>) {
      if (in_place_) {
        read_scales(block, panel);
        return dots_(rows, to, count,
                     {data, stride, block.count, weights_.depth, panel, weights_.scale_count});
      }
    }
    if (count < kPackedRows && stride == 1 && weights_.dtype == dtype_of<Lane>)
      return matrix_.multiply_in_place(rows, to, count, reinterpret_cast<const Lane*>(data),
                                       weights_.depth_stride, weights_.depth, block.count);
    for (const core::Piece part : core::pieces(0, block.count, kPanelColumns)) {
      Lane* at[kRowBlock];
      for (std::int64_t r = 0; r < count; ++r) at[r] = to[r] + part.begin;
      matrix_.pack({data + part.begin * stride * size_of(weights_.dtype), weights_.dtype, weights_.depth,
                    part.count, weights_.depth_stride, stride},
                   panel);
      matrix_.multiply(rows, at, count, panel, weights_.depth, part.count, core::matrix::Write::store);
    }
  }

  // Bf16Kernels::split. Requires takes_bf16().
  void split(const float* from, std::int64_t count, bf16* high, bf16* low) const {
    bf16_->split(from, count, high, low);
  }

  // The same of rows of bf16, or added to what is there. Requires takes_bf16().
  void run_bf16(const void* const* rows, float* const* to, std::int64_t count, const ColumnBlock& block,
                core::matrix::Write write = core::matrix::Write::store) const {
    bf16_->multiply(rows, to, count,
                    {first_of(block), DType::bf16, weights_.depth, block.count, weights_.depth_stride,
                     block.step * weights_.column_stride},
                    write);
  }

 private:
  // From this number of rows on, packing a block takes less time than reading it in place saves. The bits are
  // the same.
  static constexpr std::int64_t kPackedRows = 12;
  static constexpr std::int64_t kPanelColumns = 64;  // that are packed at a time, for at most kRowBlock rows

  const std::byte* first_of(const ColumnBlock& block) const {
    return static_cast<const std::byte*>(weights_.data) +
           (block.group * weights_.group_stride + block.first * weights_.column_stride) *
               size_of(weights_.dtype);
  }

  void read_scales(const ColumnBlock& block, float* to) const {
    const std::int64_t each = weights_.scale_count;
    if (each == 0) return;
    const auto* from = static_cast<const std::byte*>(weights_.scales);
    for (std::int64_t c = 0; c < block.count; ++c) {
      const std::int64_t column = block.group * weights_.columns + block.first + c * block.step;
      const void* row = from + column * each * size_of(weights_.scale_dtype);
      matrix_.widen(&row, weights_.scale_dtype, 1, each, to + c * each, each);
    }
  }

  const Weights& weights_;
  const core::matrix::Kernels<Lane>& matrix_;
  ExpertKernels::Dots dots_;
  const core::matrix::Bf16Kernels* bf16_;
  bool in_place_;
  std::int64_t block_columns_;
};

// One block of a product: rows of a group, and columns of its matrix.
struct Block {
  std::int64_t group, first_row, rows, first_column, columns;
};

// All blocks of all groups. Blocks of the same columns are adjacent, so that threads share these columns.
class Blocks {
 public:
  static std::size_t scratch_bytes(std::int64_t groups) {
    return core::array_bytes<std::int64_t>(groups + 1);
  }

  // begin_of[g] .. begin_of[g + 1]: the rows of group g. `starts` has groups + 1 elements.
  Blocks(const std::int64_t* begin_of, std::int64_t groups, std::int64_t columns, std::int64_t block_columns,
         std::int64_t row_block, std::int64_t* starts)
      : begin_of_(begin_of),
        groups_(groups),
        columns_(columns),
        block_columns_(block_columns),
        row_block_(row_block),
        column_blocks_((columns + block_columns - 1) / block_columns),
        starts_(starts) {
    starts_[0] = 0;
    for (std::int64_t g = 0; g < groups; ++g) starts_[g + 1] = starts_[g] + row_blocks(g) * column_blocks_;
  }

  std::int64_t count() const { return starts_[groups_]; }
  Block operator[](std::int64_t i) const {
    const std::int64_t group = std::upper_bound(starts_, starts_ + groups_ + 1, i) - starts_ - 1;
    const std::int64_t within = i - starts_[group], column = within / row_blocks(group) * block_columns_;
    const std::int64_t row = begin_of_[group] + within % row_blocks(group) * row_block_;
    return {group, row, std::min(row_block_, begin_of_[group + 1] - row), column,
            std::min(block_columns_, columns_ - column)};
  }

 private:
  std::int64_t row_blocks(std::int64_t group) const {
    return (begin_of_[group + 1] - begin_of_[group] + row_block_ - 1) / row_block_;
  }

  const std::int64_t* begin_of_;
  std::int64_t groups_, columns_, block_columns_, row_block_, column_blocks_;
  std::int64_t* starts_;
};

// With fewer multiplications, a second thread does not pay off.
inline constexpr double kParallelProducts = double{1 << 18} / double{core::kGrainDivisor};

}  // namespace turnout::families::moe_experts
