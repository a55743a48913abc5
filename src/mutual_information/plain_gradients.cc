// Computes the gradients of lattices whose p is not the result of a forward call, or whose ans_grad is NaN,
// infinite or subnormal.
#include <cmath>
#include <type_traits>

#include "core/dtypes.h"
#include "mutual_information/kernels.h"
#include "simd/fp_environment.h"
#include "simd/half.h"

namespace turnout::families::mutual_information {

using namespace core;
namespace {

template <class Real>
Real clamped(Real p) {
  constexpr Real kLeast = Real(-1e30);
  return p < kLeast ? kLeast : p;
}

// safe_exp(from + step - to), where `from` and `to` are clamped. If both are -1e30, the order of the
// additions makes the argument exactly 0 unless the step is huge.
template <class Real>
Real term(Real from, Real step, Real to) {
  const bool is_unreachable = from == Real(-1e30) && to == Real(-1e30);
  const Real argument = is_unreachable ? (from + step) - to : (from - to) + step;
  const Real value = std::exp(argument);
  return std::isfinite(argument) && std::isfinite(value) ? value : Real(0);
}

template <class T>
T rounded(std::conditional_t<sizeof(T) == 8, double, float> v) {
  if constexpr (std::is_same_v<T, double>) {
    return v;
  } else {
    return from_float<T>(v);
  }
}

template <class T, class Real>
void gradients(const BackwardTask& task, std::int64_t batch_row, const LatticeBox& box, Real* g) {
  const LatticeTask& lattice = task.lattice;
  const std::int64_t off = lattice.is_modified() ? 1 : 0, rows = lattice.symbols + 1;
  const auto* px = static_cast<const T*>(lattice.px) + batch_row * lattice.symbols * lattice.columns;
  const auto* py = static_cast<const T*>(lattice.py) + batch_row * rows * lattice.frames;
  const auto* p =
      static_cast<const Real*>(task.cells) + (batch_row - task.first_row) * rows * (lattice.frames + 1);
  auto* px_grad = static_cast<T*>(task.px_grad) + batch_row * lattice.symbols * lattice.columns;
  auto* py_grad = static_cast<T*>(task.py_grad) + batch_row * rows * lattice.frames;
  auto& ans_grad = static_cast<Real*>(task.ans_grad)[batch_row];
  const auto cell = [&](std::int64_t s, std::int64_t t) { return clamped(p[s * (lattice.frames + 1) + t]); };

  for (std::int64_t s = box.s_end; s >= box.s_begin && !lattice.stop.is_asked(); --s) {
    Real below_right = 0;  // g of the row below, one column further right
    for (std::int64_t t = box.t_end; t >= box.t_begin; --t) {
      const Real below = g[t];  // g of the row below; overwritten by this cell at the end
      Real sum = s == box.s_end && t == box.t_end ? ans_grad : Real(0);
      if (s < box.s_end && t + off <= box.t_end) {
        const std::int64_t i = s * lattice.columns + t;
        const Real grad =
            (off == 0 ? below : below_right) * term(cell(s, t), Real(to_float(px[i])), cell(s + 1, t + off));
        px_grad[i] = rounded<T>(grad);
        sum += grad;
      }
      if (t < box.t_end) {
        const std::int64_t i = s * lattice.frames + t;
        const Real grad = g[t + 1] * term(cell(s, t), Real(to_float(py[i])), cell(s, t + 1));
        py_grad[i] = rounded<T>(grad);
        sum += grad;
      }
      g[t] = sum;
      below_right = below;
    }
  }
  if (task.overwrite_ans_grad) ans_grad = g[box.t_begin];
}

}  // namespace

void plain_gradients(const BackwardTask& task, std::int64_t row, const LatticeBox& box, void* g) {
  // Keep subnormal numbers: with an arbitrary p they may grow to normal numbers again.
  const FpEnvironment environment(Denormals::kept);
  visit_float(task.lattice.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Real = std::conditional_t<sizeof(T) == 8, double, float>;
    gradients<T>(task, row, box, static_cast<Real*>(g));
  });
}

}  // namespace turnout::families::mutual_information
