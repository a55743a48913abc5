// Tests index pairs of many sites and of large spaces: threads, the chosen index, and its memory.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "sanitizer.h"
#include "sparse_conv/named_scales.h"

namespace turnout::test {
namespace {

constexpr std::int64_t kInt32Max = 2147483647;

// The observer's record of the last call.
struct Seen {
  std::string algorithm;
  std::int64_t scratch = 0;

  static void see(const CallRecord& record, void* user) {
    auto& seen = *static_cast<Seen*>(user);
    seen.algorithm = record.algorithm;
    seen.scratch = record.scratch_bytes;
  }
};

Seen watched(const Sites& sites, const IndicePairsParams& p) {
  const auto indices = flattened<std::int64_t>(sites);
  const auto rows = static_cast<std::int64_t>(sites.size());
  Context context({.threads = 1});
  Seen seen;
  context.set_observer(&Seen::see, &seen);
  const IndicePairs index(view(indices.data(), {rows, p.spatial_shape.count() + 1}), p, context);
  return seen;
}

TEST(SortedPairs, EqualTheDefinition) {
  for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
    const bool strided = mode != ConvMode::submanifold;
    const IndicePairsParams p = completed({.batch_size = 2,
                                           .spatial_shape = {5, 9},
                                           .kernel_size = {3, 3},
                                           .stride = Dims::filled(2, strided ? 2 : 1),
                                           .padding = {1, 1},
                                           .mode = mode});
    for (Pattern pattern : kPatterns) {
      const Sites sites = make_sites(pattern, p, 20, 5);
      const reference::Pairs one = reference::indice_pairs(sites, p), other = sorted_pairs(sites, p);
      EXPECT_EQ(one.outputs, other.outputs);
      EXPECT_EQ(one.in, other.in);
      EXPECT_EQ(one.out, other.out);
    }
  }
}

// The scales of a LiDAR network. Sites are in clusters, so that many have neighbours, and shuffled.
TEST(IndicePairs, NamedScales) {
  const std::vector<Isa> best = {Context().isa()};
  const std::int64_t reduced = kReducedShapes ? 16 : 1;
  const IndicePairsParams submanifold = submanifold_scale().params, sparse = sparse_scale().params;
  Sites sites = clustered_sites(submanifold, submanifold_scale().rows / reduced, 1);
  compare<std::int32_t>(sites, submanifold, sorted_pairs(sites, completed(submanifold)),
                        {.isas = best, .threads = {1, 2}});
  EXPECT_EQ(watched(sites, submanifold).algorithm, "bitmap");
  EXPECT_LT(watched(sites, submanifold).scratch, 100 * 248636 + (16 << 20));

  sites = clustered_sites(sparse, sparse_scale().rows / reduced, 2);
  compare<std::int32_t>(sites, sparse, sorted_pairs(sites, completed(sparse)),
                        {.isas = best, .threads = {1, 2}, .spare = 3});
}

// Enough pairs for several threads and for streamed stores.
TEST(IndicePairs, SameBitsForEveryThreadCount) {
  constexpr std::int64_t kLengths[] = {60000, 300, 45, 16};
  unsigned seed = 0;
  for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
    for (int dims = 1; dims <= 4; ++dims) {
      ++seed;
      const Dims stride = Dims::filled(dims, mode == ConvMode::submanifold ? 1 : 1 + seed % 2);
      const Dims space = Dims::filled(dims, kLengths[dims - 1]);
      const IndicePairsParams p{.batch_size = 2,
                                .spatial_shape = space,
                                .kernel_size = Dims::filled(dims, dims == 1 ? 9 : 3),
                                .stride = stride,
                                .padding = Dims::filled(dims, 1),
                                .output_shape = space,
                                .mode = mode};
      const std::int64_t rows = 270'000 / volume_of(p.kernel_size);
      const Sites sites = make_sites(kPatterns[seed % kOrders], p, rows, seed);
      compare<std::int32_t>(sites, p, sorted_pairs(sites, completed(p)),
                            {.threads = {1, 2, 5}, .offset = seed % 7});
    }
  }
}

