// moe_re_routing from C++: the named scales beside a streamed copy of the same bytes.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "runtime/stream_copy.h"
#include "turnout/turnout.h"

namespace {

using namespace turnout;

// rows x hidden bytes over ranks x experts, random counts.
struct Tokens {
  std::int64_t rows, hidden, ranks, experts;
  std::vector<std::int8_t> tokens, permuted;
  std::vector<std::int32_t> counts, idx, num;

  Tokens(std::int64_t a, std::int64_t h, std::int64_t n, std::int64_t e)
      : rows(a),
        hidden(h),
        ranks(n),
        experts(e),
        tokens(static_cast<std::size_t>(a * h), 1),
        permuted(tokens.size()),
        counts(static_cast<std::size_t>(n * e)),
        idx(static_cast<std::size_t>(a)),
        num(static_cast<std::size_t>(e)) {
    std::mt19937 random(1);
    for (std::int64_t i = 0; i < a; ++i) ++counts[random() % counts.size()];
  }
};

// Arguments: ranks, experts, threads.
void copy_floor(benchmark::State& state) {
  Tokens t(16384, 7168, state.range(0), state.range(1));
  Context context({.threads = static_cast<int>(state.range(2))});
  const auto bytes = static_cast<std::int64_t>(t.tokens.size());
  for (auto _ : state) core::stream_copy(context, t.permuted.data(), t.tokens.data(), bytes);
  state.SetBytesProcessed(state.iterations() * 2 * bytes);
}
void re_routing(benchmark::State& state) {
  Tokens t(16384, 7168, state.range(0), state.range(1));
  Context context({.threads = static_cast<int>(state.range(2))});
  for (auto _ : state)
    moe_re_routing(context, view(t.tokens.data(), {t.rows, t.hidden}),
                   view(t.counts.data(), {t.ranks, t.experts}), nullptr,
                   view(t.permuted.data(), {t.rows, t.hidden}), nullptr, view(t.idx.data(), {t.rows}),
                   view(t.num.data(), {t.experts}));
  state.SetBytesProcessed(state.iterations() * 2 * static_cast<std::int64_t>(t.tokens.size()));
}
void scales(benchmark::internal::Benchmark* b) {
  for (std::int64_t threads : {1, 2})
    b->Args({8, 32, threads})->Args({64, 32, threads})->Args({64, 256, threads});
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(copy_floor)->Apply(scales);
BENCHMARK(re_routing)->Apply(scales);

// Argument: tokens.
void small_call(benchmark::State& state) {
  Tokens t(state.range(0), 64, 2, 4);
  Context context;
  for (auto _ : state)
    moe_re_routing(context, view(t.tokens.data(), {t.rows, t.hidden}),
                   view(t.counts.data(), {t.ranks, t.experts}), nullptr,
                   view(t.permuted.data(), {t.rows, t.hidden}), nullptr, view(t.idx.data(), {t.rows}),
                   view(t.num.data(), {t.experts}));
}
BENCHMARK(small_call)->Arg(1)->Arg(16)->Arg(256);

}  // namespace
