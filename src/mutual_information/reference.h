// The definition of each operator of this family, as serial scalar code in the type Real. The tests compare
// against its results in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace turnout::reference {

struct Box {  // of one row of the batch
  std::int64_t s_begin, t_begin, s_end, t_end;
  bool is_empty() const { return s_begin > s_end || t_begin > t_end; }
};

// One row of the batch. px [symbols, columns], py [symbols + 1, frames], p [symbols + 1, frames + 1].
struct Lattice {
  std::int64_t symbols, frames, columns;
  Box box;
  std::int64_t off() const { return columns == frames ? 1 : 0; }  // modified: a symbol takes a frame too
};

template <class Real>
Real log_add(Real x, Real y) {
  if (x < y) {
    const Real larger = y;
    y = x;
    x = larger;
  }
  const Real d = y - x;
  const Real least = sizeof(Real) == 4 ? Real(-15.9423847198486328125) : Real(-36.04365338911715609);
  return d >= least ? x + std::log1p(std::exp(d)) : x;
}

template <class Real>
Real mutual_information_forward(const Lattice& l, const Real* px, const Real* py, Real* p) {
  const Box& box = l.box;
  if (box.is_empty()) return 0;
  const Real none = -std::numeric_limits<Real>::infinity();
  const auto at = [&](std::int64_t s, std::int64_t t) -> Real& { return p[s * (l.frames + 1) + t]; };
  for (std::int64_t s = box.s_begin; s <= box.s_end; ++s) {
    for (std::int64_t t = box.t_begin; t <= box.t_end; ++t) {
      if (s == box.s_begin && t == box.t_begin) {
        at(s, t) = 0;
        continue;
      }
      const std::int64_t from = t - l.off();
      const bool has_symbol = s > box.s_begin && from >= box.t_begin;
      const Real symbol = has_symbol ? at(s - 1, from) + px[(s - 1) * l.columns + from] : none;
      const Real blank = t > box.t_begin ? at(s, t - 1) + py[s * l.frames + t - 1] : none;
      at(s, t) = log_add(symbol, blank);
    }
  }
  return at(box.s_end, box.t_end);
}

template <class Real>
Real safe_exp(Real x) {
  const Real y = std::exp(x);
  return std::isfinite(x) && std::isfinite(y) ? y : Real(0);
}

// Computes the gradients of the whole row and returns the value that overwrites ans_grad.
template <class Real>
Real mutual_information_backward(const Lattice& l, const Real* px, const Real* py, const Real* p,
                                 Real ans_grad, Real* px_grad, Real* py_grad) {
  const Box& box = l.box;
  for (std::int64_t i = 0; i < l.symbols * l.columns; ++i) px_grad[i] = 0;
  for (std::int64_t i = 0; i < (l.symbols + 1) * l.frames; ++i) py_grad[i] = 0;
  if (box.is_empty()) return ans_grad;
  const auto clamped = [&](std::int64_t s, std::int64_t t) {
    const Real value = p[s * (l.frames + 1) + t];
    return value < Real(-1e30) ? Real(-1e30) : value;
  };
  // If both ends are unreachable, the order of the sum is the one that gives 0; otherwise the one with the
  // smaller rounding error.
  const auto term = [&](Real from, Real step, Real to) {
    const bool unreachable = from == Real(-1e30) && to == Real(-1e30);
    return safe_exp(unreachable ? (from + step) - to : (from - to) + step);
  };
  std::vector<Real> g(static_cast<std::size_t>((l.symbols + 1) * (l.frames + 1)), Real(0));
  const auto grad = [&](std::int64_t s, std::int64_t t) -> Real& {
    return g[static_cast<std::size_t>(s * (l.frames + 1) + t)];
  };
  for (std::int64_t s = box.s_end; s >= box.s_begin; --s) {
    for (std::int64_t t = box.t_end; t >= box.t_begin; --t) {
      if (s == box.s_end && t == box.t_end) grad(s, t) = ans_grad;
      const std::int64_t to = t + l.off();
      if (s < box.s_end && to <= box.t_end) {
        const Real step = px[s * l.columns + t];
        grad(s, t) += px_grad[s * l.columns + t] =
            grad(s + 1, to) * term(clamped(s, t), step, clamped(s + 1, to));
      }
      if (t < box.t_end) {
        const Real step = py[s * l.frames + t];
        grad(s, t) += py_grad[s * l.frames + t] =
            grad(s, t + 1) * term(clamped(s, t), step, clamped(s, t + 1));
      }
    }
  }
  return grad(box.s_begin, box.t_begin);
}

// Forward and backward with ans_grad 1. g of each cell is divided between its two predecessors, in shares
// that sum to one; both shares are 0 if p is not finite. So all gradients are 0 if the end cannot be reached.
// Otherwise, if every p is finite or -inf, they equal those of mutual_information_backward.
template <class Real>
Real mutual_information_forward_backward(const Lattice& l, const Real* px, const Real* py, Real* px_grad,
                                         Real* py_grad) {
  const Box& box = l.box;
  for (std::int64_t i = 0; i < l.symbols * l.columns; ++i) px_grad[i] = 0;
  for (std::int64_t i = 0; i < (l.symbols + 1) * l.frames; ++i) py_grad[i] = 0;
  const Real none = -std::numeric_limits<Real>::infinity();
  std::vector<Real> p(static_cast<std::size_t>((l.symbols + 1) * (l.frames + 1))), g(p.size(), Real(0));
  const Real ans = mutual_information_forward(l, px, py, p.data());
  const auto place = [&](std::int64_t s, std::int64_t t) {
    return static_cast<std::size_t>(s * (l.frames + 1) + t);
  };
  for (std::int64_t s = box.s_end; s >= box.s_begin; --s) {
    for (std::int64_t t = box.t_end; t >= box.t_begin; --t) {
      const Real here = s == box.s_end && t == box.t_end ? Real(1) : g[place(s, t)];
      if (!std::isfinite(p[place(s, t)])) continue;
      const std::int64_t from = t - l.off();
      const bool has_symbol = s > box.s_begin && from >= box.t_begin, has_blank = t > box.t_begin;
      const Real symbol = has_symbol ? p[place(s - 1, from)] + px[(s - 1) * l.columns + from] : none;
      Real blank = has_blank ? p[place(s, t - 1)] + py[s * l.frames + t - 1] : none;
      if (std::isnan(blank)) blank = none;  // as in log_add, a NaN counts as -inf
      if (has_symbol)
        g[place(s - 1, from)] += px_grad[(s - 1) * l.columns + from] = here / (1 + std::exp(blank - symbol));
      if (has_blank)
        g[place(s, t - 1)] += py_grad[s * l.frames + t - 1] = here / (1 + std::exp(symbol - blank));
    }
  }
  return ans;
}

}  // namespace turnout::reference
