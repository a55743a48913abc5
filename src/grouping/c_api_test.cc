// Interpolation through the C interface: results are those of the C++ operators, half tensors are computed in
// float and rounded once, and indices that are not the number of a row count as 0.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "c_descriptors.h"
#include "simd/half.h"
#include "turnout/grouping.h"

namespace turnout::test {
namespace {

using Floats = std::vector<float>;
using Halves = std::vector<f16>;
using Ints = std::vector<std::int32_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kUnwritten = 77;

Halves halves(const Floats& values) {
  Halves made;
  for (float value : values) made.push_back(core::from_float<f16>(value));
  return made;
}
Floats floats(const Halves& values) {
  Floats made;
  for (f16 value : values) made.push_back(core::to_float(value));
  return made;
}

struct Sizes {
  std::int64_t batch = 1, channels = 1, rows = 1, centers = 1;
};

class CGrouping : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  template <class T>
  static Descriptor described(const std::vector<T>&, const std::vector<std::int64_t>& shape) {
    return Descriptor(std::is_same_v<T, f16> ? MLUOP_DTYPE_HALF : MLUOP_DTYPE_FLOAT, shape);
  }
  template <class T>
  mluOpStatus_t interpolate(const Sizes& n, const std::vector<T>& features, const Ints& indices,
                            const std::vector<T>& weights, std::vector<T>& output) {
    const Descriptor features_desc = described(features, {n.batch, n.channels, n.rows}),
                     indices_desc(MLUOP_DTYPE_INT32, {n.batch, n.centers, 3}),
                     weights_desc = described(weights, {n.batch, n.centers, 3}),
                     output_desc = described(output, {n.batch, n.channels, n.centers});
    return mluOpThreeInterpolateForward(handle, features_desc, features.data(), indices_desc, indices.data(),
                                        weights_desc, weights.data(), output_desc, output.data());
  }
  template <class T>
  mluOpStatus_t gradient(const Sizes& n, const std::vector<T>& grad_output, const Ints& indices,
                         const std::vector<T>& weights, std::vector<T>& grad_features) {
    const Descriptor grad_output_desc = described(grad_output, {n.batch, n.channels, n.centers}),
                     indices_desc(MLUOP_DTYPE_INT32, {n.batch, n.centers, 3}),
                     weights_desc = described(weights, {n.batch, n.centers, 3}),
                     grad_features_desc = described(grad_features, {n.batch, n.channels, n.rows});
    return mluOpThreeInterpolateBackward(handle, grad_output_desc, grad_output.data(), indices_desc,
                                         indices.data(), weights_desc, weights.data(), grad_features_desc,
                                         grad_features.data());
  }
  // Values that halves have.
  Floats random_values(std::int64_t count) {
    std::uniform_real_distribution<float> uniform(-2, 2);
    Floats values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(core::to_float(core::from_float<f16>(uniform(random))));
    return values;
  }
  Ints random_rows(std::int64_t count, std::int64_t rows) {
    Ints indices;
    for (std::int64_t i = 0; i < count; ++i)
      indices.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(rows)));
    return indices;
  }

  mluOpHandle_t handle = nullptr;
  std::minstd_rand random{1};
};

TEST_F(CGrouping, InterpolatesAFewPoints) {
  const Floats features = {1, 2, 3, 10, 20, 30}, weights = {0.5f, 0.25f, 0.25f, 0, 1, 2};
  Floats output(4, kUnwritten);
  ASSERT_EQ(interpolate({1, 2, 3, 2}, features, {2, 0, 1, 0, 0, 1}, weights, output), kOk)
      << turnoutLastError();
  EXPECT_EQ(output, (Floats{2.25f, 5, 22.5f, 50}));
}

TEST_F(CGrouping, GradientsAreOverwritten) {
  const Floats grad_output = {1, 10}, weights = {0.5f, 0.25f, 0.25f, 1, 2, 4};
  Floats grad_features(4, kUnwritten);
  ASSERT_EQ(gradient({1, 1, 4, 2}, grad_output, {2, 0, 2, 0, 0, 1}, weights, grad_features), kOk)
      << turnoutLastError();
  EXPECT_EQ(grad_features, (Floats{30.25f, 40, 0.75f, 0}));
}

TEST_F(CGrouping, IndicesOfNoRowCountAsZero) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max(),
                         kLeast = std::numeric_limits<std::int32_t>::min();
  const Floats features = {kNan, 2, 4}, weights = {1, 1, 1, kNan, 2, 1, 3, 3, 3};
  Floats output(3, kUnwritten);
  ASSERT_EQ(interpolate({1, 1, 3, 3}, features, {1, 3, 2, -1, 2, 1, kMost, kLeast, 4}, weights, output), kOk)
      << turnoutLastError();
  EXPECT_EQ(output, (Floats{6, 10, 0}));
  Floats grad_features(3, kUnwritten);
  const Floats grad_output = {1, 10, kNan};
  ASSERT_EQ(
      gradient({1, 1, 3, 3}, grad_output, {1, 3, 2, -1, 2, 1, kMost, kLeast, 4}, weights, grad_features), kOk)
      << turnoutLastError();
  EXPECT_EQ(grad_features, (Floats{0, 11, 21}));
}

