// moe_dispatch from C++: the cost of small calls, and the large scales beside a streamed copy of the same
// bytes. Run with --benchmark_enable_random_interleaving=true: ratios are then taken under the same
// conditions.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "runtime/stream_copy.h"
#include "turnout/turnout.h"

namespace {

using namespace turnout;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<float, Free>;
Memory touched(std::int64_t count) {
  const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(float) + 4095) / 4096 * 4096;
  Memory memory(static_cast<float*>(std::aligned_alloc(4096, bytes)));
  std::memset(memory.get(), 0, bytes);
  return memory;
}

// Random experts; each takes its tokens in order, as moe_locations numbers them.
struct Routed {
  std::int64_t samples, hidden, num_experts, capacity, kept = 0;
  Memory input, dispatch;
  std::vector<float> gates;
  std::vector<std::int32_t> indices, locations;

  Routed(std::int64_t n, std::int64_t h, std::int64_t e, std::int64_t c)
      : samples(n),
        hidden(h),
        num_experts(e),
        capacity(c),
        input(touched(n * h)),
        dispatch(touched(e * c * h)) {
    std::mt19937 random(1);
    std::vector<std::int32_t> next(static_cast<std::size_t>(e));
    for (std::int64_t i = 0; i < n; ++i) {
      const auto expert = static_cast<std::int32_t>(random() % static_cast<unsigned>(e));
      gates.push_back(0.5f);
      indices.push_back(expert);
      locations.push_back(next[static_cast<std::size_t>(expert)]++);
      kept += locations.back() < c;
    }
  }
  void run(Context& context, Fill fill) {
    moe_dispatch_forward(context, view(gates.data(), {samples}), view(indices.data(), {samples}),
                         view(locations.data(), {samples}), view(input.get(), {samples, hidden}),
                         view(dispatch.get(), {num_experts * capacity, hidden}),
                         {.capacity = capacity, .num_experts = num_experts, .fill = fill});
  }
};

Routed& scale(std::int64_t which) {
  static Routed seed(18432, 512, 2, 11520), wide(16384, 4096, 64, 288);
  return which == 0 ? seed : wide;
}

void moved(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

// Arguments: scale (0: 18432x512 E2, 1: 16384x4096 E64), threads.
void copy_floor(benchmark::State& state) {
  Routed& r = scale(state.range(0));
  Context context({.threads = static_cast<int>(state.range(1))});
  const std::int64_t bytes = r.kept * r.hidden * 4;
  for (auto _ : state) core::stream_copy(context, r.dispatch.get(), r.input.get(), bytes);
  moved(state, 2 * bytes);
}
void forward(benchmark::State& state, Fill fill) {
  Routed& r = scale(state.range(0));
  Context context({.threads = static_cast<int>(state.range(1))});
  for (auto _ : state) r.run(context, fill);
  const std::int64_t rows = fill == Fill::zero ? r.num_experts * r.capacity : r.kept;
  moved(state, (rows + r.kept) * r.hidden * 4);
}
BENCHMARK(copy_floor)->ArgsProduct({{0, 1}, {1, 2}})->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(forward, keep, Fill::keep)
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(forward, zero, Fill::zero)
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// Decoding: few tokens, so that the cost of a call itself is what is seen. Argument: tokens.
void small_call(benchmark::State& state) {
  Routed r(state.range(0), 64, 8, 64);
  Context context;
  for (auto _ : state) r.run(context, Fill::keep);
}
void small_call_rows_alone(benchmark::State& state) {  // the same rows by a plain loop
  Routed r(state.range(0), 64, 8, 64);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < r.samples; ++i) {
      const auto q = static_cast<std::size_t>(i);
      float* to = r.dispatch.get() + (r.indices[q] * r.capacity + r.locations[q]) * r.hidden;
      for (std::int64_t j = 0; j < r.hidden; ++j) to[j] = r.gates[q] * r.input.get()[i * r.hidden + j];
    }
    benchmark::ClobberMemory();
  }
}
BENCHMARK(small_call)->Arg(1)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(small_call_rows_alone)->Arg(1)->Arg(8)->Arg(64)->Arg(256);

}  // namespace