// With few kernel offsets and many sites, the sites are cut into blocks, whose pairs are joined.
TEST(IndicePairs, BlocksOfSitesAreJoined) {
  unsigned seed = 0;
  const auto run = [&](const IndicePairsParams& p) {
    const Pattern pattern = kPatterns[++seed % kOrders];
    const Sites sites = make_sites(pattern, p, 70'001, seed);
    compare<std::int32_t>(sites, p, sorted_pairs(sites, completed(p)),
                          {.isas = {Context().isa()}, .threads = {1, 5}, .offset = seed % 3});
  };
  for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
    for (int round = 0; round < 2; ++round) {
      run({.batch_size = 2, .spatial_shape = {150'000}, .kernel_size = {4}, .padding = {1}, .mode = mode});
      run({.spatial_shape = {2, 100, 1500}, .kernel_size = {1, 1, 3}, .padding = {0, 0, 1}, .mode = mode});
    }
    if (mode == ConvMode::submanifold) continue;
    run({.spatial_shape = {150'000}, .kernel_size = {4}, .stride = {3}, .padding = {1}, .mode = mode});
  }
}

// Each of two threads gets ascending sites; those of the second precede those of the first.
TEST(IndicePairs, SitesThatAscendInTheHalfOfEachThread) {
  const IndicePairsParams p{.batch_size = 1,
                            .spatial_shape = {150'000},
                            .kernel_size = {3},
                            .padding = {1},
                            .mode = ConvMode::submanifold};
  Sites sites;
  for (std::int64_t x = 0; x < 100'000; ++x) sites.push_back({0, (x + 50'000) % 100'000 * 3 / 2});
  compare<std::int32_t>(sites, p, sorted_pairs(sites, completed(p)),
                        {.isas = {Context().isa()}, .threads = {1, 2}});
}

// A stride of 2 makes two classes, one of which has sites in at most every other block.
TEST(IndicePairs, BlocksWithoutSitesOfAClass) {
  const IndicePairsParams p{.spatial_shape = {150'000}, .kernel_size = {5}, .stride = {2}, .padding = {2}};
  for (const std::int64_t few : {1, 2, 3}) {
    Sites sites;
    for (std::int64_t x = 0; x < 100'000; x += 2) sites.push_back({0, x});
    for (std::int64_t i = 0; i < few; ++i) sites.push_back({0, 101 + i * 40'000});
    compare<std::int32_t>(sites, p, sorted_pairs(sites, completed(p)),
                          {.isas = {Context().isa()}, .threads = {1, 2, 5}});
  }
}

// Sites are searched in chunks, and pairs are buffered until they fill a cache line. At the end the buffers
// are empty, partial or full.
TEST(IndicePairs, NumbersOfSitesAroundThoseOfAChunk) {
  for (const std::int64_t chunk : {64, 256, 1024, 4096}) {
    for (const std::int64_t rows : {chunk - 1, chunk, chunk + 1, 3 * chunk}) {
      const IndicePairsParams p{
          .spatial_shape = {rows}, .kernel_size = {3}, .padding = {1}, .mode = ConvMode::submanifold};
      Sites sites;
      for (std::int64_t x = 0; x < rows; ++x) sites.push_back({0, x});
      compare<std::int32_t>(sites, p, sorted_pairs(sites, completed(p)), {.threads = {1}});
    }
  }
}

// MLU-OPS takes at most 1,000,000 sites; only its C function keeps that limit.
TEST(IndicePairs, MoreThanAMillionSites) {
  const std::int64_t rows = kReducedShapes ? 100'001 : 1'000'001;
  const IndicePairsParams p{.spatial_shape = {2 * rows}, .kernel_size = {3}, .stride = {2}, .padding = {1}};
  Sites sites;
  for (std::int64_t i = 0; i < rows; ++i) sites.push_back({0, i * 3 % (2 * rows)});
  compare<std::int32_t>(sites, p, sorted_pairs(sites, completed(p)),
                        {.isas = {Context().isa()}, .threads = {1, 2}});
}

// The same sites in a small space, and in one so large that leaves are sorted instead of marked in a bitmap.
// The sites stay away from the upper end of the small space, so that no output is lost there.
TEST(IndicePairs, BothIndexesFindTheSamePairs) {
  unsigned seed = 0;
  for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
    for (std::int64_t stride : {1, 2}) {
      if (mode == ConvMode::submanifold && stride > 1) continue;
      for (Pattern pattern : {Pattern::random, Pattern::duplicates, Pattern::sorted, Pattern::full_grid}) {
        ++seed;
        IndicePairsParams p{.batch_size = 2,
                            .spatial_shape = {6, 7, 40},
                            .kernel_size = {3, 2, 3},
                            .stride = {stride, stride, 1},
                            .padding = {1, 1, 1},
                            .mode = mode};
        const Sites sites = make_sites(pattern, p, 300, seed);
        p.spatial_shape = p.output_shape = {20, 20, 90};
        EXPECT_EQ(watched(sites, p).algorithm, "bitmap");
        const reference::Pairs expected = sorted_pairs(sites, completed(p));
        compare<std::int32_t>(sites, p, expected);
        p.spatial_shape = p.output_shape = {10'000, 10'000, 10'000};
        EXPECT_EQ(watched(sites, p).algorithm, "sorted keys");
        compare<std::int32_t>(sites, p, expected, {.threads = {1, 2}});
        compare<std::int64_t>(sites, p, expected);
      }
    }
  }
}

// Enough sites for several threads, with the index of sorted keys.
TEST(IndicePairs, SortedKeysOnSeveralThreads) {
  const std::vector<Isa> best = {Context().isa()};
  for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
    for (std::int64_t stride : {1, 2}) {
      if (mode == ConvMode::submanifold && stride > 1) continue;
      IndicePairsParams p{.batch_size = 2,
                          .spatial_shape = {300, 500},
                          .kernel_size = {1, 3},
                          .stride = {1, stride},
                          .padding = {0, 1},
                          .mode = mode};
      const Sites sites = make_sites(Pattern::random, p, 70'000, 8);
      p.spatial_shape = p.output_shape = {1'000'000, 1'000'000};
      compare<std::int32_t>(sites, p, sorted_pairs(sites, completed(p)), {.isas = best, .threads = {1, 5}});
    }
  }
}

TEST(IndicePairs, MemoryFollowsTheSitesNotTheSpace) {
  for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
    const auto scratch = [&](std::int64_t length, std::int64_t rows) {
      const IndicePairsParams p{.batch_size = 4,
                                .spatial_shape = {length, length, length},
                                .kernel_size = {3, 3, 3},
                                .padding = {1, 1, 1},
                                .mode = mode};
      const Seen seen = watched(make_sites(Pattern::random, p, rows, 3), p);
      EXPECT_EQ(seen.algorithm, "sorted keys");
      return static_cast<double>(seen.scratch);
    };
    const double once = scratch(10'000, 2'000);
    EXPECT_LT(once, 1000 * 2'000);                  // sites without neighbours have 9 leaves of outputs each
    EXPECT_LT(scratch(10'000, 20'000), 14 * once);  // the table of keys doubles at powers of two
    EXPECT_LT(scratch(100'000, 2'000), 1.2 * once);
  }
}

// The bitmap has at most 8 MB.
TEST(IndicePairs, TheBitmapHasALimit) {
  const auto algorithm = [](std::int64_t length, std::int64_t rows) {
    Sites sites;
    for (std::int64_t i = 0; i < rows; ++i) sites.push_back({0, i * (length - 1) / (rows - 1)});
    return watched(sites, {.spatial_shape = {length}, .kernel_size = {1}, .mode = ConvMode::submanifold})
        .algorithm;
  };
  EXPECT_EQ(algorithm(1000, 2), "bitmap");
  EXPECT_EQ(algorithm(200'000'000, 40'000), "bitmap");
  EXPECT_EQ(algorithm(200'000'000, 1'000), "sorted keys");  // sorting is faster than clearing the bitmap
  EXPECT_EQ(algorithm(2'000'000'000, 40'000), "sorted keys");
  const Sites sites = {{0, 0}, {0, 199'999'999}, {0, 100'000'000}, {0, 199'999'998}, {0, 1}};
  compare<std::int32_t>(sites,
                        {.spatial_shape = {200'000'000}, .kernel_size = {3}, .mode = ConvMode::submanifold});
}

TEST(IndicePairs, CoordinatesUpToTheEndOfInt32) {
  for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
    for (int dims = 1; dims <= 2; ++dims) {
      IndicePairsParams p{.batch_size = 1 << 29,
                          .spatial_shape = {kInt32Max},
                          .kernel_size = {3},
                          .padding = {1},
                          .output_shape = {kInt32Max},
                          .mode = mode};
      if (dims == 2) {
        p.batch_size = 3;
        p.spatial_shape = p.output_shape = {1'000'000, kInt32Max};
        p.kernel_size = {3, 2};
        p.padding = {1, 0};
      }
      const std::int64_t end = kInt32Max - 1;
      Sites sites;
      for (std::int64_t x : {end, end - 1, end - 2, end / 2, std::int64_t{1}, std::int64_t{0}})
        for (std::int64_t n : {p.batch_size - 1, std::int64_t{0}}) {
          if (dims == 1) sites.push_back({n, x});
          if (dims == 2) sites.push_back({n, (end - x) % 1'000'000, x});
        }
      compare<std::int32_t>(sites, p);
      compare<std::int64_t>(sites, p);
      if (mode == ConvMode::submanifold) continue;
      p.stride = Dims::filled(dims, 2);
      compare<std::int32_t>(sites, p);
      p.stride = Dims::filled(dims, kInt32Max);
      p.dilation = Dims::filled(dims, kInt32Max);
      p.padding = Dims::filled(dims, kInt32Max);
      if (mode == ConvMode::sparse) compare<std::int32_t>(sites, p);
    }
  }
}

// Borders in the last corner of a large space are handled like those of a small one.
TEST(IndicePairs, AnywhereInALargeSpaceThePairsAreTheSame) {
  IndicePairsParams p{.spatial_shape = {9, 9, 40}, .kernel_size = {3, 3, 3}, .mode = ConvMode::submanifold};
  const Sites sites = make_sites(Pattern::duplicates, p, 200, 6);
  reference::Pairs expected = reference::indice_pairs(sites, completed(p));
  p.batch_size = 2;
  p.spatial_shape = {100'000, 100'000, 100'000};
  Sites there = sites;
  for (auto& site : there)
    for (std::size_t c = 0; c < 4; ++c) site[c] += std::array{1, 99'991, 99'991, 99'960}[c];
  expected.outputs = there;
  compare<std::int32_t>(there, p, expected);
  p.mode = ConvMode::sparse;
  p.padding = {1, 1, 1};
  compare<std::int32_t>(there, p);
}

TEST(IndicePairs, SpacesBeyondTheIndexAreRefused) {
  const Dims huge = Dims::filled(4, kInt32Max);
  const std::int32_t site[5] = {};
  for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
    try {
      const IndicePairs index(
          view(site, {1, 5}),
          {.spatial_shape = huge, .kernel_size = {1, 1, 1, 1}, .output_shape = huge, .mode = mode});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_supported);
      EXPECT_STREQ(error.what(),
                   "get_indice_pairs: the output space, with its margins, takes more than 2^58 words of 32 "
                   "cells, expected fewer");
    }
  }
}

}  // namespace
}  // namespace turnout::test
