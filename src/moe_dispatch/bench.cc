// moe_dispatch from C++: the cost of small calls, and the large scales beside a streamed copy of the same
// bytes. Run with --benchmark_enable_random_interleaving=true: ratios are then taken under the same
// conditions. On a shared machine the CPU time is more reliable than the real time; it is that of all
// threads.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
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

// Random experts; each takes its tokens in order, as moe_locations numbers them. The routing is
// [choices, samples]; with_choices_last() is the same number of choices as [samples, choices].
struct Routed {
  std::int64_t samples, hidden, num_experts, capacity, choices, kept = 0;
  Memory input, dispatch;
  std::vector<float> gates;
  std::vector<std::int32_t> indices, locations;

  Routed(std::int64_t n, std::int64_t h, std::int64_t e, std::int64_t c, std::int64_t k = 1)
      : samples(n),
        hidden(h),
        num_experts(e),
        capacity(c * k),
        choices(k),
        input(touched(n * h)),
        dispatch(touched(e * capacity * h)),
        gates(static_cast<std::size_t>(n * k), 0.5f) {
    std::mt19937 random(1);
    std::vector<std::int32_t> next(static_cast<std::size_t>(e));
    for (std::int64_t i = 0; i < n * k; ++i) {
      const auto expert = static_cast<std::int32_t>(random() % static_cast<unsigned>(e));
      indices.push_back(expert);
      locations.push_back(next[static_cast<std::size_t>(expert)]++);
      kept += locations.back() < capacity;
    }
  }
  void run(Context& context, Fill fill) {
    moe_dispatch_forward(context, routing(gates), routing(indices), routing(locations), tokens(input),
                         buffers(), {.capacity = capacity, .num_experts = num_experts, .fill = fill});
  }

  template <class T>
  Tensor routing(std::vector<T>& values) const {
    return view(values.data(), {choices, samples});
  }
  template <class T>
  Tensor with_choices_last(std::vector<T>& values) const {
    return view(values.data(), {samples, choices});
  }
  Tensor tokens(const Memory& memory) const { return view(memory.get(), {samples, hidden}); }
  Tensor buffers() const { return view(dispatch.get(), {num_experts * capacity, hidden}); }
  std::int64_t token_bytes() const { return samples * hidden * 4; }
};

// 0: 18432x512 E2, 1: 16384x4096 E64. Together they take 2 GB.
Routed& scale(std::int64_t which, std::int64_t choices = 1) {
  static std::map<std::pair<std::int64_t, std::int64_t>, Routed> made;
  const auto key = std::pair(which, choices);
  if (which == 0) return made.try_emplace(key, 18432, 512, 2, 11520, choices).first->second;
  return made.try_emplace(key, 16384, 4096, 64, 288, choices).first->second;
}

void moved(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

// Arguments: scale, threads.
void scales(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{0, 1}, {1, 2}})->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMicrosecond);
}
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
BENCHMARK(copy_floor)->Apply(scales);
BENCHMARK_CAPTURE(forward, keep, Fill::keep)->Apply(scales);
BENCHMARK_CAPTURE(forward, zero, Fill::zero)->Apply(scales);

// Gradients and combine. Arguments: scale, threads, choices.
enum class Gradient { data, gate, both_calls, fused };
void gradient(benchmark::State& state, Gradient which) {
  Routed& r = scale(state.range(0), state.range(2));
  Context context({.threads = static_cast<int>(state.range(1))});
  const Memory grad_input = touched(r.samples * r.hidden);
  std::vector<float> grad_gates(r.gates.size());
  const ConstTensor gates = r.routing(r.gates), indices = r.routing(r.indices),
                    locations = r.routing(r.locations), dispatch = r.buffers(), input = r.tokens(r.input);
  const Tensor to_input = r.tokens(grad_input), to_gates = r.routing(grad_gates);
  const MoeBuffers buffers{.capacity = r.capacity, .num_experts = r.num_experts};
  for (auto _ : state) {
    if (which == Gradient::fused) {
      moe_dispatch_backward(context, gates, indices, locations, input, dispatch, to_input, to_gates, buffers);
      continue;
    }
    if (which != Gradient::gate)
      moe_dispatch_backward_data(context, &gates, indices, locations, dispatch, to_input, buffers);
    if (which != Gradient::data)
      moe_dispatch_backward_gate(context, indices, locations, input, dispatch, to_gates, buffers);
  }
  const std::int64_t operands = which == Gradient::fused ? 2 : which == Gradient::both_calls ? 2 : 1;
  const std::int64_t reads_of_rows = which == Gradient::both_calls ? 2 : 1;
  moved(state, operands * r.token_bytes() + reads_of_rows * r.kept * r.hidden * 4);
}
void combine(benchmark::State& state) {
  Routed& r = scale(state.range(0), state.range(2));
  Context context({.threads = static_cast<int>(state.range(1))});
  const Memory output = touched(r.samples * r.hidden);
  const ConstTensor locations = r.with_choices_last(r.locations), gates = r.with_choices_last(r.gates);
  for (auto _ : state)
    moe_combine(context, r.buffers(), r.with_choices_last(r.indices), &locations, &gates, r.tokens(output),
                r.capacity);
  moved(state, r.token_bytes() + r.kept * r.hidden * 4);
}
void with_choices(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{0, 1}, {1, 2}, {1, 2}})
      ->MeasureProcessCPUTime()
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(gradient, data, Gradient::data)->Apply(with_choices);
BENCHMARK_CAPTURE(gradient, gate, Gradient::gate)->Apply(with_choices);
BENCHMARK_CAPTURE(gradient, both_calls, Gradient::both_calls)->Apply(with_choices);
BENCHMARK_CAPTURE(gradient, fused, Gradient::fused)->Apply(with_choices);
BENCHMARK(combine)->Apply(with_choices)->Args({0, 2, 8});

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

// Arguments: tokens, experts, choices.
void locations(benchmark::State& state) {
  Routed r(state.range(0), 1, state.range(1), 1, state.range(2));
  Context context;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(r.num_experts));
  for (auto _ : state)
    moe_locations(context, r.with_choices_last(r.indices), nullptr, r.with_choices_last(r.locations),
                  view(counts.data(), {r.num_experts}), r.num_experts);
}
BENCHMARK(locations)
    ->Args({16384, 64, 1})
    ->Args({16384, 64, 2})
    ->Args({16384, 64, 8})
    ->Unit(benchmark::kMicrosecond);

BENCHMARK(small_call)->Arg(1)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(small_call_rows_alone)->Arg(1)->Arg(8)->Arg(64)->Arg(256);

}  // namespace
