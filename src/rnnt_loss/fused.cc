// Plans of the joiner and the log-probabilities in one: logits are made for a tile of rows at a time, and in
// the backward direction made again.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtypes.h"
#include "matrix/matrix.h"
#include "rnnt_loss/joint_rows.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/lattices.h"
#include "rnnt_loss/rnnt_loss.h"
#include "rnnt_loss/signature.h"
#include "runtime/parallel.h"

namespace turnout::families::rnnt_loss {
namespace {

constexpr std::int64_t kTileRows = 96;  // of logits: a multiple of 4, 6 and 8 rows
// Sums of the gradient of the weights that are kept apart, at most, and how many bytes they may have.
constexpr std::int64_t kMostGroups = 16, kGroupBytes = std::int64_t{64} << 20;

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

FusedShape shape_of(const RnntJoiner& joiner, const ConstTensor& symbols, const ConstTensor& ranges,
                    std::int64_t columns, const RnntPrunedParams& params) {
  const std::int64_t frames = joiner.am.shape[1];
  return {{{joiner.am.shape[0], symbols.shape[1], frames, columns == frames},
           ranges.shape[2],
           joiner.weight.shape[0],
           columns,
           params.termination_symbol,
           true,
           params.use_hat_loss},
          joiner.am.shape[2],
          joiner.activation};
}

// A row of logits: its place among those of the batch, and what is there.
struct Row {
  std::int64_t place, b, t, s, symbol;
};

// The joiner of one call: packed weights, and tiles of hidden rows and logits.
template <class T>
class Joiner {
 public:
  using Lane = LaneOf<T>;

  Joiner(const FusedShape& shape, const RnntJoiner& from, Isa isa)
      : shape_(shape),
        am_(static_cast<const T*>(from.am.data)),
        lm_(static_cast<const T*>(from.lm.data)),
        weight_(static_cast<const T*>(from.weight.data)),
        bias_source_(from.bias == nullptr ? nullptr : static_cast<const T*>(from.bias->data)),
        rows_(row_kernels<Lane>(isa)),
        matrix_(matrix::kernels<Lane>(isa)) {}

  std::int64_t padded_classes() const { return matrix_.padded(shape_.joint.classes); }
  std::int64_t padded_width() const { return matrix_.padded(shape_.width); }

  std::size_t shared_bytes() const {
    return array_bytes<Lane>(matrix_.packed_size(shape_.width, shape_.joint.classes)) +
           array_bytes<Lane>(padded_classes());
  }
  std::size_t tile_bytes() const {
    return array_bytes<Lane>(kTileRows * padded_width()) + array_bytes<Lane>(kTileRows * padded_classes());
  }

  void pack(Scratch& scratch) {
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
            reinterpret_cast<Lane*>(memory + array_bytes<Lane>(kTileRows * padded_width()))};
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
    matrix_.multiply(from, to, count, packed_, shape_.width, padded_classes(), matrix::Write::add);
  }

  const FusedShape& shape() const { return shape_; }
  const RowKernels<Lane>& rows() const { return rows_; }
  const matrix::Kernels<Lane>& matrix() const { return matrix_; }
  const T* weight() const { return weight_; }

