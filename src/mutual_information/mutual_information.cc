// Plans of the mutual information operators.
#include "turnout/mutual_information.h"

#include <algorithm>
#include <vector>

#include "core/call.h"
#include "core/half.h"
#include "core/indices.h"
#include "mutual_information/reference.h"
#include "mutual_information/signature.h"

namespace turnout {
namespace {

using namespace core;
using reference::Box;
using reference::Lattice;

Lattice lattice_of(const ConstTensor& px, const ConstTensor& py, const ConstTensor* boundary,
                   std::int64_t b) {
  Lattice l{px.shape[1], py.shape[2], px.shape[2], {0, 0, px.shape[1], py.shape[2]}};
  if (boundary != nullptr) {
    const auto* row = static_cast<const std::int64_t*>(boundary->data) + 4 * b;
    l.box = {row[0], row[1], row[2], row[3]};
  }
  return l;
}

Slot slot_of(const ConstTensor* tensor) { return tensor != nullptr ? Slot(*tensor) : Slot(); }

template <class Real, class T>
std::vector<Real> row_of(const ConstTensor& t, std::int64_t b) {
  const std::int64_t n = t.shape[1] * t.shape[2];
  const auto* data = static_cast<const T*>(t.data) + b * n;
  std::vector<Real> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) row[static_cast<std::size_t>(i)] = to_float(data[i]);
  return row;
}

template <class Real, class T>
void put_row(const Tensor& t, std::int64_t b, const std::vector<Real>& row) {
  auto* data = static_cast<T*>(t.data) + b * t.shape[1] * t.shape[2];
  for (std::size_t i = 0; i < row.size(); ++i) {
    if constexpr (std::is_same_v<T, double>) {
      data[i] = row[i];
    } else {
      data[i] = from_float<T>(static_cast<float>(row[i]));
    }
  }
}

template <class F>
void visit_lattice(DType dtype, const F& f) {
  visit_float(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    f(type, Type<Real>{});
  });
}

}  // namespace

void core::check_lattice_dtypes(const Arguments& arguments) {
  const Signature& signature = arguments.signature();
  const bool wide = arguments.slot(signature.argument("px")).dtype == DType::f64;
  for (int i = 0; i < signature.arguments.count; ++i) {
    const Argument& argument = signature.arguments[i];
    if (argument.name != "p" && argument.name != "ans" && argument.name != "ans_grad") continue;
    if ((arguments.slot(i).dtype == DType::f64) != wide)
      arguments.fail(ErrorCode::bad_param,
                     concat(argument.name, " has dtype ", name_of(arguments.slot(i).dtype), ", expected ",
                            wide ? "f64" : "f32", " beside px of ",
                            name_of(arguments.slot(signature.argument("px")).dtype)));
  }
}

void core::check_boundary(const Arguments& arguments) {
  const Signature& signature = arguments.signature();
  const Slot& boundary = arguments.slot(signature.argument("boundary"));
  if (!boundary.present) return;
  const auto* data = static_cast<const std::int64_t*>(boundary.data);
  const std::int64_t limits[2] = {arguments.size(signature.size("symbols")),
                                  arguments.size(signature.size("frames"))};
  for (std::int64_t i = 0; i < boundary.shape[0] * 4; ++i) {
    const std::int64_t limit = limits[i % 2];
    if (data[i] < 0 || data[i] > limit)
      arguments.fail(ErrorCode::bad_param,
                     concat("boundary[", i / 4, ", ", i % 4, "] is ", data[i], ", expected 0 .. ", limit,
                            i % 2 == 0 ? " symbols" : " frames"));
  }
}

std::size_t core::mutual_information_forward_scratch(std::int64_t, std::int64_t, std::int64_t, int) {
  return 0;
}
std::size_t core::mutual_information_backward_scratch(std::int64_t, std::int64_t, std::int64_t, int) {
  return 0;
}

void mutual_information_forward(Context& context, const ConstTensor& px, const ConstTensor& py,
                                const ConstTensor* boundary, const Tensor& p, const Tensor& ans) {
  Call call(context, kMutualInformationForward, {px, py, slot_of(boundary), p, ans}, {});
  if (call.nothing_to_do()) return;
  visit_lattice(px.dtype, [&](auto type, auto real) {
    using T = typename decltype(type)::type;
    using Real = typename decltype(real)::type;
    for (std::int64_t b = 0; b < ans.shape[0]; ++b)
      static_cast<Real*>(ans.data)[b] = reference::mutual_information_forward<Real>(
          lattice_of(px, py, boundary, b), row_of<Real, T>(px, b).data(), row_of<Real, T>(py, b).data(),
          static_cast<Real*>(p.data) + b * p.shape[1] * p.shape[2]);
  });
}

void mutual_information_backward(Context& context, const ConstTensor& px, const ConstTensor& py,
                                 const ConstTensor* boundary, const ConstTensor& p, const Tensor& ans_grad,
                                 const Tensor& px_grad, const Tensor& py_grad, bool overwrite_ans_grad) {
  Call call(context, kMutualInformationBackward, {px, py, slot_of(boundary), p, ans_grad, px_grad, py_grad},
            {overwrite_ans_grad});
  if (call.nothing_to_do()) return;
  visit_lattice(px.dtype, [&](auto type, auto real) {
    using T = typename decltype(type)::type;
    using Real = typename decltype(real)::type;
    for (std::int64_t b = 0; b < ans_grad.shape[0]; ++b) {
      auto gx = row_of<Real, T>(px_grad, b), gy = row_of<Real, T>(py_grad, b);
      Real& grad = static_cast<Real*>(ans_grad.data)[b];
      const Real reached = reference::mutual_information_backward<Real>(
          lattice_of(px, py, boundary, b), row_of<Real, T>(px, b).data(), row_of<Real, T>(py, b).data(),
          static_cast<const Real*>(p.data) + b * p.shape[1] * p.shape[2], grad, gx.data(), gy.data());
      if (overwrite_ans_grad) grad = reached;
      put_row<Real, T>(px_grad, b, gx);
      put_row<Real, T>(py_grad, b, gy);
    }
  });
}

void mutual_information_forward_backward(Context& context, const ConstTensor& px, const ConstTensor& py,
                                         const ConstTensor* boundary, const Tensor& ans,
                                         const Tensor& px_grad, const Tensor& py_grad) {
  Call call(context, kMutualInformationForwardBackward, {px, py, slot_of(boundary), ans, px_grad, py_grad},
            {});
  if (call.nothing_to_do()) return;
  visit_lattice(px.dtype, [&](auto type, auto real) {
    using T = typename decltype(type)::type;
    using Real = typename decltype(real)::type;
    for (std::int64_t b = 0; b < ans.shape[0]; ++b) {
      const auto x = row_of<Real, T>(px, b), y = row_of<Real, T>(py, b);
      auto gx = x, gy = y;
      std::vector<Real> p(static_cast<std::size_t>((px.shape[1] + 1) * (py.shape[2] + 1)));
      const Lattice l = lattice_of(px, py, boundary, b);
      static_cast<Real*>(ans.data)[b] =
          reference::mutual_information_forward<Real>(l, x.data(), y.data(), p.data());
      reference::mutual_information_backward<Real>(l, x.data(), y.data(), p.data(), Real(1), gx.data(),
                                                   gy.data());
      put_row<Real, T>(px_grad, b, gx);
      put_row<Real, T>(py_grad, b, gy);
    }
  });
}

}  // namespace turnout
