// Plans of the log-probabilities of given logits, whole and pruned: threads take groups of frames.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/dtypes.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/lattices.h"
#include "rnnt_loss/rnnt_loss.h"
#include "rnnt_loss/signature.h"
#include "runtime/parallel.h"
#include "simd/half.h"

namespace turnout::families::rnnt_loss {
namespace {

// Logits that one range of work reads, about: a quarter of the second cache.
constexpr std::int64_t kRangeLogits = std::int64_t{1} << 16;
// Frames of a range at least: a cache line of px and py, which have the frames side by side.
constexpr std::int64_t kLeastFrames = 16;

struct JointShape {
  LatticeShape lattice;
  std::int64_t rows, classes, columns;  // positions of a frame, classes of a row, columns of px
  std::int64_t blank;
  bool is_pruned, is_hat;
};

// Which frames make a range of work. Ranges follow from shapes alone.
struct FrameRanges {
  std::int64_t length, in_row, count;  // frames of a range, ranges of a row of the batch and of the batch
  bool is_parallel;

  explicit FrameRanges(const JointShape& shape, DType dtype) {
    const std::int64_t frames = std::max<std::int64_t>(1, shape.lattice.frames);
    // Without frames the product of the others may be any number.
    const std::int64_t frame =
        shape.lattice.frames == 0 ? 1 : std::max<std::int64_t>(1, shape.rows * shape.classes);
    length = std::clamp(kRangeLogits / frame, std::min(kLeastFrames, frames), frames);
    in_row = (frames + length - 1) / length;  // one without frames: px may have a column still
    count = shape.lattice.batch * in_row;
    is_parallel = static_cast<double>(shape.lattice.batch) * static_cast<double>(frames) *
                      static_cast<double>(frame) * static_cast<double>(size_of(dtype)) >=
                  static_cast<double>(kParallelBytes);
  }
};

template <class Lane>
Lane log_sigmoid(Lane z) {
  return std::min(z, Lane{0}) - std::log1p(std::exp(-std::abs(z)));
}
template <class Lane>
Lane sigmoid(Lane z) {
  return std::exp(log_sigmoid(z));
}

// The rows of logits of one range, and what is at each.
template <class T>
class JointRange {
 public:
  using Lane = LaneOf<T>;

  JointRange(const JointShape& shape, const Lattices& lattices, const FrameRanges& ranges, std::int64_t range)
      : shape_(shape),
        lattices_(lattices),
        b_(range / ranges.in_row),
        t_begin_(range % ranges.in_row * ranges.length),
        t_end_(std::min(t_begin_ + ranges.length, shape.lattice.frames)),
        is_last_(range % ranges.in_row == ranges.in_row - 1),
        box_(lattices.box(b_)) {}

  // Calls cell(place of the row, t, s, symbol or -1) for rows inside the box, in order; outside(first, count)
  // for the rows around them.
  template <class Cell, class Outside>
  void visit(const Cell& cell, const Outside& outside) const {
    const std::int64_t first_place = (b_ * shape_.lattice.frames + t_begin_) * shape_.rows;
    std::int64_t unread = first_place;  // the first row that has not been passed on
    for (std::int64_t t = std::max(t_begin_, box_.t_begin); t < std::min(t_end_, box_.t_end); ++t) {
      const std::int64_t first = lattices_.first(b_, t), place = first_place + (t - t_begin_) * shape_.rows;
      const std::int64_t begin = std::clamp<std::int64_t>(box_.s_begin - first, 0, shape_.rows);
      const std::int64_t end = std::clamp<std::int64_t>(box_.s_end + 1 - first, begin, shape_.rows);
      if (begin == end) continue;
      outside(unread, place + begin - unread);
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t s = first + r;
        cell(place + r, t, s, s < box_.s_end ? lattices_.symbol(b_, s) : -1);
      }
      unread = place + end;
    }
    outside(unread, first_place + (t_end_ - t_begin_) * shape_.rows - unread);
  }

