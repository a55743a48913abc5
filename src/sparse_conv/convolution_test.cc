// Compares convolutions along given pairs with their definition: dtypes x layouts x ISA x threads x orders of
// pairs.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "sanitizer.h"
#include "sparse_conv/convolution_case.h"

namespace turnout::test {
namespace {

// By hand: two sites, a kernel of three; out[o] is the sum of in[i] W[k] over the pairs plus the bias.
TEST(IndiceConvolution, WorkedExample) {
  const std::int32_t pairs[3][2][2] = {{{0, -1}, {1, -1}}, {{0, 1}, {0, 1}}, {{1, -1}, {0, -1}}};
  const std::int32_t num[3] = {1, 2, 1};
  const float features[2][2] = {{1, 2}, {3, 4}};
  const float filters[3][2][1] = {{{10}, {20}}, {{1}, {-1}}, {{100}, {200}}};
  const float bias[1] = {0.5f};
  float out[2], input_grad[2][2], filters_grad[3][2];
  const ConstTensor pairs_view = view(&pairs[0][0][0], {3, 2, 2}), num_view = view(num, {3});
  const ConstTensor bias_view = view(bias, {1});
  indice_convolution_forward(view(&features[0][0], {2, 2}), view(&filters[0][0][0], {3, 2, 1}), pairs_view,
                             num_view, bias_view, nullptr, view(out, {2, 1}));
  EXPECT_EQ(out[0], 1 - 2 + 3 * 100 + 4 * 200 + 0.5f);
  EXPECT_EQ(out[1], 1 * 10 + 2 * 20 + 3 - 4 + 0.5f);

  const float grad[2] = {1, 10};
  indice_convolution_backward_data(view(grad, {2, 1}), view(&filters[0][0][0], {3, 2, 1}), pairs_view,
                                   num_view, nullptr, view(&input_grad[0][0], {2, 2}));
  EXPECT_EQ(input_grad[0][0], 10 * 10 + 1);
  EXPECT_EQ(input_grad[0][1], 10 * 20 - 1);
  EXPECT_EQ(input_grad[1][0], 10 * 1 + 100);
  EXPECT_EQ(input_grad[1][1], 10 * -1 + 200);

  indice_convolution_backward_filter(view(&features[0][0], {2, 2}), view(grad, {2, 1}), pairs_view, num_view,
                                     view(&filters_grad[0][0], {3, 2, 1}));
  EXPECT_EQ(filters_grad[0][0], 1 * 10);
  EXPECT_EQ(filters_grad[0][1], 2 * 10);
  EXPECT_EQ(filters_grad[1][0], 1 * 1 + 3 * 10);
  EXPECT_EQ(filters_grad[1][1], 2 * 1 + 4 * 10);
  EXPECT_EQ(filters_grad[2][0], 3 * 1);
  EXPECT_EQ(filters_grad[2][1], 4 * 1);
}

// Enough rows for several blocks of sums, in descending order.
TEST(IndiceConvolution, TargetRowsThatDescend) {
  constexpr std::int64_t kRows = 10000;
  std::vector<std::int32_t> pairs(2 * kRows);
  std::vector<float> features(kRows), out(kRows);
  for (std::int32_t i = 0; i < kRows; ++i) {
    pairs[static_cast<std::size_t>(i)] = i;
    pairs[static_cast<std::size_t>(kRows + i)] = static_cast<std::int32_t>(kRows) - 1 - i;
    features[static_cast<std::size_t>(i)] = static_cast<float>(i);
  }
  const std::int32_t num[1] = {kRows};
  const float filters[1] = {2};
  for (int threads : {1, 2}) {
    Context context({.threads = threads});
    indice_convolution_forward(view(features, {kRows, 1}), view(filters, {1, 1, 1}),
                               view(pairs, {1, 2, kRows}), view(num, {1}), nullptr, nullptr,
                               view(out, {kRows, 1}), {}, context);
    for (std::int64_t row = 0; row < kRows; ++row)
      ASSERT_EQ(out[static_cast<std::size_t>(row)], 2.0f * static_cast<float>(kRows - 1 - row));
  }
}

template <class T>
void compare_small(unsigned seed) {
  for (Order order : {Order::sorted, Order::shuffled, Order::one_row, Order::empty}) {
    for (std::int64_t out : {1, 5, 16, 33}) {
      ++seed;
      ConvolutionCase c{.order = order, .in = out == 5 ? 16 : 7, .out = out, .seed = seed};
      c.bias = seed % 3 != 0;
      c.transposed = seed % 2 == 0;
      c.inverse = seed % 4 == 1;
      c.threads = {static_cast<int>(seed % 3) + 1};
      if (seed % 5 == 0) {
        c.out_rows = c.rows;
        c.subm = true;
      }
      compare_convolution<T>(c);
    }
  }
}
TEST(IndiceConvolution, EqualsTheDefinitionF32) { compare_small<float>(0); }
TEST(IndiceConvolution, EqualsTheDefinitionF64) { compare_small<double>(100); }
TEST(IndiceConvolution, EqualsTheDefinitionF16) { compare_small<f16>(200); }
TEST(IndiceConvolution, EqualsTheDefinitionBf16) { compare_small<bf16>(300); }

// Large enough for several threads, blocks of rows and chunks of pairs.
TEST(IndiceConvolution, SameBitsForAnyNumberOfThreads) {
  unsigned seed = 400;
  for (Order order : {Order::sorted, Order::shuffled, Order::one_row}) {
    compare_convolution<float>(
        {.order = order, .offsets = 3, .rows = 1500, .out_rows = 1400, .in = 40, .out = 33, .seed = ++seed});
    compare_convolution<bf16>({.order = order,
                               .offsets = 2,
                               .rows = 1300,
                               .out_rows = 1300,
                               .in = 50,
                               .out = 48,
                               .subm = true,
                               .transposed = true,
                               .seed = ++seed});
    // Few channels and many neighbours: all neighbours of a row are multiplied at once.
    const ConvolutionCase few{
        .order = order, .offsets = 3, .rows = 1500, .out_rows = 1400, .in = 5, .out = 33, .seed = ++seed};
    compare_convolution<float>(few);
    compare_convolution<double>(few);
    compare_convolution<f16>(few);
    compare_convolution<bf16>(few);
  }
}

TEST(IndiceConvolution, SizesOfZeroAndOne) {
  for (const ConvolutionCase& c :
       {ConvolutionCase{.offsets = 0}, ConvolutionCase{.rows = 0}, ConvolutionCase{.in = 0},
        ConvolutionCase{.rows = 1, .out_rows = 1}, ConvolutionCase{.offsets = 1, .in = 1, .out = 1}}) {
    compare_convolution<float>(c);
  }
  compare_convolution<float>({.offsets = 1, .rows = 30, .out_rows = 30, .subm = true});
}

// Sums in f32 are as near those in f64 as their number of terms allows.
TEST(IndiceConvolution, F32IsNearF64) {
  std::mt19937 random(9);
  const std::int64_t rows = 400, channels = 64;
  const PairTensors given(make_pairs(Order::shuffled, 27, rows, rows, 9), false);
  Values<float> features(rows, channels, random), filters(27 * channels, channels, random);
  std::vector<double> features64(features.lanes.values.begin(), features.lanes.values.end());
  std::vector<double> filters64(filters.lanes.values.begin(), filters.lanes.values.end());
  for (Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    std::vector<float> out(static_cast<std::size_t>(rows * channels));
    std::vector<double> exact(out.size());
    indice_convolution_forward(
        features.tensor(rows, channels), view(filters.memory.data(), {27, channels, channels}), given.pairs(),
        given.num(), nullptr, nullptr, view(out.data(), {rows, channels}), {}, context);
    indice_convolution_forward(view(features64.data(), {rows, channels}),
                               view(filters64.data(), {27, channels, channels}), given.pairs(), given.num(),
                               nullptr, nullptr, view(exact.data(), {rows, channels}), {}, context);
    double error = 0, most = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      error = std::max(error, std::abs(out[i] - exact[i]));
      most = std::max(most, std::abs(exact[i]));
    }
    EXPECT_LT(error, 1e-6 * most);
  }
}

struct IndiceConvolutionRefusals : testing::Test {
  std::int64_t rows = 40000, out_rows = 30000;
  PairTensors given{make_pairs(Order::shuffled, 4, rows, out_rows, 3), false};
  std::vector<float> features = std::vector<float>(static_cast<std::size_t>(rows * 16));
  std::vector<float> filters = std::vector<float>(4 * 16 * 16);
  std::vector<float> out = std::vector<float>(static_cast<std::size_t>(out_rows * 16), 7);
  std::vector<float> in_grad = std::vector<float>(features.size(), 7);
  std::vector<float> filters_grad = std::vector<float>(filters.size(), 7);

