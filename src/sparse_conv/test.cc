// Compares index pairs with their definition: modes x dimensions x patterns x ISA x threads, and every kind
// of geometry.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "sparse_conv/test_cases.h"

namespace turnout::test {
namespace {

// An example by hand: x = 0 and 1 in a space of three cells, a kernel of three.
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

constexpr ConvMode kModes[] = {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed};

Dims small_space(int dims) {
  return dims == 1 ? Dims{70} : dims == 2 ? Dims{9, 37} : dims == 3 ? Dims{5, 6, 9} : Dims{3, 4, 3, 6};
}

// The example of README.md: the window of x = 29 crosses from the first leaf into the second.
TEST(IndicePairs, ReadmeExample) {
  const std::int32_t sites[] = {0, 29, 0, 30};
  std::int32_t out[4] = {}, pairs[12] = {}, num[3] = {};
  const IndicePairsParams params{.spatial_shape = {64}, .kernel_size = {3}, .mode = ConvMode::submanifold};
  EXPECT_EQ(get_indice_pairs(view(sites, {2, 2}), view(out, {2, 2}), view(pairs, {3, 2, 2}), view(num, {3}),
                             params),
            2);
  using Ints = std::vector<std::int32_t>;
  EXPECT_EQ(Ints(num, num + 3), (Ints{1, 2, 1}));
  EXPECT_EQ(Ints(pairs, pairs + 12), (Ints{0, -1, 1, -1, 0, 1, 0, 1, 1, -1, 0, -1}));
}

TEST(IndicePairs, EqualsTheDefinition) {
  unsigned seed = 0;
  for (ConvMode mode : kModes) {
    for (int dims = 1; dims <= 4; ++dims) {
      for (Pattern pattern : kPatterns) {
        ++seed;
        IndicePairsParams p{.batch_size = 5,
                            .spatial_shape = small_space(dims),
                            .kernel_size = Dims::filled(dims, 3),
                            .padding = Dims::filled(dims, 1),
                            .mode = mode};
        const Sites sites = make_sites(pattern, p, 60, seed);
        const On on{.threads = {1, 2, 5}, .spare = seed % 3, .offset = seed % 5};
        compare<std::int32_t>(sites, p, on);
        compare<std::int64_t>(sites, p, on);
        if (mode == ConvMode::submanifold) continue;
        p.stride = Dims::filled(dims, 2);
        compare<std::int32_t>(sites, p, on);
        compare<std::int64_t>(sites, p, on);
      }
    }
  }
}

// Even and odd kernels, strides together with dilations, and output shapes other than the default.
TEST(IndicePairs, AnyGeometry) {
  std::mt19937 random(7);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (unsigned round = 0; round < 480; ++round) {
    const int dims = static_cast<int>(round % 4) + 1;
    const Dims ones = Dims::filled(dims, 1);
    IndicePairsParams p{3, small_space(dims), ones, ones, ones, ones, ones, {}, kModes[round % 3]};
    const bool submanifold = p.mode == ConvMode::submanifold;
    for (int d = 0; d < dims; ++d) {
      p.kernel_size[d] = between(1, dims == 1 ? 9 : 4);
      p.padding[d] = between(0, 5);
      p.dilation[d] = between(1, 4);
      if (!submanifold) p.stride[d] = between(1, 4);
      p.output_shape[d] = submanifold ? p.spatial_shape[d] : between(1, 2 * p.spatial_shape[d]);
    }
    const Sites sites = make_sites(kPatterns[between(0, std::size(kPatterns) - 1)], p, 40, round);
    const On on{.threads = {static_cast<int>(round % 2) + 1}, .offset = round % 3};
    round % 2 == 0 ? compare<std::int32_t>(sites, p, on) : compare<std::int64_t>(sites, p, on);
  }
}

TEST(IndicePairs, NamedGeometries) {
  constexpr auto kSubm = ConvMode::submanifold, kTransposed = ConvMode::transposed;
  const Dims space{6, 7, 12};
  const IndicePairsParams all[] = {
      // even and unequal kernels
      {.spatial_shape = space, .kernel_size = {2, 2, 2}},
      {.spatial_shape = space, .kernel_size = {4, 2, 6}, .stride = {2, 2, 2}, .padding = {1, 1, 1}},
      {.spatial_shape = space, .kernel_size = {2, 4, 2}, .padding = {1, 1, 0}, .mode = kSubm},
      {.spatial_shape = space, .kernel_size = {1, 3, 5}, .mode = kSubm},
      {.spatial_shape = space, .kernel_size = {5, 1, 3}, .stride = {1, 2, 3}, .mode = kTransposed},
      // the largest kernel of the C interface
      {.spatial_shape = space, .kernel_size = {16, 16, 16}, .padding = {8, 8, 8}},
      {.spatial_shape = space, .kernel_size = {16, 16, 16}, .padding = {8, 7, 8}, .mode = kSubm},
      {.spatial_shape = {4096}, .kernel_size = {4096}, .padding = {2000}},
      // inputs between the kernels have no output
      {.spatial_shape = space, .kernel_size = {1, 2, 2}, .stride = {3, 5, 4}},
      {.spatial_shape = {7, 300}, .kernel_size = {1, 1}, .stride = {2, 50}},
      // strides and dilations together, with and without a common divisor
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .stride = {2, 3, 2}, .dilation = {2, 3, 3}},
      {.spatial_shape = {9, 60},
       .kernel_size = {3, 5},
       .stride = {4, 4},
       .padding = {4, 9},
       .dilation = {2, 6}},
      {.spatial_shape = {9, 60},
       .kernel_size = {3, 5},
       .stride = {2, 6},
       .padding = {4, 9},
       .dilation = {4, 4}},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .padding = {2, 2, 2}, .dilation = {2, 2, 2}},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .dilation = {2, 2, 2}, .mode = kSubm},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .dilation = {2, 1, 3}, .mode = kTransposed},
      // submanifold with a given padding: the centre moves, or there are no pairs
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .padding = {0, 0, 0}, .mode = kSubm},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .padding = {2, 1, 4}, .mode = kSubm},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .padding = {1, 1, 100}, .mode = kSubm},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .padding = {100, 1, 1}, .mode = kSubm},
      // output shapes other than the default
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .output_shape = {2, 9, 4}},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .stride = {2, 2, 2}, .output_shape = {9, 1, 40}},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .output_shape = {3, 1, 5}, .mode = kTransposed},
      {.spatial_shape = space,
       .kernel_size = {3, 3, 3},
       .stride = {2, 2, 2},
       .output_shape = {50, 1, 40},
       .mode = kTransposed},
      {.spatial_shape = space,
       .kernel_size = {2, 2, 2},
       .stride = {2, 2, 2},
       .output_padding = {1, 0, 2},
       .mode = kTransposed},
      {.spatial_shape = space, .kernel_size = {3, 3, 3}, .padding = {7, 7, 7}, .output_shape = {1, 1, 1}},
      {.spatial_shape = {1, 1, 1}, .kernel_size = {3, 3, 3}, .mode = kSubm},
      {.spatial_shape = space, .kernel_size = {-1, -1, -1}},
      {.spatial_shape = {6, 40}, .kernel_size = {3, -1}, .padding = {1, 0}},
  };
  unsigned seed = 0;
  for (IndicePairsParams p : all) {
    p.batch_size = 2;
    ++seed;
    for (Pattern pattern : {Pattern::random, Pattern::duplicates, Pattern::one_site}) {
      const std::int64_t rows = volume_of(p.kernel_size) > 1000 ? 12 : 80;
      compare<std::int32_t>(make_sites(pattern, p, rows, seed), p, {.spare = 1, .offset = seed % 4});
    }
  }
}

