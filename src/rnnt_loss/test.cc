// Compares the operators with their definition in double: dtypes, instruction sets, thread counts,
// boundaries, ranges, and values that are not finite.
#include <gtest/gtest.h>

#include <random>

#include "isas.h"
#include "rnnt_loss/rnnt_case.h"

namespace turnout::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
constexpr double kSteps = sizeof(T) == 8 ? 1e-13 : 2e-6;

template <class T>
void expect_steps(const typename RnntCase<T>::Result& r, const reference::RnntSteps& e) {
  EXPECT_LE(rnnt_difference(r.px, e.px), kSteps<T>);
  EXPECT_LE(rnnt_difference(r.py, e.py), kSteps<T>);
  EXPECT_LE(rnnt_difference(r.normalizer, e.normalizer), kSteps<T>);
}

template <class T>
void expect_like_definition(RnntCase<T> c) {
  SCOPED_TRACE(testing::Message() << "batch " << c.batch << ", frames " << c.frames << ", symbols "
                                  << c.symbols << ", classes " << c.classes << ", rows " << c.rows
                                  << (c.boundary.empty() ? "" : ", boundary")
                                  << (c.use_hat_loss ? ", HAT" : ""));
  const bool has_simple = !c.is_pruned;
  const auto expected = c.expected();
  const auto simple = has_simple ? c.expected_simple() : expected;
  for (Isa isa : supported_isas()) {
    typename RnntCase<T>::Result first, first_simple;
    for (int threads : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << name_of(isa) << ", threads " << threads);
      Context context({.threads = threads, .isa = isa});
      const auto result = c.run(context);
      const auto of_sums = has_simple ? c.run_simple(context) : result;
      if (threads > 1) {
        EXPECT_TRUE(result == first) << "other bits than with one thread";
        EXPECT_TRUE(of_sums == first_simple) << "other bits than with one thread";
        continue;
      }
      first = result;
      first_simple = of_sums;
      expect_steps<T>(result, expected.steps);
      EXPECT_EQ(result.nan_at, expected.steps.nan_at);
      EXPECT_LE(rnnt_difference(result.logits_grad, expected.logits_grad), kGradientError<T>);
      EXPECT_TRUE(same_bits(result.logits_grad, c.run(context, true).logits_grad)) << "in place";
      if (!has_simple) continue;
      expect_steps<T>(of_sums, simple.steps);
      EXPECT_LE(rnnt_difference(of_sums.lm_grad, simple.lm_grad), kGradientError<T>);
      EXPECT_LE(rnnt_difference(of_sums.am_grad, simple.am_grad), kGradientError<T>);
    }
  }
}

template <class T>
class RnntLogprobs : public testing::Test {};
using Floats = testing::Types<float, double, f16, bf16>;
TYPED_TEST_SUITE(RnntLogprobs, Floats);

TYPED_TEST(RnntLogprobs, LikeTheirDefinition) {
  std::mt19937 random(1);
  for (const bool modified : {false, true}) {
    for (const auto& [b, t, s, c] :
         {std::tuple(1, 1, 0, 1), std::tuple(3, 7, 4, 5), std::tuple(2, 5, 5, 33), std::tuple(2, 70, 3, 300),
          std::tuple(0, 3, 2, 4), std::tuple(2, 0, 0, 4)}) {
      for (const bool bounded : {false, true}) {
        RnntCase<TypeParam> whole(b, t, s, c, modified);
        whole.fill(random);
        if (bounded) whole.fill_boundary(random);
        expect_like_definition(whole);
        for (const bool hat : {false, true}) {
          if (hat && c < 2) continue;
          RnntCase<TypeParam> pruned(b, t, s, c, modified, std::min(s + 1, 3));
          pruned.use_hat_loss = hat;
          pruned.fill(random);
          if (bounded) pruned.fill_boundary(random);
          expect_like_definition(pruned);
        }
      }
    }
  }
}

// Enough work for several threads, and ranges of frames that end inside a lattice.
TEST(RnntLogprobs, ManyRanges) {
  std::mt19937 random(2);
  RnntCase<float> c(3, 150, 9, 130, false);
  c.fill(random);
  c.fill_boundary(random);
  expect_like_definition(c);
  RnntCase<float> pruned(3, 400, 30, 130, true, 4);
  pruned.fill(random);
  expect_like_definition(pruned);
}

// The simple form multiplies 96 rows at a time.
TEST(RnntLogprobs, ManySymbols) {
  std::mt19937 random(9);
  for (const std::int64_t symbols : {95, 96, 191}) {
    RnntCase<float> c(1, 3, symbols, 5, false);
    c.fill(random);
    expect_like_definition(c);
  }
}

