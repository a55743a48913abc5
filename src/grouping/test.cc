// Examples of grouping and interpolation that can be checked by hand, random calls and errors.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "grouping/grouping_case.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GroupPoints, ExampleAndGradient) {
  Floats features{1, 2, 3, 10, 20, 30}, out(8), grad(6);  // two channels of three points
  Ints indices{2, 0, 0, 0};
  group_points(view(features.data(), {1, 2, 3}), view(indices.data(), {1, 2, 2}),
               view(out.data(), {1, 2, 2, 2}));
  EXPECT_EQ(out, (Floats{3, 1, 1, 1, 30, 10, 10, 10}));
  group_points_backward(view(out.data(), {1, 2, 2, 2}), view(indices.data(), {1, 2, 2}),
                        view(grad.data(), {1, 2, 3}));
  EXPECT_EQ(grad, (Floats{3, 0, 3, 30, 0, 30}));
}

TEST(GatherPoints, ExampleAndGradient) {
  Floats features{1, 2, 3, 10, 20, 30}, out(4), grad(6);
  Ints indices{2, 2};
  gather_points(view(features.data(), {1, 2, 3}), view(indices.data(), {1, 2}), view(out.data(), {1, 2, 2}));
  EXPECT_EQ(out, (Floats{3, 3, 30, 30}));
  gather_points_backward(view(out.data(), {1, 2, 2}), view(indices.data(), {1, 2}),
                         view(grad.data(), {1, 2, 3}));
  EXPECT_EQ(grad, (Floats{0, 0, 6, 0, 0, 60}));
}

TEST(GroupPointsStacked, ExampleAndGradient) {
  Floats features{1, 10, 2, 20, 3, 30}, out(12), grad(6);  // the second sample has two of three rows
  Ints counts{1, 2}, indices{0, 0, 1, 0, 1, 1}, index_counts{1, 2};
  group_points_stacked(view(features.data(), {3, 2}), view(counts.data(), {2}), view(indices.data(), {3, 2}),
                       view(index_counts.data(), {2}), view(out.data(), {3, 2, 2}));
  EXPECT_EQ(out, (Floats{1, 1, 10, 10, 3, 2, 30, 20, 3, 3, 30, 30}));
  group_points_stacked_backward(view(out.data(), {3, 2, 2}), view(counts.data(), {2}),
                                view(indices.data(), {3, 2}), view(index_counts.data(), {2}),
                                view(grad.data(), {3, 2}));
  EXPECT_EQ(grad, (Floats{2, 20, 2, 20, 9, 90}));
}

TEST(ThreeInterpolate, ExampleAndGradient) {
  Floats features{1, 2, 4}, stacked_out(1), out(1), weights{0.5f, 0.25f, 0.25f}, grad(3), stacked_grad(3);
  Ints indices{2, 0, 2};
  three_interpolate(view(features.data(), {1, 1, 3}), view(indices.data(), {1, 1, 3}),
                    view(weights.data(), {1, 1, 3}), view(out.data(), {1, 1, 1}));
  three_interpolate_stacked(view(features.data(), {3, 1}), view(indices.data(), {1, 3}),
                            view(weights.data(), {1, 3}), view(stacked_out.data(), {1, 1}));
  EXPECT_EQ(out, Floats{3.25f});
  EXPECT_EQ(stacked_out, out);
  out[0] = 4;
  three_interpolate_backward(view(out.data(), {1, 1, 1}), view(indices.data(), {1, 1, 3}),
                             view(weights.data(), {1, 1, 3}), view(grad.data(), {1, 1, 3}));
  three_interpolate_stacked_backward(view(out.data(), {1, 1}), view(indices.data(), {1, 3}),
                                     view(weights.data(), {1, 3}), view(stacked_grad.data(), {3, 1}));
  EXPECT_EQ(grad, (Floats{1, 0, 3}));
  EXPECT_EQ(stacked_grad, grad);
}

// An empty ball has the index 0, also where there are no points: it groups zeros, and has no gradient.
// Seven channels: those of many rows are selected from one after another, others up to four at a time.
TEST(GatherPoints, ChannelsOfFewAndOfManyRows) {
  constexpr std::int64_t kChannels = 7, kPlaces = 40'000;
  for (const std::int64_t rows : {100, 20'000}) {
    Floats features(static_cast<std::size_t>(2 * kChannels * rows)), out(2 * kChannels * kPlaces), expected;
    std::iota(features.begin(), features.end(), 0.0F);
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < 2 * kPlaces; ++i) indices.push_back(i * i % rows);
    for (std::int64_t row = 0; row < 2 * kChannels; ++row)
      for (std::int64_t i = 0; i < kPlaces; ++i)
        expected.push_back(static_cast<float>(
            row * rows + indices[static_cast<std::size_t>(row / kChannels * kPlaces + i)]));
    gather_points(view(features.data(), {2, kChannels, rows}), view(indices.data(), {2, kPlaces}),
                  view(out.data(), {2, kChannels, kPlaces}));
    EXPECT_EQ(out, expected);
    indices[kPlaces + 300] = -1;
    indices.back() = rows;
    EXPECT_EQ(message_of([&] {
                gather_points(view(features.data(), {2, kChannels, rows}), view(indices.data(), {2, kPlaces}),
                              view(out.data(), {2, kChannels, kPlaces}));
              }),
              "gather_points: indices[1, 300] is -1, expected 0 .. " + std::to_string(rows - 1));
  }
}

