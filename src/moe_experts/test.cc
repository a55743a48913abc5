// Grouped products and the expert block, beside their definitions in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "isas.h"
#include "moe_experts/reference.h"
#include "simd/half.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

using reference::ExpertBlock;

double number(double v) { return v; }
template <class T>
double number(T v) {
  return core::to_float(v);
}
template <class T>
T cast(double v) {
  if constexpr (std::is_same_v<T, double>) {
    return v;
  } else {
    return core::from_float<T>(static_cast<float>(v));
  }
}

template <class T>
std::vector<T> values(std::mt19937& random, std::int64_t count, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> made(static_cast<std::size_t>(count));
  for (T& v : made) v = cast<T>(normal(random));
  return made;
}
// Of vectors of one length; memcmp() must not get the null pointer of an empty one.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
template <class T>
std::vector<double> numbers(const std::vector<T>& of) {
  std::vector<double> made;
  for (const T& v : of) made.push_back(number(v));
  return made;
}

// The largest difference, beside the largest value.
template <class T>
double error_of(const std::vector<T>& actual, const std::vector<double>& expected) {
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(number(actual[i]) - expected[i]);
    worst = difference <= worst ? worst : difference;  // NaN is worse
    largest = std::max(largest, std::abs(expected[i]));
  }
  return worst / largest;
}
template <class T>
constexpr double kTolerance = sizeof(T) == 8           ? 1e-13
                              : sizeof(T) == 4         ? 2e-6
                              : std::is_same_v<T, f16> ? 1e-3
                                                       : 8e-3;

template <class T>
struct Grouped {
  std::int64_t depth, columns;
  std::vector<std::int64_t> offs;
  std::int64_t rows;
  bool transposed, with_bias;
  std::vector<T> input, weight, bias, out;

  Grouped(std::int64_t d, std::int64_t c, std::vector<std::int64_t> ends, std::int64_t all, bool t, bool b)
      : depth(d), columns(c), offs(std::move(ends)), rows(all), transposed(t), with_bias(b) {
    std::mt19937 random(static_cast<unsigned>(d * 31 + c));
    const auto groups = static_cast<std::int64_t>(offs.size());
    input = values<T>(random, rows * depth);
    weight = values<T>(random, groups * depth * columns);
    bias = values<T>(random, groups * columns);
    out.resize(static_cast<std::size_t>(rows * columns), cast<T>(7));
  }
  std::int64_t groups() const { return static_cast<std::int64_t>(offs.size()); }
  std::size_t at(std::int64_t g, std::int64_t d, std::int64_t c) const {
    return static_cast<std::size_t>(transposed ? (g * columns + c) * depth + d
                                               : (g * depth + d) * columns + c);
  }
  ConstTensor weights() const {
    ConstTensor w = view(weight.data(), {groups(), depth, columns});
    if (transposed) {
      w.stride[1] = 1;
      w.stride[2] = depth;
    }
    return w;
  }
  void run(Context& context) {
    const ConstTensor b = view(bias.data(), {groups(), columns});
    grouped_mm(context, view(input.data(), {rows, depth}), weights(), view(offs.data(), {groups()}),
               with_bias ? &b : nullptr, view(out.data(), {rows, columns}));
  }
  std::vector<double> expected() const {
    return reference::grouped_mm(
        numbers(input), rows, offs, depth, columns,
        [&](std::int64_t g, std::int64_t d, std::int64_t c) { return number(weight[at(g, d, c)]); },
        [&](std::int64_t g, std::int64_t c) {
          return with_bias ? number(bias[static_cast<std::size_t>(g * columns + c)]) : 0.0;
        });
  }
};