TEST_F(CGrouping, ResultsAreThoseOfTheOperators) {
  for (const Sizes& n : {Sizes{2, 7, 40, 90}, Sizes{1, 4, 3, 20}}) {
    const Floats features = random_values(n.batch * n.channels * n.rows),
                 weights = random_values(n.batch * n.centers * 3),
                 grad_output = random_values(n.batch * n.channels * n.centers);
    const Ints indices = random_rows(n.batch * n.centers * 3, n.rows);
    Floats expected(grad_output.size()), output(grad_output.size(), kUnwritten),
        expected_grad(features.size()), grad(features.size(), kUnwritten);
    const ConstTensor rows = view(indices.data(), {n.batch, n.centers, 3}),
                      shares = view(weights.data(), {n.batch, n.centers, 3});
    three_interpolate(view(features.data(), {n.batch, n.channels, n.rows}), rows, shares,
                      view(expected.data(), {n.batch, n.channels, n.centers}));
    three_interpolate_backward(view(grad_output.data(), {n.batch, n.channels, n.centers}), rows, shares,
                               view(expected_grad.data(), {n.batch, n.channels, n.rows}));
    ASSERT_EQ(interpolate(n, features, indices, weights, output), kOk) << turnoutLastError();
    ASSERT_EQ(gradient(n, grad_output, indices, weights, grad), kOk) << turnoutLastError();
    EXPECT_EQ(output, expected);
    EXPECT_EQ(grad, expected_grad);

    Halves output_of_halves(output.size()), grad_of_halves(grad.size());
    ASSERT_EQ(interpolate(n, halves(features), indices, halves(weights), output_of_halves), kOk);
    ASSERT_EQ(gradient(n, halves(grad_output), indices, halves(weights), grad_of_halves), kOk);
    EXPECT_EQ(floats(output_of_halves), floats(halves(expected)));
    EXPECT_EQ(floats(grad_of_halves), floats(halves(expected_grad)));
  }
}

// Indices that are skipped in some channels' blocks, against the formula.
TEST_F(CGrouping, SkipsIndicesInEveryChannel) {
  const Sizes n{2, 6, 5, 30};
  const Floats features = random_values(n.batch * n.channels * n.rows),
               weights = random_values(n.batch * n.centers * 3),
               grad_output = random_values(n.batch * n.channels * n.centers);
  Ints indices = random_rows(n.batch * n.centers * 3, n.rows + 3);
  for (std::int32_t& index : indices) --index;  // -1 .. rows + 1
  Floats expected(grad_output.size()), expected_grad(features.size());
  for (std::int64_t b = 0; b < n.batch; ++b)
    for (std::int64_t c = 0; c < n.channels; ++c)
      for (std::int64_t p = 0; p < n.centers; ++p) {
        float terms[3] = {};
        const auto to = static_cast<std::size_t>((b * n.channels + c) * n.centers + p);
        for (std::int64_t k = 0; k < 3; ++k) {
          const auto at = static_cast<std::size_t>((b * n.centers + p) * 3 + k);
          if (indices[at] < 0 || indices[at] >= n.rows) continue;
          const auto from = static_cast<std::size_t>((b * n.channels + c) * n.rows + indices[at]);
          terms[k] = weights[at] * features[from];
          expected_grad[from] += grad_output[to] * weights[at];
        }
        expected[to] = (terms[0] + terms[1]) + terms[2];
      }
  Floats output(expected.size(), kUnwritten), grad(expected_grad.size(), kUnwritten);
  ASSERT_EQ(interpolate(n, features, indices, weights, output), kOk) << turnoutLastError();
  ASSERT_EQ(gradient(n, grad_output, indices, weights, grad), kOk) << turnoutLastError();
  EXPECT_EQ(output, expected);
  EXPECT_EQ(grad, expected_grad);
  Halves output_of_halves(output.size()), grad_of_halves(grad.size());
  ASSERT_EQ(interpolate(n, halves(features), indices, halves(weights), output_of_halves), kOk);
  ASSERT_EQ(gradient(n, halves(grad_output), indices, halves(weights), grad_of_halves), kOk);
  EXPECT_EQ(floats(output_of_halves), floats(halves(expected)));
  EXPECT_EQ(floats(grad_of_halves), floats(halves(expected_grad)));
}

TEST_F(CGrouping, RefusesNoCentersButNotNoRows) {
  Floats output(1, kUnwritten), none;
  EXPECT_EQ(interpolate<float>({1, 1, 0, 1}, {}, {0, 0, 0}, {1, 1, 1}, output), kOk) << turnoutLastError();
  EXPECT_EQ(output[0], kUnwritten);
  EXPECT_EQ(gradient<float>({1, 1, 0, 1}, {1}, {0, 0, 0}, {1, 1, 1}, none), kOk) << turnoutLastError();
  EXPECT_EQ(interpolate<float>({1, 1, 1, 0}, {1}, {}, {}, none), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpThreeInterpolateForward: indices has shape [1, 0, 3], expected at least one element");
  EXPECT_EQ(gradient<float>({1, 1, 1, 0}, {}, {}, {}, output), kBad);
  EXPECT_EQ(interpolate<float>({1, 0, 1, 1}, {}, {0, 0, 0}, {1, 1, 1}, none), kBad);
  EXPECT_EQ(output[0], kUnwritten);
}

}  // namespace
}  // namespace turnout::test
