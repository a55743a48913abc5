// Compares ranges and rows of a pruned lattice, and the best path through a lattice, with their definitions.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "isas.h"
#include "rnnt_loss/rnnt_case.h"

namespace turnout::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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
        rnnt_prune_ranges(view(c.px_grad.data(), {b, s, c.columns}), view(c.py_grad.data(), {b, s + 1, t}),
                          view(c.boundary.data(), {b, 4}), view(ranges.data(), {b, t, r}), score, *context);
        for (std::size_t k = 0; k < ranges.size(); ++k)
          ASSERT_EQ(ranges[k], starts[k / static_cast<std::size_t>(r)] + static_cast<std::int64_t>(k) % r);
      }
    }
  }
}

// If the scores of several windows are NaN, the first one wins, as in torch's argmax.
TEST(RnntPruning, TheFirstWindowThatIsNan) {
  const std::vector<float> px(3 * 5);
  std::vector<float> py(4 * 4);
  py[2 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();  // position 2 of frame 1: windows 1 and 2
  py[1 * 4 + 2] = py[2 * 4 + 2] = 1;                        // window 1 of frame 2
  const std::vector<std::int64_t> boundary = {0, 0, 3, 4};
  std::vector<std::int64_t> ranges(4 * 2);
  rnnt_prune_ranges(view(px.data(), {1, 3, 5}), view(py.data(), {1, 4, 4}), view(boundary.data(), {1, 4}),
                    view(ranges.data(), {1, 4, 2}));
  EXPECT_EQ(ranges, (std::vector<std::int64_t>{0, 1, 1, 2, 1, 2, 2, 3}));
}

TEST(RnntPruning, Width) {
  const std::vector<float> px(2 * 9 * 5), py(2 * 10 * 4);
  const auto width = [&](std::vector<std::int64_t> boundary, std::int64_t s_range, bool modified,
                         PruneScore score = PruneScore::flow) {
    return rnnt_prune_width(view(px.data(), {2, 9, modified ? 4 : 5}), view(py.data(), {2, 10, 4}),
                            view(boundary.data(), {2, 4}), s_range, score);
  };
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 1, 1}, 2, false), 4);
  const std::vector<std::int64_t> one = {0, 0, 9, 4};
  EXPECT_EQ(
      rnnt_prune_width(view(px.data(), {1, 9, 5}), view(py.data(), {1, 10, 4}), view(one.data(), {1, 4}), 2),
      4);
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 9, 0}, 2, false), 4);  // a row without frames does not count
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 9, 1}, 2, false), 10);
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 1, 1}, 2, true), 2);
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 1, 1}, 99, true), 10);
  EXPECT_EQ(width({0, 0, 9, 4, 0, 0, 1, 1}, 2, false, PruneScore::steps), 2);
  EXPECT_EQ(message_of([&] {
              width({0, 0, 9, 4, 0, 0, 1, 1}, 0, true);
            }),
            "rnnt_prune_width: s_range is 0, expected 1 or more");
  EXPECT_EQ(message_of([&] {
              width({0, 0, 9, 4, 0, 0, 10, 1}, 2, true);
            }),
            "rnnt_prune_width: boundary[1, 2] is 10, expected 0 .. 9 symbols");
}

template <class T>
class RnntPruningOf : public testing::Test {};
using Floats = testing::Types<float, double, f16, bf16>;
TYPED_TEST_SUITE(RnntPruningOf, Floats);

TYPED_TEST(RnntPruningOf, Rows) {
  std::mt19937 random(9);
  const std::int64_t b = 2, t = 6, s = 4, r = 3, d = 37;
  RnntCase<TypeParam> c(b, t, s, d, false, r);
  c.fill(random);
  Context context({.threads = 2});
  auto pruned = many<TypeParam>(b * t * r * d);
  rnnt_pruning_forward(view(c.lm.data(), {b, s + 1, d}), view(c.ranges.data(), {b, t, r}),
                       view(pruned.data(), {b, t, r, d}), context);
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
  rnnt_pruning_backward(view(c.logits.data(), {b, t, r, d}), view(c.ranges.data(), {b, t, r}),
                        view(grad.data(), {b, s + 1, d}), context);
  EXPECT_LE(rnnt_difference(grad, expected), kGradientError<TypeParam>);
}

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
    const auto align = [&](Context& context, std::vector<std::int64_t>& frames, std::vector<double>& score) {
      rnnt_align(view(c.px_grad.data(), {b, s, c.columns}), view(c.py_grad.data(), {b, s + 1, t}), c.bounds(),
                 view(frames.data(), {b, s}), view(score.data(), {b}), context);
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
      // The path itself has this score.
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
  // All paths have the score 0. Of the two steps into the end, the symbol is chosen, so it is emitted last.
  const std::vector<float> px(3), py(4);
  std::vector<std::int64_t> frames(1);
  std::vector<float> score(1);
  rnnt_align(view(px.data(), {1, 1, 3}), view(py.data(), {1, 2, 2}), nullptr, view(frames.data(), {1, 1}),
             view(score.data(), {1}));
  EXPECT_EQ(frames[0], 2);
  EXPECT_EQ(score[0], 0);
}

}  // namespace
}  // namespace turnout::test