// By hand: two groups of one row each, and a row of no group.
TEST(GroupedMm, ByHand) {
  const std::vector<float> input = {1, 2, 3, 4, 5, 6}, weight = {1, 0, 0, 1, 2, 0, 0, 2},
                           bias = {0, 0, 10, 20};
  const std::vector<std::int32_t> offs = {1, 2};
  std::vector<float> out(6, -1.f);
  const ConstTensor b = view(bias.data(), {2, 2});
  grouped_mm(view(input.data(), {3, 2}), view(weight.data(), {2, 2, 2}), view(offs.data(), {2}), &b,
             view(out.data(), {3, 2}));
  EXPECT_EQ(out, (std::vector<float>{1, 2, 16, 28, 0, 0}));
  std::vector<float> weight_grad(8), bias_grad(4);
  const Tensor of_bias = view(bias_grad.data(), {2, 2});
  grouped_mm_backward_weight(view(input.data(), {3, 2}), view(input.data(), {3, 2}), view(offs.data(), {2}),
                             view(weight_grad.data(), {2, 2, 2}), &of_bias);
  EXPECT_EQ(weight_grad, (std::vector<float>{1, 2, 2, 4, 9, 12, 12, 16}));
  EXPECT_EQ(bias_grad, (std::vector<float>{1, 2, 3, 4}));
}

template <class T>
class GroupedMmOf : public testing::Test {};
using Floats = testing::Types<float, double, f16, bf16>;
TYPED_TEST_SUITE(GroupedMmOf, Floats);

TYPED_TEST(GroupedMmOf, EqualsTheDefinition) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {
      {1, 1}, {7, 5}, {64, 33}, {100, 48}, {2100, 17}};
  for (const auto& [depth, columns] : sizes)
    for (const bool transposed : {false, true})
      for (const bool with_bias : {false, true}) {
        Grouped<TypeParam> c(depth, columns, {3, 3, 10, 17, 17 + 200}, 220, transposed, with_bias);
        const auto expected = c.expected();
        for (Isa isa : supported_isas()) {
          Context one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
          c.run(one);
          EXPECT_LT(error_of(c.out, expected), kTolerance<TypeParam>)
              << depth << " " << columns << transposed;
          const auto first = c.out;
          c.run(three);
          EXPECT_TRUE(same_bits(first, c.out));
        }
      }
}

// The bits of a row are the same alone and among others.
TEST(GroupedMm, RowsDoNotDependOnEachOther) {
  for (const bool transposed : {false, true}) {
    Grouped<float> many(1500, 50, {40}, 40, transposed, false);
    Context context({.threads = 2});
    many.run(context);
    for (const std::int64_t rows : {1, 5, 13}) {
      Grouped<float> few = many;
      few.rows = rows;
      few.offs = {rows};
      few.run(context);
      EXPECT_TRUE(std::equal(few.out.begin(), few.out.begin() + rows * 50, many.out.begin()));
    }
  }
}

