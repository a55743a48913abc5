// What the index pairs take from C++: a small call, and how the time grows with the sites and with the
// kernel; and convolutions along pairs of a LiDAR-like scene, as a fraction of the fused multiply-adds that
// the CPU does at most.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <random>
#include <set>
#include <vector>

#include "simd/fma_peak.h"
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

// A ring scanner over ground with walls: 333,422 sites, 6.1 pairs each under 3x3x3, in ascending order.
struct Scene {
  std::int64_t rows = 0, total = 0;
  std::vector<std::int32_t> pairs, num = std::vector<std::int32_t>(27);

  Scene() {
    std::set<std::array<std::int32_t, 4>> sites;
    const auto add = [&](int n, double x, double y, double z) {
      const auto cell = [](double v, double size, int limit) {
        return static_cast<std::int32_t>(std::clamp(v / size, 0.0, limit - 1.0));
      };
      sites.insert({n, cell(z + 5, 0.2, 41), cell(y + 54, 0.1, 1080), cell(x + 54, 0.1, 1080)});
    };
    for (int n = 0; n < 4; ++n) {
      for (int beam = 0; beam < 128; ++beam) {
        for (int step = 0; step < 2400; ++step) {
          const double angle = step * 3.14159265 / 1200, slope = 0.46 - beam * 0.00375;
          const double wall = 8 + 30 * std::abs(std::sin(angle * 3 + n)) + 4 * std::sin(angle * 17);
          const double ground = slope > 0.02 ? 1.8 / slope : 1e9, range = std::min(wall, ground);
          add(n, range * std::cos(angle), range * std::sin(angle), -slope * range);
        }
      }
    }
    std::vector<std::int32_t> indices;
    for (const auto& site : sites) indices.insert(indices.end(), site.begin(), site.end());
    rows = static_cast<std::int64_t>(sites.size());
    pairs.resize(static_cast<std::size_t>(27 * 2 * rows));
    std::vector<std::int32_t> out(indices.size());
    get_indice_pairs(view(indices.data(), {rows, 4}), view(out.data(), {rows, 4}),
                     view(pairs.data(), {27, 2, rows}), view(num.data(), {27}),
                     {.batch_size = 4,
                      .spatial_shape = {41, 1080, 1080},
                      .kernel_size = {3, 3, 3},
                      .mode = ConvMode::submanifold});
    for (std::int32_t n : num) total += n;
  }
};

// `kept`: along an index that was made before.
enum class Part { forward, data, filter, forward_kept, data_kept };

