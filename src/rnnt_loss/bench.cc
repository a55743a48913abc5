// What the steps of the losses take from C++: given logits, pruned logits, sums; forward and backward.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "turnout/turnout.h"

namespace {

using namespace turnout;

constexpr std::int64_t kBatch = 16, kFrames = 400, kSymbols = 60, kClasses = 500, kRows = 5;

std::vector<float> random_values(std::int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

struct Scale {
  std::vector<float> px = random_values(kBatch * kSymbols * (kFrames + 1)),
                     py = random_values(kBatch * (kSymbols + 1) * kFrames);
  std::vector<std::int64_t> text = std::vector<std::int64_t>(kBatch * kSymbols, 3),
                            nan_at = std::vector<std::int64_t>(kBatch);

  Tensor x() { return view(px.data(), {kBatch, kSymbols, kFrames + 1}); }
  Tensor y() { return view(py.data(), {kBatch, kSymbols + 1, kFrames}); }
  ConstTensor words() const { return view(text.data(), {kBatch, kSymbols}); }
  Tensor at() { return view(nan_at.data(), {kBatch}); }
};

struct Pruned : Scale {
  std::vector<float> logits = random_values(kBatch * kFrames * kRows * kClasses), grad = logits,
                     n = random_values(kBatch * kFrames * kRows);
  std::vector<std::int64_t> ranges = std::vector<std::int64_t>(kBatch * kFrames * kRows);

  Pruned() {
    for (std::size_t i = 0; i < ranges.size(); ++i)
      ranges[i] =
          static_cast<std::int64_t>(i / kRows % kFrames * (kSymbols + 1 - kRows) / kFrames + i % kRows);
  }
  Tensor given() { return view(logits.data(), {kBatch, kFrames, kRows, kClasses}); }
  ConstTensor kept() const { return view(ranges.data(), {kBatch, kFrames, kRows}); }
  Tensor normalizer() { return view(n.data(), {kBatch, kFrames, kRows}); }
  Tensor gradient() { return view(grad.data(), {kBatch, kFrames, kRows, kClasses}); }
};

void pruned_forward(benchmark::State& state) {
  Pruned p;
  Context context({.threads = static_cast<int>(state.range(0))});
  for (auto _ : state)
    rnnt_logprobs_pruned_forward(context, p.given(), p.words(), p.kept(), nullptr, p.x(), p.y(),
                                 p.normalizer(), p.at(), {});
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(p.logits.size() * sizeof(float)));
}
void pruned_backward(benchmark::State& state) {
  Pruned p;
  Context context({.threads = static_cast<int>(state.range(0))});
  for (auto _ : state)
    rnnt_logprobs_pruned_backward(context, p.given(), p.words(), p.kept(), nullptr, p.normalizer(), p.x(),
                                  p.y(), p.gradient(), {});
  state.SetBytesProcessed(state.iterations() *
                          static_cast<std::int64_t>(2 * p.logits.size() * sizeof(float)));
}

struct Sums : Scale {
  std::vector<float> lm = random_values(kBatch * (kSymbols + 1) * kClasses),
                     am = random_values(kBatch * kFrames * kClasses), lm_grad = lm, am_grad = am, n = py;

  Tensor l() { return view(lm.data(), {kBatch, kSymbols + 1, kClasses}); }
  Tensor a() { return view(am.data(), {kBatch, kFrames, kClasses}); }
  Tensor normalizer() { return view(n.data(), {kBatch, kSymbols + 1, kFrames}); }
};

void simple_forward(benchmark::State& state) {
  Sums s;
  Context context({.threads = static_cast<int>(state.range(0))});
  for (auto _ : state)
    rnnt_logprobs_simple_forward(context, s.l(), s.a(), s.words(), nullptr, s.x(), s.y(), s.normalizer(),
                                 s.at(), 0);
}
void simple_backward(benchmark::State& state) {
  Sums s;
  Context context({.threads = static_cast<int>(state.range(0))});
  rnnt_logprobs_simple_forward(context, s.l(), s.a(), s.words(), nullptr, s.x(), s.y(), s.normalizer(),
                               s.at(), 0);
  s.px = random_values(static_cast<std::int64_t>(s.px.size()));
  s.py = random_values(static_cast<std::int64_t>(s.py.size()));
  for (auto _ : state)
    rnnt_logprobs_simple_backward(context, s.l(), s.a(), s.words(), nullptr, s.normalizer(), s.x(), s.y(),
                                  view(s.lm_grad.data(), {kBatch, kSymbols + 1, kClasses}),
                                  view(s.am_grad.data(), {kBatch, kFrames, kClasses}), 0);
}

void prune_ranges(benchmark::State& state) {
  Pruned p;
  Context context({.threads = static_cast<int>(state.range(0))});
  std::vector<std::int64_t> boundary;
  for (std::int64_t b = 0; b < kBatch; ++b) boundary.insert(boundary.end(), {0, 0, kSymbols, kFrames});
  for (auto _ : state)
    rnnt_prune_ranges(context, p.x(), p.y(), view(boundary.data(), {kBatch, 4}),
                      view(p.ranges.data(), {kBatch, kFrames, kRows}));
}

void threads(benchmark::internal::Benchmark* b) {
  b->Arg(1)->Arg(2)->Unit(benchmark::kMicrosecond)->UseRealTime();
}
BENCHMARK(pruned_forward)->Apply(threads);
BENCHMARK(pruned_backward)->Apply(threads);
BENCHMARK(simple_forward)->Apply(threads);
BENCHMARK(simple_backward)->Apply(threads);
BENCHMARK(prune_ranges)->Apply(threads);

}  // namespace