 private:
  const FusedShape& shape_;
  const T *am_, *lm_, *weight_, *bias_source_;
  const RowKernels<Lane>& rows_;
  const matrix::Kernels<Lane>& matrix_;
  Lane *packed_ = nullptr, *bias_ = nullptr;
};

// flush(rows, count) for full tiles of the rows that are added, and for the rest.
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

template <class T>
void forward(Context& context, Call& call, const FusedShape& shape, const RnntJoiner& from,
             const Lattices::Source& source, const Tensor& px, const Tensor& py, const Tensor& normalizer,
             const Tensor& nan_at) {
  using Lane = LaneOf<T>;
  const FrameRanges ranges(shape.joint, shape.is_parallel());
  const int workers = shape.is_parallel() ? context.threads() : 1;
  Joiner<T> joiner(shape, from, context.isa());
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.joint.lattice, true) +
                                  array_bytes<std::int64_t>(ranges.count) + joiner.shared_bytes() +
                                  static_cast<std::size_t>(workers) * joiner.tile_bytes());
  const Lattices lattices(call, shape.joint.lattice, source, scratch);
  auto* found = scratch.take<std::int64_t>(ranges.count);
  joiner.pack(scratch);
  auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(joiner.tile_bytes()) * workers);
  call.chose("tiles of rows", workers);
  parallel_for(
      context, ranges.count, ranges.grain(),
      [&](std::int64_t begin, std::int64_t end, int worker) {
        const FpEnvironment environment(Denormals::flushed);
        const auto tile = joiner.tile(memory + joiner.tile_bytes() * static_cast<std::size_t>(worker));
        for (std::int64_t i = begin; i < end; ++i) {
          const JointRange<Lane> range(shape.joint, lattices, ranges, i);
          StepWriter<Lane> writer(range, shape.joint, joiner.rows(), px.data, py.data,
                                  static_cast<Lane*>(normalizer.data));
          const auto flush = [&](const Row* rows, std::int64_t count) {
            joiner.fill(rows, count, tile);
            for (std::int64_t k = 0; k < count; ++k)
              writer.write(tile.logits + k * joiner.padded_classes(), rows[k].place, rows[k].t, rows[k].s,
                           rows[k].symbol);
          };
          RowQueue queue(flush);
          range.visit(
              [&](std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
                queue.add({place, range.batch_row(), t, s, symbol});
              },
              writer.outside());
          queue.finish();
          found[i] = writer.nan_at();
        }
      },
      workers);
  ranges.first_of_each(found, shape.joint.lattice.batch, static_cast<std::int64_t*>(nan_at.data));
}

// -- backward ----------------------------------------------------------------------------------------------

// Rows of the batch are cut into groups, each with a sum of its own for the gradients of the weights. The
// groups follow from shapes alone, and their sums are added in order.
template <class T>
class FusedBackward {
 public:
  using Lane = LaneOf<T>;

  FusedBackward(const Joiner<T>& joiner, const Lattices& lattices, const ConstTensor& normalizer,
                const ConstTensor& px_grad, const ConstTensor& py_grad)
      : joiner_(joiner),
        shape_(joiner.shape()),
        lattices_(lattices),
        normalizer_(static_cast<const Lane*>(normalizer.data)),
        px_grad_(px_grad.data),
        py_grad_(py_grad.data) {}

  static std::int64_t sum_size(const Joiner<T>& joiner) {  // of the weights, and of the bias behind them
    return joiner.shape().joint.classes * joiner.padded_width() + joiner.padded_classes();
  }
  static std::int64_t groups(const Joiner<T>& joiner) {
    const std::int64_t bytes = sum_size(joiner) * std::int64_t{sizeof(Lane)};
    return std::clamp<std::int64_t>(std::min(joiner.shape().joint.lattice.batch, kGroupBytes / bytes), 1,
                                    kMostGroups);
  }
  static std::int64_t packed_size(const Joiner<T>& joiner) {
    return joiner.matrix().packed_size(joiner.shape().joint.classes, joiner.shape().width);
  }
  static std::size_t worker_bytes(const Joiner<T>& joiner) {
    const LatticeShape& lattice = joiner.shape().joint.lattice;
    return joiner.tile_bytes() + array_bytes<Lane>(kTileRows * joiner.padded_width()) +
           array_bytes<Lane>(lattice.frames * joiner.shape().width) +
           array_bytes<Lane>((lattice.symbols + 1) * joiner.shape().width);
  }

  void pack(Lane* packed) {
    packed_ = packed;
    joiner_.matrix().pack(
        {joiner_.weight(), dtype_of<T>, shape_.joint.classes, shape_.width, shape_.width, 1}, packed);
  }

