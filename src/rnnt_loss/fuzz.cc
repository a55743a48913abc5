// Differential fuzzer: any shape, boundary, range and values. Compares every instruction set with the
// definition in double, and the bits of two threads with those of one.
#include <cmath>
#include <iterator>

#include "fuzz.h"
#include "isas.h"
#include "rnnt_loss/fused_case.h"
#include "rnnt_loss/rnnt_case.h"

namespace turnout::test {
namespace {

template <class T>
void run(FuzzInput& in) {
  const std::int64_t symbols = in.between(0, 6), frames = in.between(0, 12);
  const bool pruned = in.flag(), modified = frames >= symbols && in.flag();
  RnntCase<T> c(in.between(1, 3), frames, symbols, in.between(2, 40), modified,
                pruned ? in.between(1, symbols + 1) : 0);
  c.use_hat_loss = pruned && in.flag();
  std::mt19937 random(in.value<std::uint32_t>());
  const double spread = in.flag() ? 3 : 30;
  c.fill(random, spread);
  if (in.flag()) c.fill_boundary(random);
  for (std::vector<T>* values : {&c.logits, &c.lm, &c.am})
    for (T& v : *values)
      if (in.one_in(32)) v = c.cast(-std::numeric_limits<double>::infinity());
  // f32 steps of this size have an error of about 1e-7 times the spread.
  const double steps = sizeof(T) == 8 ? 1e-11 : 1e-6 * spread;
  const double gradients = sizeof(T) == 2 ? 2e-2 : 20 * steps;
  const auto expected = c.expected();
  const auto simple = pruned ? expected : c.expected_simple();
  // In a row without a finite sum, the order of operations decides which elements are NaN.
  const auto is_finite = [&](const auto& e) { return e.steps.nan_at == many<std::int64_t>(c.batch, -1); };
  for (Isa isa : supported_isas()) {
    Context one({.threads = 1, .isa = isa}), two({.threads = 2, .isa = isa});
    const auto r = c.run(one);
    require(r == c.run(two) && r.nan_at == expected.steps.nan_at);
    require(rnnt_difference(r.px, expected.steps.px) < steps &&
            rnnt_difference(r.py, expected.steps.py) < steps);
    require(!is_finite(expected) || rnnt_difference(r.logits_grad, expected.logits_grad) < gradients);
    if (pruned) continue;
    const auto s = c.run_simple(one);
    require(s == c.run_simple(two));
    require(rnnt_difference(s.px, simple.steps.px) < steps && rnnt_difference(s.py, simple.steps.py) < steps);
    if (!is_finite(simple)) continue;
    require(rnnt_difference(s.lm_grad, simple.lm_grad) < gradients &&
            rnnt_difference(s.am_grad, simple.am_grad) < gradients);
  }
}

// A joiner before the pruned steps. Tolerances are five times those of fused_test.cc, because widths differ.
template <class T>
void run_fused(FuzzInput& in) {
  const std::int64_t symbols = in.between(0, 6), frames = in.between(0, 12);
  const bool modified = frames >= symbols && in.flag();
  const std::int64_t batch = in.between(1, 3), classes = in.between(2, 20), kept = in.between(1, symbols + 1),
                     width = in.between(1, 30);
  const auto activation = static_cast<RnntActivation>(in.between(0, 2));
  std::mt19937 random(in.value<std::uint32_t>());
  FusedCase<T> c(batch, frames, symbols, classes, kept, width, modified, activation, random);
  if (in.flag()) c.steps.fill_boundary(random);
  const double steps = sizeof(T) == 8 ? 5e-12 : 5e-5;
  const double gradients = sizeof(T) == 8            ? 5e-11
                           : std::is_same_v<T, f16>  ? 1e-2
                           : std::is_same_v<T, bf16> ? 1e-1
                                                     : 1e-4;
  const auto expected = c.expected();
  for (Isa isa : supported_isas()) {
    Context one({.threads = 1, .isa = isa}), two({.threads = 2, .isa = isa});
    const auto r = c.run(one), again = c.run(two);
    require(same_bits(r.px, again.px) && same_bits(r.py, again.py) && same_bits(r.am_grad, again.am_grad) &&
            same_bits(r.lm_grad, again.lm_grad) && same_bits(r.weight_grad, again.weight_grad) &&
            same_bits(r.bias_grad, again.bias_grad));
    require(r.nan_at == expected.steps.nan_at);
    require(rnnt_difference(r.px, expected.steps.px) < steps &&
            rnnt_difference(r.py, expected.steps.py) < steps);
    require(rnnt_difference(r.am_grad, expected.am_grad) < gradients &&
            rnnt_difference(r.lm_grad, expected.lm_grad) < gradients &&
            rnnt_difference(r.weight_grad, expected.weight_grad) < gradients &&
            rnnt_difference(r.bias_grad, expected.bias_grad) < gradients);
  }
}

// Windows for arbitrary scores, the rows of lm in them, and the gradient of these rows.
void run_pruning(FuzzInput& in) {
  const std::int64_t batch = in.between(1, 3), frames = in.between(1, 12), symbols = in.between(0, 8);
  const std::int64_t kept = in.between(1, symbols + 1), width = in.between(1, 40);
  RnntCase<double> c(batch, frames, symbols, width, in.flag(), kept);
  std::mt19937 random(in.value<std::uint32_t>());
  c.fill(random);
  if (in.flag())
    for (auto* values : {&c.px_grad, &c.py_grad})
      for (double& v : *values) v = std::round(v);  // windows of equal scores
  for (std::int64_t b = 0; b < batch; ++b)
    c.boundary.insert(c.boundary.end(), {0, 0, in.between(0, symbols), in.between(0, frames)});
  const PruneScore score = in.flag() ? PruneScore::flow : PruneScore::steps;
  const auto starts =
      reference::rnnt_prune_starts(c.definition(), c.px_grad, c.py_grad, score == PruneScore::flow);
  for (int threads : {1, 2}) {
    Context context({.threads = threads});
    rnnt_prune_ranges(view(c.px_grad.data(), {batch, symbols, c.columns}),
                      view(c.py_grad.data(), {batch, symbols + 1, frames}),
                      view(c.boundary.data(), {batch, 4}), view(c.ranges.data(), {batch, frames, kept}),
                      score, context);
    for (std::size_t k = 0; k < c.ranges.size(); ++k)
      require(c.ranges[k] ==
              starts[k / static_cast<std::size_t>(kept)] + static_cast<std::int64_t>(k) % kept);
    auto pruned = many<double>(batch * frames * kept * width, 7), expected = pruned;
    auto grad = many<double>(batch * (symbols + 1) * width, 7),
         expected_grad = many<double>(batch * (symbols + 1) * width);
    for (std::int64_t i = 0; i < batch * frames * kept; ++i) {
      const std::int64_t row = i / (frames * kept) * (symbols + 1) + c.ranges[static_cast<std::size_t>(i)];
      for (std::int64_t k = 0; k < width; ++k) {
        const auto from = static_cast<std::size_t>(row * width + k),
                   to = static_cast<std::size_t>(i * width + k);
        expected[to] = c.lm[from];
        expected_grad[from] += c.logits[to];
      }
    }
    rnnt_pruning_forward(view(c.lm.data(), {batch, symbols + 1, width}),
                         view(c.ranges.data(), {batch, frames, kept}),
                         view(pruned.data(), {batch, frames, kept, width}), context);
    rnnt_pruning_backward(view(c.logits.data(), {batch, frames, kept, width}),
                          view(c.ranges.data(), {batch, frames, kept}),
                          view(grad.data(), {batch, symbols + 1, width}), context);
    require(pruned == expected && grad == expected_grad);
  }
}

// The score of the best path of small lattices; the definition tries every path.
void run_align(FuzzInput& in) {
  const std::int64_t batch = in.between(1, 3), frames = in.between(0, 5), symbols = in.between(0, 4);
  RnntCase<double> c(batch, frames, symbols, 2, in.flag());
  std::mt19937 random(in.value<std::uint32_t>());
  c.fill(random);
  if (in.flag())
    for (auto* values : {&c.px_grad, &c.py_grad})
      for (double& v : *values) v = std::round(v);  // many ties
  if (in.flag()) c.fill_boundary(random);
  auto first = many<std::int64_t>(batch * symbols);
  for (int threads : {1, 2}) {
    Context context({.threads = threads});
    auto at = many<std::int64_t>(batch * symbols, 77);
    auto score = many<double>(batch, 77);
    rnnt_align(view(c.px_grad.data(), {batch, symbols, c.columns}),
               view(c.py_grad.data(), {batch, symbols + 1, frames}), c.bounds(),
               view(at.data(), {batch, symbols}), view(score.data(), {batch}), context);
    if (threads == 1) first = at;
    require(at == first);
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t whole[4] = {0, 0, symbols, frames};
      const std::int64_t* bounds = c.boundary.empty() ? whole : c.boundary.data() + 4 * b;
      require(score[static_cast<std::size_t>(b)] == reference::rnnt_best_score(c.definition(), b, bounds,
                                                                               c.px_grad, c.py_grad,
                                                                               bounds[2], bounds[3]));
      std::int64_t frame = bounds[1];
      for (std::int64_t s = 0; s < symbols; ++s) {
        const std::int64_t now = at[static_cast<std::size_t>(b * symbols + s)];
        if (now < 0) continue;
        require(s >= bounds[0] && s < bounds[2] && now >= frame && now <= bounds[3]);
        frame = now;
      }
    }
  }
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  void (*const cases[])(test::FuzzInput&) = {
      test::run<float>,       test::run<double>,       test::run<f16>,       test::run<bf16>,
      test::run_fused<float>, test::run_fused<double>, test::run_fused<f16>, test::run_fused<bf16>,
      test::run_pruning,      test::run_align};
  test::FuzzInput in(data, size);
  cases[in.between(0, std::ssize(cases) - 1)](in);
  return 0;
}
