// The expert block from C++: tokens and threads, weights of f32, bf16, 8 and 4 bits.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <type_traits>
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
  constexpr bool kQuantized = sizeof(W) == 1, kPacked = std::is_same_v<W, std::uint8_t>;
  constexpr std::int64_t kHiddenBytes = kPacked ? kHidden / 2 : kHidden,
                         kInnerBytes = kPacked ? kInner / 2 : kInner;
  constexpr std::int64_t kHiddenScales = kPacked ? kHidden / 32 : 1, kInnerScales = kPacked ? kInner / 32 : 1;
  const std::vector<W> w13(static_cast<std::size_t>(kExperts * 2 * kInner * kHiddenBytes)),
      w2(static_cast<std::size_t>(kExperts * kHidden * kInnerBytes));
  const std::vector<float> scale13(kQuantized ? kExperts * 2 * kInner * kHiddenScales : 0),
      scale2(kQuantized ? kExperts * kHidden * kInnerScales : 0);
  Context context({.threads = static_cast<int>(state.range(1))});
  const ConstTensor hidden_states = view(x.data(), {tokens, kHidden}),
                    topk_ids = view(ids.data(), {tokens, kChoices}),
                    topk_weights = view(gates.data(), {tokens, kChoices}),
                    first = view(w13.data(), {kExperts, 2 * kInner, kHiddenBytes}),
                    second = view(w2.data(), {kExperts, kHidden, kInnerBytes});
  const Tensor y = view(out.data(), {tokens, kHidden});
  for (auto _ : state) {
    if constexpr (kQuantized) {
      moe_experts_quantized(context, hidden_states, topk_ids, topk_weights, first,
                            view(scale13.data(), {kExperts, 2 * kInner, kHiddenScales}), second,
                            view(scale2.data(), {kExperts, kHidden, kInnerScales}), nullptr, nullptr, y);
    } else {
      moe_experts(context, hidden_states, topk_ids, topk_weights, first, second, nullptr, nullptr, y);
    }
  }
  std::vector<bool> used(kExperts);
  for (const std::int32_t e : ids) used[static_cast<std::size_t>(e)] = true;
  const auto active = std::count(used.begin(), used.end(), true);
  state.SetBytesProcessed(state.iterations() * active * 3 * kInner * kHiddenBytes *
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
BENCHMARK(experts<std::int8_t>)->Apply(sizes);
BENCHMARK(experts<std::uint8_t>)->Apply(sizes);  // 4 bits

}  // namespace