  // The messages of all three operators, which must write nothing.
  std::vector<std::string> messages(const IndiceConvolutionParams& params = {}) {
    Context context({.threads = 5});
    std::vector<std::string> all;
    const auto catching = [&](const auto& call) {
      try {
        call();
        all.emplace_back();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_param);
        all.emplace_back(error.what());
      }
    };
    const Tensor x = view(features.data(), {rows, 16}), w = view(filters.data(), {4, 16, 16});
    const Tensor y = view(out.data(), {out_rows, 16});
    catching([&] {
      indice_convolution_forward(x, w, given.pairs(), given.num(), nullptr, nullptr, y, params, context);
    });
    catching([&] {
      indice_convolution_backward_data(y, w, given.pairs(), given.num(), nullptr,
                                       view(in_grad.data(), {rows, 16}), params, context);
    });
    catching([&] {
      indice_convolution_backward_filter(x, y, given.pairs(), given.num(),
                                         view(filters_grad.data(), {4, 16, 16}), params, context);
    });
    if (all[0].empty()) return all;
    for (const auto* written : {&out, &in_grad, &filters_grad})
      EXPECT_EQ(std::count(written->begin(), written->end(), 7.0f),
                static_cast<std::ptrdiff_t>(written->size()));
    return all;
  }
};

