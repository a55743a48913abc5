// Plan of the log-probabilities of the simple form (logits lm + am), in tiles of frames.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtypes.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/signature.h"
#include "rnnt_loss/simple.h"
#include "runtime/parallel.h"
#include "simd/half.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

using namespace core;
namespace {

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

template <class T>
class SimpleForward {
 public:
  using Lane = LaneOf<T>;

  SimpleForward(const SimpleShape& shape, const Lattices& lattices, Isa isa)
      : shape_(shape),
        lattices_(lattices),
        rows_(row_kernels<Lane>(isa)),
        matrix_(matrix::kernels<Lane>(isa)) {}

  // The exponentials of all rows of lm, and the largest element of each.
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

  // Shifts row i of lm, if it is in the box.
  void shift_row(const Operands& to, std::int64_t i) const {
    const std::int64_t b = i / shape_.positions(), s = i % shape_.positions();
    const Box& box = lattices_.box(b);
    if (s < box.s_begin || s > box.s_end) return;
    const T* row = to.lm + i * shape_.classes;
    lm_max_[i] = rows_.largest(dtype_of<T>)(row, shape_.classes);
    rows_.shifted(dtype_of<T>)(row, shape_.classes, lm_max_[i], lm_exp_ + i * shape_.classes);
  }

  // Processes a tile of frames of one batch row; returns the first s * T + t whose normalizer is not finite.
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

}  // namespace
}  // namespace turnout::families::rnnt_loss

namespace turnout {

using namespace families::rnnt_loss;

void rnnt_logprobs_simple_forward(const ConstTensor& lm, const ConstTensor& am, const ConstTensor& symbols,
                                  const ConstTensor& boundary, const Tensor& px, const Tensor& py,
                                  const Tensor& normalizer, const Tensor& nan_at,
                                  std::int64_t termination_symbol, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kRnntLogprobsSimpleForward, {lm, am, symbols, boundary, px, py, normalizer, nan_at},
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
    const Lattices lattices(call, shape.lattice,
                            {.symbols = symbols, .boundary = boundary, .classes = shape.classes}, scratch);
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
        context, rows, shape.is_parallel() ? kTileFrames : rows,
        [&](std::int64_t begin, std::int64_t end) {
          const FpEnvironment environment(Denormals::flushed);
          for (std::int64_t i = begin; i < end; ++i) plan.shift_row(operands, i);
        },
        workers);
    parallel_for(
        context, batch * tiles, shape.is_parallel() ? 1 : batch * tiles,
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

}  // namespace turnout
