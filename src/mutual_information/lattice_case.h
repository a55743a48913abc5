// A random call of this family and the results of its definition in double, for the tests and the fuzzer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "mutual_information/reference.h"
#include "simd/half.h"
#include "turnout/turnout.h"

namespace turnout::test {

template <class T>
struct LatticeCase {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;

  std::int64_t batch, symbols, frames, columns;
  std::vector<T> px, py;
  std::vector<std::int64_t> boundary;  // empty: none

  LatticeCase(std::int64_t b, std::int64_t s, std::int64_t t, bool modified)
      : batch(b),
        symbols(s),
        frames(t),
        columns(modified ? t : t + 1),
        px(static_cast<std::size_t>(b * s * columns)),
        py(static_cast<std::size_t>(b * (s + 1) * t)) {}

  static T cast(double v) {
    if constexpr (sizeof(T) == 8) {
      return v;
    } else {
      return core::from_float<T>(static_cast<float>(v));
    }
  }

  std::int64_t cells() const { return batch * (symbols + 1) * (frames + 1); }
  reference::Lattice lattice(std::int64_t b) const {
    reference::Lattice l{symbols, frames, columns, {0, 0, symbols, frames}};
    if (!boundary.empty()) {
      const std::int64_t* row = boundary.data() + 4 * b;
      l.box = {row[0], row[1], row[2], row[3]};
    }
    return l;
  }
  bool is_inside(std::int64_t cell) const {
    const std::int64_t t = cell % (frames + 1), s = cell / (frames + 1) % (symbols + 1);
    const reference::Box box = lattice(cell / (frames + 1) / (symbols + 1)).box;
    return s >= box.s_begin && s <= box.s_end && t >= box.t_begin && t <= box.t_end;
  }

  ConstTensor x() const { return view(px.data(), {batch, symbols, columns}); }
  ConstTensor y() const { return view(py.data(), {batch, symbols + 1, frames}); }
  ConstTensor box() const { return boundary.empty() ? nullptr : view(boundary.data(), {batch, 4}); }

  struct Result {
    std::vector<Real> p, ans, ans_grad;
    std::vector<T> px_grad, py_grad;
    bool operator==(const Result& other) const {
      const auto same = [](const auto& a, const auto& b) {
        return a.size() == b.size() &&
               (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0);
      };
      return same(p, other.p) && same(ans, other.ans) && same(ans_grad, other.ans_grad) &&
             same(px_grad, other.px_grad) && same(py_grad, other.py_grad);
    }
  };

  static constexpr Real kPaint = 7;

  Result empty_result() const {
    return {std::vector<Real>(static_cast<std::size_t>(cells()), kPaint),
            std::vector<Real>(static_cast<std::size_t>(batch), kPaint),
            std::vector<Real>(static_cast<std::size_t>(batch), Real(1)),
            std::vector<T>(px.size(), cast(kPaint)), std::vector<T>(py.size(), cast(kPaint))};
  }

  void forward(Context& context, Result& r, Outside outside = Outside::keep) const {
    mutual_information_forward(x(), y(), box(), view(r.p.data(), {batch, symbols + 1, frames + 1}),
                               view(r.ans.data(), {batch}), outside, context);
  }
  void backward(Context& context, Result& r, bool overwrite) const {
    mutual_information_backward(
        x(), y(), box(), view(static_cast<const Real*>(r.p.data()), {batch, symbols + 1, frames + 1}),
        view(r.ans_grad.data(), {batch}), view(r.px_grad.data(), {batch, symbols, columns}),
        view(r.py_grad.data(), {batch, symbols + 1, frames}), overwrite, context);
  }
  void both(Context& context, Result& r) const {
    mutual_information_forward_backward(x(), y(), box(), view(r.ans.data(), {batch}),
                                        view(r.px_grad.data(), {batch, symbols, columns}),
                                        view(r.py_grad.data(), {batch, symbols + 1, frames}), context);
  }

  // The definition in double.
  struct Expected {
    std::vector<double> p, ans, ans_grad, px_grad, py_grad;
    std::vector<double> both_px_grad, both_py_grad;  // of mutual_information_forward_backward
  };
  // p_given: a p to compute the gradients from, instead of the definition's p.
  Expected expected(const std::vector<Real>* p_given = nullptr) const {
    const auto wide = [](const auto& values) {
      std::vector<double> d;
      for (const auto& v : values) d.push_back(core::to_float(v));
      return d;
    };
    const std::vector<double> x = wide(px), y = wide(py);
    Expected e{std::vector<double>(static_cast<std::size_t>(cells()), double{kPaint}),
               std::vector<double>(static_cast<std::size_t>(batch)),
               std::vector<double>(static_cast<std::size_t>(batch), 1.0),
               std::vector<double>(px.size()),
               std::vector<double>(py.size()),
               std::vector<double>(px.size()),
               std::vector<double>(py.size())};
    if (p_given != nullptr) e.p = wide(*p_given);
    for (std::int64_t b = 0; b < batch; ++b) {
      const reference::Lattice l = lattice(b);
      const double *bx = x.data() + b * symbols * columns, *by = y.data() + b * (symbols + 1) * frames;
      double* bp = e.p.data() + b * (symbols + 1) * (frames + 1);
      const auto i = static_cast<std::size_t>(b);
      const std::int64_t x_place = b * symbols * columns, y_place = b * (symbols + 1) * frames;
      if (p_given == nullptr) {
        e.ans[i] = reference::mutual_information_forward(l, bx, by, bp);
        reference::mutual_information_forward_backward(l, bx, by, e.both_px_grad.data() + x_place,
                                                       e.both_py_grad.data() + y_place);
      }
      e.ans_grad[i] = reference::mutual_information_backward(l, bx, by, bp, 1.0, e.px_grad.data() + x_place,
                                                             e.py_grad.data() + y_place);
    }
    return e;
  }
};

// Sets a random box for each row of the batch; one in five may be empty.
template <class T>
void random_boundary(LatticeCase<T>& c, std::mt19937& random) {
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(limit + 1));
  };
  for (std::int64_t b = 0; b < c.batch; ++b) {
    std::int64_t s[2] = {below(c.symbols), below(c.symbols)}, t[2] = {below(c.frames), below(c.frames)};
    if (random() % 5 != 0) {
      std::sort(s, s + 2);
      std::sort(t, t + 2);
    }
    c.boundary.insert(c.boundary.end(), {s[0], t[0], s[1], t[1]});
  }
}

// sum |e - b| / sum |b|, or infinity if NaN and infinities are not in the same places.
template <class T>
double difference(const std::vector<T>& values, const std::vector<double>& expected) {
  double sum = 0, scale = 1e-9;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Round to T first: gradients that grow along unreachable cells exceed the range of 16 bits.
    const double v = core::to_float(values[i]), e = core::to_float(LatticeCase<T>::cast(expected[i]));
    if (std::isfinite(e) && std::isfinite(v)) {
      sum += std::abs(v - e);
      scale += std::abs(e);
    } else if (!(v == e || (v != v && e != e))) {
      return std::numeric_limits<double>::infinity();
    }
  }
  return sum / scale;
}

}  // namespace turnout::test
