// Chooses the positions that each frame of a lattice keeps, and gathers their rows.
#include <algorithm>
#include <cstring>
#include <limits>

#include "core/dtypes.h"
#include "matrix/matrix.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/lattices.h"
#include "rnnt_loss/signature.h"
#include "runtime/parallel.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

using namespace core;
namespace {

LatticeShape shape_of(const ConstTensor& px_grad, const ConstTensor& py_grad) {
  return {px_grad.shape[0], px_grad.shape[1], py_grad.shape[2], px_grad.shape[2] == py_grad.shape[2]};
}

// Reads the ends of the boundary. Begins are not used, and a lattice may have fewer frames than symbols.
Lattices read_ends(Call& call, LatticeShape shape, const ConstTensor& boundary, Scratch& scratch) {
  shape.is_modified = false;
  return {call, shape, {.boundary = boundary}, scratch};
}

// Computes the score of the window that begins at s, for all frames. Sums are in double.
template <class Real>
void score_windows(const LatticeShape& shape, const Real* px, std::int64_t columns, const Real* py,
                   std::int64_t s, std::int64_t rows, PruneScore score, double* scores) {
  const auto add = [&](const Real* from, double sign) {
    for (std::int64_t t = 0; t < shape.frames; ++t) scores[t] += sign * static_cast<double>(from[t]);
  };
  std::fill_n(scores, shape.frames, 0.0);
  for (std::int64_t i = s; i < s + rows; ++i) add(py + i * shape.frames, 1);
  if (score == PruneScore::flow) {
    if (s > 0) add(px + (s - 1) * columns, -1);
  } else {
    for (std::int64_t i = s; i < std::min(s + rows, shape.symbols); ++i) add(px + i * columns, 1);
  }
}

// Computes starts[t] for one row of the batch. `best` and `scores` have room for a value per frame.
template <class Real>
void find_starts(const LatticeShape& shape, const Box& box, const Real* px, std::int64_t columns,
                 const Real* py, std::int64_t rows, PruneScore score, std::int64_t* starts, double* best,
                 double* scores) {
  for (std::int64_t s = 0; s + rows <= shape.symbols + 1; ++s) {
    score_windows(shape, px, columns, py, s, rows, score, scores);
    for (std::int64_t t = 0; t < shape.frames; ++t) {
      const bool is_nan = scores[t] != scores[t];  // the first one wins, as in torch's argmax
      if (s > 0 && !(scores[t] > best[t] || (is_nan && best[t] == best[t]))) continue;
      best[t] = scores[t];
      starts[t] = s;
    }
  }
  const std::int64_t last = std::max<std::int64_t>(box.s_end - rows + 1, 0);
  std::fill(starts + std::max<std::int64_t>(box.t_end - 1, 0), starts + shape.frames, last);
  for (std::int64_t t = shape.frames - 1; t-- > 0;) starts[t] = std::min(starts[t], starts[t + 1]);
  // Limit the advance per frame to `step`: the slack step * t - starts[t] must not decrease either.
  const std::int64_t step = shape.is_modified ? 1 : rows - 1;
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t t = shape.frames; t-- > 0;) {
    left = std::min(left, step * t - starts[t]);
    starts[t] = step * t - std::max<std::int64_t>(left, 0);
  }
}

// The sizes of pruned rows and their source.
struct RowShape {
  LatticeShape lattice;
  std::int64_t rows, width;
  bool is_parallel;

  RowShape(const Tensor& lm, const ConstTensor& ranges)
      : lattice{ranges.shape[0], lm.shape[1] - 1, ranges.shape[1], false},
        rows(ranges.shape[2]),
        width(lm.shape[2]),
        is_parallel(lattice.batch * lattice.frames * rows * width * size_of(lm.dtype) >= kParallelBytes) {}
};

}  // namespace
}  // namespace turnout::families::rnnt_loss

namespace turnout {

using namespace families::rnnt_loss;

std::int64_t rnnt_prune_width(const ConstTensor& px_grad, const ConstTensor& py_grad,
                              const ConstTensor& boundary, std::int64_t s_range, PruneScore score,
                              const Caller& caller) {
  std::int64_t rows = s_range;
  Call call(caller, kRnntPruneWidth, {px_grad, py_grad, boundary, view(&rows, {1})}, {s_range, score});
  call.chose("longest text per frame", 1);
  const LatticeShape shape = shape_of(px_grad, py_grad);
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape, false));
  const Lattices lattices = read_ends(call, shape, boundary, scratch);
  const std::int64_t least = shape.is_modified ? 1 : 2;
  if (!shape.is_modified && score == PruneScore::flow) {
    // Within a frame, a path advances by at most R - 1 positions.
    rows = std::max(rows, least);
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      const Box& box = lattices.box(b);
      if (box.t_end > 0) rows = std::max(rows, (box.s_end - 1) / box.t_end + 2);
    }
  }
  if (rows < least)
    call.refuse(concat(call.name("s_range"), " is ", s_range, ", expected ", least, " or more"));
  return std::min(rows, shape.symbols + 1);
}

