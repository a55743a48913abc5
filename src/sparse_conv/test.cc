// Tests of this family against its definition.
#include <gtest/gtest.h>

#include "sparse_conv/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

// The worked example, by hand: x = 0 and 1 in a space of three cells, a kernel of three.
TEST(IndicePairs, WorkedExample) {
  const std::int32_t indices[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 1}};
  IndicePairsParams params{.spatial_shape = {1, 1, 3}, .kernel_size = {1, 1, 3}, .padding = {0, 0, 1}};
  std::int32_t out[4][4], pairs[3][2][2], num[3];
  const auto run = [&] {
    const IndicePairs index(view(&indices[0][0], {2, 4}), params);
    index.write(view(&out[0][0], {4, 4}), view(&pairs[0][0][0], {3, 2, 2}), view(num, {3}));
    return index.num_act_out();
  };
  using Values = std::vector<std::int32_t>;
  EXPECT_EQ(run(), 3);
  EXPECT_EQ(Values(&out[0][0], &out[0][0] + 16),
            (Values{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, -1, -1, -1, -1}));
  EXPECT_EQ(Values(&pairs[0][0][0], &pairs[0][0][0] + 12), (Values{0, 1, 1, 2, 0, 1, 0, 1, 1, -1, 0, -1}));
  EXPECT_EQ(Values(num, num + 3), (Values{2, 2, 1}));
  params.mode = ConvMode::submanifold;
  EXPECT_EQ(run(), 2);
  EXPECT_EQ(Values(&out[0][0], &out[0][0] + 16),
            (Values{0, 0, 0, 0, 0, 0, 0, 1, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(Values(&pairs[0][0][0], &pairs[0][0][0] + 12), (Values{0, -1, 1, -1, 0, 1, 0, 1, 1, -1, 0, -1}));
  EXPECT_EQ(Values(num, num + 3), (Values{1, 2, 1}));
}

}  // namespace
}  // namespace turnout::test
