// Plans of the log-probabilities of sums lm + am. The sum over classes of exp(lm + am) is a product of the
// matrices exp(lm - max) and exp(am - max), a tile of frames at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtypes.h"
#include "matrix/matrix.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/lattices.h"
#include "rnnt_loss/rnnt_loss.h"
#include "rnnt_loss/signature.h"
#include "runtime/parallel.h"
#include "simd/half.h"

namespace turnout::families::rnnt_loss {
namespace {

constexpr std::int64_t kTileFrames = 64;    // frames of a product
constexpr std::int64_t kTileClasses = 256;  // classes of a range of the gradient
constexpr std::int64_t kBatchRows = 96;     // rows of a product that are passed at once
constexpr double kParallelProducts = 4e6;   // below it a second thread takes longer to wake than it saves

struct SimpleShape {
  LatticeShape lattice;
  std::int64_t classes, columns, blank;

  SimpleShape(const ConstTensor& lm, const ConstTensor& am, std::int64_t px_columns, std::int64_t termination)
      : lattice{lm.shape[0], lm.shape[1] - 1, am.shape[1], px_columns == am.shape[1]},
        classes(lm.shape[2]),
        columns(px_columns),
        blank(termination) {}

  std::int64_t positions() const { return lattice.symbols + 1; }
  bool is_parallel() const {
    return static_cast<double>(lattice.batch) * static_cast<double>(positions()) *
               static_cast<double>(lattice.frames) * static_cast<double>(classes) >=
           kParallelProducts;
  }
};

std::int64_t tiles_of(std::int64_t count, std::int64_t tile) { return (count + tile - 1) / tile; }

// log sum_c exp(lm[c] + am[c]), for a cell whose product of shifted exponentials is too small.
template <class T>
double log_sum_of_pair(const T* lm, const T* am, std::int64_t classes) {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t c = 0; c < classes; ++c)
    max = std::max(max, static_cast<double>(to_float(lm[c])) + static_cast<double>(to_float(am[c])));
  if (!(std::abs(max) < std::numeric_limits<double>::infinity())) return max;
  for (std::int64_t c = 0; c < classes; ++c)
    sum += std::exp(static_cast<double>(to_float(lm[c])) + static_cast<double>(to_float(am[c])) - max);
  return max + std::log(sum);
}

// Memory in which the parts of a thread follow each other.
class Cursor {
 public:
  explicit Cursor(std::byte* memory) : next_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* begin = reinterpret_cast<T*>(next_);
    next_ += array_bytes<T>(count);
    return begin;
  }

 private:
  std::byte* next_;
};

// multiply() for any number of rows: row r of `from` begins at from + r * from_stride.
template <class Lane>
void multiply_rows(const matrix::Kernels<Lane>& kernels, const Lane* from, std::int64_t from_stride, Lane* to,
                   std::int64_t to_stride, std::int64_t rows, const Lane* packed, std::int64_t depth,
                   std::int64_t columns, matrix::Write write) {
  const Lane* from_rows[kBatchRows];
  Lane* to_rows[kBatchRows];
  for (std::int64_t begin = 0; begin < rows; begin += kBatchRows) {
    const std::int64_t count = std::min(kBatchRows, rows - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      from_rows[i] = from + (begin + i) * from_stride;
      to_rows[i] = to + (begin + i) * to_stride;
    }
    kernels.multiply(from_rows, to_rows, count, packed, depth, columns, write);
  }
}

// -- forward -----------------------------------------------------------------------------------------------

template <class T>
class SimpleForward {
 public:
  using Lane = LaneOf<T>;

  SimpleForward(const SimpleShape& shape, const Lattices& lattices, Isa isa)
      : shape_(shape),
        lattices_(lattices),
        rows_(row_kernels<Lane>(isa)),
        matrix_(matrix::kernels<Lane>(isa)) {}

