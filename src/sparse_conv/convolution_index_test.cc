// Tests an index that is kept between convolutions: results are bit-identical, a corrupt index is rejected,
// and one that changes during a call causes no access outside the arrays.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "racing.h"
#include "sanitizer.h"
#include "sparse_conv/convolution_case.h"

namespace turnout::test {
namespace {

std::vector<std::int64_t> make_index(Context& context, const ConstTensor& pairs, const ConstTensor& num,
                                     const IndiceConvolutionIndexParams& params) {
  const IndiceConvolutionIndex made(pairs, num, params, context);
  std::vector<std::int64_t> index(static_cast<std::size_t>(made.size()));
  made.write(view(index.data(), {made.size()}));
  return index;
}

// Rows that fill more than two blocks of the index, the last one partially.
struct IndiceConvolutionIndexCase {
  std::int64_t rows = 1300, out_rows = 1100, in = 8, out = 24;
  bool inverse = false, subm = false;
  Order order = Order::shuffled;
};

template <class T>
void compare_with_and_without(const IndiceConvolutionIndexCase& c, const std::vector<int>& threads) {
  SCOPED_TRACE(testing::Message() << name_of(dtype_of<T>) << " rows " << c.rows << " to " << c.out_rows
                                  << " channels " << c.in << " to " << c.out << " inverse " << c.inverse
                                  << " subm " << c.subm << " order " << static_cast<int>(c.order));
  std::mt19937 random(4);
  const Pairs along = make_pairs(c.order, 6, c.rows, c.out_rows, 9);
  const PairTensors given(c.inverse ? reference::exchanged(along) : along, c.inverse);
  Values<T> features(c.rows, c.in, random), grad(c.out_rows, c.out, random), filters(6 * c.in, c.out, random);
  const Tensor w = view(filters.memory.data(), {6, c.in, c.out});
  for (int count : threads) {
    Context context({.threads = count});
    const auto forward_index =
        make_index(context, given.pairs(), given.num(), {c.rows, c.out_rows, c.inverse, c.subm});
    const auto data_index =
        make_index(context, given.pairs(), given.num(), {c.out_rows, c.rows, !c.inverse, c.subm});
    Guarded<T> plain(c.out_rows * c.out), plain_grad(c.rows * c.in), kept(plain.size(), 3),
        kept_grad(plain_grad.size(), 1);
    const auto run = [&](Guarded<T>& out, Guarded<T>& in_grad, const ConstTensor& forward,
                         const ConstTensor& data) {
      indice_convolution_forward(features.tensor(c.rows, c.in), w, given.pairs(), given.num(), nullptr,
                                 forward, view(out.data(), {c.out_rows, c.out}), {c.inverse, c.subm},
                                 context);
      indice_convolution_backward_data(grad.tensor(c.out_rows, c.out), w, given.pairs(), given.num(), data,
                                       view(in_grad.data(), {c.rows, c.in}), {c.inverse, c.subm}, context);
    };
    const auto tensor = [](const std::vector<std::int64_t>& index) {
      return view(index.data(), {static_cast<std::int64_t>(index.size())});
    };
    const ConstTensor forward = tensor(forward_index), data = tensor(data_index);
    run(plain, plain_grad, nullptr, nullptr);
    run(kept, kept_grad, forward, data);
    EXPECT_TRUE(kept.same_bytes(plain));
    EXPECT_TRUE(kept_grad.same_bytes(plain_grad));
  }
}

TEST(IndiceConvolutionIndex, ChangesNoBit) {
  for (Order order : {Order::sorted, Order::shuffled, Order::one_row, Order::empty})
    for (bool inverse : {false, true})
      compare_with_and_without<float>({.inverse = inverse, .order = order}, {1, 3});
  compare_with_and_without<double>({.out_rows = 1300, .subm = true}, {1, 2});
  compare_with_and_without<f16>({.out_rows = 1300, .inverse = true, .subm = true}, {2});
  compare_with_and_without<bf16>({.rows = 512, .out_rows = 513}, {2});
}

// Sums of wide rows are computed in smaller blocks than those of the index, down to eight rows.
TEST(IndiceConvolutionIndex, FitsAnyNumberOfChannels) {
  compare_with_and_without<float>({.in = 300, .out = 3}, {1, 2});
  compare_with_and_without<float>({.in = 2, .out = 5000}, {1});
  compare_with_and_without<double>({.rows = 100, .out_rows = 90, .in = 1, .out = 1}, {1, 8});
}

TEST(IndiceConvolutionIndex, WithoutPairsOrRows) {
  compare_with_and_without<float>({.rows = 5, .out_rows = 0}, {1});
  compare_with_and_without<float>({.rows = 0, .out_rows = 5}, {2});
  compare_with_and_without<float>({.rows = 3, .out_rows = 4, .order = Order::empty}, {1});
}

struct IndiceConvolutionIndexRefusals : testing::Test {
  const std::int64_t rows = 700, out_rows = 600;
  PairTensors given{make_pairs(Order::shuffled, 4, rows, out_rows, 3), true};
  Context context{{.threads = 2}};
  std::vector<std::int64_t> index = make_index(context, given.pairs(), given.num(), {rows, out_rows});
  std::vector<float> features = std::vector<float>(static_cast<std::size_t>(rows * 8), 1);
  std::vector<float> filters = std::vector<float>(4 * 8 * 8, 1);
  std::vector<float> out = std::vector<float>(static_cast<std::size_t>(out_rows * 8), 7);
  static constexpr std::size_t kFirst =
      3;  // word of the first pair, after the beginnings and the end of the two blocks