TEST(GroupedMm, RefusesOffs) {
  Grouped<float> c(4, 4, {2, 5, 3}, 6, false, false);
  Context context;
  const auto sentence = [&]() -> std::string {
    try {
      c.run(context);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(sentence(), "grouped_mm: offs[2] is 3, expected 5 .. 6, ascending");
  c.offs = {2, 5, 7};
  EXPECT_EQ(sentence(), "grouped_mm: offs[2] is 7, expected 5 .. 6, ascending");
  c.offs = {-1, 5, 6};
  EXPECT_EQ(sentence(), "grouped_mm: offs[0] is -1, expected 0 .. 6, ascending");
  EXPECT_TRUE(std::all_of(c.out.begin(), c.out.end(), [](float v) { return v == 7; }));
}

TYPED_TEST(GroupedMmOf, GradientEqualsTheDefinition) {
  std::mt19937 random(3);
  const std::vector<std::int64_t> offs = {0, 5, 5, 300};
  const std::int64_t rows = 310, groups = 4;
  for (const auto& [depth, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 2}, {70, 40}}) {
    const auto input = values<TypeParam>(random, rows * depth),
               grad = values<TypeParam>(random, rows * columns);
    const auto grads =
        reference::grouped_mm_backward_weight(numbers(input), numbers(grad), offs, depth, columns);
    const auto of_weight = grads.begin() + groups * depth * columns;
    const std::vector<double> expected(grads.begin(), of_weight), of_bias(of_weight, grads.end());
    for (Isa isa : supported_isas())
      for (int threads : {1, 3}) {
        Context context({.threads = threads, .isa = isa});
        std::vector<TypeParam> weight_grad(expected.size()), bias_grad(of_bias.size());
        const Tensor b = view(bias_grad.data(), {groups, columns});
        grouped_mm_backward_weight(context, view(input.data(), {rows, depth}),
                                   view(grad.data(), {rows, columns}), view(offs.data(), {groups}),
                                   view(weight_grad.data(), {groups, depth, columns}), &b);
        EXPECT_LT(error_of(weight_grad, expected), 3 * kTolerance<TypeParam>);
        EXPECT_LT(error_of(bias_grad, of_bias), 3 * kTolerance<TypeParam>);
      }
  }
}

// An expert block with tokens of T and weights of W.
template <class T, class W>
struct Experts {
  ExpertBlock block;
  MoeExpertsParams params;
  bool transposed, with_bias;
  std::vector<T> tokens, out;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  std::vector<W> w13, w2, b13, b2;

  Experts(const ExpertBlock& b, const MoeExpertsParams& p, bool is_transposed, bool biased, unsigned seed = 1)
      : block(b), params(p), transposed(is_transposed), with_bias(biased) {
    std::mt19937 random(seed);
    tokens = values<T>(random, b.tokens * b.hidden);
    out.resize(tokens.size(), cast<T>(7));
    for (std::int64_t q = 0; q < b.tokens * b.choices; ++q) {
      ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(b.experts + 2)) - 1);
      weights.push_back(static_cast<float>(random() % 100) / 100);
    }
    const double scale = 1 / std::sqrt(static_cast<double>(std::max(b.hidden, b.inner)));
    w13 = values<W>(random, b.experts * up_rows() * b.hidden, scale);
    w2 = values<W>(random, b.experts * b.hidden * b.inner, scale);
    b13 = values<W>(random, b.experts * up_rows());
    b2 = values<W>(random, b.experts * b.hidden);
  }
  std::int64_t up_rows() const { return params.gated ? 2 * block.inner : block.inner; }
  ConstTensor weight(const std::vector<W>& of, std::int64_t rows, std::int64_t depth) const {
    ConstTensor w = view(of.data(), {block.experts, rows, depth});
    if (transposed) {
      w.stride[1] = 1;
      w.stride[2] = rows;
    }
    return w;
  }
  void run(Context& context) {
    const ConstTensor first = view(b13.data(), {block.experts, up_rows()}),
                      second = view(b2.data(), {block.experts, block.hidden});
    moe_experts(context, view(tokens.data(), {block.tokens, block.hidden}),
                view(ids.data(), {block.tokens, block.choices}),
                view(weights.data(), {block.tokens, block.choices}), weight(w13, up_rows(), block.hidden),
                weight(w2, block.hidden, block.inner), with_bias ? &first : nullptr,
                with_bias ? &second : nullptr, view(out.data(), {block.tokens, block.hidden}), params);
  }
  std::vector<double> expected() const {
    const auto at = [&](const std::vector<W>& of, std::int64_t rows, std::int64_t depth, std::int64_t e,
                        std::int64_t r, std::int64_t d) {
      return number(
          of[static_cast<std::size_t>(transposed ? (e * depth + d) * rows + r : (e * rows + r) * depth + d)]);
    };
    return reference::moe_experts(
        block, numbers(tokens), ids, numbers(weights),
        [&](std::int64_t e, std::int64_t r, std::int64_t h) {
          return at(w13, up_rows(), block.hidden, e, r, h);
        },
        [&](std::int64_t e, std::int64_t h, std::int64_t i) {
          return at(w2, block.hidden, block.inner, e, h, i);
        },
        [&](std::int64_t e, std::int64_t r) {
          return with_bias ? number(b13[static_cast<std::size_t>(e * up_rows() + r)]) : 0.0;
        },
        [&](std::int64_t e, std::int64_t h) {
          return with_bias ? number(b2[static_cast<std::size_t>(e * block.hidden + h)]) : 0.0;
        },
        params);
  }
};