TEST(RnntLogprobs, ByHand) {
  // Two classes of the same logit: each has probability 1/2.
  RnntCase<double> c(1, 1, 1, 2, false);
  c.text = {1};
  c.px_grad = {1, 0};
  c.py_grad = {0, 1};
  Context context({.threads = 1});
  const auto r = c.run(context);
  EXPECT_DOUBLE_EQ(r.px[0], -std::log(2.0));
  EXPECT_EQ(r.px[1], -kInfinity);
  EXPECT_DOUBLE_EQ(r.py[1], -std::log(2.0));
  EXPECT_EQ(r.nan_at[0], -1);
  EXPECT_NEAR(r.logits_grad[0], -0.5, 1e-15);  // row 0: the symbol, class 1, was taken
  EXPECT_NEAR(r.logits_grad[1], 0.5, 1e-15);
  EXPECT_NEAR(r.logits_grad[2], 0.5, 1e-15);  // row 1: the blank, class 0
  EXPECT_NEAR(r.logits_grad[3], -0.5, 1e-15);
  EXPECT_TRUE(c.run_simple(context).px == r.px);
}

// If the peaks of lm and am are far apart, the product of their exponentials underflows.
TEST(RnntLogprobs, SumsThatUnderflow) {
  std::mt19937 random(3);
  for (double gap : {40.0, 75.0, 85.0, 100.0, 300.0}) {
    SCOPED_TRACE(gap);
    RnntCase<float> c(2, 70, 4, 20, false);
    c.fill(random, 1);
    for (std::size_t i = 0; i < c.lm.size(); i += 20) c.lm[i] += static_cast<float>(gap);
    for (std::size_t i = 1; i < c.am.size(); i += 20) c.am[i] += static_cast<float>(gap);
    const auto expected = c.expected_simple();
    for (Isa isa : supported_isas()) {
      Context context({.threads = 1, .isa = isa});
      const auto r = c.run_simple(context);
      // The rounding error of steps is relative to the gap.
      const double rounding = gap * 2e-7;
      EXPECT_LE(rnnt_difference(r.px, expected.steps.px), 1e-6 + rounding);
      EXPECT_LE(rnnt_difference(r.lm_grad, expected.lm_grad), 1e-5 + 5 * rounding);
      EXPECT_LE(rnnt_difference(r.am_grad, expected.am_grad), 1e-5 + 5 * rounding);
    }
  }
}

TEST(RnntLogprobs, MaskedClasses) {
  std::mt19937 random(4);
  RnntCase<float> c(2, 5, 3, 21, false);
  c.fill(random);
  const auto mask = [](std::vector<float>& x) {
    for (std::size_t i = 0; i < x.size(); ++i)
      if (i % 21 == 4 || i % 21 == 20) x[i] = -std::numeric_limits<float>::infinity();
  };
  mask(c.logits);
  mask(c.lm);
  c.blank = 2;
  for (std::int64_t& v : c.text) v = v % 4;
  expect_like_definition(c);
}

TEST(RnntLogprobs, WhatIsNotFinite) {
  std::mt19937 random(5);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float bad : {nan, std::numeric_limits<float>::infinity()}) {
    RnntCase<float> c(3, 4, 2, 19, false);
    c.fill(random);
    c.boundary = {0, 0, 2, 4, 0, 1, 2, 4, 0, 0, 1, 3};
    const std::size_t at = ((1 * 4 + 2) * 3 + 1) * 19 + 18;  // b 1, t 2, s 1
    c.logits[at] = bad;
    c.logits[(1 * 4 + 0) * 3 * 19] = bad;            // before t_begin
    c.logits[((2 * 4 + 0) * 3 + 2) * 19 + 3] = bad;  // after s_end
    c.lm[(1 * 3 + 1) * 19] = bad;
    c.am[(1 * 4 + 0) * 19] = bad;
    for (Isa isa : supported_isas()) {
      Context context({.threads = 1, .isa = isa});
      const auto r = c.run(context);
      EXPECT_EQ(r.nan_at, (std::vector<std::int64_t>{-1, 2 * 3 + 1, -1})) << name_of(isa);
      for (std::size_t i = 0; i < r.logits_grad.size(); ++i)
        EXPECT_TRUE(i / 19 == at / 19 || std::isfinite(r.logits_grad[i])) << i;
      const auto simple = c.run_simple(context);
      EXPECT_EQ(simple.nan_at, (std::vector<std::int64_t>{-1, 1 * 4 + 1, -1})) << name_of(isa);
    }
  }
  RnntCase<float> none(1, 2, 1, 3, false);
  none.fill(random);
  for (std::size_t i = 0; i < 3; ++i) none.logits[6 + i] = -std::numeric_limits<float>::infinity();
  Context context;
  EXPECT_EQ(none.run(context).nan_at[0], 2);
  // The first of several cells is reported, which may be cell 0.
  RnntCase<float> all(1, 4, 2, 19, false);
  all.fill(random);
  std::fill(all.logits.begin(), all.logits.end(), nan);
  std::fill(all.am.begin(), all.am.end(), nan);
  EXPECT_EQ(all.run(context).nan_at[0], 0);
  EXPECT_EQ(all.run_simple(context).nan_at[0], 0);
}

