// Compares moe_locations and moe_token_permute with their definitions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "isas.h"
#include "moe_dispatch/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

template <class T, class Index>
void compare_locations(std::int64_t samples, std::int64_t choices, std::int64_t num_experts, bool ranked,
                       unsigned seed) {
  std::mt19937 random(seed);
  const auto routed = static_cast<std::size_t>(samples * choices);
  std::vector<Index> indices(routed);
  for (Index& index : indices) index = static_cast<Index>(random() % (num_experts + 2)) - 1;
  std::vector<T> priority(static_cast<std::size_t>(samples));
  std::vector<double> values;
  for (T& one : priority) {
    float value = static_cast<float>(static_cast<int>(random() % 11) - 5) / 4;
    if (random() % 9 == 0) value = random() % 2 ? NAN : -0.0f;
    if constexpr (sizeof(T) == 8) {
      one = value;
    } else {
      one = core::from_float<T>(value);
    }
    values.push_back(value);
  }
  std::vector<std::int32_t> expected(routed), actual(routed, 7);
  std::vector<std::int64_t> expected_counts(static_cast<std::size_t>(num_experts)),
      counts(expected_counts.size(), 7);
  reference::moe_locations(indices.data(), ranked ? values.data() : nullptr, expected.data(),
                           expected_counts.data(), samples, choices, num_experts);
  const ConstTensor order = view(priority.data(), {samples});
  const auto routing = [&](auto& v) {
    return choices == 1 ? view(v.data(), {samples}) : view(v.data(), {samples, choices});
  };
  moe_locations(routing(indices), ranked ? order : nullptr, routing(actual),
                view(counts.data(), {num_experts}), num_experts);
  EXPECT_EQ(actual, expected);
  EXPECT_EQ(counts, expected_counts);
}

TEST(MoeLocations, EqualTheDefinition) {
  for (const bool ranked : {false, true}) {
    for (const std::int64_t samples : {0, 1, 7, 1000}) {
      compare_locations<float, std::int32_t>(samples, 1, 5, ranked, 1);
      compare_locations<double, std::int64_t>(samples, 3, 4, ranked, 2);
      compare_locations<f16, std::int64_t>(samples, 2, 1, ranked, 3);
      compare_locations<bf16, std::int32_t>(samples, 2, 64, ranked, 4);
    }
  }
}

// First choices of all tokens precede second ones, and no capacity limits the counts.
TEST(MoeLocations, WorkedExample) {
  const std::int32_t indices[] = {0, 1, 0, 1, 1, 0, 2, -1};
  const float priority[] = {1, 1, 2, 0};
  std::vector<std::int32_t> locations(8);
  std::vector<std::int64_t> counts(2);
  moe_locations(view(indices, {4, 2}), nullptr, view(locations.data(), {4, 2}), view(counts.data(), {2}), 2);
  EXPECT_EQ(locations, (std::vector<std::int32_t>{0, 1, 1, 2, 0, 2, -1, -1}));
  EXPECT_EQ(counts, (std::vector<std::int64_t>{3, 3}));
  const ConstTensor order = view(priority, {4});
  moe_locations(view(indices, {4, 2}), order, view(locations.data(), {4, 2}), view(counts.data(), {2}), 2);
  EXPECT_EQ(locations, (std::vector<std::int32_t>{0, 1, 1, 2, 0, 2, -1, -1}));
  const float last_first[] = {0, 1, 2, 3};
  const ConstTensor reversed = view(last_first, {4});
  moe_locations(view(indices, {4, 2}), reversed, view(locations.data(), {4, 2}), view(counts.data(), {2}), 2);
  EXPECT_EQ(locations, (std::vector<std::int32_t>{1, 2, 0, 1, 0, 2, -1, -1}));
}

template <class T, class Index>
void compare_permute(std::int64_t samples, std::int64_t choices, std::int64_t hidden, std::int64_t rows,
                     Index least, Index most, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto routed = static_cast<std::size_t>(samples * choices);
  std::uniform_int_distribution<Index> expert(least, most);
  std::vector<Index> indices(routed);
  for (Index& index : indices) index = expert(random);
  std::vector<T> tokens(static_cast<std::size_t>(samples * hidden));
  for (T& one : tokens) one = static_cast<T>(random());
  std::vector<std::int32_t> sorted(routed), actual_sorted(routed, -7);
  reference::sort_experts(indices.data(), sorted.data(), samples * choices);
  const auto map = reference::rows_of(sorted.data(), static_cast<const std::int32_t*>(nullptr),
                                      samples * choices, {.capacity = 1, .num_experts = rows});
  std::vector<T> expected(static_cast<std::size_t>(rows * hidden)), actual(expected.size(), T{99});
  for (std::int64_t q = 0; q < samples * choices; ++q)
    for (std::int64_t j = 0; map[static_cast<std::size_t>(q)] >= 0 && j < hidden; ++j)
      expected[static_cast<std::size_t>(map[static_cast<std::size_t>(q)] * hidden + j)] =
          tokens[static_cast<std::size_t>(q / choices * hidden + j)];
  for (const Isa isa : supported_isas()) {
    for (const int threads : {1, 2}) {
      Context context({.threads = threads, .isa = isa});
      moe_token_permute(view(tokens.data(), {samples, hidden}), view(indices.data(), {samples, choices}),
                        view(actual.data(), {rows, hidden}), view(actual_sorted.data(), {samples * choices}),
                        context);
      EXPECT_EQ(actual_sorted, sorted);
      EXPECT_TRUE(actual == expected) << "rows " << rows << " threads " << threads;
    }
  }
}

TEST(MoeTokenPermute, EqualsTheDefinition) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t rows : {0, 1, 20, 26}) {
    compare_permute<float, std::int32_t>(13, 2, 5, rows, 0, 3, 1);
    compare_permute<std::int8_t, std::int64_t>(26, 1, 33, rows, -2, 2, 2);
    compare_permute<double, std::int64_t>(13, 2, 1, rows, -kMost - 1, kMost, 3);  // too wide to count
  }
  compare_permute<float, std::int32_t>(800, 2, 1027, 1500, 0, 63, 4);  // on several threads, streamed
  compare_permute<std::int16_t, std::int32_t>(0, 2, 5, 0, 0, 3, 5);
}

TEST(MoeTokenPermute, MoreRowsThanChoicesAreRefused) {
  std::vector<float> tokens(4), permuted(10);
  std::vector<std::int32_t> indices(2), sorted(2);
  try {
    moe_token_permute(view(tokens.data(), {2, 2}), view(indices.data(), {2}), view(permuted.data(), {5, 2}),
                      view(sorted.data(), {2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "moe_token_permute: permuted_tokens.shape[0] is 5, expected at most 2 = tokens.shape[0], "
                 "since there is no dimension choices");
  }
}

}  // namespace
}  // namespace turnout::test
