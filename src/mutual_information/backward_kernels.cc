// Computes the gradients of the lattice from p. Compiled once per instruction set.
//
// The kernel assumes two properties of every p that a forward call computes: the weight of a step is at most
// 1, and the gradient that arrives at the start equals ans_grad. If a lattice violates one of them, it is
// recomputed by plain_gradients(), because this kernel multiplies weights with each other before it
// multiplies them with g. If such a product underflows or overflows, the result is wrong and depends on the
// instruction set.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/dtypes.h"
#include "mutual_information/kernels.h"
#include "runtime/context.h"
#include "runtime/yield.h"
#include "simd/fp_environment.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mutual_information/backward_kernels.cc"
#include "simd/simd.h"
//
#include "mutual_information/row_strips.h"
#include "simd/math.h"

TURNOUT_ISA_BEGIN(families::mutual_information)

using namespace core;

template <class Real>
constexpr Real kLeast = Real(-1e30);  // p of unreachable cells is clamped to this
// A weight is at most 1 plus a rounding error. Values above these limits cannot come from rounding.
constexpr double kMostArgument = 0.69;  // limit of the logarithm of a weight
constexpr double kMostGrowth = 4;       // limit of g / ans_grad

// Whether v is not NaN, infinite, subnormal, or so large that kMostGrowth * v overflows. Compares bits,
// because floating-point comparisons treat subnormal numbers as 0 while these are flushed.
template <class Real>
bool is_ordinary(Real v) {
  using Bits = std::conditional_t<sizeof(Real) == 8, std::uint64_t, std::uint32_t>;
  const Bits magnitude = std::bit_cast<Bits>(std::abs(v));
  return magnitude == 0 || (magnitude >= std::bit_cast<Bits>(std::numeric_limits<Real>::min()) &&
                            magnitude <= std::bit_cast<Bits>(std::numeric_limits<Real>::max() / 8));
}

template <class T>
struct FromScores : RowStrips<T, FromScores<T>> {
  using Base = RowStrips<T, FromScores<T>>;
  using Base::Base;
  using Base::kLanes;
  using Base::off;
  using Base::task;
  using typename Base::D;
  using typename Base::Edge;
  using typename Base::Real;
  using typename Base::Row;
  using typename Base::V;

  // The maxima seen so far, in each lane. MAXPS drops a NaN in its first operand, which is right: a NaN
  // argument means a weight of 0, and g becomes NaN only after an infinity, which the maximum keeps. g of the
  // first row and of the last column need no check: an infinity there reaches the start as infinity or NaN.
  struct Watch {
    V argument;  // largest argument of safe_exp
    V g;         // largest magnitude of g
    Real end;    // ans_grad

    bool is_fine() const {
      const D d;
      const auto most_argument = hn::Set(d, static_cast<Real>(kMostArgument));
      const auto most_g = hn::Set(d, static_cast<Real>(kMostGrowth) * std::abs(end));
      return is_ordinary(end) && hn::AllTrue(d, hn::Le(argument, most_argument)) &&
             hn::AllTrue(d, hn::Le(g, most_g));
    }
  };
  Watch watch(std::int64_t batch_row) const {
    return {hn::Set(D(), kLeast<Real>), hn::Zero(D()), ans_grad(batch_row)};
  }

  Real& ans_grad(std::int64_t batch_row) const { return static_cast<Real*>(task.ans_grad)[batch_row]; }

  // The inputs of kLanes cells.
  struct Cells {
    V p, p_right, p_below, px, py, g_below;
  };

  // safe_exp(from + step - to), where `from` and `to` are clamped. If both are -1e30, the order of the
  // additions makes the argument exactly 0 unless the step is huge.
  static HWY_INLINE V term(V from, V step, V to, bool any_least, Watch& watch) {
    auto argument = hn::Add(hn::Sub(from, to), step);
    if (HWY_UNLIKELY(any_least)) {
      const auto least = hn::Set(D(), kLeast<Real>);
      const auto both = hn::And(hn::Eq(from, least), hn::Eq(to, least));
      argument = hn::IfThenElse(both, hn::Sub(hn::Add(from, step), to), argument);
    }
    watch.argument = hn::Max(argument, watch.argument);
    return falling_exp(D(), argument);
  }
  static HWY_INLINE bool has_least(V p) { return !hn::AllFalse(D(), hn::Eq(p, hn::Set(D(), kLeast<Real>))); }
  static HWY_INLINE V clamped(V p) {
    const auto least = hn::Set(D(), kLeast<Real>);
#if HWY_ARCH_X86
    return hn::Max(least, p);  // keeps NaN: MAXPS returns its second operand if one is NaN
#else
    return hn::IfThenElse(hn::Lt(p, least), least, p);
#endif
  }

  // For kLanes cells: the gradient that comes from below, and the factor of the gradient from the right.
  struct Terms {
    V symbol, factor;
  };
  template <bool kHasSymbols>
  static HWY_INLINE Terms terms(const Cells& cell, Watch& watch) {
    const auto p = clamped(cell.p);
    const bool any_least = has_least(p);
    if constexpr (kHasSymbols) watch.g = hn::Max(hn::Abs(cell.g_below), watch.g);
    return {kHasSymbols ? hn::Mul(cell.g_below, term(p, cell.px, clamped(cell.p_below), any_least, watch))
                        : hn::Zero(D()),
            term(p, cell.py, clamped(cell.p_right), any_least, watch)};
  }