  // Of all rows of lm: their exponentials and the largest of each.
  static std::size_t shared_bytes(const SimpleShape& s) {
    const std::int64_t rows = s.lattice.batch * s.positions();
    return array_bytes<Lane>(rows * s.classes) + array_bytes<Lane>(rows);
  }
  static std::size_t worker_bytes(const SimpleShape& s, Isa isa) {
    const auto& matrix = matrix::kernels<Lane>(isa);
    return array_bytes<Lane>(kTileFrames * s.classes) +
           array_bytes<Lane>(matrix.packed_size(s.classes, kTileFrames)) +
           array_bytes<Lane>(s.positions() * matrix.padded(kTileFrames)) +
           3 * array_bytes<Lane>(matrix.padded(kTileFrames));
  }

  struct Operands {
    const T *lm, *am;
    Lane *px, *py, *normalizer;
  };

  void share(Lane* exponentials, Lane* largest) { lm_exp_ = exponentials, lm_max_ = largest; }

  // Row i of lm, if it is in the box.
  void shift_row(const Operands& to, std::int64_t i) const {
    const std::int64_t b = i / shape_.positions(), s = i % shape_.positions();
    const Box& box = lattices_.box(b);
    if (s < box.s_begin || s > box.s_end) return;
    const T* row = to.lm + i * shape_.classes;
    lm_max_[i] = rows_.largest(dtype_of<T>)(row, shape_.classes);
    rows_.shifted(dtype_of<T>)(row, shape_.classes, lm_max_[i], lm_exp_ + i * shape_.classes);
  }

  // One tile of frames of one row of the batch; returns the first s * T + t whose normalizer is not finite.
  std::int64_t tile(const Operands& to, std::int64_t b, std::int64_t number, std::byte* memory) const {
    constexpr Lane kNone = -std::numeric_limits<Lane>::infinity();
    const Box& box = lattices_.box(b);
    const std::int64_t frames = shape_.lattice.frames, classes = shape_.classes;
    const std::int64_t first = number * kTileFrames, last = std::min(first + kTileFrames, frames);
    const std::int64_t last_column = last == frames ? shape_.columns : last;
    for (std::int64_t s = 0; s < shape_.lattice.symbols; ++s)
      std::fill(px(to, b, s, first), px(to, b, s, last_column), kNone);
    for (std::int64_t s = 0; s < shape_.positions(); ++s) {
      std::fill(py(to, b, s, first), py(to, b, s, last), kNone);
      std::fill(normalizer(to, b, s, first), normalizer(to, b, s, last), kNone);
    }
    const std::int64_t begin = std::max(first, box.t_begin), count = std::min(last, box.t_end) - begin;
    if (count <= 0) return -1;

    Cursor cursor(memory);
    const std::int64_t padded = matrix_.padded(kTileFrames);
    Lane* exponentials = cursor.take<Lane>(kTileFrames * classes);
    Lane* packed = cursor.take<Lane>(matrix_.packed_size(classes, kTileFrames));
    Lane* sums = cursor.take<Lane>(shape_.positions() * padded);
    Lane *am_max = cursor.take<Lane>(padded), *blanks = cursor.take<Lane>(padded),
         *logs = cursor.take<Lane>(padded);
    const T* am = to.am + (b * frames + begin) * classes;
    for (std::int64_t t = 0; t < count; ++t) {
      const T* row = am + t * classes;
      am_max[t] = rows_.largest(dtype_of<T>)(row, classes);
      rows_.shifted(dtype_of<T>)(row, classes, am_max[t], exponentials + t * classes);
      blanks[t] = to_float(row[shape_.blank]) - am_max[t];
    }
    matrix_.pack({exponentials, dtype_of<Lane>, classes, count, 1, classes}, packed);
    const std::int64_t row = b * shape_.positions() + box.s_begin;
    multiply_rows(matrix_, lm_exp_ + row * classes, classes, sums, padded, box.s_end + 1 - box.s_begin,
                  packed, classes, matrix_.padded(count), matrix::Write::store);

    std::int64_t nan_at = -1;
    for (std::int64_t s = box.s_begin; s <= box.s_end; ++s) {
      const std::int64_t i = b * shape_.positions() + s;
      const T* lm = to.lm + i * classes;
      const Lane max = lm_max_[i], blank = to_float(lm[shape_.blank]) - max;
      rows_.log(sums + (s - box.s_begin) * padded, count, logs);
      Lane* n = normalizer(to, b, s, begin);
      for (std::int64_t t = 0; t < count; ++t) {
        if (logs[t] < static_cast<Lane>(kLeastLogSum))
          logs[t] = static_cast<Lane>(log_sum_of_pair(lm, am + t * classes, classes) -
                                      static_cast<double>(max) - static_cast<double>(am_max[t]));
        n[t] = logs[t] + (max + am_max[t]);
        if (nan_at < 0 && !std::isfinite(n[t])) nan_at = s * frames + begin + t;
      }
      Lane* blank_steps = py(to, b, s, begin);
      for (std::int64_t t = 0; t < count; ++t) blank_steps[t] = (blank + blanks[t]) - logs[t];
      if (s == box.s_end) continue;
      const std::int64_t symbol = lattices_.symbol(b, s);
      const Lane own = to_float(lm[symbol]) - max;
      Lane* steps = px(to, b, s, begin);
      for (std::int64_t t = 0; t < count; ++t)
        steps[t] = (own + (to_float(am[t * classes + symbol]) - am_max[t])) - logs[t];
    }
    return nan_at;
  }