  // Rows of the batch first .. last-1; `sums` of the weights and the bias.
  void group(std::int64_t first, std::int64_t last, Lane* sums, std::byte* memory, T* am_grad,
             T* lm_grad) const {
    const LatticeShape& lattice = shape_.joint.lattice;
    const std::int64_t width = shape_.width, positions = lattice.symbols + 1;
    const auto tile = joiner_.tile(memory);
    memory += joiner_.tile_bytes();
    auto* hidden_grad = reinterpret_cast<Lane*>(memory);
    memory += array_bytes<Lane>(kTileRows * joiner_.padded_width());
    auto* am_sum = reinterpret_cast<Lane*>(memory);
    auto* lm_sum = reinterpret_cast<Lane*>(memory + array_bytes<Lane>(lattice.frames * width));
    std::fill_n(sums, sum_size(joiner_), Lane{0});
    const auto round = joiner_.matrix().round;
    for (std::int64_t b = first; b < last; ++b) {
      std::fill_n(am_sum, lattice.frames * width, Lane{0});
      std::fill_n(lm_sum, positions * width, Lane{0});
      const auto flush = [&](const Row* rows, std::int64_t count) {
        if (!stop_.is_asked()) add_tile(rows, count, tile, hidden_grad, sums, am_sum, lm_sum);
      };
      RowQueue queue(flush);
      const JointRange<Lane> range(shape_.joint, lattices_, b);
      range.visit(
          [&](std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
            const StepGrads<Lane> grads(range, px_grad_, py_grad_, t, s, symbol);
            if (!grads.are_zero()) queue.add({place, b, t, s, symbol});
          },
          [](std::int64_t, std::int64_t) {});
      queue.finish();
      for (std::int64_t t = 0; t < lattice.frames; ++t)
        round(am_sum + t * width, nullptr, width, am_grad + (b * lattice.frames + t) * width, dtype_of<T>);
      for (std::int64_t s = 0; s < positions; ++s)
        round(lm_sum + s * width, nullptr, width, lm_grad + (b * positions + s) * width, dtype_of<T>);
    }
  }

 private:
  void add_tile(const Row* rows, std::int64_t count, const typename Joiner<T>::Tile& tile, Lane* hidden_grad,
                Lane* sums, Lane* am_sum, Lane* lm_sum) const {
    const std::int64_t width = shape_.width, classes = shape_.joint.classes;
    const RowKernels<Lane>& kernels = joiner_.rows();
    joiner_.fill(rows, count, tile);
    const Lane *logits[kTileRows], *hidden[kTileRows];
    Lane* grads[kTileRows];
    const auto add = kernels.add(dtype_of<Lane>);
    for (std::int64_t i = 0; i < count; ++i) {
      Lane* row = tile.logits + i * joiner_.padded_classes();
      const JointRange<Lane> range(shape_.joint, lattices_, rows[i].b);
      const StepGrads<Lane> of_steps(range, px_grad_, py_grad_, rows[i].t, rows[i].s, rows[i].symbol);
      of_steps.to_logits(shape_.joint, kernels, row, normalizer_[rows[i].place], rows[i].symbol, row);
      add(row, classes, sums + classes * joiner_.padded_width());
      logits[i] = row;
      hidden[i] = tile.hidden + i * joiner_.padded_width();
      grads[i] = hidden_grad + i * joiner_.padded_width();
    }
    joiner_.matrix().add_outer(logits, hidden, count, classes, width, sums, joiner_.padded_width());
    joiner_.matrix().multiply(logits, grads, count, packed_, classes, joiner_.padded_width(),
                              matrix::Write::store);
    for (std::int64_t i = 0; i < count; ++i) {
      kernels.activation_gradient(grads[i], hidden[i], width, shape_.activation);
      add(grads[i], width, am_sum + rows[i].t * width);
      add(grads[i], width, lm_sum + rows[i].s * width);
    }
  }

  const Joiner<T>& joiner_;
  const FusedShape& shape_;
  const Lattices& lattices_;
  const Lane* normalizer_;
  const void *px_grad_, *py_grad_;
  const Stop stop_;
  Lane* packed_ = nullptr;
};