template <Part part, class T = float>
void convolution(benchmark::State& state) {
  static const Scene scene;
  const std::int64_t channels = state.range(0), rows = scene.rows;
  const int threads = static_cast<int>(state.range(1));
  Context context({.threads = threads});
  const auto some = [](std::int64_t n) { return std::vector<T>(static_cast<std::size_t>(n), T{}); };
  auto features = some(rows * channels), out = features, filters = some(27 * channels * channels);
  const ConstTensor pairs = view(scene.pairs.data(), {27, 2, rows}), num = view(scene.num.data(), {27});
  const Tensor x = view(features.data(), {rows, channels}), y = view(out.data(), {rows, channels});
  const Tensor w = view(filters.data(), {27, channels, channels});
  std::vector<std::int64_t> index;
  if constexpr (part == Part::forward_kept || part == Part::data_kept) {
    const IndiceConvolutionIndex by_row(context, pairs, num, {rows, rows, part == Part::data_kept});
    index.resize(static_cast<std::size_t>(by_row.size()));
    by_row.write(view(index.data(), {by_row.size()}));
  }
  const ConstTensor kept = view(index.data(), {static_cast<std::int64_t>(index.size())});
  const double peak = core::fma_peak(context.isa(), sizeof(T) == 8);
  std::clock_t spent = 0;  // of this process: what others do beside it does not count
  for (auto _ : state) {
    const std::clock_t begin = std::clock();
    if constexpr (part == Part::forward) {
      indice_convolution_forward(context, x, w, pairs, num, nullptr, y);
    } else if constexpr (part == Part::forward_kept) {
      indice_convolution_forward(context, x, w, pairs, num, nullptr, y, {.index = &kept});
    } else if constexpr (part == Part::data_kept) {
      indice_convolution_backward_data(context, x, w, pairs, num, y, {.index = &kept});
    } else if constexpr (part == Part::data) {
      indice_convolution_backward_data(context, x, w, pairs, num, y);
    } else {
      indice_convolution_backward_filter(context, x, y, pairs, num, w);
    }
    spent += std::clock() - begin;
  }
  const double done = 2.0 * static_cast<double>(scene.total) * static_cast<double>(channels * channels) *
                      static_cast<double>(state.iterations());
  state.counters["of peak"] = done / (static_cast<double>(spent) / CLOCKS_PER_SEC) / peak;
  state.counters["sites"] = static_cast<double>(rows);
  state.counters["pairs"] = static_cast<double>(scene.total);
}
#define TURNOUT_CHANNELS ->ArgsProduct({{16, 32, 64, 128}, {1, 2}})->Unit(benchmark::kMillisecond)
BENCHMARK(convolution<Part::forward>) TURNOUT_CHANNELS;
BENCHMARK(convolution<Part::data>) TURNOUT_CHANNELS;
BENCHMARK(convolution<Part::forward_kept>) TURNOUT_CHANNELS;
BENCHMARK(convolution<Part::data_kept>) TURNOUT_CHANNELS;
BENCHMARK(convolution<Part::filter>) TURNOUT_CHANNELS;
BENCHMARK(convolution<Part::forward, bf16>) TURNOUT_CHANNELS;

// Pooling of whole batch elements of the scene, in bytes of features per second.
template <bool kIsMax>
void global_pool(benchmark::State& state) {
  const std::int64_t channels = state.range(0), rows = 333'422;
  Context context({.threads = static_cast<int>(state.range(1))});
  std::vector<std::int32_t> batches(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < batches.size(); ++i)
    batches[i] = static_cast<std::int32_t>(i * 4 / batches.size());
  const std::vector<float> features(static_cast<std::size_t>(rows * channels), 1);
  std::vector<float> out(static_cast<std::size_t>(4 * channels));
  const ConstTensor x = view(features.data(), {rows, channels}), indices = view(batches.data(), {rows, 1});
  for (auto _ : state) {
    if constexpr (kIsMax) {
      global_max_pool_forward(context, x, indices, view(out.data(), {4, channels}));
    } else {
      global_avg_pool_forward(context, x, indices, view(out.data(), {4, channels}));
    }
  }
  state.SetBytesProcessed(state.iterations() * rows * channels * 4);
}
BENCHMARK(global_pool<true>)->ArgsProduct({{16, 128}, {1, 2}})->Unit(benchmark::kMillisecond);
BENCHMARK(global_pool<false>)->ArgsProduct({{16, 128}, {1, 2}})->Unit(benchmark::kMillisecond);

// What such an index takes, once.
void convolution_index(benchmark::State& state) {
  static const Scene scene;
  const std::int64_t rows = scene.rows;
  Context context({.threads = static_cast<int>(state.range(0))});
  const ConstTensor pairs = view(scene.pairs.data(), {27, 2, rows}), num = view(scene.num.data(), {27});
  std::vector<std::int64_t> index;
  for (auto _ : state) {
    const IndiceConvolutionIndex by_row(context, pairs, num, {rows, rows});
    index.resize(static_cast<std::size_t>(by_row.size()));
    by_row.write(view(index.data(), {by_row.size()}));
  }
  state.counters["pairs"] = static_cast<double>(scene.total);
}
BENCHMARK(convolution_index)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond);

}  // namespace