template <class T, class W>
void expect_equal(const ExpertBlock& block, const MoeExpertsParams& params, bool transposed, bool with_bias) {
  Experts<T, W> c(block, params, transposed, with_bias);
  const auto expected = c.expected();
  for (Isa isa : supported_isas()) {
    Context one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
    c.run(one);
    EXPECT_LT(error_of(c.out, expected), kTolerance<T>)
        << block.tokens << " tokens, activation " << static_cast<int>(params.activation) << ", gated "
        << params.gated << ", interleaved " << params.interleaved << ", transposed " << transposed
        << ", bias " << with_bias;
    const auto first = c.out;
    c.run(three);
    EXPECT_TRUE(same_bits(first, c.out));
  }
}

TEST(MoeExperts, EveryActivationAndLayout) {
  for (int a = 0; a < 5; ++a)
    for (const bool gated : {true, false})
      for (const bool interleaved : {false, true})
        for (const bool transposed : {false, true}) {
          const auto activation = static_cast<ExpertActivation>(a);
          const bool is_oai = activation == ExpertActivation::swigluoai;
          if (!gated && (is_oai || interleaved)) continue;
          const MoeExpertsParams params{activation, gated, interleaved, 1.702, is_oai ? 1.5 : 1e30};
          expect_equal<float, float>({13, 2, 4, 37, 19}, params, transposed, true);
        }
}

TEST(MoeExperts, EveryDType) {
  for (const std::int64_t tokens : {1, 3, 40}) {
    const ExpertBlock block{tokens, 3, 5, 70, 33};
    for (const bool transposed : {false, true}) {
      expect_equal<float, f16>(block, {}, transposed, true);
      expect_equal<float, bf16>(block, {}, transposed, false);
      expect_equal<f16, f16>(block, {}, transposed, true);
      expect_equal<bf16, bf16>(block, {}, transposed, true);
    }
  }
}

// More than one block of rows and columns, more than one slice of the depth.
TEST(MoeExperts, Blocks) {
  expect_equal<float, float>({500, 1, 2, 40, 1100}, {}, false, false);
  expect_equal<bf16, bf16>({9, 2, 3, 2050, 16}, {}, false, true);
}

TEST(MoeExperts, NothingToDo) {
  expect_equal<float, float>({3, 0, 4, 8, 5}, {}, false, false);
  expect_equal<float, float>({3, 2, 0, 8, 5}, {}, false, false);
  expect_equal<float, float>({3, 2, 4, 8, 0}, {}, false, true);
  expect_equal<float, float>({0, 2, 4, 8, 5}, {}, false, false);
}

// Quantized weights are those of the definition, element for element.
struct Quantized {
  Experts<float, float> c;
  bool packed;
  std::vector<std::int8_t> bytes13, bytes2;
  std::vector<float> scale13, scale2;

