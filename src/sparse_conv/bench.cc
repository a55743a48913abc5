// What the index pairs take from C++: a small call, and how the time grows with the sites.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "turnout/turnout.h"

namespace {

using namespace turnout;

// Sites along a diagonal sheet, so that most have neighbours.
void submanifold(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(rows * 4));
  for (std::int64_t i = 0; i < rows; ++i) {
    indices[static_cast<std::size_t>(4 * i + 1)] = static_cast<std::int32_t>(i / 1400 % 41);
    indices[static_cast<std::size_t>(4 * i + 2)] = static_cast<std::int32_t>(i / 1400);
    indices[static_cast<std::size_t>(4 * i + 3)] = static_cast<std::int32_t>(i % 1400);
  }
  std::vector<std::int32_t> out(static_cast<std::size_t>(rows * 4)), num(27);
  std::vector<std::int32_t> pairs(static_cast<std::size_t>(27 * 2 * rows));
  Context context;
  const IndicePairsParams params{
      .spatial_shape = {41, 1440, 1440}, .kernel_size = {3, 3, 3}, .mode = ConvMode::submanifold};
  for (auto _ : state) {
    const IndicePairs index(context, view(indices.data(), {rows, 4}), params);
    index.write(view(out.data(), {rows, 4}), view(pairs.data(), {27, 2, rows}), view(num.data(), {27}));
  }
  state.counters["sites"] = static_cast<double>(rows);
}
BENCHMARK(submanifold)->Arg(100)->Arg(10'000)->Arg(248'636)->Unit(benchmark::kMicrosecond);

}  // namespace