// The simple form checks tiles of 64 frames; the cell of the lowest position is reported.
TEST(RnntLogprobs, WhatIsNotFiniteInSeveralTiles) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), none = -std::numeric_limits<float>::infinity();
  std::mt19937 random(8);
  Context context;
  RnntCase<float> c(1, 80, 1, 2, false);
  c.fill(random);
  c.lm[2] = none;  // s 1 has only class 1, and t 3 has only class 0
  c.am[3 * 2 + 1] = none;
  EXPECT_EQ(c.run_simple(context).nan_at[0], 80 + 3);
  c.am[70 * 2] = nan;
  EXPECT_EQ(c.run_simple(context).nan_at[0], 70);
  c.am[0] = nan;
  EXPECT_EQ(c.run_simple(context).nan_at[0], 0);
}

// A gradient times 65536, as with GradScaler, exceeds f16 only after the multiplication.
TEST(RnntLogprobs, RoundsOnce) {
  std::mt19937 random(6);
  RnntCase<f16> c(1, 3, 2, 9, false);
  c.fill(random);
  for (auto* grads : {&c.px_grad, &c.py_grad})
    for (float& v : *grads) v *= 5000;
  expect_like_definition(c);
}

TEST(RnntLogprobs, Refusals) {
  Context context;
  std::mt19937 random(7);
  const auto message = [&](const auto& change, bool modified = false, bool hat = false) {
    RnntCase<float> c(2, 4, 3, 5, modified, 2);
    c.use_hat_loss = hat;
    c.fill(random);
    c.boundary = {0, 0, 3, 4, 1, 1, 2, 3};
    change(c);
    return message_of([&] { c.run(context); });
  };
  const std::string op = "rnnt_logprobs_pruned_forward: ";
  EXPECT_EQ(message([](auto& c) { c.text[2] = 5; }), op + "symbols[0, 2] is 5, expected 0 .. 4");
  EXPECT_EQ(message([](auto& c) { c.text[2] = 0; }, false, true), op + "symbols[0, 2] is 0, expected 1 .. 4");
  EXPECT_EQ(message([](auto& c) { c.text[5] = -7; }), "no error");  // after s_end
  EXPECT_EQ(message([](auto& c) { c.boundary[7] = 5; }), op + "boundary[1, 3] is 5, expected 0 .. 4 frames");
  EXPECT_EQ(message([](auto& c) { c.boundary[4] = 3; }),
            op + "boundary[1, 0] is 3, expected at most boundary[1, 2] = 2");
  EXPECT_EQ(
      message([](auto& c) { c.boundary[3] = 2; }, true),
      op + "row 0 of the batch has 2 frames for 3 symbols, expected at least 3, as a symbol takes a frame");
  EXPECT_EQ(message([](auto& c) { c.ranges[2 * 1] = 3; }), op + "ranges[0, 1, 0] is 3, expected 0 .. 2");
  EXPECT_EQ(message([](auto& c) { c.ranges[0] = 0, c.ranges[1] = 2; }),
            op + "ranges[0, 0, 1] is 2, expected 1, one more than the position before it");
  EXPECT_EQ(message([](auto& c) { c.ranges[2 * 4] = -9; }), "no error");  // before t_begin
  EXPECT_EQ(message([](auto& c) { c.blank = 1; }, false, true),
            op + "termination_symbol is 1, expected 0 with use_hat_loss");
  RnntCase<float> blank_alone(1, 2, 0, 1, false, 1);
  blank_alone.use_hat_loss = true;
  EXPECT_EQ(message_of([&] { blank_alone.run(context); }),
            op + "logits.shape[3] is 1, expected 2 or more classes with use_hat_loss");
}

TEST(RnntLogprobs, PartOfTheSameMemory) {
  std::vector<float> memory(200);
  const std::vector<std::int64_t> text(2);
  const std::vector<float> n(12), px(10), py(12);
  EXPECT_EQ(message_of([&] {
              rnnt_logprobs_joint_backward(view(memory.data(), {1, 4, 3, 5}), view(text.data(), {1, 2}),
                                           nullptr, view(n.data(), {1, 4, 3}), view(px.data(), {1, 2, 5}),
                                           view(py.data(), {1, 3, 4}), view(memory.data() + 1, {1, 4, 3, 5}),
                                           0);
            }),
            "rnnt_logprobs_joint_backward: logits_grad partly overlaps logits, expected the same array or "
            "separate memory");
}

}  // namespace
}  // namespace turnout::test