template <class T>
void backward(Context& context, Call& call, const FusedShape& shape, const RnntJoiner& from,
              const Lattices::Source& source, const ConstTensor& normalizer, const ConstTensor& px_grad,
              const ConstTensor& py_grad, const RnntJoinerGrads& to) {
  using Lane = LaneOf<T>;
  using Plan = FusedBackward<T>;
  Joiner<T> joiner(shape, from, context.isa());
  const std::int64_t batch = shape.joint.lattice.batch, groups = Plan::groups(joiner);
  const std::int64_t sum_size = Plan::sum_size(joiner);
  const int workers = shape.is_parallel() ? context.threads() : 1;
  const std::size_t worker_bytes = Plan::worker_bytes(joiner);
  Scratch& scratch =
      call.scratch(Lattices::scratch_bytes(shape.joint.lattice, true) + joiner.shared_bytes() +
                   array_bytes<Lane>(Plan::packed_size(joiner)) + array_bytes<Lane>(groups * sum_size) +
                   static_cast<std::size_t>(workers) * worker_bytes);
  const Lattices lattices(call, shape.joint.lattice, source, scratch);
  joiner.pack(scratch);
  Plan plan(joiner, lattices, normalizer, px_grad, py_grad);
  plan.pack(scratch.take<Lane>(Plan::packed_size(joiner)));
  auto* sums = scratch.take<Lane>(groups * sum_size);
  auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(worker_bytes) * workers);
  call.chose("tiles of rows, in groups", workers);
  parallel_for(
      context, groups, 1,
      [&](std::int64_t g, std::int64_t, int worker) {
        const FpEnvironment environment(Denormals::flushed);
        plan.group(batch * g / groups, batch * (g + 1) / groups, sums + g * sum_size,
                   memory + worker_bytes * static_cast<std::size_t>(worker), static_cast<T*>(to.am_grad.data),
                   static_cast<T*>(to.lm_grad.data));
      },
      workers);
  const auto add = joiner.rows().add(dtype_of<Lane>);
  for (std::int64_t g = 1; g < groups; ++g) add(sums + g * sum_size, sum_size, sums);
  const auto round = joiner.matrix().round;
  for (std::int64_t c = 0; c < shape.joint.classes; ++c)
    round(sums + c * joiner.padded_width(), nullptr, shape.width,
          static_cast<T*>(to.weight_grad.data) + c * shape.width, dtype_of<T>);
  if (to.bias_grad != nullptr)
    round(sums + shape.joint.classes * joiner.padded_width(), nullptr, shape.joint.classes,
          to.bias_grad->data, dtype_of<T>);
}

}  // namespace

void rnnt_logprobs_fused_forward(const Frame& frame, const RnntJoiner& joiner, const ConstTensor& symbols,
                                 const ConstTensor& ranges, const ConstTensor* boundary, const Tensor& px,
                                 const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                 const RnntPrunedParams& params) {
  constexpr const Signature& kOp = kRnntLogprobsFusedForward;
  Call call(frame, kOp,
            {joiner.am, joiner.lm, joiner.weight, slot_of(joiner.bias), symbols, ranges, slot_of(boundary),
             px, py, normalizer, nan_at},
            {static_cast<std::int64_t>(joiner.activation), params.termination_symbol, params.use_hat_loss});
  if (call.nothing_to_do()) return;
  const FusedShape shape = shape_of(joiner, symbols, ranges, px.shape[2], params);
  check_hat(call, kOp.op, params, "weight.shape[0]", shape.joint.classes);
  const Lattices::Source source = source_of(kOp.op, symbols, &ranges, boundary, params, shape.joint.classes);
  visit_float(joiner.am.dtype, [&](auto type) {
    forward<typename decltype(type)::type>(frame.context, call, shape, joiner, source, px, py, normalizer,
                                           nan_at);
  });
}

void rnnt_logprobs_fused_backward(const Frame& frame, const RnntJoiner& joiner, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor* boundary,
                                  const ConstTensor& normalizer, const ConstTensor& px_grad,
                                  const ConstTensor& py_grad, const RnntJoinerGrads& grads,
                                  const RnntPrunedParams& params) {
  constexpr const Signature& kOp = kRnntLogprobsFusedBackward;
  Call call(frame, kOp,
            {joiner.am, joiner.lm, joiner.weight, slot_of(joiner.bias), symbols, ranges, slot_of(boundary),
             normalizer, px_grad, py_grad, grads.am_grad, grads.lm_grad, grads.weight_grad,
             grads.bias_grad != nullptr ? Slot(*grads.bias_grad) : Slot()},
            {static_cast<std::int64_t>(joiner.activation), params.termination_symbol, params.use_hat_loss});
  if (call.nothing_to_do()) return;
  const FusedShape shape = shape_of(joiner, symbols, ranges, px_grad.shape[2], params);
  check_hat(call, kOp.op, params, "weight.shape[0]", shape.joint.classes);
  const Lattices::Source source = source_of(kOp.op, symbols, &ranges, boundary, params, shape.joint.classes);
  visit_float(joiner.am.dtype, [&](auto type) {
    backward<typename decltype(type)::type>(frame.context, call, shape, joiner, source, normalizer, px_grad,
                                            py_grad, grads);
  });
}

}  // namespace turnout::families::rnnt_loss