  Lane* px(void* data, std::int64_t s, std::int64_t t) const {
    return static_cast<Lane*>(data) + (b_ * shape_.lattice.symbols + s) * shape_.columns + t;
  }
  Lane* py(void* data, std::int64_t s, std::int64_t t) const {
    return static_cast<Lane*>(data) + (b_ * (shape_.lattice.symbols + 1) + s) * shape_.lattice.frames + t;
  }
  const Lane* px(const void* data, std::int64_t s, std::int64_t t) const {
    return px(const_cast<void*>(data), s, t);
  }
  const Lane* py(const void* data, std::int64_t s, std::int64_t t) const {
    return py(const_cast<void*>(data), s, t);
  }

  // All steps of these frames.
  void fill_steps(void* px_data, void* py_data, Lane value) const {
    const std::int64_t columns = is_last_ ? shape_.columns - t_begin_ : t_end_ - t_begin_;
    for (std::int64_t s = 0; s < shape_.lattice.symbols; ++s)
      std::fill_n(px(px_data, s, t_begin_), columns, value);
    for (std::int64_t s = 0; s <= shape_.lattice.symbols; ++s)
      std::fill_n(py(py_data, s, t_begin_), t_end_ - t_begin_, value);
  }

  // Where a row is among those of its lattice.
  std::int64_t cell_number(std::int64_t place) const {
    return place - b_ * shape_.lattice.frames * shape_.rows;
  }

