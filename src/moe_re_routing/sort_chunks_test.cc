// Compares sort_chunks_by_idxs with its definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "guarded.h"
#include "isas.h"
#include "moe_re_routing/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

template <class T, class Index>
void compare(std::int64_t rows, std::int64_t hidden, std::int64_t chunks, bool with_probs, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(chunks)), order(sizes.size());
  for (std::int64_t i = 0; i < rows; ++i) ++sizes[random() % sizes.size()];
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::shuffle(order.begin(), order.end(), random);
  Guarded<T> input(rows * hidden, 1), expected(rows * hidden, 1), output(rows * hidden, 1);
  Guarded<std::int16_t> probs(rows), expected_probs(rows), permuted_probs(rows);
  for (std::int64_t i = 0; i < input.size(); ++i) input[i] = static_cast<T>(random());
  for (std::int64_t i = 0; i < rows; ++i) probs[i] = static_cast<std::int16_t>(random());
  const auto define = [&](auto& from, auto& to, std::int64_t row_bytes) {
    reference::sort_chunks_by_idxs(reinterpret_cast<const char*>(from.data()), sizes.data(), order.data(),
                                   chunks, row_bytes, reinterpret_cast<char*>(to.data()));
  };
  define(input, expected, hidden * std::int64_t{sizeof(T)});
  if (with_probs) define(probs, expected_probs, 2);
  const std::vector<Index> given_sizes(sizes.begin(), sizes.end());
  const std::vector<std::int64_t>& given_order = order;
  const ConstTensor p = view(probs.data(), {rows});
  const Tensor to_probs = view(permuted_probs.data(), {rows});
  for (const Isa isa : supported_isas()) {
    for (const int threads : {1, 2}) {
      Context context({.threads = threads, .isa = isa});
      sort_chunks_by_idxs(view(input.data(), {rows, hidden}), view(given_sizes.data(), {chunks}),
                          view(given_order.data(), {chunks}), with_probs ? p : nullptr,
                          view(output.data(), {rows, hidden}), with_probs ? to_probs : nullptr, context);
      EXPECT_TRUE(output.same_bytes(expected));
      EXPECT_TRUE(permuted_probs.same_bytes(expected_probs));
    }
  }
}

TEST(SortChunksByIdxs, EqualsTheDefinition) {
  for (const bool with_probs : {false, true}) {
    compare<float, std::int32_t>(40, 7, 6, with_probs, 1);
    compare<std::int8_t, std::int64_t>(40, 33, 60, with_probs, 2);  // empty chunks
    compare<double, std::int64_t>(0, 3, 2, with_probs, 3);
    compare<float, std::int32_t>(1500, 1031, 48, with_probs, 4);  // on several threads, streamed
  }
}

// Equals moe_re_routing; the transposed sizes restore the order.
TEST(SortChunksByIdxs, IsReRouting) {
  const float tokens[] = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::int64_t counts[] = {2, 1, 3, 2}, there[] = {0, 2, 1, 3};
  std::vector<float> routed(8), sorted(8), back(8);
  std::vector<std::int32_t> idx(8);
  std::vector<std::int64_t> num(2);
  moe_re_routing(view(tokens, {8, 1}), view(counts, {2, 2}), nullptr, view(routed.data(), {8, 1}), nullptr,
                 view(idx.data(), {8}), view(num.data(), {2}));
  sort_chunks_by_idxs(view(tokens, {8, 1}), view(counts, {4}), view(there, {4}), nullptr,
                      view(sorted.data(), {8, 1}), nullptr);
  EXPECT_EQ(sorted, routed);
  EXPECT_EQ(sorted, (std::vector<float>{0, 1, 3, 4, 5, 2, 6, 7}));
  const std::int64_t transposed[] = {2, 3, 1, 2};
  sort_chunks_by_idxs(view(sorted.data(), {8, 1}), view(transposed, {4}), view(there, {4}), nullptr,
                      view(back.data(), {8, 1}), nullptr);
  EXPECT_TRUE(std::equal(back.begin(), back.end(), tokens));
}

TEST(SortChunksByIdxs, Messages) {
  const auto message = [](std::vector<std::int32_t> sizes, std::vector<std::int32_t> order) {
    const float input[] = {1, 2, 3, 4};
    float output[] = {7, 7, 7, 7};
    try {
      sort_chunks_by_idxs(view(input, {4, 1}), view(sizes.data(), {3}), view(order.data(), {3}), nullptr,
                          view(output, {4, 1}), nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(output[0], 7);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({1, 0, 3}, {2, 1, 0}), "");
  EXPECT_EQ(message({1, 0, 2}, {2, 1, 0}),
            "sort_chunks_by_idxs: split_sizes sums to 3, expected the 4 rows of input");
  EXPECT_EQ(
      message({3, -1, 2}, {2, 1, 0}),
      "sort_chunks_by_idxs: split_sizes[1] is -1, expected 0 .. 1, the remainder of the 4 rows of input");
  EXPECT_EQ(message({1, 1, 2}, {2, 1, 3}), "sort_chunks_by_idxs: sorted_idxs[2] is 3, expected 0 .. 2");
  EXPECT_EQ(message({1, 1, 2}, {2, 1, 1}),
            "sort_chunks_by_idxs: sorted_idxs[2] is 1, equal to [1], expected a permutation");
}

}  // namespace
}  // namespace turnout::test
