// Tests of this family against its definition.
#include <gtest/gtest.h>

#include "turnout/turnout.h"

namespace turnout::test {
namespace {

// The worked example, by hand: one symbol, one frame.
TEST(MutualInformation, WorkedExample) {
  const float px[2] = {-1, -2}, py[2] = {-0.5, -0.25};
  const ConstTensor x = view(px, {1, 1, 2}), y = view(py, {1, 2, 1});
  float p[4], ans, grad = 1, px_grad[2], py_grad[2];
  mutual_information_forward(x, y, nullptr, view(p, {1, 2, 2}), view(&ans, {1}));
  const float expected[4] = {0, -0.5, -1, -0.998071f};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(p[i], expected[i], 1e-6);
  EXPECT_NEAR(ans, -0.998071, 1e-6);
  mutual_information_backward(x, y, nullptr, view(static_cast<const float*>(p), {1, 2, 2}), view(&grad, {1}),
                              view(px_grad, {1, 1, 2}), view(py_grad, {1, 2, 1}), true);
  EXPECT_NEAR(px_grad[0], 0.777300, 1e-6);
  EXPECT_NEAR(px_grad[1], 0.222700, 1e-6);
  EXPECT_NEAR(py_grad[0], 0.222700, 1e-6);
  EXPECT_NEAR(py_grad[1], 0.777300, 1e-6);
  EXPECT_NEAR(grad, 1, 1e-6);
}

}  // namespace
}  // namespace turnout::test