  Edge last_cell(const Row& row, std::int64_t t, const Real* below, Watch& watch) const {
    const D d;
    Real g = 0;
    if (!row.has_symbols) {
      g = ans_grad(row.batch_row);
    } else if (off == 0) {
      const Cells cell{hn::Set(d, row.cells[t]),        hn::Zero(d), hn::Set(d, row.cells_below[t]),
                       hn::Set(d, to_float(row.px[t])), hn::Zero(d), hn::Set(d, below[t])};
      const auto p = clamped(cell.p);
      g = below[t] * hn::GetLane(term(p, cell.px, clamped(cell.p_below), true, watch));
      row.px_grad[t] = Base::rounded(g);
    }
    return {g, g};
  }

  // Computes the exponentials of all columns first, because they do not depend on each other.
  template <bool kHasSymbols>
  Edge columns(const Row& row, std::int64_t count, const Real* below, const Edge& edge, Real* g,
               Watch& shared_watch) const {
    const D d;
    Watch watch = shared_watch;
    alignas(64) Real symbols[kChunk + kLanes], factors[kChunk + kLanes];
    const std::int64_t first = count % kLanes;
    for (std::int64_t t = first; t < count; t += kLanes) {
      Cells cell;
      cell.p = hn::LoadU(d, row.cells + t);
      cell.p_right = hn::LoadU(d, row.cells + t + 1);
      cell.py = Base::load(row.py + t);
      if constexpr (kHasSymbols) {
        cell.p_below = hn::LoadU(d, row.cells_below + t);
        cell.px = Base::load(row.px + t);
        cell.g_below = hn::LoadU(d, below + t);
      }
      const Terms of = terms<kHasSymbols>(cell, watch);
      if constexpr (kHasSymbols) Base::store(of.symbol, row.px_grad + t);
      hn::Store(of.symbol, d, symbols + (t - first));
      hn::Store(of.factor, d, factors + (t - first));
    }
    Real right = edge.right;
    for (std::int64_t t = count - kLanes; t >= first; t -= kLanes) {
      const Terms of{hn::Load(d, symbols + (t - first)), hn::Load(d, factors + (t - first))};
      const auto to = Base::grads(of.symbol, of.factor, right);
      Base::store(to.blank, row.py_grad + t);
      hn::StoreU(to.g, d, g + t);
      right = hn::GetLane(to.g);
    }
    if (first > 0) right = few_columns<kHasSymbols>(row, first, below, right, g, watch);
    shared_watch = watch;
    return {right, right};
  }

  // Computes fewer than kLanes columns, in the upper lanes of vectors.
  template <bool kHasSymbols>
  Real few_columns(const Row& row, std::int64_t count, const Real* below, Real right, Real* g,
                   Watch& watch) const {
    const D d;
    const std::int64_t skip = kLanes - count;
    alignas(64) Real in[6][kLanes] = {};
    const auto copy = [&](Real* to, const auto* from) {
      for (std::int64_t i = 0; i < count; ++i) to[skip + i] = to_float(from[i]);
    };
    copy(in[0], row.cells);
    copy(in[1], row.cells + 1);
    copy(in[2], row.py);
    if constexpr (kHasSymbols) {
      copy(in[3], row.cells_below);
      copy(in[4], row.px);
      copy(in[5], below);
    }
    const Cells cell{hn::Load(d, in[0]), hn::Load(d, in[1]), hn::Load(d, in[3]),
                     hn::Load(d, in[4]), hn::Load(d, in[2]), hn::Load(d, in[5])};
    const Terms of = terms<kHasSymbols>(cell, watch);
    const auto to = Base::grads(of.symbol, of.factor, right);
    alignas(64) Real out[3][kLanes];
    hn::Store(of.symbol, d, out[0]);
    hn::Store(to.blank, d, out[1]);
    hn::Store(to.g, d, out[2]);
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (kHasSymbols) row.px_grad[i] = Base::rounded(out[0][skip + i]);
      row.py_grad[i] = Base::rounded(out[1][skip + i]);
      g[i] = out[2][skip + i];
    }
    return out[2][skip];
  }

  void finish(std::int64_t batch_row, const LatticeBox& box, const Edge& start, bool is_fine) const {
    Real& end = ans_grad(batch_row);
    const bool is_all_there =
        std::abs(start.right) >= std::abs(end) / 2 && std::abs(start.right) <= std::abs(end) * 2;
    if (!is_fine || !is_all_there) {
      plain_gradients(task, batch_row, box, Base::ring(batch_row, 0));
      task.has_plain->store(true, std::memory_order_relaxed);
    } else if (task.overwrite_ans_grad) {
      end = start.right;
    }
  }
};

constexpr BackwardKernels kBackwardKernels = {{&row_strips}, &run_rows<FromScores>};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::mutual_information, BackwardKernels, backward_kernels, kBackwardKernels)
#endif
