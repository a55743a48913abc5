// What the lattice takes from C++: the named scales, forward, backward and both.
#include <benchmark/benchmark.h>

#include <random>
#include <tuple>
#include <vector>

#include "turnout/turnout.h"

namespace {

using namespace turnout;

struct Scale {
  std::int64_t batch, symbols, frames;
  std::vector<float> px, py, p, px_grad, py_grad, ans;

  explicit Scale(const benchmark::State& state)
      : batch(state.range(0)),
        symbols(state.range(1)),
        frames(state.range(2)),
        px(static_cast<std::size_t>(batch * symbols * (frames + 1))),
        py(static_cast<std::size_t>(batch * (symbols + 1) * frames)),
        p(static_cast<std::size_t>(batch * (symbols + 1) * (frames + 1))),
        px_grad(px.size()),
        py_grad(py.size()),
        ans(static_cast<std::size_t>(batch)) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> log_probability(-3, 0);
    for (auto* values : {&px, &py})
      for (float& v : *values) v = log_probability(random);
  }
  ConstTensor x() const { return view(px.data(), {batch, symbols, frames + 1}); }
  ConstTensor y() const { return view(py.data(), {batch, symbols + 1, frames}); }
  Tensor lattice() { return view(p.data(), {batch, symbols + 1, frames + 1}); }
  Tensor score() { return view(ans.data(), {batch}); }
  Tensor x_grad() { return view(px_grad.data(), {batch, symbols, frames + 1}); }
  Tensor y_grad() { return view(py_grad.data(), {batch, symbols + 1, frames}); }
};

void forward(benchmark::State& state) {
  Scale s(state);
  Context context({.threads = static_cast<int>(state.range(3))});
  for (auto _ : state) mutual_information_forward(context, s.x(), s.y(), nullptr, s.lattice(), s.score());
}
void backward(benchmark::State& state) {
  Scale s(state);
  Context context({.threads = static_cast<int>(state.range(3))});
  mutual_information_forward(context, s.x(), s.y(), nullptr, s.lattice(), s.score());
  for (auto _ : state)
    mutual_information_backward(context, s.x(), s.y(), nullptr, s.lattice(), s.score(), s.x_grad(),
                                s.y_grad());
}
void both(benchmark::State& state) {
  Scale s(state);
  Context context({.threads = static_cast<int>(state.range(3))});
  for (auto _ : state)
    mutual_information_forward_backward(context, s.x(), s.y(), nullptr, s.score(), s.x_grad(), s.y_grad());
}
void scales(benchmark::internal::Benchmark* b) {
  for (int threads : {1, 2})
    for (const auto& [batch, symbols, frames] : {std::tuple(4, 15, 104), std::tuple(32, 50, 500),
                                                 std::tuple(16, 200, 1500), std::tuple(1, 200, 1500)})
      b->Args({batch, symbols, frames, threads});
  b->Unit(benchmark::kMicrosecond)->UseRealTime();
}
BENCHMARK(forward)->Apply(scales);
BENCHMARK(backward)->Apply(scales);
BENCHMARK(both)->Apply(scales);

}  // namespace