  std::string message(std::int64_t read_rows) {
    const ConstTensor kept = view(index.data(), {static_cast<std::int64_t>(index.size())});
    try {
      indice_convolution_forward(view(features.data(), {read_rows, 8}), view(filters.data(), {4, 8, 8}),
                                 given.pairs(), given.num(), nullptr, kept, view(out.data(), {out_rows, 8}),
                                 {}, context);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_param);
      EXPECT_EQ(out, std::vector<float>(out.size(), 7)) << "the call wrote";
      return error.what();
    }
    return "";
  }
  std::string message() { return message(rows); }
};

TEST_F(IndiceConvolutionIndexRefusals, AnotherNumberOfPairsOrRows) {
  EXPECT_EQ(message(), "");
  out.assign(out.size(), 7);
  --given.num64[1];
  const std::string words = std::to_string(index.size()), fewer = std::to_string(index.size() - 1);
  EXPECT_EQ(message(), "indice_convolution_forward: index.shape[0] is " + words + ", expected " + fewer +
                           " for " + std::to_string(index.size() - 4) + " pairs and 600 rows");
}

TEST_F(IndiceConvolutionIndexRefusals, BlocksThatDescendOrEndElsewhere) {
  const std::vector<std::int64_t> right = index;
  for (std::int64_t wrong : {std::int64_t{-1}, std::int64_t{1} << 40, INT64_MIN, INT64_MAX}) {
    for (std::size_t word = 0; word < kFirst; ++word) {
      index = right;
      index[word] = wrong;
      EXPECT_EQ(message().find("indice_convolution_forward: index["), 0u) << wrong << " in " << word;
    }
  }
}

TEST_F(IndiceConvolutionIndexRefusals, APairThatNamesWhatIsNotThere) {
  const std::vector<std::int64_t> right = index;
  const std::size_t last = index.size() - 1;
  index[last] = (std::int64_t{4} << 40) | (right[last] & 0xFFFFFFFFFF);
  EXPECT_EQ(message(), "indice_convolution_forward: index[" + std::to_string(last) +
                           "] has offset 4, expected 0 .. 3, the offsets of filters");
  index[kFirst] = (right[kFirst] & ~std::int64_t{0x7FFFFFFF}) | 700;
  EXPECT_EQ(message(),
            "indice_convolution_forward: index[3] has row 700, expected 0 .. 699, the rows of features");
  // All pairs of the first block except the last ones, which are not checked eight at a time.
  for (std::size_t i = kFirst; i < kFirst + static_cast<std::size_t>(right[1]) / 8 * 8; ++i)
    index[i] = (right[i] & ~std::int64_t{0x7FFFFFFF}) | 700;
  EXPECT_EQ(message(),
            "indice_convolution_forward: index[3] has row 700, expected 0 .. 699, the rows of features");
  index = right;
  for (const std::int64_t row : {88, 511}) {  // of a block that has 88
    index[last] = (right[last] & ~(std::int64_t{0x1FF} << 31)) | row << 31;
    EXPECT_EQ(message(), "indice_convolution_forward: index[" + std::to_string(last) +
                             "] has a target row beyond the 600 rows of the result");
  }
  for (std::int64_t hostile : {std::int64_t{-1}, INT64_MIN, INT64_MAX}) {
    index = right;
    index[kFirst + 17] = hostile;
    EXPECT_EQ(message().find("indice_convolution_forward: index[20] has "), 0u) << message();
  }
  // An index for more rows than there are.
  index = right;
  EXPECT_NE(message(rows / 2).find(" has row "), std::string::npos);
}

TEST_F(IndiceConvolutionIndexRefusals, WhatItIsMadeOf) {
  const auto said = [&](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto make = [&](const IndiceConvolutionIndexParams& params) {
    return said([&] { make_index(context, given.pairs(), given.num(), params); });
  };
  EXPECT_EQ(make({-1, 5}), "indice_convolution_index: rows is -1, expected 0 .. 2147483647");
  EXPECT_EQ(make({rows, out_rows, false, true}),
            "indice_convolution_index: out_rows is 600 with subm, expected 700 = rows");
  const IndiceConvolutionIndex made(given.pairs(), given.num(), {rows, out_rows}, context);
  const std::int64_t none[] = {0};
  EXPECT_EQ(said([&] { made.write(Tensor(nullptr, DType::i64, none, 1)); }).substr(0, 45),
            "indice_convolution_index: index.shape[0] is 0");
  EXPECT_EQ(said([&] { made.write(view(index.data(), {5})); }),
            "indice_convolution_index: index.shape[0] is 5, expected " + std::to_string(made.size()) +
                " for " + std::to_string(made.size() - 3) + " pairs and 600 rows");
  given.side(2, 1)[5] = 600;
  const std::vector<std::int64_t> before = index;
  EXPECT_EQ(
      said([&] { made.write(view(index.data(), {made.size()})); }),
      "indice_convolution_index: indice_pairs[2][1][5] is 600, expected 0 .. 599, the rows of features_out");
  EXPECT_EQ(index, before);
  given.num64[0] = -1;
  EXPECT_EQ(make({rows, out_rows}).find("indice_convolution_index: indice_num[0] is -1, expected 0 .. "), 0u);
}

// Runs in a separate process. Changes between check and use must not cause an access outside the rows.
TEST(IndiceConvolutionIndexRaces, AnIndexThatChangesBetweenCheckAndUse) {
  if (kThreadSanitizer) GTEST_SKIP() << "the values change between loops, on one thread";
  expect_survives([] {
    const std::int64_t rows = 40'000;  // enough for several threads
    const PairTensors given(make_pairs(Order::sorted, 5, rows, rows, 3), false);
    Context own({.threads = 1});
    std::vector<std::int64_t> index = make_index(own, given.pairs(), given.num(), {rows, rows});
    std::vector<float> features(static_cast<std::size_t>(rows * 16), 1), filters(5 * 16 * 16, 1);
    std::vector<float> out(features.size());
    const ConstTensor kept = view(index.data(), {static_cast<std::int64_t>(index.size())});
    const auto last = static_cast<std::int64_t>(index.size()) - 1;
    flip_in_each_loop<std::int64_t>(
        index.data(), {1, last / 2, last},
        [&](Context& context) {
          indice_convolution_forward(view(features.data(), {rows, 16}), view(filters.data(), {5, 16, 16}),
                                     given.pairs(), given.num(), nullptr, kept, view(out.data(), {rows, 16}),
                                     {}, context);
        },
        /*most=*/4);
  });
}

}  // namespace
}  // namespace turnout::test
