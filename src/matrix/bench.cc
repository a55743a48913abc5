// Products of gathered rows on one thread, as a fraction of the CPU's peak rate of fused multiply-adds.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <random>
#include <vector>

#include "matrix/matrix.h"
#include "simd/fma_peak.h"

namespace {

using namespace turnout;
using core::matrix::Kernels;

// 96 rows, gathered at random from 4096, times a square matrix: one batch of a convolution.
template <class Lane>
struct Case {
  static constexpr std::int64_t kRows = 96, kThere = 4096;
  const Kernels<Lane>& k = core::matrix::kernels<Lane>(default_context().isa());
  std::int64_t channels, stride = k.padded(channels);
  std::vector<Lane> a = std::vector<Lane>(static_cast<std::size_t>(kThere * channels), Lane(0.5));
  std::vector<Lane> b = a;
  std::vector<Lane> to = std::vector<Lane>(static_cast<std::size_t>(std::max(kRows, channels) * stride));
  std::vector<Lane> memory =
      std::vector<Lane>(static_cast<std::size_t>(k.packed_size(channels, channels)) + 64);
  std::vector<const Lane*> from, with;
  std::vector<Lane*> into;
  Lane* packed;

  explicit Case(std::int64_t c) : channels(c) {
    void* at = memory.data();
    std::size_t room = memory.size() * sizeof(Lane);
    packed = static_cast<Lane*>(std::align(64, 1, at, room));
    k.pack({a.data(), dtype_of<Lane>, channels, channels, channels, 1}, packed);
    std::mt19937 random(1);
    for (std::int64_t r = 0; r < kRows; ++r) {
      from.push_back(a.data() + random() % kThere * channels);
      with.push_back(b.data() + random() % kThere * channels);
      into.push_back(to.data() + r * stride);
    }
  }
};

template <class Lane, class Run>
void measure(benchmark::State& state, const Run& run) {
  const bool is_f64 = sizeof(Lane) == 8;
  const double peak = core::fma_peak(default_context().isa(), is_f64);
  const std::clock_t begin = std::clock();  // CPU time of this process, which other processes do not affect
  for (auto _ : state) run();
  const double spent = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double channels = static_cast<double>(state.range(0));
  const double done = 2.0 * Case<Lane>::kRows * channels * channels * static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = done / spent / 1e9;
  state.counters["of peak"] = done / spent / peak;
}

template <class Lane>
void product(benchmark::State& state) {
  Case<Lane> c(state.range(0));
  measure<Lane>(state, [&] {
    c.k.multiply(c.from.data(), c.into.data(), c.kRows, c.packed, c.channels, c.stride,
                 core::matrix::Write::add);
  });
}
template <class Lane>
void outer(benchmark::State& state) {
  Case<Lane> c(state.range(0));
  measure<Lane>(state, [&] {
    c.k.add_outer(c.from.data(), c.with.data(), c.kRows, c.channels, c.channels, c.to.data(), c.stride);
  });
}
BENCHMARK(product<float>)->Arg(16)->Arg(32)->Arg(64)->Arg(128);
BENCHMARK(outer<float>)->Arg(16)->Arg(32)->Arg(64)->Arg(128);
BENCHMARK(product<double>)->Arg(64);
BENCHMARK(outer<double>)->Arg(64);

}  // namespace
