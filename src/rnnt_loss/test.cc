// Tests of this family against its definition in double: dtypes, instruction sets, thread counts, boundaries
// and ranges, and what is not finite.
#include <gtest/gtest.h>

#include <random>

#include "isas.h"
#include "rnnt_loss/rnnt_case.h"

namespace turnout::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
constexpr double kSteps = sizeof(T) == 8 ? 1e-13 : 2e-6;
template <class T>  // 16-bit gradients are rounded once
constexpr double kGradients = sizeof(T) == 8            ? 1e-12
                              : std::is_same_v<T, f16>  ? 1e-3
                              : std::is_same_v<T, bf16> ? 1e-2
                                                        : 1e-5;

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
      EXPECT_LE(rnnt_difference(result.logits_grad, expected.logits_grad), kGradients<T>);
      EXPECT_TRUE(same_bits(result.logits_grad, c.run(context, true).logits_grad)) << "in place";
      if (!has_simple) continue;
      expect_steps<T>(of_sums, simple.steps);
      EXPECT_LE(rnnt_difference(of_sums.lm_grad, simple.lm_grad), kGradients<T>);
      EXPECT_LE(rnnt_difference(of_sums.am_grad, simple.am_grad), kGradients<T>);
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

// Peaks of lm and am that are far apart: the product of their exponentials underflows.
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
      // Steps are as precise as numbers of the size of the gap.
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
    c.logits[((2 * 4 + 0) * 3 + 2) * 19 + 3] = bad;  // behind s_end
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
  // The first of several is named, and may be the very first cell.
  RnntCase<float> all(1, 4, 2, 19, false);
  all.fill(random);
  std::fill(all.logits.begin(), all.logits.end(), nan);
  std::fill(all.am.begin(), all.am.end(), nan);
  EXPECT_EQ(all.run(context).nan_at[0], 0);
  EXPECT_EQ(all.run_simple(context).nan_at[0], 0);
}

// A gradient times 65536, as GradScaler has it, is larger than f16 only after it was multiplied.
TEST(RnntLogprobs, RoundsOnce) {
  std::mt19937 random(6);
  RnntCase<f16> c(1, 3, 2, 9, false);
  c.fill(random);
  for (auto* grads : {&c.px_grad, &c.py_grad})
    for (float& v : *grads) v *= 5000;
  expect_like_definition(c);
}

template <class F>
std::string sentence_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RnntLogprobs, Refusals) {
  Context context;
  std::mt19937 random(7);
  const auto sentence = [&](const auto& change, bool modified = false, bool hat = false) {
    RnntCase<float> c(2, 4, 3, 5, modified, 2);
    c.use_hat_loss = hat;
    c.fill(random);
    c.boundary = {0, 0, 3, 4, 1, 1, 2, 3};
    change(c);
    return sentence_of([&] { c.run(context); });
  };
  const std::string op = "rnnt_logprobs_pruned_forward: ";
  EXPECT_EQ(sentence([](auto& c) { c.text[2] = 5; }), op + "symbols[0, 2] is 5, expected 0 .. 4");
  EXPECT_EQ(sentence([](auto& c) { c.text[2] = 0; }, false, true),
            op + "symbols[0, 2] is 0, expected 1 .. 4");
  EXPECT_EQ(sentence([](auto& c) { c.text[5] = -7; }), "no error");  // behind s_end
  EXPECT_EQ(sentence([](auto& c) { c.boundary[7] = 5; }), op + "boundary[1, 3] is 5, expected 0 .. 4 frames");
  EXPECT_EQ(sentence([](auto& c) { c.boundary[4] = 3; }),
            op + "boundary[1, 0] is 3, expected at most its end boundary[1, 2] = 2");
  EXPECT_EQ(
      sentence([](auto& c) { c.boundary[3] = 2; }, true),
      op + "row 0 of the batch has 2 frames for 3 symbols, expected at least 3: a symbol takes a frame");
  EXPECT_EQ(sentence([](auto& c) { c.ranges[2 * 1] = 3; }), op + "ranges[0, 1, 0] is 3, expected 0 .. 2");
  EXPECT_EQ(sentence([](auto& c) { c.ranges[0] = 0, c.ranges[1] = 2; }),
            op + "ranges[0, 0, 1] is 2, expected 1, one more than the position before it");
  EXPECT_EQ(sentence([](auto& c) { c.ranges[2 * 4] = -9; }), "no error");  // before t_begin
  EXPECT_EQ(sentence([](auto& c) { c.blank = 1; }, false, true),
            op + "termination_symbol is 1, expected 0 with use_hat_loss");
}

