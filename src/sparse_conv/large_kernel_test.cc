// Tests that time and memory are proportional to the number of offsets of very large kernels.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "sanitizer.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr std::int64_t kLong = kReducedShapes ? 1 << 12 : 1 << 16, kSide = kReducedShapes ? 64 : 256;
constexpr std::int64_t kFar = std::int64_t{1} << 30;

struct Found {
  std::int64_t outputs;
  std::vector<std::int32_t> num, pairs;
};

// Finds the pairs of one site, in less time than a quadratic number of steps would take.
Found pairs_of(const std::vector<std::int64_t>& site, const IndicePairsParams& params) {
  const auto start = std::chrono::steady_clock::now();
  const auto columns = static_cast<std::int64_t>(site.size());
  Context context({.threads = 1});
  const IndicePairs index(view(site.data(), {1, columns}), params, context);
  const auto volume = static_cast<std::size_t>(index.kernel_volume());
  Found found{index.num_act_out(), std::vector<std::int32_t>(volume), std::vector<std::int32_t>(2 * volume)};
  std::vector<std::int64_t> out(static_cast<std::size_t>(found.outputs * columns));
  index.write(view(out.data(), {found.outputs, columns}),
              view(found.pairs.data(), {index.kernel_volume(), 2, 1}),
              view(found.num.data(), {index.kernel_volume()}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  return found;
}

void expect_all_offsets_in_order(const Found& found) {
  ASSERT_EQ(found.outputs, static_cast<std::int64_t>(found.num.size()));
  for (std::size_t k = 0; k < found.num.size(); ++k) {
    ASSERT_EQ(found.num[k], 1) << k;
    ASSERT_EQ(found.pairs[2 * k], 0) << k;
    ASSERT_EQ(found.pairs[2 * k + 1], static_cast<std::int32_t>(k)) << k;
  }
}

// Every offset has its own window, and so does every site.
TEST(LargeKernels, FarApartInTheLastDimension) {
  expect_all_offsets_in_order(pairs_of({0, 0}, {.spatial_shape = {kFar},
                                                .kernel_size = {kLong},
                                                .dilation = {128},
                                                .output_shape = {kFar},
                                                .mode = ConvMode::transposed}));
}

TEST(LargeKernels, FarApartInTheFirstDimension) {
  expect_all_offsets_in_order(pairs_of({0, 0, 0}, {.spatial_shape = {kFar, 8},
                                                   .kernel_size = {kLong, 1},
                                                   .dilation = {128, 1},
                                                   .output_shape = {kFar, 8},
                                                   .mode = ConvMode::transposed}));
}

TEST(LargeKernels, FarApartInBothDimensions) {
  expect_all_offsets_in_order(pairs_of({0, 0, 0}, {.spatial_shape = {1 << 20, 1 << 20},
                                                   .kernel_size = {kSide, kSide},
                                                   .dilation = {128, 128},
                                                   .output_shape = {1 << 20, 1 << 20},
                                                   .mode = ConvMode::transposed}));
}

// Every offset has its own class; the site belongs to one of them.
TEST(LargeKernels, AsManyClassesAsOffsets) {
  const std::vector<std::int64_t> sizes[] = {{1, kLong}, {kLong, 1}, {kSide, kSide}};
  for (const std::vector<std::int64_t>& size : sizes) {
    const Dims kernel(size.data(), 2);
    const Found found = pairs_of({0, 5 % size[0], 5 % size[1]}, {.spatial_shape = {1 << 20, 1 << 20},
                                                                 .kernel_size = kernel,
                                                                 .stride = kernel,
                                                                 .output_shape = {16, 16}});
    EXPECT_EQ(found.outputs, 1);
    for (std::size_t k = 0; k < found.num.size(); ++k)
      ASSERT_EQ(found.num[k], static_cast<std::int64_t>(k) == 5 % size[0] * size[1] + 5 % size[1] ? 1 : 0);
  }
}

TEST(LargeKernels, Submanifold) {
  const Found found = pairs_of({0, kFar / 2}, {.spatial_shape = {kFar},
                                               .kernel_size = {kLong + 1},
                                               .dilation = {128},
                                               .mode = ConvMode::submanifold});
  for (std::size_t k = 0; k < found.num.size(); ++k)
    ASSERT_EQ(found.num[k], static_cast<std::int64_t>(k) == kLong / 2 ? 1 : 0);
}

}  // namespace
}  // namespace turnout::test
