// One call of each C function of this family, with all its arguments and the definition in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "bindings/mluop/call.h"
#include "c_descriptors.h"
#include "mutual_information/reference.h"

namespace turnout::test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
inline constexpr float kUnwritten = 77;

inline void fill(Floats& values, float limit, unsigned seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> uniform(-limit, limit);
  for (float& value : values) value = uniform(random);
}

// Random inputs within -limit .. limit, outputs filled with a pattern, and workspaces of the queried sizes. A
// tensor without elements has a NULL pointer.
struct Lattices {
  mluOpHandle_t handle;
  std::int64_t batch, symbols, frames;
  std::vector<std::int64_t> boundary;  // empty: no descriptor and no pointer
  Floats px, py, p, ans, ans_grad, px_grad, py_grad;
  Descriptor px_desc, py_desc, boundary_desc, p_desc, ans_desc;
  std::size_t forward_required = 0, backward_required = 0;
  std::vector<char> workspace;

  Lattices(mluOpHandle_t h, std::int64_t b, std::int64_t s, std::int64_t t,
           std::vector<std::int64_t> rows = {}, float limit = 0)
      : handle(h),
        batch(b),
        symbols(s),
        frames(t),
        boundary(std::move(rows)),
        px(count(s, t + 1)),
        py(count(s + 1, t)),
        p(count(s + 1, t + 1), kUnwritten),
        ans(count(1, 1), kUnwritten),
        ans_grad(count(1, 1), 1.0f),
        px_grad(px.size(), kUnwritten),
        py_grad(py.size(), kUnwritten),
        px_desc(MLUOP_DTYPE_FLOAT, {b, s, t + 1}),
        py_desc(MLUOP_DTYPE_FLOAT, {b, s + 1, t}),
        boundary_desc(MLUOP_DTYPE_INT64, {b, 4}),
        p_desc(MLUOP_DTYPE_FLOAT, {b, s + 1, t + 1}),
        ans_desc(MLUOP_DTYPE_FLOAT, {b}) {
    if (limit > 0) {
      fill(px, limit, 1);
      fill(py, limit, 2);
      fill(ans_grad, 2, 3);
    }
    EXPECT_EQ(mluOpGetMutualInformationForwardWorkspaceSize(handle, px_desc, py_desc, given_boundary(),
                                                            p_desc, ans_desc, &forward_required),
              kOk);
    EXPECT_EQ(mluOpGetMutualInformationBackwardWorkspaceSize(handle, px_desc, py_desc, given_boundary(),
                                                             p_desc, ans_desc, true, &backward_required),
              kOk);
    workspace.resize(std::max(forward_required, backward_required));
  }

  mluOpStatus_t forward() { return forward(workspace.data(), forward_required); }
  mluOpStatus_t forward(void* memory, std::size_t size) {
    return mluOpMutualInformationForward(handle, px_desc, data(px), py_desc, data(py), given_boundary(),
                                         data(boundary), p_desc, data(p), memory, size, ans_desc, data(ans));
  }
  mluOpStatus_t backward(bool overwrite) { return backward(overwrite, workspace.data(), backward_required); }
  mluOpStatus_t backward(bool overwrite, void* memory, std::size_t size) {
    return mluOpMutualInformationBackward(
        handle, px_desc, data(px), py_desc, data(py), given_boundary(), data(boundary), p_desc, data(p),
        ans_desc, data(ans_grad), overwrite, memory, size, px_desc, data(px_grad), py_desc, data(py_grad));
  }

