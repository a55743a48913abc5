// Plan of the gradients of the simple form: computes the weights of all cells, then ranges of classes.
#include <algorithm>
#include <cmath>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/signature.h"
#include "rnnt_loss/simple.h"
#include "runtime/parallel.h"
#include "simd/half.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

using namespace core;
namespace {

// With w[s, t] = (px_grad + py_grad) / sum of the cell:
//   lm_grad[s, c] = the peaks - exp(lm[s, c] - max) sum_t w[s, t] exp(am[t, c] - max)
// am_grad is computed likewise.
template <class T>
class SimpleBackward {
 public:
  using Lane = LaneOf<T>;

  struct Operands {
    const T *lm, *am;
    const Lane *normalizer, *px_grad, *py_grad;
    T *lm_grad, *am_grad;
  };

  SimpleBackward(const SimpleShape& shape, const Lattices& lattices, Isa isa, const Operands& operands)
      : shape_(shape),
        lattices_(lattices),
        rows_(row_kernels<Lane>(isa)),
        matrix_(matrix::kernels<Lane>(isa)),
        operands_(operands) {}

  static std::size_t shared_bytes(const SimpleShape& s) {
    const std::int64_t batch = s.lattice.batch, cells = s.positions() * s.lattice.frames;
    return 2 * array_bytes<Lane>(batch * cells) + 3 * array_bytes<Lane>(batch * s.positions()) +
           2 * array_bytes<Lane>(batch * s.lattice.frames) + array_bytes<std::uint8_t>(batch);
  }
  static std::size_t worker_bytes(const SimpleShape& s, Isa isa) {
    const auto& matrix = matrix::kernels<Lane>(isa);
    const std::int64_t columns = matrix.padded(kTileClasses);
    return 2 * array_bytes<Lane>(s.positions() * columns) +  //
           array_bytes<Lane>(matrix.packed_size(s.positions(), kTileClasses)) +
           2 * array_bytes<Lane>(kTileFrames * columns) +
           array_bytes<Lane>(matrix.packed_size(kTileFrames, kTileClasses));
  }

  void share(Scratch& scratch) {
    const std::int64_t batch = shape_.lattice.batch, cells = shape_.positions() * shape_.lattice.frames;
    by_position_ = scratch.take<Lane>(batch * cells);
    by_frame_ = scratch.take<Lane>(batch * cells);
    lm_max_ = scratch.take<Lane>(batch * shape_.positions());
    symbol_sums_ = scratch.take<Lane>(batch * shape_.positions());
    blank_sums_ = scratch.take<Lane>(batch * shape_.positions());
    am_max_ = scratch.take<Lane>(batch * shape_.lattice.frames);
    frame_blanks_ = scratch.take<Lane>(batch * shape_.lattice.frames);
    has_small_ = scratch.take<std::uint8_t>(batch);
  }

  void weigh(std::int64_t b) const {
    const Box& box = lattices_.box(b);
    const std::int64_t frames = shape_.lattice.frames, positions = shape_.positions();
    const auto largest = rows_.largest(dtype_of<T>);
    for (std::int64_t t = box.t_begin; t < box.t_end; ++t)
      am_max_[b * frames + t] = largest(operands_.am + (b * frames + t) * shape_.classes, shape_.classes);
    std::fill_n(frame_blanks_ + b * frames, frames, Lane{0});
    has_small_[b] = 0;
    const std::int64_t count = box.t_end - box.t_begin;
    for (std::int64_t s = box.s_begin; s <= box.s_end; ++s) {
      const std::int64_t i = b * positions + s, place = i * frames + box.t_begin;
      lm_max_[i] = largest(operands_.lm + i * shape_.classes, shape_.classes);
      const Lane* x = s < box.s_end ? px_grad(b, s, box.t_begin) : nullptr;
      const Lane* y = operands_.py_grad + place;
      const bool small = rows_.weights(x, y, operands_.normalizer + place, lm_max_[i],
                                       am_max_ + b * frames + box.t_begin, count, by_position_ + place);
      if (small) has_small_[b] = 1;
      double symbols = 0, blanks = 0;
      for (std::int64_t t = 0; t < count; ++t) {
        if (x != nullptr) symbols += static_cast<double>(x[t]);
        blanks += static_cast<double>(y[t]);
        frame_blanks_[b * frames + box.t_begin + t] += y[t];
        by_frame_[(b * frames + box.t_begin + t) * positions + s] = by_position_[place + t];
      }
      symbol_sums_[i] = static_cast<Lane>(symbols);
      blank_sums_[i] = static_cast<Lane>(blanks);
    }
  }