 private:
  Lane* px(const Operands& to, std::int64_t b, std::int64_t s, std::int64_t t) const {
    return to.px + (b * shape_.lattice.symbols + s) * shape_.columns + t;
  }
  Lane* py(const Operands& to, std::int64_t b, std::int64_t s, std::int64_t t) const {
    return to.py + (b * shape_.positions() + s) * shape_.lattice.frames + t;
  }
  Lane* normalizer(const Operands& to, std::int64_t b, std::int64_t s, std::int64_t t) const {
    return to.normalizer + (b * shape_.positions() + s) * shape_.lattice.frames + t;
  }

  const SimpleShape& shape_;
  const Lattices& lattices_;
  const RowKernels<Lane>& rows_;
  const matrix::Kernels<Lane>& matrix_;
  Lane *lm_exp_ = nullptr, *lm_max_ = nullptr;
};

// -- backward ----------------------------------------------------------------------------------------------

// With w[s, t] = (px_grad + py_grad) / sum of the cell:
//   lm_grad[s, c] = the peaks - exp(lm[s, c] - max) sum_t w[s, t] exp(am[t, c] - max)
// and likewise am_grad. First the weights of each row of the batch, then ranges of classes.
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

  // The gradients of kTileClasses classes of one row of the batch.
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
    for (std::int64_t begin = box.t_begin; begin < box.t_end; begin += kTileFrames) {
      const std::int64_t depth = std::min(kTileFrames, box.t_end - begin), am_row = b * frames + begin;
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

  // The share of the softmax of a cell that is too small for the products.
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
  Lane *symbol_sums_ = nullptr, *blank_sums_ = nullptr;  // of the gradients, over the frames
  Lane* frame_blanks_ = nullptr;                         // and over the positions
  std::uint8_t* has_small_ = nullptr;                    // of a row of the batch: cells for add_small()
};

}  // namespace

