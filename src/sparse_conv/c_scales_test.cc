// mluOpGetIndicePairs at the scales that the design document names, on one and on two threads.
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "bindings/mluop/call.h"
#include "sanitizer.h"
#include "sparse_conv/c_test_cases.h"
#include "sparse_conv/named_scales.h"

namespace turnout::test {
namespace {

Convolution convolution_of(const IndicePairsParams& p) {
  const auto ints = [](const Dims& dims) {
    return std::vector<int>(dims.data(), dims.data() + dims.count());
  };
  return {.batch = static_cast<int>(p.batch_size),
          .pad = ints(p.padding),
          .stride = ints(p.stride),
          .dilation = ints(p.dilation),
          .input = ints(p.spatial_shape),
          .filter = ints(p.kernel_size),
          .output = ints(p.output_shape),
          .sub_m = p.mode == ConvMode::submanifold};
}

class CIndicePairsScales : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  // Compares all three results with the definition. out_indices has `spare` more rows than there are outputs.
  void compare(const Sites& sites, const IndicePairsParams& given, std::int64_t spare) {
    const IndicePairsParams p = completed(given);
    const reference::Pairs expected = sorted_pairs(sites, p);
    const auto active = static_cast<std::int64_t>(expected.outputs.size());
    for (int threads : {1, 2}) {
      SCOPED_TRACE(testing::Message() << threads << " threads");
      handle->context.set_threads(threads);
      Pairs call(handle, convolution_of(p), flattened<std::int32_t>(sites), active + spare);
      call.expect_equal_to(expected);
      pairs = std::accumulate(call.num.begin(), call.num.end(), std::int64_t{0});
    }
  }

  mluOpHandle_t handle = nullptr;
  std::int64_t pairs = 0;  // of the last call
};

constexpr std::int64_t kReduction = kReducedShapes ? 16 : 1;

TEST_F(CIndicePairsScales, Submanifold) {
  const NamedScale scale = submanifold_scale();
  const std::int64_t rows = scale.rows / kReduction;
  compare(clustered_sites(scale.params, rows, 1), scale.params, 0);
  EXPECT_GT(pairs, 4 * rows) << "most sites have neighbours";
}

TEST_F(CIndicePairsScales, Sparse) {
  const NamedScale scale = sparse_scale();
  const std::int64_t rows = scale.rows / kReduction;
  compare(clustered_sites(scale.params, rows, 2), scale.params, 3);
  EXPECT_GT(pairs, 2 * rows) << "most sites have several outputs";
}

// The last output of a space of 1290^3 cells has a number just below 2^31; that of 1291^3 cells is beyond it.
TEST_F(CIndicePairsScales, LargeOutputIndex) {
  for (std::int64_t length : {1290, 1291}) {
    const std::int64_t last = length - 1;
    for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold})
      compare({{0, last, last, last}, {0, last - 1, last, last - 2}, {0, 0, 0, 0}},
              {.spatial_shape = {length, length, length},
               .kernel_size = {3, 3, 3},
               .padding = {1, 1, 1},
               .mode = mode},
              1);
  }
}

// Coordinates on both bounds of every dimension of both scales, and next to them.
TEST_F(CIndicePairsScales, CoordinatesNextToBothBounds) {
  for (const IndicePairsParams& p : {submanifold_scale().params, sparse_scale().params}) {
    Sites sites;
    const auto near_bounds = [](std::int64_t length) {
      return std::vector<std::int64_t>{0, 1, length - 2, length - 1};
    };
    for (std::int64_t n : {std::int64_t{0}, p.batch_size - 1})
      for (std::int64_t z : near_bounds(p.spatial_shape[0]))
        for (std::int64_t y : near_bounds(p.spatial_shape[1]))
          for (std::int64_t x : near_bounds(p.spatial_shape[2])) sites.push_back({n, z, y, x});
    compare(sites, p, 0);
  }
}

}  // namespace
}  // namespace turnout::test
