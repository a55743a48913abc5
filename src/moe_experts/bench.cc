// The expert block from C++: tokens and threads, weights of f32 and bf16; and reading the weights alone.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <vector>

#include "turnout/turnout.h"

namespace {

using namespace turnout;

// Like a block of Qwen3-30B-A3B, with fewer experts, so that it fits a small machine.
constexpr std::int64_t kHidden = 2048, kInner = 768, kExperts = 64, kChoices = 8;

template <class W>
void experts(benchmark::State& state) {
  const std::int64_t tokens = state.range(0);
  std::mt19937 random(1);
  std::vector<float> x(static_cast<std::size_t>(tokens * kHidden), 0.5f), out(x.size());
  std::vector<float> gates(static_cast<std::size_t>(tokens * kChoices), 0.125f);
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<std::int64_t>(random() % kExperts);
    for (std::int64_t k = 0; k < kChoices; ++k)
      ids.push_back(static_cast<std::int32_t>((first + 7 * k) % kExperts));
  }
  const std::vector<W> w13(static_cast<std::size_t>(kExperts * 2 * kInner * kHidden)),
      w2(static_cast<std::size_t>(kExperts * kInner * kHidden));
  Context context({.threads = static_cast<int>(state.range(1))});
  for (auto _ : state)
    moe_experts(context, view(x.data(), {tokens, kHidden}), view(ids.data(), {tokens, kChoices}),
                view(gates.data(), {tokens, kChoices}), view(w13.data(), {kExperts, 2 * kInner, kHidden}),
                view(w2.data(), {kExperts, kHidden, kInner}), nullptr, nullptr,
                view(out.data(), {tokens, kHidden}));
  std::vector<bool> used(kExperts);
  for (const std::int32_t e : ids) used[static_cast<std::size_t>(e)] = true;
  const auto active = std::count(used.begin(), used.end(), true);
  state.SetBytesProcessed(state.iterations() * active * 3 * kInner * kHidden *
                          static_cast<std::int64_t>(sizeof(W)));
  state.counters["GFLOP/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * tokens * kChoices * 6 * kInner * kHidden) / 1e9,
      benchmark::Counter::kIsRate);
}

void sizes(benchmark::internal::Benchmark* b) {
  for (std::int64_t tokens : {1, 4, 16, 64, 256})
    for (std::int64_t threads : {1, 2}) b->Args({tokens, threads});
  b->Unit(benchmark::kMillisecond)->UseRealTime();
}
BENCHMARK(experts<float>)->Apply(sizes);
BENCHMARK(experts<bf16>)->Apply(sizes);

}  // namespace