void rnnt_logprobs_simple_forward(const Frame& frame, const ConstTensor& lm, const ConstTensor& am,
                                  const ConstTensor& symbols, const ConstTensor* boundary, const Tensor& px,
                                  const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                  std::int64_t termination_symbol) {
  Context& context = frame.context;
  constexpr const Signature& kOp = kRnntLogprobsSimpleForward;
  Call call(frame, kOp, {lm, am, symbols, slot_of(boundary), px, py, normalizer, nan_at},
            {termination_symbol});
  if (call.nothing_to_do()) return;
  const SimpleShape shape(lm, am, px.shape[2], termination_symbol);
  const std::int64_t batch = shape.lattice.batch;
  const std::int64_t tiles = std::max<std::int64_t>(1, tiles_of(shape.lattice.frames, kTileFrames));
  const int workers = shape.is_parallel() ? context.threads() : 1;
  visit_float(lm.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Lane = LaneOf<T>;
    using Plan = SimpleForward<T>;
    const std::size_t worker_bytes = Plan::worker_bytes(shape, context.isa());
    Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.lattice, false) +
                                    Plan::shared_bytes(shape) + array_bytes<std::int64_t>(batch * tiles) +
                                    static_cast<std::size_t>(workers) * worker_bytes);
    const Lattices lattices(call, shape.lattice, {kOp.op, &symbols, nullptr, boundary, 0, shape.classes},
                            scratch);
    auto* found = scratch.take<std::int64_t>(batch * tiles);
    Plan plan(shape, lattices, context.isa());
    const std::int64_t rows = batch * shape.positions();
    auto* exponentials = scratch.take<Lane>(rows * shape.classes);
    plan.share(exponentials, scratch.take<Lane>(rows));
    auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(worker_bytes) * workers);
    call.chose("tiles of frames", workers);
    const typename Plan::Operands operands{static_cast<const T*>(lm.data), static_cast<const T*>(am.data),
                                           static_cast<Lane*>(px.data), static_cast<Lane*>(py.data),
                                           static_cast<Lane*>(normalizer.data)};
    parallel_for(
        context, rows, workers > 1 ? kTileFrames : rows,
        [&](std::int64_t begin, std::int64_t end) {
          const FpEnvironment environment(Denormals::flushed);
          for (std::int64_t i = begin; i < end; ++i) plan.shift_row(operands, i);
        },
        workers);
    parallel_for(
        context, batch * tiles, workers > 1 ? 1 : batch * tiles,
        [&](std::int64_t begin, std::int64_t end, int worker) {
          const FpEnvironment environment(Denormals::flushed);
          for (std::int64_t i = begin; i < end; ++i)
            found[i] = plan.tile(operands, i / tiles, i % tiles,
                                 memory + worker_bytes * static_cast<std::size_t>(worker));
        },
        workers);
    auto* first = static_cast<std::int64_t*>(nan_at.data);
    std::fill_n(first, batch, -1);
    for (std::int64_t i = 0; i < batch * tiles; ++i) {
      std::int64_t& at = first[i / tiles];
      if (found[i] >= 0 && (at < 0 || found[i] < at)) at = found[i];
    }
  });
}

void rnnt_logprobs_simple_backward(const Frame& frame, const ConstTensor& lm, const ConstTensor& am,
                                   const ConstTensor& symbols, const ConstTensor* boundary,
                                   const ConstTensor& normalizer, const ConstTensor& px_grad,
                                   const ConstTensor& py_grad, const Tensor& lm_grad, const Tensor& am_grad,
                                   std::int64_t termination_symbol) {
  Context& context = frame.context;
  constexpr const Signature& kOp = kRnntLogprobsSimpleBackward;
  Call call(frame, kOp, {lm, am, symbols, slot_of(boundary), normalizer, px_grad, py_grad, lm_grad, am_grad},
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
    const Lattices lattices(call, shape.lattice, {kOp.op, &symbols, nullptr, boundary, 0, shape.classes},
                            scratch);
    Plan plan(shape, lattices, context.isa(),
              {static_cast<const T*>(lm.data), static_cast<const T*>(am.data),
               static_cast<const Lane*>(normalizer.data), static_cast<const Lane*>(px_grad.data),
               static_cast<const Lane*>(py_grad.data), static_cast<T*>(lm_grad.data),
               static_cast<T*>(am_grad.data)});
    plan.share(scratch);
    auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(worker_bytes) * workers);
    call.chose("tiles of classes", workers);
    parallel_for(
        context, batch, workers > 1 ? 1 : batch,
        [&](std::int64_t begin, std::int64_t end) {
          const FpEnvironment environment(Denormals::flushed);
          for (std::int64_t b = begin; b < end; ++b) plan.weigh(b);
        },
        workers);
    parallel_for(
        context, batch * tiles, workers > 1 ? 1 : batch * tiles,
        [&](std::int64_t begin, std::int64_t end, int worker) {
          const FpEnvironment environment(Denormals::flushed);
          for (std::int64_t i = begin; i < end; ++i)
            plan.classes(i / tiles, i % tiles, memory + worker_bytes * static_cast<std::size_t>(worker));
        },
        workers);
  });
}

}  // namespace turnout::families::rnnt_loss
