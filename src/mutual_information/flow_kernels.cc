// Computes the gradients of the lattice from odds, with ans_grad 1. Compiled once per instruction set.
//
// g of a cell is the probability that a path goes through it. The path entered by a symbol or by a blank,
// with two weights that follow from the stored odds and sum to one. So the total stays one, however long the
// lattice is. A row passes on the part that entered by symbols, which is px_grad of the row above. px and py
// are not read.
#include <algorithm>
#include <array>
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
#define HWY_TARGET_INCLUDE "mutual_information/flow_kernels.cc"
#include "simd/simd.h"
//
#include "mutual_information/row_strips.h"
#include "simd/math.h"

TURNOUT_ISA_BEGIN(families::mutual_information)

template <class T>
struct FromOdds : RowStrips<T, FromOdds<T>> {
  using Base = RowStrips<T, FromOdds<T>>;
  using Base::Base;
  using Base::kLanes;
  using Base::off;
  using typename Base::D;
  using typename Base::Edge;
  using typename Base::Real;
  using typename Base::Row;
  using typename Base::V;

  struct Watch {
    bool is_fine() const { return true; }  // weights are in 0 .. 1 for all odds
  };
  Watch watch(std::int64_t) const { return {}; }

  // Computes the smaller weight w to full precision, and the larger one as 1 - w. Both are 0 if the odds are
  // NaN, which means that p of the cell is not finite.
  struct Weights {
    V symbol, blank;
  };
  static HWY_INLINE Weights weights(V odds) {
    const D d;
    const auto one = hn::Set(d, Real(1));
    const auto ratio = falling_exp(d, hn::Or(odds, hn::SignBit(d)));
    const auto smaller = hn::Div(ratio, hn::Add(one, ratio));
    const auto larger = hn::IfThenElseZero(hn::Eq(odds, odds), hn::Sub(one, smaller));
    return {hn::IfNegativeThenElse(odds, smaller, larger), hn::IfNegativeThenElse(odds, larger, smaller)};
  }

  // Edge::right is the gradient that the cell passes to its left neighbour.
  Edge last_cell(const Row& row, std::int64_t t, const Real* below, Watch&) const {
    Real g = row.has_symbols ? Real(0) : Real(1);
    if (row.has_symbols && off == 0) {
      g = below[t];
      row.px_grad[t] = Base::rounded(g);
    }
    const Weights of = weights(hn::Set(D(), row.cells[t]));
    return {g * hn::GetLane(of.blank), g * hn::GetLane(of.symbol)};
  }

  template <bool kHasSymbols>
  Edge columns(const Row& row, std::int64_t count, const Real* below, const Edge& edge, Real* handed,
               Watch&) const {
    if (count == 0) return edge;
    const D d;
    // Weights of cell t are at index t + skip: the first vector, which may have fewer cells, is padded on the
    // left.
    alignas(64) Real symbols[kChunk + kLanes], blanks[kChunk + 2 * kLanes];
    const std::int64_t first = count % kLanes, skip = (kLanes - first) % kLanes;
    const auto weigh = [&](std::int64_t place, V odds) HWY_ATTR {
      const Weights of = weights(odds);
      hn::Store(of.symbol, d, symbols + place);
      hn::Store(of.blank, d, blanks + place);
    };
    for (std::int64_t t = first; t < count; t += kLanes) {
      weigh(t + skip, hn::LoadU(d, row.cells + t));
      if constexpr (kHasSymbols) Base::store(hn::LoadU(d, below + t), row.px_grad + t);
    }
    if (first > 0) {
      alignas(64) Real odds[kLanes] = {};
      std::copy_n(row.cells, first, odds + skip);
      weigh(0, hn::Load(d, odds));
    }
    // edge.right already contains the weight of the cell right of the chunk.
    blanks[count + skip] = 1;
    Real right = edge.right;
    for (std::int64_t t = count - kLanes; t >= first; t -= kLanes) {
      const auto symbol = kHasSymbols ? hn::LoadU(d, below + t) : hn::Zero(d);
      const auto to = Base::grads(symbol, hn::LoadU(d, blanks + t + skip + 1), right);
      Base::store(to.blank, row.py_grad + t);
      hn::StoreU(hn::Mul(to.g, hn::Load(d, symbols + t + skip)), d, handed + t);
      right = hn::GetLane(to.g);
    }
    if (first > 0) {
      alignas(64) Real symbol[kLanes] = {}, blank[kLanes], g[kLanes];
      if constexpr (kHasSymbols) std::copy_n(below, first, symbol + skip);
      const auto to = Base::grads(hn::Load(d, symbol), hn::LoadU(d, blanks + 1), right);
      hn::Store(to.blank, d, blank);
      hn::Store(to.g, d, g);
      right = g[skip];
      for (std::int64_t i = 0; i < first; ++i) {
        if constexpr (kHasSymbols) row.px_grad[i] = Base::rounded(symbol[skip + i]);
        row.py_grad[i] = Base::rounded(blank[skip + i]);
        handed[i] = g[skip + i] * symbols[skip + i];
      }
    }
    return {right * blanks[skip], handed[0]};
  }

  void finish(std::int64_t, const LatticeBox&, const Edge&, bool) const {}
};

constexpr FlowKernels kFlowKernels = {{&row_strips}, &run_rows<FromOdds>};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::mutual_information, FlowKernels, flow_kernels, kFlowKernels)
#endif
