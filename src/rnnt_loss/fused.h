// Shared by both directions of the fused joiner and log-probabilities. Logits are computed for a tile of rows
// at a time, and recomputed in the backward direction.
#pragma once

#include <algorithm>
#include <cstdint>

#include "matrix/matrix.h"
#include "rnnt_loss/joint_rows.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/lattices.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

inline constexpr std::int64_t kTileRows = 96;  // rows of logits: a multiple of 4, 6 and 8

struct FusedShape {
  JointShape joint;
  std::int64_t width;
  RnntActivation activation;

  bool is_parallel() const {
    return static_cast<double>(joint.lattice.batch) * static_cast<double>(joint.lattice.frames) *
               static_cast<double>(joint.rows) * static_cast<double>(joint.classes) *
               static_cast<double>(width) >=
           kParallelProducts;
  }
};

// The tensors that the joiner reads.
struct JoinerInputs {
  const ConstTensor &am, &lm, &weight, &bias;
};

inline FusedShape shape_of(const JoinerInputs& joiner, const ConstTensor& symbols, const ConstTensor& ranges,
                           std::int64_t columns, const RnntFusedParams& params) {
  const std::int64_t frames = joiner.am.shape[1];
  return {{{joiner.am.shape[0], symbols.shape[1], frames, columns == frames},
           ranges.shape[2],
           joiner.weight.shape[0],
           columns,
           params.termination_symbol,
           true,
           params.use_hat_loss},
          joiner.am.shape[2],
          params.activation};
}

// Checks use_hat_loss, and returns the index arguments that remain to be checked.
inline Lattices::Source source_of(core::Call& call, const ConstTensor& weight, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor& boundary,
                                  const RnntFusedParams& params) {
  check_hat(call, {params.termination_symbol, params.use_hat_loss}, "weight", 0, weight.shape[0]);
  return {symbols, ranges, boundary, params.use_hat_loss ? 1 : 0, weight.shape[0]};
}

// A row of logits: its place among all rows, its batch row, frame and position, and its symbol or -1.
struct Row {
  std::int64_t place, b, t, s, symbol;
};

// The joiner of one call: packed weights, and tiles of hidden rows and logits.
template <class T>
class Joiner {
 public:
  using Lane = LaneOf<T>;

  Joiner(const FusedShape& shape, const JoinerInputs& from, Isa isa)
      : shape_(shape),
        am_(static_cast<const T*>(from.am.data)),
        lm_(static_cast<const T*>(from.lm.data)),
        weight_(static_cast<const T*>(from.weight.data)),
        bias_source_(static_cast<const T*>(from.bias.data)),
        rows_(row_kernels<Lane>(isa)),
        matrix_(core::matrix::kernels<Lane>(isa)) {}

  std::int64_t padded_classes() const { return matrix_.padded(shape_.joint.classes); }
  std::int64_t padded_width() const { return matrix_.padded(shape_.width); }

  std::size_t shared_bytes() const {
    return core::array_bytes<Lane>(matrix_.packed_size(shape_.width, shape_.joint.classes)) +
           core::array_bytes<Lane>(padded_classes());
  }
  std::size_t tile_bytes() const {
    return core::array_bytes<Lane>(kTileRows * padded_width()) +
           core::array_bytes<Lane>(kTileRows * padded_classes());
  }

  void pack(core::Scratch& scratch) {
    packed_ = scratch.take<Lane>(matrix_.packed_size(shape_.width, shape_.joint.classes));
    bias_ = scratch.take<Lane>(padded_classes());
    matrix_.pack({weight_, dtype_of<T>, shape_.width, shape_.joint.classes, 1, shape_.width}, packed_);
    std::fill_n(bias_, padded_classes(), Lane{0});
    const void* row = bias_source_;
    if (row != nullptr) matrix_.widen(&row, dtype_of<T>, 1, shape_.joint.classes, bias_, padded_classes());
  }

  // hidden[i] and logits[i] of each row.
  struct Tile {
    Lane *hidden, *logits;
  };
  Tile tile(std::byte* memory) const {
    return {reinterpret_cast<Lane*>(memory),
            reinterpret_cast<Lane*>(memory + core::array_bytes<Lane>(kTileRows * padded_width()))};
  }
  void fill(const Row* rows, std::int64_t count, const Tile& tile) const {
    const Lane* from[kTileRows];
    Lane* to[kTileRows];
    const auto activate = rows_.activate(dtype_of<T>);
    for (std::int64_t i = 0; i < count; ++i) {
      const Row& row = rows[i];
      activate(am_ + (row.b * shape_.joint.lattice.frames + row.t) * shape_.width,
               lm_ + (row.b * (shape_.joint.lattice.symbols + 1) + row.s) * shape_.width, shape_.width,
               shape_.activation, tile.hidden + i * padded_width());
      from[i] = tile.hidden + i * padded_width();
      to[i] = tile.logits + i * padded_classes();
      std::copy_n(bias_, padded_classes(), to[i]);
    }
    matrix_.multiply(from, to, count, packed_, shape_.width, padded_classes(), core::matrix::Write::add);
  }

  const FusedShape& shape() const { return shape_; }
  const RowKernels<Lane>& rows() const { return rows_; }
  const core::matrix::Kernels<Lane>& matrix() const { return matrix_; }
  const T* weight() const { return weight_; }

 private:
  const FusedShape& shape_;
  const T *am_, *lm_, *weight_, *bias_source_;
  const RowKernels<Lane>& rows_;
  const core::matrix::Kernels<Lane>& matrix_;
  Lane *packed_ = nullptr, *bias_ = nullptr;
};

// Calls flush(rows, count) for each full tile of added rows, and in finish() for the rest.
template <class Flush>
class RowQueue {
 public:
  explicit RowQueue(const Flush& flush) : flush_(flush) {}
  void add(const Row& row) {
    rows_[count_++] = row;
    if (count_ == kTileRows) finish();
  }
  void finish() {
    if (count_ > 0) flush_(&rows_[0], count_);
    count_ = 0;
  }

 private:
  const Flush& flush_;
  Row rows_[kTileRows];
  std::int64_t count_ = 0;
};

}  // namespace turnout::families::rnnt_loss
