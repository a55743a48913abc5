// Shared by the plans of given and of fused logits: ranges of frames, the rows of logits in them, and the
// steps of one row.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/grain.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/lattices.h"
#include "simd/half.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

struct JointShape {
  LatticeShape lattice;
  std::int64_t rows, classes, columns;  // positions per frame, classes per row, columns of px
  std::int64_t blank;
  bool is_pruned, is_hat;
};

// Splits frames into ranges of work, which depend only on shapes.
struct FrameRanges {
  std::int64_t length, in_row, count;  // frames per range, ranges per row of the batch and in total
  bool is_parallel;

  FrameRanges(const JointShape& shape, bool parallel) : is_parallel(parallel) {
    // A range has about kRangeLogits logits, a quarter of the L2 cache, and at least a cache line of px and
    // py, in which frames are contiguous.
    constexpr std::int64_t kRangeLogits = (std::int64_t{1} << 16) / core::kGrainDivisor, kLeastFrames = 16;
    const std::int64_t frames = std::max<std::int64_t>(1, shape.lattice.frames);
    // Without frames, the product of the other extents may be any number.
    const std::int64_t frame =
        shape.lattice.frames == 0 ? 1 : std::max<std::int64_t>(1, shape.rows * shape.classes);
    length = std::clamp(kRangeLogits / frame, std::min(kLeastFrames, frames), frames);
    in_row = (frames + length - 1) / length;  // 1 without frames, because px may still have a column
    count = shape.lattice.batch * in_row;
  }
  std::int64_t grain() const { return is_parallel ? 1 : count; }

  // first[b] = the first value of `found` in row b that is not negative, or -1.
  void first_of_each(const std::int64_t* found, std::int64_t batch, std::int64_t* first) const {
    std::fill_n(first, batch, -1);
    for (std::int64_t i = count; i-- > 0;)
      if (found[i] >= 0) first[i / in_row] = found[i];
  }
};

// The frames of one range or of one row of the batch: the rows of logits that are read, and the addresses of
// their steps.
template <class Lane>
class JointRange {
 public:
  JointRange(const JointShape& shape, const Lattices& lattices, const FrameRanges& ranges, std::int64_t range)
      : shape_(shape),
        lattices_(lattices),
        b_(range / ranges.in_row),
        t_begin_(range % ranges.in_row * ranges.length),
        t_end_(std::min(t_begin_ + ranges.length, shape.lattice.frames)),
        is_last_(range % ranges.in_row == ranges.in_row - 1),
        box_(lattices.box(b_)) {}
  JointRange(const JointShape& shape, const Lattices& lattices, std::int64_t b)
      : shape_(shape),
        lattices_(lattices),
        b_(b),
        t_begin_(0),
        t_end_(shape.lattice.frames),
        is_last_(true),
        box_(lattices.box(b)) {}

  std::int64_t batch_row() const { return b_; }

