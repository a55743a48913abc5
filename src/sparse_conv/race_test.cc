// Tests that writes stay inside the outputs if sites change during a call.
#include <gtest/gtest.h>

#include <vector>

#include "guarded.h"
#include "racing.h"
#include "sanitizer.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr std::chrono::milliseconds kTime{100};

// Sites spread over a plane; a large one has too many leaves for a bitmap.
template <class Index>
struct Sites {
  std::int64_t rows, edge;
  Guarded<Index> indices, out;
  Guarded<std::int32_t> pairs, num;
  IndicePairsParams params;

  Sites(std::int64_t sites, std::int64_t space, ConvMode mode, std::int64_t stride)
      : rows(sites), edge(space), indices(3 * sites), out(3 * 4 * sites), pairs(3 * 2 * sites), num(3) {
    params = {.batch_size = 2, .spatial_shape = {edge, edge}, .kernel_size = {1, 3}, .mode = mode};
    if (mode != ConvMode::submanifold) {
      params.stride = {stride, stride};
      params.padding = {0, 1};
    }
    std::mt19937_64 random(1);
    for (std::int64_t i = 0; i < rows; ++i) {
      indices[3 * i] = static_cast<Index>(i % 2);
      for (std::int64_t c = 1; c < 3; ++c)
        indices[3 * i + c] = static_cast<Index>(random() % static_cast<std::uint64_t>(edge));
    }
  }
  void call(Context& context) {
    get_indice_pairs(view(indices.data(), {rows, 3}), view(out.data(), {4 * rows, 3}),
                     view(pairs.data(), {3, 2, rows}), view(num.data(), {3}), params, context);
  }
};

struct Kind {
  std::int64_t edge, stride;
  ConvMode mode;
};
const Kind kKinds[] = {{1000, 1, ConvMode::submanifold}, {1'000'000'000, 1, ConvMode::submanifold},
                       {1000, 1, ConvMode::sparse},      {1'000'000'000, 1, ConvMode::sparse},
                       {1000, 2, ConvMode::sparse},      {1'000'000'000, 2, ConvMode::sparse},
                       {1000, 2, ConvMode::transposed},  {1'000'000'000, 2, ConvMode::transposed}};

template <class Index>
void flip_sites(const Kind& kind) {
  const std::int64_t rows = 66'000;  // enough for several threads; later loops do not read the sites
  Sites<Index> sites(rows, kind.edge, kind.mode, kind.stride);
  flip_in_each_loop<Index>(
      sites.indices.data(), {3 * rows - 1}, [&](Context& context) { sites.call(context); }, /*most=*/3);
}

TEST(SparseConvRaces, SitesThatChangeBetweenCheckAndUse) {
  if (kThreadSanitizer) GTEST_SKIP() << "the values change between loops, on one thread";
  expect_survives([] {
    for (const Kind& kind : kKinds) flip_sites<std::int32_t>(kind);
  });
}

template <class Index>
void race_sites(const Kind& kind) {
  Sites<Index> sites(3000, kind.edge, kind.mode, kind.stride);
  Context context({.threads = 1});
  const Flipper<Index> one(sites.indices.data(), 3 * sites.rows), other(sites.indices.data(), 3);
  call_for(kTime, [&] { sites.call(context); });
}

TEST(SparseConvRaces, SitesThatChangeAtAnyTime) {
  if (kThreadSanitizer) GTEST_SKIP() << "the caller's data race is intended";
  expect_survives([] {
    for (const Kind& kind : kKinds) {
      race_sites<std::int32_t>(kind);
      race_sites<std::int64_t>(kind);
    }
  });
}

}  // namespace
}  // namespace turnout::test
