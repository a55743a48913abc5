// mluOpMoeReRouting at the largest scale of CANN's public tests, and with a million counts.
#include <gtest/gtest.h>

#include <cstring>

#include "c_descriptors.h"
#include "moe_re_routing/many_counts_case.h"

namespace turnout::test {
namespace {

using Ints = ManyCounts::Ints;

class CMoeReRoutingScales : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  // Each row of tokens begins with its number.
  void compare(const ManyCounts& many, std::int64_t hidden) {
    SCOPED_TRACE(testing::Message() << many.ranks << " ranks, " << many.experts << " experts");
    const std::size_t row_bytes = static_cast<std::size_t>(hidden), rows = many.gather.size();
    std::vector<char> tokens(rows * row_bytes), permuted(tokens.size(), 0x5A);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<char>(i * 2654435761u >> 24);
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(&tokens[row * row_bytes], &row, sizeof(std::int32_t));
    Ints idx(rows, -7), number(many.number.size(), -7);
    const Descriptor tokens_desc(MLUOP_DTYPE_INT8, {many.rows, hidden}),
        counts_desc(MLUOP_DTYPE_INT32, {many.ranks, many.experts}), idx_desc(MLUOP_DTYPE_INT32, {many.rows}),
        number_desc(MLUOP_DTYPE_INT32, {many.experts});
    std::size_t size = 0;
    ASSERT_EQ(mluOpGetMoeReRoutingWorkspaceSize(handle, tokens_desc, counts_desc, nullptr, &size), kOk)
        << turnoutLastError();
    std::vector<char> workspace(size);
    ASSERT_EQ(mluOpMoeReRouting(handle, tokens_desc, tokens.data(), counts_desc, many.counts.data(), nullptr,
                                nullptr, 1, 0, workspace.data(), size, tokens_desc, permuted.data(), nullptr,
                                nullptr, idx_desc, idx.data(), number_desc, number.data()),
              kOk)
        << turnoutLastError();
    EXPECT_EQ(idx, many.gather);
    EXPECT_EQ(number, many.number);
    for (std::size_t row = 0; row < rows; ++row)
      ASSERT_EQ(std::memcmp(&permuted[row * row_bytes],
                            &tokens[static_cast<std::size_t>(many.gather[row]) * row_bytes], row_bytes),
                0)
          << row;
  }

  mluOpHandle_t handle = nullptr;
};

TEST_F(CMoeReRoutingScales, LargestPublicTest) { compare({16, 16, kReducedShapes ? 1'024 : 16'384}, 7168); }

TEST_F(CMoeReRoutingScales, ManyRanksAndExperts) {
  for (const ManyCounts& many : all_many_counts()) compare(many, 5);
}

}  // namespace
}  // namespace turnout::test