  // Computes the gradients of kTileClasses classes of one row of the batch.
  void classes(std::int64_t b, std::int64_t number, std::byte* memory) const {
    const Box& box = lattices_.box(b);
    const std::int64_t frames = shape_.lattice.frames, positions = shape_.positions();
    const std::int64_t first = number * kTileClasses, count = std::min(kTileClasses, shape_.classes - first);
    const std::int64_t columns = matrix_.padded(count), rows = box.s_end + 1 - box.s_begin;
    Cursor cursor(memory);
    Lane* lm_exp = cursor.take<Lane>(positions * matrix_.padded(kTileClasses));
    Lane* lm_sum = cursor.take<Lane>(positions * matrix_.padded(kTileClasses));
    Lane* lm_packed = cursor.take<Lane>(matrix_.packed_size(positions, kTileClasses));
    Lane* am_exp = cursor.take<Lane>(kTileFrames * matrix_.padded(kTileClasses));
    Lane* am_sum = cursor.take<Lane>(kTileFrames * matrix_.padded(kTileClasses));
    Lane* am_packed = cursor.take<Lane>(matrix_.packed_size(kTileFrames, kTileClasses));
    const auto shifted = rows_.shifted(dtype_of<T>);

    for (std::int64_t s = 0; s < positions; ++s)
      if (s < box.s_begin || s > box.s_end)
        std::fill_n(operands_.lm_grad + (b * positions + s) * shape_.classes + first, count, T{});
    for (std::int64_t t = 0; t < frames; ++t)
      if (!box.has_frame(t))
        std::fill_n(operands_.am_grad + (b * frames + t) * shape_.classes + first, count, T{});

    const std::int64_t lm_row = b * positions + box.s_begin;
    for (std::int64_t i = 0; i < rows; ++i)
      shifted(operands_.lm + (lm_row + i) * shape_.classes + first, count, lm_max_[lm_row + i],
              lm_exp + i * columns);
    matrix_.pack({lm_exp, dtype_of<Lane>, rows, count, columns, 1}, lm_packed);
    std::fill_n(lm_sum, rows * columns, Lane{0});
    for (const Piece tile : pieces(box.t_begin, box.t_end, kTileFrames)) {
      const std::int64_t begin = tile.begin, depth = tile.count, am_row = b * frames + begin;
      for (std::int64_t t = 0; t < depth; ++t)
        shifted(operands_.am + (am_row + t) * shape_.classes + first, count, am_max_[am_row + t],
                am_exp + t * columns);
      matrix_.pack({am_exp, dtype_of<Lane>, depth, count, columns, 1}, am_packed);
      multiply_rows(matrix_, by_position_ + lm_row * frames + begin, frames, lm_sum, columns, rows, am_packed,
                    depth, columns, matrix::Write::add);
      multiply_rows(matrix_, by_frame_ + am_row * positions + box.s_begin, positions, am_sum, columns, depth,
                    lm_packed, rows, columns, matrix::Write::store);
      for (std::int64_t t = 0; t < depth; ++t) {
        Lane* sum = am_sum + t * columns;
        rows_.negated_product(sum, am_exp + t * columns, count);
        const auto peak = [&](std::int64_t c, Lane value) {
          if (c >= first && c < first + count) sum[c - first] += value;
        };
        for (std::int64_t s = box.s_begin; s < box.s_end; ++s)
          peak(lattices_.symbol(b, s), *px_grad(b, s, begin + t));
        peak(shape_.blank, frame_blanks_[am_row + t]);
        if (has_small_[b] != 0)
          for (std::int64_t s = box.s_begin; s <= box.s_end; ++s)
            add_small(b, s, begin + t, first, count, sum);
        matrix_.round(sum, nullptr, count, operands_.am_grad + (am_row + t) * shape_.classes + first,
                      dtype_of<T>);
      }
    }
    for (std::int64_t s = box.s_begin; s <= box.s_end; ++s) {
      const std::int64_t i = b * positions + s;
      Lane* sum = lm_sum + (s - box.s_begin) * columns;
      rows_.negated_product(sum, lm_exp + (s - box.s_begin) * columns, count);
      const auto peak = [&](std::int64_t c, Lane value) {
        if (c >= first && c < first + count) sum[c - first] += value;
      };
      if (s < box.s_end) peak(lattices_.symbol(b, s), symbol_sums_[i]);
      peak(shape_.blank, blank_sums_[i]);
      if (has_small_[b] != 0)
        for (std::int64_t t = box.t_begin; t < box.t_end; ++t) add_small(b, s, t, first, count, sum);
      matrix_.round(sum, nullptr, count, operands_.lm_grad + i * shape_.classes + first, dtype_of<T>);
    }
  }