TEST(GroupPoints, SamplesWithoutRows) {
  Floats out(4, 7.f), none, features{5};
  Ints indices{0, -3}, index{0, 0, 9, -1}, counts{1, 0}, index_counts{1, 1};
  group_points(view(none.data(), {1, 2, 0}), view(indices.data(), {1, 1, 2}), view(out.data(), {1, 2, 1, 2}));
  EXPECT_EQ(out, Floats(4, 0.f));
  group_points_backward(view(out.data(), {1, 2, 1, 2}), view(indices.data(), {1, 1, 2}),
                        view(none.data(), {1, 2, 0}));
  std::fill(out.begin(), out.end(), 7.f);
  group_points_stacked(view(features.data(), {1, 1}), view(counts.data(), {2}), view(index.data(), {2, 2}),
                       view(index_counts.data(), {2}), view(out.data(), {2, 1, 2}));
  EXPECT_EQ(out, (Floats{5, 5, 0, 0}));
  Floats grad(1, 7.f);
  const Floats ones(4, 1.f);
  group_points_stacked_backward(view(ones.data(), {2, 1, 2}), view(counts.data(), {2}),
                                view(index.data(), {2, 2}), view(index_counts.data(), {2}),
                                view(grad.data(), {1, 1}));
  EXPECT_EQ(grad, Floats{2});
  EXPECT_EQ(message_of([&] {
              gather_points(view(none.data(), {1, 1, 0}), view(indices.data(), {1, 2}),
                            view(out.data(), {1, 1, 2}));
            }),
            "gather_points: indices[0, 0] is 0, expected no indices, since there are no rows");
}

TEST(GroupPoints, ErrorsNameThePositionAndWriteNothing) {
  Floats features(12, 1.f), out(12, 7.f);
  Ints indices{0, 1, 2, 3, 4, 0};
  EXPECT_EQ(message_of([&] {
              group_points(view(features.data(), {2, 2, 3}), view(indices.data(), {2, 1, 3}),
                           view(out.data(), {2, 2, 1, 3}));
            }),
            "group_points: indices[1, 0, 0] is 3, expected 0 .. 2");
  EXPECT_EQ(out, Floats(12, 7.f));
  const auto stacked = [&](Ints counts, Ints index_counts) {
    return message_of([&] {
      group_points_stacked(view(features.data(), {6, 2}), view(counts.data(), {2}),
                           view(indices.data(), {6, 1}), view(index_counts.data(), {2}),
                           view(out.data(), {6, 2, 1}));
    });
  };
  EXPECT_EQ(stacked({2, 4}, {3, 3}),
            "group_points_stacked: indices[2, 0] is 2, expected 0 .. 1, the rows of sample 0");
  EXPECT_EQ(stacked({-1, 7}, {3, 3}), "group_points_stacked: counts[0] is -1, expected 0 or more");
  EXPECT_EQ(stacked({5, 2}, {6, 0}),
            "group_points_stacked: counts[1] is 2, expected at most 1, the rows of features that the samples "
            "before it leave");
  EXPECT_EQ(stacked({5, 0}, {6, 0}),
            "group_points_stacked: the counts add up to 5, expected 6, the rows of features");
  EXPECT_EQ(stacked({6, 0}, {5, 0}),
            "group_points_stacked: the index_counts add up to 5, expected 6, the rows of indices");
  EXPECT_EQ(out, Floats(12, 7.f));
}

class Grouping : public testing::TestWithParam<std::size_t> {};

TEST_P(Grouping, EqualsDefinition) {
  std::mt19937 random(static_cast<unsigned>(GetParam()) + 1);
  const Below below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  const auto operators = families::grouping::operators();
  for (int i = 0; i < 60; ++i)
    ASSERT_EQ(compare_with_definition(operators[GetParam()], below, i % 10 == 0 ? 300 : 20), "");
}

INSTANTIATE_TEST_SUITE_P(All, Grouping,
                         testing::Range(std::size_t{0}, families::grouping::operators().size()));

}  // namespace
}  // namespace turnout::test