 private:
  const JointShape& shape_;
  const Lattices& lattices_;
  const std::int64_t b_, t_begin_, t_end_;
  const bool is_last_;
  const Box box_;
};

// The first cell of a range whose normalizer is not finite, or -1.
template <class T>
std::int64_t forward_range(const JointRange<T>& range, const JointShape& shape,
                           const RowKernels<LaneOf<T>>& kernels, const T* logits, void* px, void* py,
                           LaneOf<T>* normalizer) {
  using Lane = LaneOf<T>;
  constexpr Lane kNone = -std::numeric_limits<Lane>::infinity();
  const auto sum = kernels.sum(dtype_of<T>);
  const std::int64_t skipped = shape.is_hat ? 1 : 0;  // classes that are not in the sum
  std::int64_t nan_at = -1;
  range.fill_steps(px, py, kNone);
  range.visit(
      [&](std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
        const T* row = logits + place * shape.classes;
        const LogSum<Lane> total = sum(row + skipped, shape.classes - skipped);
        const Lane blank = to_float(row[shape.blank]);
        const auto probability = [&](std::int64_t c) {
          return (to_float(row[c]) - total.max) - total.log_sum;
        };
        if (symbol >= 0)
          *range.px(px, s, t) = probability(symbol) + (shape.is_hat ? log_sigmoid(-blank) : Lane{0});
        *range.py(py, s, t) = shape.is_hat ? log_sigmoid(blank) : probability(shape.blank);
        normalizer[place] = total.total();
        if (nan_at < 0 && !(std::isfinite(normalizer[place]) && (!shape.is_hat || blank == blank)))
          nan_at = range.cell_number(place);
      },
      [&](std::int64_t place, std::int64_t count) { std::fill_n(normalizer + place, count, kNone); });
  return nan_at;
}

template <class T>
void backward_range(const JointRange<T>& range, const JointShape& shape, const RowKernels<LaneOf<T>>& kernels,
                    const T* logits, const LaneOf<T>* normalizer, const void* px_grad, const void* py_grad,
                    T* logits_grad) {
  using Lane = LaneOf<T>;
  const auto gradient = kernels.gradient(dtype_of<T>);
  const auto clear = [&](std::int64_t place, std::int64_t count) {
    std::memset(logits_grad + place * shape.classes, 0,
                static_cast<std::size_t>(count * shape.classes) * sizeof(T));
  };
  range.visit(
      [&](std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
        const Lane x = symbol >= 0 ? *range.px(px_grad, s, t) : Lane{0}, y = *range.py(py_grad, s, t);
        if (x == 0 && y == 0) return clear(place, 1);
        const T* row = logits + place * shape.classes;
        T* to = logits_grad + place * shape.classes;
        const Lane n = normalizer[place];
        if (!shape.is_hat)
          return gradient(row, shape.classes, n, x + y, {std::max<std::int64_t>(symbol, 0), x},
                          {shape.blank, y}, to);
        const Lane blank = to_float(row[0]);  // before it may be overwritten
        const std::int64_t at = std::max<std::int64_t>(symbol - 1, 0);
        gradient(row + 1, shape.classes - 1, n, x, {at, x}, {at, Lane{0}}, to + 1);
        const Lane grad = y * sigmoid(-blank) - x * sigmoid(blank);
        if constexpr (sizeof(T) == 8) {
          to[0] = grad;
        } else {
          to[0] = from_float<T>(grad);
        }
      },
      clear);
}

struct JointArguments {
  const ConstTensor& logits;
  Lattices::Source lattice;
  RnntPrunedParams params;
};

JointShape shape_of(const JointArguments& a, std::int64_t columns) {
  const ConstTensor& logits = a.logits;
  const std::int64_t frames = logits.shape[1];
  return {{logits.shape[0], a.lattice.symbols->shape[1], frames, columns == frames},
          logits.shape[2],
          logits.shape[3],
          columns,
          a.params.termination_symbol,
          a.lattice.ranges != nullptr,
          a.params.use_hat_loss};
}

void check_hat(Call& call, const JointArguments& a) {
  if (!a.params.use_hat_loss) return;
  call.check([&] {
    if (a.params.termination_symbol != 0)
      throw Error(ErrorCode::bad_param,
                  concat(a.lattice.op, ": termination_symbol is ", a.params.termination_symbol,
                         ", expected 0 with use_hat_loss"));
    if (a.logits.shape[3] < 2)
      throw Error(ErrorCode::bad_param, concat(a.lattice.op, ": logits.shape[3] is ", a.logits.shape[3],
                                               ", expected 2 or more classes with use_hat_loss"));
  });
}

void forward(Context& context, Call& call, const JointArguments& a, const Tensor& px, const Tensor& py,
             const Tensor& normalizer, const Tensor& nan_at) {
  if (call.nothing_to_do()) return;
  check_hat(call, a);
  const JointShape shape = shape_of(a, px.shape[2]);
  const FrameRanges ranges(shape, a.logits.dtype);
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.lattice, shape.is_pruned) +
                                  array_bytes<std::int64_t>(ranges.count));
  const Lattices lattices(call, shape.lattice, a.lattice, scratch);
  auto* found = scratch.take<std::int64_t>(ranges.count);
  call.chose("rows", ranges.is_parallel ? context.threads() : 1);
  visit_float(a.logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Lane = LaneOf<T>;
    const RowKernels<Lane>& kernels = row_kernels<Lane>(context.isa());
    parallel_for(context, ranges.count, ranges.is_parallel ? 1 : ranges.count,
                 [&](std::int64_t begin, std::int64_t end) {
                   const FpEnvironment environment(Denormals::flushed);
                   for (std::int64_t i = begin; i < end; ++i)
                     found[i] = forward_range<T>({shape, lattices, ranges, i}, shape, kernels,
                                                 static_cast<const T*>(a.logits.data), px.data, py.data,
                                                 static_cast<Lane*>(normalizer.data));
                 });
  });
  auto* first = static_cast<std::int64_t*>(nan_at.data);
  std::fill_n(first, shape.lattice.batch, -1);
  for (std::int64_t i = ranges.count; i-- > 0;)
    if (found[i] >= 0) first[i / ranges.in_row] = found[i];
}

void backward(Context& context, Call& call, const JointArguments& a, const ConstTensor& normalizer,
              const ConstTensor& px_grad, const ConstTensor& py_grad, const Tensor& logits_grad) {
  if (call.nothing_to_do()) return;
  check_hat(call, a);
  call.check([&] {
    if (logits_grad.data != a.logits.data && share_memory(Slot(logits_grad), Slot(a.logits)))
      throw Error(ErrorCode::bad_param,
                  concat(a.lattice.op,
                         ": logits_grad shares a part of the memory of logits, expected all of "
                         "it or none"));
  });
  const JointShape shape = shape_of(a, px_grad.shape[2]);
  const FrameRanges ranges(shape, a.logits.dtype);
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.lattice, shape.is_pruned));
  const Lattices lattices(call, shape.lattice, a.lattice, scratch);
  call.chose("rows", ranges.is_parallel ? context.threads() : 1);
  visit_float(a.logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Lane = LaneOf<T>;
    const RowKernels<Lane>& kernels = row_kernels<Lane>(context.isa());
    parallel_for(context, ranges.count, ranges.is_parallel ? 1 : ranges.count,
                 [&](std::int64_t begin, std::int64_t end) {
                   const FpEnvironment environment(Denormals::flushed);
                   for (std::int64_t i = begin; i < end; ++i)
                     backward_range<T>({shape, lattices, ranges, i}, shape, kernels,
                                       static_cast<const T*>(a.logits.data),
                                       static_cast<const Lane*>(normalizer.data), px_grad.data, py_grad.data,
                                       static_cast<T*>(logits_grad.data));
                 });
  });
}