TEST(RnntLogprobs, PartOfTheSameMemory) {
  std::vector<float> memory(200);
  const std::vector<std::int64_t> text(2);
  const std::vector<float> n(12), px(10), py(12);
  EXPECT_EQ(
      sentence_of([&] {
        rnnt_logprobs_joint_backward(default_context(), view(memory.data(), {1, 4, 3, 5}),
                                     view(text.data(), {1, 2}), nullptr, view(n.data(), {1, 4, 3}),
                                     view(px.data(), {1, 2, 5}), view(py.data(), {1, 3, 4}),
                                     view(memory.data() + 1, {1, 4, 3, 5}), 0);
      }),
      "rnnt_logprobs_joint_backward: logits_grad shares a part of the memory of logits, expected all of "
      "it or none");
}

// -- pruning -----------------------------------------------------------------------------------------------

TEST(RnntPruning, RangesLikeTheirDefinition) {
  std::mt19937 random(8);
  Context one({.threads = 1}), five({.threads = 5});
  for (int i = 0; i < 200; ++i) {
    const std::int64_t b = 1 + random() % 3, t = 1 + random() % 9, s = random() % 6,
                       r = 1 + random() % (s + 1);
    RnntCase<double> c(b, t, s, 1, random() % 2 == 0, r);
    c.fill(random);
    c.boundary.clear();
    for (std::int64_t row = 0; row < b; ++row)
      c.boundary.insert(c.boundary.end(), {0, 0, static_cast<std::int64_t>(random()) % (s + 1),
                                           static_cast<std::int64_t>(random()) % (t + 1)});
    for (const PruneScore score : {PruneScore::flow, PruneScore::steps}) {
      const auto starts =
          reference::rnnt_prune_starts(c.definition(), c.px_grad, c.py_grad, score == PruneScore::flow);
      for (Context* context : {&one, &five}) {
        auto ranges = many<std::int64_t>(b * t * r, 77);
        rnnt_prune_ranges(*context, view(c.px_grad.data(), {b, s, c.columns}),
                          view(c.py_grad.data(), {b, s + 1, t}), view(c.boundary.data(), {b, 4}),
                          view(ranges.data(), {b, t, r}), score);
        for (std::size_t k = 0; k < ranges.size(); ++k)
          ASSERT_EQ(ranges[k], starts[k / static_cast<std::size_t>(r)] + static_cast<std::int64_t>(k) % r);
      }
    }
  }
}

TEST(RnntPruning, Width) {
  const std::vector<float> px(2 * 9 * 5), py(2 * 10 * 4);
  const auto width = [&](std::vector<std::int64_t> boundary, std::int64_t s_range, bool modified,
                         PruneScore score = PruneScore::flow) {
    return rnnt_prune_width(default_context(), view(px.data(), {2, 9, modified ? 4 : 5}),
                            view(py.data(), {2, 10, 4}), view(boundary.data(), {2, 4}), s_range, score);
  };
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 1, 1}, 2, false), 4);
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 9, 0}, 2, false), 4);  // a row without frames does not count
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 9, 1}, 2, false), 10);
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 1, 1}, 2, true), 2);
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 1, 1}, 99, true), 10);
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 1, 1}, 2, false, PruneScore::steps), 2);
  EXPECT_EQ(sentence_of([&] {
              width({0, 0, 9, 4, 0, 0, 1, 1}, 0, true);
            }),
            "rnnt_prune_width: s_range is 0, expected 1 or more");
  EXPECT_EQ(sentence_of([&] {
              width({0, 0, 9, 4, 0, 0, 10, 1}, 2, true);
            }),
            "rnnt_prune_width: boundary[1, 2] is 10, expected 0 .. 9 symbols");
}