TEST_F(IndiceConvolutionRefusals, TheFirstPairThatNamesNoRow) {
  given.side(3, 0)[1] = -1;
  given.side(1, 1)[29999] = 30000;
  given.side(1, 1)[20000] = -1;
  const auto all = messages();
  EXPECT_EQ(all[0],
            "indice_convolution_forward: indice_pairs[1][1][20000] is -1, expected 0 .. 29999, the rows of "
            "features_out");
  EXPECT_EQ(
      all[1],
      "indice_convolution_backward_data: indice_pairs[1][1][20000] is -1, expected 0 .. 29999, the rows of "
      "output_grad");
  EXPECT_EQ(
      all[2],
      "indice_convolution_backward_filter: indice_pairs[1][1][20000] is -1, expected 0 .. 29999, the rows "
      "of output_grad");
}

// A count that includes padding, -1 on both sides.
TEST_F(IndiceConvolutionRefusals, MorePairsThanThereAre) {
  for (const int side : {0, 1}) std::fill_n(given.side(2, side), given.num32[2], -1);
  for (const std::string& message : messages())
    EXPECT_NE(message.find(": indice_pairs[2]["), std::string::npos) << message;
}

TEST_F(IndiceConvolutionRefusals, TheSidesAreExchangedByInverse) {
  given.side(0, 0)[0] = 35000;
  EXPECT_EQ(messages({.inverse = true})[0],
            "indice_convolution_forward: indice_pairs[0][0][0] is 35000, expected 0 .. 29999, the rows of "
            "features_out");
}

TEST_F(IndiceConvolutionRefusals, CountsOutOfRange) {
  given.num32[2] = -1;
  EXPECT_EQ(messages()[0],
            "indice_convolution_forward: indice_num[2] is -1, expected 0 .. 40001, "
            "indice_pairs.shape[2]");
  given.num32[2] = 40002;
  EXPECT_EQ(messages()[2],
            "indice_convolution_backward_filter: indice_num[2] is 40002, expected 0 .. 40001, "
            "indice_pairs.shape[2]");
}

TEST_F(IndiceConvolutionRefusals, SubmNeedsAsManyRows) {
  for (const std::string& message : messages({.subm = true}))
    EXPECT_NE(message.find(".shape[0] is 30000 with subm, expected 40000 = "), std::string::npos) << message;
}

// The pairs of the centre are not read.
TEST_F(IndiceConvolutionRefusals, NotOfTheCentreOfASubmanifoldConvolution) {
  out_rows = rows;
  out.assign(features.size(), 7);
  std::fill_n(given.side(0, 0), 40000, -5);
  for (const std::string& message : messages({.subm = true})) EXPECT_EQ(message, "");
}

// While another thread writes to the pairs, the call must return or throw, and stay within its rows.
TEST(IndiceConvolution, PairsThatChangeDuringACallLeadNowhere) {
#ifdef TURNOUT_THREAD_SANITIZER
  GTEST_SKIP() << "the data race is intended";
#endif
  const std::int64_t rows = 4000;
  PairTensors given(make_pairs(Order::sorted, 5, rows, rows, 3), false);
  const std::vector<std::int32_t> legal = given.entries;
  std::vector<float> features(static_cast<std::size_t>(rows * 8), 1), filters(5 * 8 * 8, 1);
  std::vector<float> out(features.size()), filters_grad(filters.size());
  std::atomic<bool> done{false};
  std::thread writer([&] {
    std::mt19937 random(1);
    volatile std::int32_t* entries = given.entries.data();
    while (!done.load(std::memory_order_relaxed)) {
      const std::size_t i = random() % legal.size();
      entries[i] = static_cast<std::int32_t>(random());
      entries[i] = legal[i];
    }
  });
  Context context({.threads = 2});
  for (int round = 0; round < 200; ++round) {
    try {
      const Tensor x = view(features.data(), {rows, 8}), y = view(out.data(), {rows, 8});
      indice_convolution_forward(x, view(filters.data(), {5, 8, 8}), given.pairs(), given.num(), nullptr,
                                 nullptr, y, {}, context);
      indice_convolution_backward_filter(x, y, given.pairs(), given.num(),
                                         view(filters_grad.data(), {5, 8, 8}), {}, context);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("indice_pairs"), std::string::npos);
    }
  }
  done = true;
  writer.join();
}

}  // namespace
}  // namespace turnout::test