  Quantized(const ExpertBlock& block, const MoeExpertsParams& params, bool four_bits)
      : c(block, params, false, true), packed(four_bits) {
    std::mt19937 random(5);
    fill(random, c.w13, block.hidden, bytes13, scale13);
    fill(random, c.w2, block.inner, bytes2, scale2);
  }
  void fill(std::mt19937& random, std::vector<float>& weights, std::int64_t depth,
            std::vector<std::int8_t>& bytes, std::vector<float>& scale) const {
    const std::int64_t rows = depth == 0 ? 0 : static_cast<std::int64_t>(weights.size()) / depth;
    const std::int64_t each = packed ? 32 : std::max<std::int64_t>(depth, 1);
    bytes.assign(weights.size() / (packed ? 2 : 1), 0);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t k = 0; k < depth; ++k) {
        if (k % each == 0)
          scale.push_back(static_cast<float>(random() % 64 + 1) / (packed ? 1024.f : 16384.f));
        const int q = static_cast<int>(random() % (packed ? 16 : 256));
        weights[static_cast<std::size_t>(row * depth + k)] =
            static_cast<float>(packed ? q - 8 : q - 128) * scale.back();
        const std::int64_t j = packed ? k / 32 * 16 + k % 16 : k;
        auto& byte = bytes[static_cast<std::size_t>(row * (packed ? depth / 2 : depth) + j)];
        byte = static_cast<std::int8_t>(packed ? byte | q << (k % 32 < 16 ? 0 : 4) : q - 128);
      }
  }
  ConstTensor weight(const std::vector<std::int8_t>& bytes, std::int64_t rows, std::int64_t depth) const {
    ConstTensor w = view(bytes.data(), {c.block.experts, rows, packed ? depth / 2 : depth});
    if (packed) w.dtype = DType::u8;
    return w;
  }
  void run(Context& context) {
    const ExpertBlock& b = c.block;
    const ConstTensor first = view(c.b13.data(), {b.experts, c.up_rows()}),
                      second = view(c.b2.data(), {b.experts, b.hidden});
    moe_experts_quantized(
        context, view(c.tokens.data(), {b.tokens, b.hidden}), view(c.ids.data(), {b.tokens, b.choices}),
        view(c.weights.data(), {b.tokens, b.choices}), weight(bytes13, c.up_rows(), b.hidden),
        view(scale13.data(), {b.experts, c.up_rows(), packed ? b.hidden / 32 : 1}),
        weight(bytes2, b.hidden, b.inner),
        view(scale2.data(), {b.experts, b.hidden, packed ? b.inner / 32 : 1}), &first, &second,
        view(c.out.data(), {b.tokens, b.hidden}), c.params);
  }
};

TEST(MoeExpertsQuantized, EqualsTheDefinition) {
  for (const bool packed : {false, true})
    for (const bool interleaved : {false, true})
      for (const ExpertBlock& block :
           {ExpertBlock{1, 2, 3, 64, 32}, ExpertBlock{13, 2, 4, 96, 64}, ExpertBlock{300, 1, 2, 1088, 32},
            ExpertBlock{5, 3, 2, packed ? 32 : 37, packed ? 1056 : 1050}}) {
        MoeExpertsParams params;
        params.interleaved = interleaved;
        Quantized q(block, params, packed);
        const auto expected = q.c.expected();
        for (Isa isa : supported_isas()) {
          Context one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
          q.run(one);
          EXPECT_LT(error_of(q.c.out, expected), 2e-6) << packed << " " << block.tokens;
          const auto first = q.c.out;
          q.run(three);
          EXPECT_TRUE(same_bits(first, q.c.out));
        }
      }
}

// By hand: one row of 32 elements of 4 bits; element 0 is 1 (bits 9), element 16 is -8 (bits 0), others 0.
TEST(MoeExpertsQuantized, ByHand) {
  std::vector<float> x(32, 0.f);
  x[0] = 2;
  x[16] = 3;
  const std::vector<std::int64_t> ids = {0};
  const std::vector<float> one = {1}, scale13(32, 0.5f), scale2(32, 1.f);
  std::vector<std::uint8_t> w13(32 * 16, 0x88), w2(32 * 16, 0x88);
  w13[0] = 0x09;      // the first row: 0.5 (1 * 2 - 8 * 3) = -11
  w13[16] = 0x89;     // the second: 0.5 * 1 * 2 = 1
  w2[0] = 0x89;       // out[0] = h[0]
  w2[16] = 0x8a;      // out[1] = 2 h[0]
  w2[32] = 0x98;      // out[2] = h[16] = 0
  w2[48 + 1] = 0x8b;  // out[3] = 3 h[1]
  std::vector<float> out(32, 7.f);
  moe_experts_quantized(view(x.data(), {1, 32}), view(ids.data(), {1, 1}), view(one.data(), {1, 1}),
                        view(w13.data(), {1, 32, 16}), view(scale13.data(), {1, 32, 1}),
                        view(w2.data(), {1, 32, 16}), view(scale2.data(), {1, 32, 1}), nullptr, nullptr,
                        view(out.data(), {1, 32}), {.activation = ExpertActivation::relu, .gated = false});
  EXPECT_EQ(out[0], 0);  // relu(-11)
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[3], 3);
}