  // Runs the function and compares with the definition.
  void expect_forward() {
    Doubles want_p = wide(p), want_ans;
    for (std::int64_t b = 0; b < batch; ++b)
      want_ans.push_back(reference::mutual_information_forward<double>(
          lattice(b), wide(px).data() + at(px, b), wide(py).data() + at(py, b), want_p.data() + at(p, b)));
    ASSERT_EQ(forward(), kOk) << turnoutLastError();
    EXPECT_STREQ(turnoutLastError(), "");
    expect_near("ans", ans, want_ans);
    // Outside the boundaries, values must be equal.
    Floats inside = p;
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (is_inside(static_cast<std::int64_t>(i))) continue;
      ASSERT_EQ(p[i], want_p[i]) << i;
      inside[i] = 0, want_p[i] = 0;
    }
    expect_near("p", inside, want_p);
  }
  void expect_backward(bool overwrite) {
    Doubles want_px(px.size()), want_py(py.size()), want_ans = wide(ans_grad);
    for (std::int64_t b = 0; b < batch; ++b) {
      double& grad = want_ans[static_cast<std::size_t>(b)];
      const double reached = reference::mutual_information_backward<double>(
          lattice(b), wide(px).data() + at(px, b), wide(py).data() + at(py, b), wide(p).data() + at(p, b),
          grad, want_px.data() + at(px, b), want_py.data() + at(py, b));
      if (overwrite) grad = reached;
    }
    const Floats before = ans_grad;
    ASSERT_EQ(backward(overwrite), kOk) << turnoutLastError();
    EXPECT_STREQ(turnoutLastError(), "");
    expect_near("px_grad", px_grad, want_px);
    expect_near("py_grad", py_grad, want_py);
    if (overwrite) {
      expect_near("ans_grad", ans_grad, want_ans);
    } else {
      EXPECT_EQ(ans_grad, before);
    }
  }

  void expect_untouched() const {
    for (const Floats* result : {&p, &ans, &px_grad, &py_grad})
      EXPECT_EQ(*result, Floats(result->size(), kUnwritten));
    EXPECT_EQ(ans_grad, Floats(ans_grad.size(), 1.0f));
  }

 private:
  std::size_t count(std::int64_t rows, std::int64_t columns) const {
    return static_cast<std::size_t>(batch * rows * columns);
  }
  mluOpTensorDescriptor_t given_boundary() const { return boundary_desc.when(!boundary.empty()); }
  template <class T>
  static T* data(std::vector<T>& v) {
    return v.empty() ? nullptr : v.data();
  }
  static Doubles wide(const Floats& v) { return Doubles(v.begin(), v.end()); }
  // The position at which row b of the batch begins.
  std::size_t at(const Floats& v, std::int64_t b) const {
    return v.size() / static_cast<std::size_t>(batch) * static_cast<std::size_t>(b);
  }
  reference::Lattice lattice(std::int64_t b) const {
    reference::Lattice l{symbols, frames, frames + 1, {0, 0, symbols, frames}};
    if (boundary.empty()) return l;
    const std::int64_t* row = boundary.data() + 4 * b;
    l.box = {row[0], row[1], row[2], row[3]};
    return l;
  }
  bool is_inside(std::int64_t cell) const {  // of p
    const std::int64_t t = cell % (frames + 1), s = cell / (frames + 1) % (symbols + 1);
    const reference::Box box = lattice(cell / (frames + 1) / (symbols + 1)).box;
    return s >= box.s_begin && s <= box.s_end && t >= box.t_begin && t <= box.t_end;
  }

  // Compares with the measures diff1 and diff2 of the acceptance; values that are not finite must be in the
  // same places. Values beyond the range of float, and values computed from them, are not compared.
  static void expect_near(const char* name, const Floats& got, const Doubles& want) {
    constexpr double kTolerance = 1e-5, kMost = 1e30;
    double error = 0, sum = 0, error2 = 0, sum2 = 0;
    ASSERT_EQ(got.size(), want.size()) << name;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::isfinite(want[i]) && std::fabs(want[i]) > kMost) continue;
      if (!std::isfinite(want[i])) {
        ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : static_cast<double>(got[i]) == want[i])
            << name << " " << i << ": " << got[i] << ", expected " << want[i];
        continue;
      }
      const double difference = std::fabs(static_cast<double>(got[i]) - want[i]);
      error += difference, error2 += difference * difference;
      sum += std::fabs(want[i]), sum2 += want[i] * want[i];
    }
    EXPECT_LE(error / (sum + 1e-9), kTolerance) << name;
    EXPECT_LE(std::sqrt(error2 / (sum2 + 1e-9)), kTolerance) << name;
  }
};

}  // namespace turnout::test