  // Calls cell(place of the row, t, s, symbol or -1) for rows inside the box, in order, and
  // outside(first, count) for the rows around them.
  template <class Cell, class Outside>
  void visit(const Cell& cell, const Outside& outside) const {
    const std::int64_t first_place = (b_ * shape_.lattice.frames + t_begin_) * shape_.rows;
    std::int64_t unread = first_place;  // the first row that has not been visited
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

  // Sets all steps of these frames.
  void fill_steps(void* px_data, void* py_data, Lane value) const {
    const std::int64_t columns = is_last_ ? shape_.columns - t_begin_ : t_end_ - t_begin_;
    for (std::int64_t s = 0; s < shape_.lattice.symbols; ++s)
      std::fill_n(px(px_data, s, t_begin_), columns, value);
    for (std::int64_t s = 0; s <= shape_.lattice.symbols; ++s)
      std::fill_n(py(py_data, s, t_begin_), t_end_ - t_begin_, value);
  }

  // The number of a row within its lattice.
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

template <class Lane>
Lane log_sigmoid(Lane z) {
  return std::min(z, Lane{0}) - std::log1p(std::exp(-std::abs(z)));
}
template <class Lane>
Lane sigmoid(Lane z) {
  return std::exp(log_sigmoid(z));
}

// Writes the steps of a range; steps that are not written are -inf.
template <class T>
class StepWriter {
 public:
  using Lane = LaneOf<T>;

  StepWriter(const JointRange<Lane>& range, const JointShape& shape, const RowKernels<Lane>& kernels,
             void* px, void* py, Lane* normalizer)
      : range_(range),
        shape_(shape),
        sum_(kernels.sum(dtype_of<T>)),
        px_(px),
        py_(py),
        normalizer_(normalizer) {
    range.fill_steps(px, py, kNone);
  }

  void write(const T* row, std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
    const std::int64_t skipped = shape_.is_hat ? 1 : 0;  // leading classes that are not in the sum
    const LogSum<Lane> total = sum_(row + skipped, shape_.classes - skipped);
    const Lane blank = core::to_float(row[shape_.blank]);
    const auto probability = [&](std::int64_t c) {
      return (core::to_float(row[c]) - total.max) - total.log_sum;
    };
    if (symbol >= 0)
      *range_.px(px_, s, t) = probability(symbol) + (shape_.is_hat ? log_sigmoid(-blank) : Lane{0});
    *range_.py(py_, s, t) = shape_.is_hat ? log_sigmoid(blank) : probability(shape_.blank);
    normalizer_[place] = total.total();
    if (nan_at_ < 0 && !(std::isfinite(normalizer_[place]) && (!shape_.is_hat || !std::isnan(blank))))
      nan_at_ = range_.cell_number(place);
  }
  // For JointRange::visit(): handles rows that are not read.
  auto outside() const {
    return [this](std::int64_t place, std::int64_t count) { std::fill_n(normalizer_ + place, count, kNone); };
  }
  std::int64_t nan_at() const { return nan_at_; }  // the first cell whose normalizer is not finite, or -1

 private:
  static constexpr Lane kNone = -std::numeric_limits<Lane>::infinity();

  const JointRange<Lane>& range_;
  const JointShape& shape_;
  const typename RowKernels<Lane>::Sum sum_;
  void *px_, *py_;
  Lane* normalizer_;
  std::int64_t nan_at_ = -1;
};

// The gradients of the two steps of a row, and the gradient of its logits computed from them.
template <class Lane>
class StepGrads {
 public:
  StepGrads(const JointRange<Lane>& range, const void* px_grad, const void* py_grad, std::int64_t t,
            std::int64_t s, std::int64_t symbol)
      : x_(symbol >= 0 ? *range.px(px_grad, s, t) : Lane{0}), y_(*range.py(py_grad, s, t)) {}

  bool are_zero() const { return x_ == 0 && y_ == 0; }

  // `to` may be `row`.
  template <class T>
  void to_logits(const JointShape& shape, const RowKernels<Lane>& kernels, const T* row, Lane normalizer,
                 std::int64_t symbol, T* to) const {
    const auto gradient = kernels.gradient(dtype_of<T>);
    if (!shape.is_hat)
      return gradient(row, shape.classes, normalizer, x_ + y_, {std::max<std::int64_t>(symbol, 0), x_},
                      {shape.blank, y_}, to);
    const Lane blank = core::to_float(row[0]);  // read before it may be overwritten
    const std::int64_t at = std::max<std::int64_t>(symbol - 1, 0);
    gradient(row + 1, shape.classes - 1, normalizer, x_, {at, x_}, {at, Lane{0}}, to + 1);
    const Lane grad = y_ * sigmoid(-blank) - x_ * sigmoid(blank);
    if constexpr (sizeof(T) == 8) {
      to[0] = grad;
    } else {
      to[0] = core::from_float<T>(grad);
    }
  }

 private:
  Lane x_, y_;
};

// Checks what use_hat_loss requires. The classes are dimension `dim` of the argument `name`.
inline void check_hat(core::Call& call, const RnntPrunedParams& params, std::string_view name,
                      std::int64_t dim, std::int64_t classes) {
  if (!params.use_hat_loss) return;
  const std::string_view hat = call.name("use_hat_loss");
  if (params.termination_symbol != 0)
    call.refuse(core::concat(call.name("termination_symbol"), " is ", params.termination_symbol,
                             ", expected 0 with ", hat));
  if (classes < 2)
    call.refuse(core::concat(call.name(name), ".shape[", dim, "] is ", classes,
                             ", expected 2 or more classes with ", hat));
}

}  // namespace turnout::families::rnnt_loss