TEST(MoeExpertsQuantized, Refusals) {
  const auto sentence = [](bool packed, const ExpertBlock& block, const auto& change) -> std::string {
    Quantized q(block, {}, packed);
    change(q);
    try {
      Context context;
      q.run(context);
      return "";
    } catch (const Error& error) {
      EXPECT_TRUE(std::all_of(q.c.out.begin(), q.c.out.end(), [](float v) { return v == 7; }));
      return error.what();
    }
  };
  const auto nothing = [](Quantized&) {};
  EXPECT_EQ(sentence(true, {2, 1, 2, 32, 32}, nothing), "");
  EXPECT_EQ(sentence(true, {2, 1, 2, 64, 32}, [](Quantized& q) { q.c.block.hidden = 48; }),
            "moe_experts_quantized: hidden is 48, expected a multiple of 32 with 4-bit weights");
  EXPECT_EQ(sentence(true, {2, 1, 2, 64, 32}, [](Quantized& q) { q.c.block.inner = 16; }),
            "moe_experts_quantized: inner is 16, expected a multiple of 32 with 4-bit weights");
  EXPECT_EQ(sentence(false, {2, 1, 2, 64, 32}, [](Quantized& q) { q.c.params.limit = 0; }),
            "moe_experts_quantized: limit is not positive, expected a number above 0");
}

TEST(MoeExperts, Refusals) {
  const auto sentence = [](const MoeExpertsParams& params, std::int64_t less) -> std::string {
    Experts<float, float> c({2, 1, 2, 4, 3}, params, false, false);
    c.block.inner -= less;
    try {
      Context context;
      const ConstTensor w13 = view(c.w13.data(), {2, c.up_rows() + (params.gated ? 2 : 1) * less, 4});
      moe_experts(context, view(c.tokens.data(), {2, 4}), view(c.ids.data(), {2, 1}),
                  view(c.weights.data(), {2, 1}), w13, view(c.w2.data(), {2, 4, c.block.inner}), nullptr,
                  nullptr, view(c.out.data(), {2, 4}), params);
      return "";
    } catch (const Error& error) {
      EXPECT_TRUE(std::all_of(c.out.begin(), c.out.end(), [](float v) { return v == 7; }));
      return error.what();
    }
  };
  EXPECT_EQ(sentence({}, 0), "");
  EXPECT_EQ(sentence({}, 1), "moe_experts: w13.shape[1] is 6, expected 2 * inner with inner = 2");
  EXPECT_EQ(sentence({.gated = false}, 1), "moe_experts: w13.shape[1] is 3, expected inner with inner = 2");
  EXPECT_EQ(sentence({.activation = ExpertActivation::swigluoai, .gated = false}, 0),
            "moe_experts: gated is no, expected yes with swigluoai");
  EXPECT_EQ(sentence({.gated = false, .interleaved = true}, 0),
            "moe_experts: interleaved is yes, expected no without a gate");
  EXPECT_EQ(sentence({.limit = 0}, 0), "moe_experts: limit is not positive, expected a number above 0");
}

}  // namespace
}  // namespace turnout::test
