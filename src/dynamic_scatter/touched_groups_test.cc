// Tests that few rows and very many groups take little memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "turnout/turnout.h"

namespace turnout::test {
namespace {

TEST(ScatterManyGroups, ScratchMemoryIsProportionalToTheRows) {
  constexpr std::size_t groups = 3 << 20;
  const std::vector<float> src = {2, 3, 5};
  const std::vector<std::int64_t> index = {groups - 1, 70'000, groups - 1};
  const ConstTensor from = view(src.data(), {3, 1}), of = view(index.data(), {3});
  std::vector<float> out = std::vector<float>(groups, 7), grads = std::vector<float>(3);
  std::vector<std::int64_t> argmax = std::vector<std::int64_t>(groups, 7);
  const Tensor to = view(out.data(), {groups, 1});
  Context context;
  std::int64_t scratch = 0;
  context.set_observer(
      [](const CallRecord& record, void* user) { *static_cast<std::int64_t*>(user) += record.scratch_bytes; },
      &scratch);
  scatter_sum(from, of, to, context);
  EXPECT_EQ(out.back(), 7);
  EXPECT_EQ(out[70'000], 3);
  EXPECT_EQ(std::count(out.begin(), out.end(), 0.0f), groups - 2);
  scatter_mean(from, of, to, context);
  EXPECT_EQ(out.back(), 3.5f);
  scatter_max(from, of, to, view(argmax.data(), {groups, 1}), context);
  EXPECT_EQ(out.back(), 5);
  EXPECT_EQ(argmax.back(), 2);
  EXPECT_EQ(argmax[0], 3);
  scatter_mean_backward(to, of, view(grads.data(), {3, 1}), context);
  EXPECT_EQ(grads, (std::vector<float>{2.5f, 3, 2.5f}));
  EXPECT_GT(scratch, 0);
  EXPECT_LT(scratch, 100'000);
}

}  // namespace
}  // namespace turnout::test