JointArguments joint(std::string_view op, const ConstTensor& logits, const ConstTensor& symbols,
                     const ConstTensor* ranges, const ConstTensor* boundary, const RnntPrunedParams& params) {
  return {logits, {op, &symbols, ranges, boundary, params.use_hat_loss ? 1 : 0, logits.shape[3]}, params};
}

}  // namespace

void rnnt_logprobs_joint_forward(const Frame& frame, const ConstTensor& logits, const ConstTensor& symbols,
                                 const ConstTensor* boundary, const Tensor& px, const Tensor& py,
                                 const Tensor& normalizer, const Tensor& nan_at,
                                 std::int64_t termination_symbol) {
  Context& context = frame.context;
  constexpr const Signature& kOp = kRnntLogprobsJointForward;
  Call call(frame, kOp, {logits, symbols, slot_of(boundary), px, py, normalizer, nan_at},
            {termination_symbol});
  forward(context, call, joint(kOp.op, logits, symbols, nullptr, boundary, {termination_symbol}), px, py,
          normalizer, nan_at);
}

void rnnt_logprobs_joint_backward(const Frame& frame, const ConstTensor& logits, const ConstTensor& symbols,
                                  const ConstTensor* boundary, const ConstTensor& normalizer,
                                  const ConstTensor& px_grad, const ConstTensor& py_grad,
                                  const Tensor& logits_grad, std::int64_t termination_symbol) {
  Context& context = frame.context;
  constexpr const Signature& kOp = kRnntLogprobsJointBackward;
  Call call(frame, kOp, {logits, symbols, slot_of(boundary), normalizer, px_grad, py_grad, logits_grad},
            {termination_symbol});
  backward(context, call, joint(kOp.op, logits, symbols, nullptr, boundary, {termination_symbol}), normalizer,
           px_grad, py_grad, logits_grad);
}

void rnnt_logprobs_pruned_forward(const Frame& frame, const ConstTensor& logits, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor* boundary, const Tensor& px,
                                  const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                  const RnntPrunedParams& params) {
  Context& context = frame.context;
  constexpr const Signature& kOp = kRnntLogprobsPrunedForward;
  Call call(frame, kOp, {logits, symbols, ranges, slot_of(boundary), px, py, normalizer, nan_at},
            {params.termination_symbol, params.use_hat_loss});
  forward(context, call, joint(kOp.op, logits, symbols, &ranges, boundary, params), px, py, normalizer,
          nan_at);
}

void rnnt_logprobs_pruned_backward(const Frame& frame, const ConstTensor& logits, const ConstTensor& symbols,
                                   const ConstTensor& ranges, const ConstTensor* boundary,
                                   const ConstTensor& normalizer, const ConstTensor& px_grad,
                                   const ConstTensor& py_grad, const Tensor& logits_grad,
                                   const RnntPrunedParams& params) {
  Context& context = frame.context;
  constexpr const Signature& kOp = kRnntLogprobsPrunedBackward;
  Call call(frame, kOp,
            {logits, symbols, ranges, slot_of(boundary), normalizer, px_grad, py_grad, logits_grad},
            {params.termination_symbol, params.use_hat_loss});
  backward(context, call, joint(kOp.op, logits, symbols, &ranges, boundary, params), normalizer, px_grad,
           py_grad, logits_grad);
}

}  // namespace turnout::families::rnnt_loss