// More offsets in the last dimension than one window spans, and offsets further apart than a window is wide.
TEST(IndicePairs, KernelsBeyondOneWindow) {
  unsigned seed = 0;
  for (std::int64_t kernel : {16, 17, 18, 33, 34, 40}) {
    for (std::int64_t dilation : {1, 2, 3, 16, 17, 50}) {
      for (ConvMode mode : kModes) {
        ++seed;
        IndicePairsParams p{.batch_size = 2,
                            .spatial_shape = {2, 150},
                            .kernel_size = {2, kernel},
                            .padding = {1, seed % 5 * dilation * kernel / 4},
                            .dilation = {1, dilation},
                            .output_shape = {2, 150},
                            .mode = mode};
        const Sites sites = make_sites(kPatterns[seed % kOrders], p, 90, seed);
        compare<std::int32_t>(sites, p);
        if (mode != ConvMode::submanifold) {
          p.stride = {1, seed % 3 + 2};
          compare<std::int64_t>(sites, p);
        }
      }
    }
  }
}

TEST(IndicePairs, SitesAtBothBoundsOfEveryDimension) {
  for (ConvMode mode : kModes) {
    for (int dims = 1; dims <= 4; ++dims) {
      const std::int64_t space[] = {33, 31, 40, 34};
      const IndicePairsParams p{.batch_size = 4,
                                .spatial_shape = Dims(space, dims),
                                .kernel_size = Dims::filled(dims, 3),
                                .padding = Dims::filled(dims, 1),
                                .mode = mode};
      Sites sites;
      for (std::int64_t corner = 0; corner < 2 << dims; ++corner) {
        reference::Site site{corner % 2 * 3};
        for (int d = 0; d < dims; ++d) site.push_back((corner >> (d + 1) & 1) * (p.spatial_shape[d] - 1));
        sites.push_back(site);
      }
      compare<std::int32_t>(sites, p);
      compare<std::int64_t>({sites.back()}, p);  // the last site of the last batch
    }
  }
}