TYPED_TEST(RnntLogprobs, PruningOfRows) {
  std::mt19937 random(9);
  const std::int64_t b = 2, t = 6, s = 4, r = 3, d = 37;
  RnntCase<TypeParam> c(b, t, s, d, false, r);
  c.fill(random);
  Context context({.threads = 2});
  auto pruned = many<TypeParam>(b * t * r * d);
  rnnt_pruning_forward(context, view(c.lm.data(), {b, s + 1, d}), view(c.ranges.data(), {b, t, r}),
                       view(pruned.data(), {b, t, r, d}));
  auto expected = many<double>(b * (s + 1) * d);
  for (std::int64_t i = 0; i < b * t * r; ++i) {
    const std::int64_t row = i / (t * r) * (s + 1) + c.ranges[static_cast<std::size_t>(i)];
    for (std::int64_t k = 0; k < d; ++k) {
      const auto from = static_cast<std::size_t>(row * d + k), to = static_cast<std::size_t>(i * d + k);
      ASSERT_EQ(core::to_float(pruned[to]), core::to_float(c.lm[from]));
      expected[from] += core::to_float(c.logits[to]);
    }
  }
  auto grad = many<TypeParam>(b * (s + 1) * d, c.cast(7));
  rnnt_pruning_backward(context, view(c.logits.data(), {b, t, r, d}), view(c.ranges.data(), {b, t, r}),
                        view(grad.data(), {b, s + 1, d}));
  EXPECT_LE(rnnt_difference(grad, expected), kGradients<TypeParam>);
}

// -- the best way ------------------------------------------------------------------------------------------

TEST(RnntAlign, LikeItsDefinition) {
  std::mt19937 random(10);
  Context one({.threads = 1}), five({.threads = 5});
  for (int i = 0; i < 60; ++i) {
    const std::int64_t b = 3, t = random() % 6, s = random() % 5;
    RnntCase<double> c(b, t, s, 2, random() % 2 == 0);
    c.fill(random);
    if (i % 3 == 0)
      for (auto* values : {&c.px_grad, &c.py_grad})
        for (double& v : *values) v = std::round(v);  // many ties
    if (i % 2 == 0) c.fill_boundary(random);
    const ConstTensor box = view(c.boundary.data(), {b, 4});
    const auto align = [&](Context& context, std::vector<std::int64_t>& frames, std::vector<double>& score) {
      rnnt_align(context, view(c.px_grad.data(), {b, s, c.columns}), view(c.py_grad.data(), {b, s + 1, t}),
                 c.boundary.empty() ? nullptr : &box, view(frames.data(), {b, s}), view(score.data(), {b}));
    };
    auto frames = many<std::int64_t>(b * s, 77), again = frames;
    auto score = many<double>(b), score_again = score;
    align(one, frames, score);
    align(five, again, score_again);
    EXPECT_EQ(frames, again);
    for (std::int64_t row = 0; row < b; ++row) {
      const std::int64_t whole[4] = {0, 0, s, t};
      const std::int64_t* at = c.boundary.empty() ? whole : c.boundary.data() + 4 * row;
      const double best =
          reference::rnnt_best_score(c.definition(), row, at, c.px_grad, c.py_grad, at[2], at[3]);
      ASSERT_EQ(score[static_cast<std::size_t>(row)], best);
      // The way itself has this score.
      const std::int64_t off = c.columns == t ? 1 : 0;
      double walked = 0;
      std::int64_t now = at[1];
      for (std::int64_t k = 0; k < s; ++k) {
        const std::int64_t frame = frames[static_cast<std::size_t>(row * s + k)];
        if (k < at[0] || k >= at[2] || best == -kInfinity) {
          ASSERT_EQ(frame, -1);
          continue;
        }
        for (; now < frame; ++now)
          walked += c.py_grad[static_cast<std::size_t>(c.definition().py(row, k, now))];
        walked += c.px_grad[static_cast<std::size_t>(c.definition().px(row, k, frame))];
        now += off;
      }
      if (best == -kInfinity) continue;
      for (; now < at[3]; ++now)
        walked += c.py_grad[static_cast<std::size_t>(c.definition().py(row, at[2], now))];
      ASSERT_NEAR(walked, best, 1e-9);
    }
  }
}

TEST(RnntAlign, TiesTakeTheSymbolLast) {
  // All ways have the score 0. Of the two ways into the end the symbol's is chosen, so it comes last.
  const std::vector<float> px(3), py(4);
  std::vector<std::int64_t> frames(1);
  std::vector<float> score(1);
  rnnt_align(default_context(), view(px.data(), {1, 1, 3}), view(py.data(), {1, 2, 2}), nullptr,
             view(frames.data(), {1, 1}), view(score.data(), {1}));
  EXPECT_EQ(frames[0], 2);
  EXPECT_EQ(score[0], 0);
}

}  // namespace
}  // namespace turnout::test
