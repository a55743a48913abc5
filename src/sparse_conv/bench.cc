// What the index pairs take from C++: a small call, and how the time grows with the sites and with the
// kernel.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "turnout/turnout.h"

namespace {

using namespace turnout;

// Sites along a diagonal sheet, so that most have neighbours; as they come, or shuffled.
std::vector<std::int32_t> make_sites(std::int64_t rows, bool shuffled) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(rows)), sites;
  for (std::int64_t i = 0; i < rows; ++i) numbers[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
  if (shuffled) std::shuffle(numbers.begin(), numbers.end(), std::mt19937(1));
  for (const std::int32_t i : numbers) sites.insert(sites.end(), {0, i / 1400 % 41, i / 1400, i % 1400});
  return sites;
}

void run(benchmark::State& state, const std::vector<std::int32_t>& sites, const IndicePairsParams& params) {
  const std::int64_t rows = static_cast<std::int64_t>(sites.size()) / (params.spatial_shape.count() + 1);
  const std::int64_t columns = params.spatial_shape.count() + 1;
  Context context;
  const ConstTensor indices = view(sites.data(), {rows, columns});
  const IndicePairs first(context, indices, params);
  const std::int64_t volume = first.kernel_volume(), active = first.num_act_out();
  std::vector<std::int32_t> out(static_cast<std::size_t>(active * columns)),
      num(static_cast<std::size_t>(volume));
  std::vector<std::int32_t> pairs(static_cast<std::size_t>(volume * 2 * rows));
  for (auto _ : state) {
    const IndicePairs index(context, indices, params);
    index.write(view(out.data(), {active, columns}), view(pairs.data(), {volume, 2, rows}),
                view(num.data(), {volume}));
  }
  state.counters["sites"] = static_cast<double>(rows);
}

void submanifold(benchmark::State& state) {
  run(state, make_sites(state.range(0), state.range(1) != 0),
      {.spatial_shape = {41, 1440, 1440}, .kernel_size = {3, 3, 3}, .mode = ConvMode::submanifold});
}
BENCHMARK(submanifold)
    ->Args({100, 0})
    ->Args({10'000, 0})
    ->Args({248'636, 0})
    ->Args({248'636, 1})
    ->Unit(benchmark::kMicrosecond);

// Strides sort sites into classes; the large space has too many words for a bitmap.
void strided(benchmark::State& state) {
  const std::int64_t edge = state.range(2);
  run(state, make_sites(state.range(0), state.range(1) != 0),
      {.spatial_shape = {41, edge, edge},
       .kernel_size = {3, 3, 3},
       .stride = {2, 2, 2},
       .padding = {1, 1, 1}});
}
BENCHMARK(strided)
    ->Args({100, 0, 1440})
    ->Args({149'100, 0, 1440})
    ->Args({149'100, 1, 1440})
    ->Args({149'100, 0, 100'000})
    ->Args({149'100, 1, 100'000})
    ->Unit(benchmark::kMicrosecond);

// One site under a long kernel whose offsets lie far apart.
void one_site(benchmark::State& state) {
  run(state, {0, 0},
      {.spatial_shape = {std::int64_t{1} << 30},
       .kernel_size = {state.range(0)},
       .dilation = {128},
       .output_shape = {std::int64_t{1} << 30},
       .mode = ConvMode::transposed});
}
BENCHMARK(one_site)->Arg(1 << 10)->Arg(1 << 12)->Arg(1 << 14)->Unit(benchmark::kMicrosecond);

}  // namespace