// (input site, kernel offset, output site) of every pair.
using Triples = std::set<std::tuple<reference::Site, std::int64_t, reference::Site>>;

struct Found {
  Sites outputs;
  std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> pairs;  // by kernel offset
};

Found find(const Sites& sites, const IndicePairsParams& p) {
  const auto indices = flattened<std::int64_t>(sites);
  const auto rows = static_cast<std::int64_t>(sites.size());
  const int dims = p.spatial_shape.count();
  const IndicePairs index(view(indices.data(), {rows, dims + 1}), p);
  Results<std::int64_t> results(index.num_act_out(), dims, index.kernel_volume(), rows);
  index.write(results.out_view(), results.pairs_view(), results.num_view());
  Found found;
  for (std::int64_t r = 0; r < results.room; ++r)
    found.outputs.emplace_back(results.out.data() + r * (dims + 1),
                               results.out.data() + (r + 1) * (dims + 1));
  for (std::int64_t k = 0; k < results.volume; ++k) {
    auto& pairs = found.pairs.emplace_back();
    for (std::int64_t j = 0; j < results.num[k]; ++j)
      pairs.emplace_back(results.pairs[2 * k * rows + j], results.pairs[(2 * k + 1) * rows + j]);
  }
  return found;
}

TEST(IndicePairs, SubmanifoldPairsAreSymmetric) {
  for (const Dims& dilation : {Dims{1, 1, 1}, Dims{2, 1, 3}}) {
    const IndicePairsParams p{.batch_size = 2,
                              .spatial_shape = {12, 14, 40},
                              .kernel_size = {3, 1, 5},
                              .dilation = dilation,
                              .mode = ConvMode::submanifold};
    const Found found = find(make_sites(Pattern::random, p, 1500, 3), p);
    for (std::size_t k = 0; k < found.pairs.size(); ++k) {
      std::set<std::pair<std::int32_t, std::int32_t>> swapped;
      for (const auto& [in, out] : found.pairs[k]) swapped.emplace(out, in);
      const auto& mirrored = found.pairs[found.pairs.size() - 1 - k];
      EXPECT_EQ(swapped, std::set(mirrored.begin(), mirrored.end())) << "offset " << k;
    }
    EXPECT_EQ(found.pairs[7].size(), 1500u) << "at the centre every site pairs with itself";
  }
}

TEST(IndicePairs, AKernelOfOneIsTheIdentity) {
  for (ConvMode mode : kModes) {
    const IndicePairsParams p{
        .batch_size = 3, .spatial_shape = {20, 50}, .kernel_size = {1, 1}, .mode = mode};
    Sites sites = make_sites(Pattern::random, p, 400, 4);
    if (mode != ConvMode::submanifold) std::sort(sites.begin(), sites.end());
    const Found found = find(sites, p);
    EXPECT_EQ(found.outputs, sites);
    ASSERT_EQ(found.pairs.size(), 1u);
    ASSERT_EQ(found.pairs[0].size(), sites.size());
    for (std::int32_t i = 0; i < 400; ++i)
      EXPECT_EQ(found.pairs[0][static_cast<std::size_t>(i)], std::pair(i, i));
  }
}

// A convolution of the full grid, and the transposed convolution of its outputs back onto the grid.
TEST(IndicePairs, TransposedPairsAreTheSwappedPairs) {
  for (const Dims& stride : {Dims{1, 1}, Dims{2, 3}, Dims{4, 1}}) {
    IndicePairsParams p{.batch_size = 2,
                        .spatial_shape = {11, 23},
                        .kernel_size = {3, 2},
                        .stride = stride,
                        .padding = {1, 0},
                        .dilation = {1, 2}};
    const auto triples = [](const Sites& inputs, const Found& found, bool swapped) {
      Triples all;
      for (std::size_t k = 0; k < found.pairs.size(); ++k)
        for (const auto& [in, out] : found.pairs[k]) {
          const auto &i = inputs[static_cast<std::size_t>(in)],
                     &o = found.outputs[static_cast<std::size_t>(out)];
          swapped ? all.emplace(o, k, i) : all.emplace(i, k, o);
        }
      return all;
    };
    const Sites grid = make_sites(Pattern::full_grid, p, 0, 0);
    const Found forward = find(grid, p);
    p.output_shape = p.spatial_shape;
    p.spatial_shape = indice_pairs_output_shape({.spatial_shape = {11, 23},
                                                 .kernel_size = p.kernel_size,
                                                 .stride = stride,
                                                 .padding = p.padding,
                                                 .dilation = p.dilation});
    p.mode = ConvMode::transposed;
    const Found back = find(forward.outputs, p);
    EXPECT_EQ(triples(forward.outputs, back, true), triples(grid, forward, false));
  }
}

}  // namespace
}  // namespace turnout::test
