// Compares pooling of whole batch elements with its definition: dtypes x ISA x threads x orders of rows.
#include <gtest/gtest.h>

#include <string>

#include "racing.h"
#include "sparse_conv/convolution_case.h"

namespace turnout::test {
namespace {

TEST(GlobalPool, WorkedExample) {
  const std::int32_t indices[4][2] = {{2, 7}, {0, 5}, {2, 7}, {2, 9}};
  const float features[4][2] = {{1, -5}, {-3, 8}, {4, -5}, {1, -9}},
              grad[3][2] = {{10, 20}, {30, 40}, {3, 6}};
  float out[3][2], in[4][2];
  const ConstTensor sites = view(&indices[0][0], {4, 2}), x = view(&features[0][0], {4, 2});
  const ConstTensor dy = view(&grad[0][0], {3, 2});
  const Tensor y = view(&out[0][0], {3, 2}), dx = view(&in[0][0], {4, 2});
  const auto values = [](const auto& rows) {
    return std::vector<float>(&rows[0][0], &rows[0][0] + sizeof(rows) / sizeof(float));
  };
  global_max_pool_forward(x, sites, y);
  EXPECT_EQ(values(out), (std::vector<float>{-3, 8, 0, 0, 4, -5}));
  global_max_pool_backward(x, y, dy, sites, dx);  // both rows with -5 get the gradient
  EXPECT_EQ(values(in), (std::vector<float>{0, 6, 10, 20, 3, 6, 0, 0}));
  global_avg_pool_forward(x, sites, y);
  EXPECT_EQ(values(out), (std::vector<float>{-3, 8, 0, 0, 2, -19.0f / 3}));
  global_avg_pool_backward(dy, sites, dx);
  EXPECT_EQ(values(in), (std::vector<float>{1, 2, 10, 20, 1, 2, 1, 2}));
}

struct GlobalPoolCase {
  std::int64_t rows, channels, batch_size, columns = 4;
  bool sorted = true;
};

template <class T, class Index>
void compare_global(const GlobalPoolCase& c, unsigned seed) {
  using Lane = core::matrix::LaneOf<T>;
  SCOPED_TRACE(testing::Message() << name_of(dtype_of<T>) << " rows " << c.rows << " channels " << c.channels
                                  << " batch_size " << c.batch_size << " sorted " << c.sorted);
  std::mt19937 random(seed);
  std::vector<std::int64_t> batches;
  std::vector<Index> indices(static_cast<std::size_t>(c.rows * c.columns), -9);
  for (std::int64_t row = 0; row < c.rows; ++row) {
    // Batch element 1 has no rows.
    std::int64_t b = c.sorted ? row * c.batch_size / c.rows
                              : static_cast<std::int64_t>(random() % static_cast<unsigned>(c.batch_size));
    if (b == 1) b = 0;
    batches.push_back(b);
    indices[static_cast<std::size_t>(row * c.columns)] = static_cast<Index>(b);
  }
  Values<T> features(c.rows, c.channels, random, 1), grad(c.batch_size, c.channels, random);
  // Ties, zeros of both signs, NaN, infinities.
  const Lane special[] = {
      0, Lane(-0.0), 1, 1, std::numeric_limits<Lane>::quiet_NaN(), -std::numeric_limits<Lane>::infinity()};
  for (std::int64_t i = 0; i < features.memory.size(); i += 3) {
    const Lane v = special[static_cast<std::size_t>(i / 3) % std::size(special)];
    features.memory[i] = rounded<T>(v);
    features.lanes.values[static_cast<std::size_t>(i)] = v;
  }
  Values<T> finite(c.rows, c.channels, random);
  const auto size = static_cast<std::size_t>(c.batch_size);
  const auto most = reference::global_max_pool_forward(features.lanes, batches, size);
  const auto most_grad = reference::global_max_pool_backward(features.lanes, most, grad.lanes, batches);
  const auto mean = reference::global_avg_pool_forward(finite.lanes, batches, size);
  const auto mean_grad = reference::global_avg_pool_backward(grad.lanes, batches);
  const ConstTensor sites = view(indices.data(), {c.rows, c.columns});
  for (Isa isa : supported_isas()) {
    for (int threads : {1, 2, 5}) {
      Context context({.threads = threads, .isa = isa});
      Guarded<T> out(c.batch_size * c.channels, 1), in(c.rows * c.channels);
      const Tensor y = view(out.data(), {c.batch_size, c.channels}),
                   dx = view(in.data(), {c.rows, c.channels});
      const ConstTensor dy = grad.tensor(c.batch_size, c.channels);
      global_max_pool_forward(features.tensor(c.rows, c.channels), sites, y, context);
      expect_rows(true, out, most.values, {}, 0);
      global_max_pool_backward(features.tensor(c.rows, c.channels), y, dy, sites, dx, context);
      expect_rows(true, in, most_grad.values, {}, 0);
      global_avg_pool_forward(finite.tensor(c.rows, c.channels), sites, y, context);
      expect_rows(true, out, mean.values, {}, 0);
      global_avg_pool_backward(dy, sites, dx, context);
      expect_rows(true, in, mean_grad.values, {}, 0);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class T>
void compare_all(unsigned seed) {
  compare_global<T, std::int32_t>({.rows = 50, .channels = 7, .batch_size = 3}, seed);
  compare_global<T, std::int64_t>({.rows = 2100, .channels = 40, .batch_size = 3, .columns = 1}, seed + 1);
  compare_global<T, std::int32_t>({.rows = 1500, .channels = 49, .batch_size = 4, .sorted = false}, seed + 2);
  compare_global<T, std::int64_t>({.rows = 5, .channels = 1, .batch_size = 9, .sorted = false}, seed + 3);
}
TEST(GlobalPool, EqualsTheDefinitionF32) { compare_all<float>(0); }
TEST(GlobalPool, EqualsTheDefinitionF64) { compare_all<double>(10); }
TEST(GlobalPool, EqualsTheDefinitionF16) { compare_all<f16>(20); }
TEST(GlobalPool, EqualsTheDefinitionBf16) { compare_all<bf16>(30); }

TEST(GlobalPool, WithoutRowsResultsAreZero) {
  float out[2] = {7, 7};
  const Tensor y = view(out, {2, 1});
  const ConstTensor none = view(static_cast<const float*>(nullptr), {0, 1});
  const ConstTensor sites = view(static_cast<const std::int32_t*>(nullptr), {0, 4});
  global_max_pool_forward(none, sites, y);
  EXPECT_EQ(out[0], 0);
  out[1] = 7;
  global_avg_pool_forward(none, sites, y);
  EXPECT_EQ(out[1], 0);
}

TEST(GlobalPool, BatchNumbersOutOfRangeAreErrorsAndNothingIsWritten) {
  for (std::int64_t wrong : {std::int64_t{-1}, std::int64_t{2}, INT64_MIN, INT64_MAX}) {
    const std::int64_t indices[3][2] = {{0, 9}, {1, 9}, {wrong, 9}};
    const float x[3] = {1, 2, 3}, y[2] = {1, 2};
    float out[2] = {7, 7}, in[3] = {7, 7, 7};
    const ConstTensor sites = view(&indices[0][0], {3, 2}), rows = view(x, {3, 1}), grad = view(y, {2, 1});
    const auto expect_error = [&](const std::string& op, const auto& call) {
      try {
        call();
        ADD_FAILURE() << op << " accepts " << wrong;
      } catch (const Error& error) {
        EXPECT_EQ(error.what(), op + ": indices[2, 0] is " + std::to_string(wrong) + ", expected 0 .. 1");
      }
    };
    expect_error("global_max_pool_forward", [&] { global_max_pool_forward(rows, sites, view(out, {2, 1})); });
    expect_error("global_avg_pool_forward", [&] { global_avg_pool_forward(rows, sites, view(out, {2, 1})); });
    expect_error("global_max_pool_backward", [&] {
      global_max_pool_backward(rows, grad, grad, sites, view(in, {3, 1}));
    });
    expect_error("global_avg_pool_backward", [&] {
      global_avg_pool_backward(grad, sites, view(in, {3, 1}));
    });
    EXPECT_EQ(out[0] + out[1], 14);
    EXPECT_EQ(in[0] + in[1] + in[2], 21);
  }
}

TEST(GlobalPool, BatchNumbersThatChangeDuringACallDoNoHarm) {
  expect_survives([] {
    const std::int64_t rows = 20'000;
    std::vector<std::int32_t> indices(static_cast<std::size_t>(rows));
    std::vector<float> features(indices.size() * 32, 1), out(4 * 32);
    flip_in_each_loop<std::int32_t>(indices.data(), {0, rows - 1}, [&](Context& context) {
      const ConstTensor sites = view(indices.data(), {rows, 1});
      const Tensor x = view(features.data(), {rows, 32}), y = view(out.data(), {4, 32});
      global_avg_pool_forward(x, sites, y, context);
      global_max_pool_backward(x, y, y, sites, view(features.data(), {rows, 32}), context);
    });
  });
}

}  // namespace
}  // namespace turnout::test