 private:
  const Lane* px_grad(std::int64_t b, std::int64_t s, std::int64_t t) const {
    return operands_.px_grad + (b * shape_.lattice.symbols + s) * shape_.columns + t;
  }

  // Adds the share of the softmax of a cell whose sum is too small for the products.
  void add_small(std::int64_t b, std::int64_t s, std::int64_t t, std::int64_t first, std::int64_t count,
                 Lane* sum) const {
    const std::int64_t i = b * shape_.positions() + s, j = b * shape_.lattice.frames + t;
    const Lane n = operands_.normalizer[i * shape_.lattice.frames + t];
    if (!(n - lm_max_[i] - am_max_[j] < static_cast<Lane>(kLeastLogSum))) return;
    const Lane weight = (s < lattices_.box(b).s_end ? *px_grad(b, s, t) : Lane{0}) +
                        operands_.py_grad[i * shape_.lattice.frames + t];
    if (weight == 0) return;
    const T* lm = operands_.lm + i * shape_.classes + first;
    const T* am = operands_.am + j * shape_.classes + first;
    for (std::int64_t c = 0; c < count; ++c)
      sum[c] -= weight * std::exp((to_float(lm[c]) + to_float(am[c])) - n);
  }

  const SimpleShape& shape_;
  const Lattices& lattices_;
  const RowKernels<Lane>& rows_;
  const matrix::Kernels<Lane>& matrix_;
  const Operands operands_;
  Lane *by_position_ = nullptr, *by_frame_ = nullptr;  // weights [S + 1, T] and [T, S + 1]
  Lane *lm_max_ = nullptr, *am_max_ = nullptr;
  Lane *symbol_sums_ = nullptr, *blank_sums_ = nullptr;  // gradients summed over the frames
  Lane* frame_blanks_ = nullptr;                         // gradients summed over the positions
  std::uint8_t* has_small_ = nullptr;                    // per row of the batch: has cells for add_small()
};

}  // namespace
}  // namespace turnout::families::rnnt_loss

namespace turnout {

using namespace families::rnnt_loss;

void rnnt_logprobs_simple_backward(const ConstTensor& lm, const ConstTensor& am, const ConstTensor& symbols,
                                   const ConstTensor& boundary, const ConstTensor& normalizer,
                                   const ConstTensor& px_grad, const ConstTensor& py_grad,
                                   const Tensor& lm_grad, const Tensor& am_grad,
                                   std::int64_t termination_symbol, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kRnntLogprobsSimpleBackward,
            {lm, am, symbols, boundary, normalizer, px_grad, py_grad, lm_grad, am_grad},
            {termination_symbol});
  if (call.nothing_to_do()) return;
  const SimpleShape shape(lm, am, px_grad.shape[2], termination_symbol);
  const std::int64_t batch = shape.lattice.batch, tiles = tiles_of(shape.classes, kTileClasses);
  const int workers = shape.is_parallel() ? context.threads() : 1;
  visit_float(lm.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Lane = LaneOf<T>;
    using Plan = SimpleBackward<T>;
    const std::size_t worker_bytes = Plan::worker_bytes(shape, context.isa());
    Scratch& scratch =
        call.scratch(Lattices::scratch_bytes(shape.lattice, false) + Plan::shared_bytes(shape) +
                     static_cast<std::size_t>(workers) * worker_bytes);
    const Lattices lattices(call, shape.lattice,
                            {.symbols = symbols, .boundary = boundary, .classes = shape.classes}, scratch);
    Plan plan(shape, lattices, context.isa(),
              {static_cast<const T*>(lm.data), static_cast<const T*>(am.data),
               static_cast<const Lane*>(normalizer.data), static_cast<const Lane*>(px_grad.data),
               static_cast<const Lane*>(py_grad.data), static_cast<T*>(lm_grad.data),
               static_cast<T*>(am_grad.data)});
    plan.share(scratch);
    auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(worker_bytes) * workers);
    call.chose("tiles of classes", workers);
    parallel_for(
        context, batch, shape.is_parallel() ? 1 : batch,
        [&](std::int64_t begin, std::int64_t end) {
          const FpEnvironment environment(Denormals::flushed);
          for (std::int64_t b = begin; b < end; ++b) plan.weigh(b);
        },
        workers);
    parallel_for(
        context, batch * tiles, shape.is_parallel() ? 1 : batch * tiles,
        [&](std::int64_t begin, std::int64_t end, int worker) {
          const FpEnvironment environment(Denormals::flushed);
          for (std::int64_t i = begin; i < end; ++i)
            plan.classes(i / tiles, i % tiles, memory + worker_bytes * static_cast<std::size_t>(worker));
        },
        workers);
  });
}

}  // namespace turnout