void rnnt_prune_ranges(const ConstTensor& px_grad, const ConstTensor& py_grad, const ConstTensor& boundary,
                       const Tensor& ranges, PruneScore score, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kRnntPruneRanges, {px_grad, py_grad, boundary, ranges}, {score});
  if (call.nothing_to_do()) return;
  const LatticeShape shape = shape_of(px_grad, py_grad);
  const std::int64_t rows = ranges.shape[2], columns = px_grad.shape[2];
  const bool is_parallel =
      shape.batch * shape.frames * (shape.symbols + 1) * rows * size_of(px_grad.dtype) >= kParallelBytes;
  const int workers = is_parallel ? context.threads() : 1;
  const std::size_t worker_bytes =
      array_bytes<std::int64_t>(shape.frames) + 2 * array_bytes<double>(shape.frames);
  Scratch& scratch =
      call.scratch(Lattices::scratch_bytes(shape, false) + static_cast<std::size_t>(workers) * worker_bytes);
  const Lattices lattices = read_ends(call, shape, boundary, scratch);
  auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(worker_bytes) * workers);
  call.chose("windows", workers);
  visit_float(px_grad.dtype, [&](auto type) {
    using Real = LaneOf<typename decltype(type)::type>;
    const auto* px = static_cast<const Real*>(px_grad.data);
    const auto* py = static_cast<const Real*>(py_grad.data);
    parallel_for(
        context, shape.batch, is_parallel ? 1 : shape.batch,
        [&](std::int64_t begin, std::int64_t end, int worker) {
          std::byte* own = memory + worker_bytes * static_cast<std::size_t>(worker);
          auto* starts = reinterpret_cast<std::int64_t*>(own);
          auto* best = reinterpret_cast<double*>(own + array_bytes<std::int64_t>(shape.frames));
          auto* scores = best + array_bytes<double>(shape.frames) / sizeof(double);
          for (std::int64_t b = begin; b < end; ++b) {
            find_starts(shape, lattices.box(b), px + b * shape.symbols * columns, columns,
                        py + b * (shape.symbols + 1) * shape.frames, rows, score, starts, best, scores);
            auto* to = static_cast<std::int64_t*>(ranges.data) + b * shape.frames * rows;
            for (std::int64_t t = 0; t < shape.frames; ++t)
              for (std::int64_t r = 0; r < rows; ++r) *to++ = starts[t] + r;
          }
        },
        workers);
  });
}

void rnnt_pruning_forward(const ConstTensor& lm, const ConstTensor& ranges, const Tensor& pruned,
                          const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kRnntPruningForward, {lm, ranges, pruned}, {});
  if (call.nothing_to_do()) return;
  const RowShape shape({nullptr, lm.dtype, lm.shape, lm.rank}, ranges);
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.lattice, true));
  const Lattices lattices(call, shape.lattice, {.ranges = ranges}, scratch);
  call.chose("rows", shape.is_parallel ? context.threads() : 1);
  const std::int64_t row_bytes = shape.width * size_of(lm.dtype);
  const std::int64_t frame_bytes = std::max<std::int64_t>(1, shape.rows * row_bytes);  // never 0 here
  const std::int64_t frames = shape.lattice.batch * shape.lattice.frames;
  const auto* from = static_cast<const std::byte*>(lm.data);
  auto* to = static_cast<std::byte*>(pruned.data);
  // The rows of a frame are contiguous in both arrays.
  parallel_for(context, frames, shape.is_parallel ? kParallelBytes / 8 / frame_bytes + 1 : frames,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t b = i / shape.lattice.frames;
                   const std::int64_t row =
                       b * (shape.lattice.symbols + 1) + lattices.first(b, i % shape.lattice.frames);
                   std::memcpy(to + i * frame_bytes, from + row * row_bytes,
                               static_cast<std::size_t>(frame_bytes));
                 }
               });
}

void rnnt_pruning_backward(const ConstTensor& pruned_grad, const ConstTensor& ranges, const Tensor& lm_grad,
                           const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kRnntPruningBackward, {pruned_grad, ranges, lm_grad}, {});
  if (call.nothing_to_do()) return;
  const RowShape shape(lm_grad, ranges);
  const int workers = shape.is_parallel ? context.threads() : 1;
  const std::size_t sum_bytes = array_bytes<double>(shape.width);
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.lattice, true) +
                                  sum_bytes * static_cast<std::size_t>(workers));
  const Lattices lattices(call, shape.lattice, {.ranges = ranges}, scratch);
  auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(sum_bytes) * workers);
  call.chose("rows", workers);
  const std::int64_t positions = shape.lattice.symbols + 1, count = shape.lattice.batch * positions;
  visit_float(lm_grad.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Lane = LaneOf<T>;
    const auto add = row_kernels<Lane>(context.isa()).add(lm_grad.dtype);
    const auto round = matrix::kernels<Lane>(context.isa()).round;
    const auto* from = static_cast<const T*>(pruned_grad.data);
    auto* to = static_cast<T*>(lm_grad.data);
    parallel_for(
        context, count, shape.is_parallel ? 1 : count,
        [&](std::int64_t begin, std::int64_t end, int worker) {
          auto* sum = reinterpret_cast<Lane*>(memory + sum_bytes * static_cast<std::size_t>(worker));
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t b = i / positions, s = i % positions;
            std::fill_n(sum, shape.width, Lane{0});
            for (std::int64_t t = 0; t < shape.lattice.frames; ++t) {
              const std::int64_t r = s - lattices.first(b, t);
              if (r < 0 || r >= shape.rows) continue;
              add(from + ((b * shape.lattice.frames + t) * shape.rows + r) * shape.width, shape.width, sum);
            }
            round(sum, nullptr, shape.width, to + i * shape.width, lm_grad.dtype);
          }
        },
        workers);
  });
}

}  // namespace turnout
