// Differential fuzzer: any shape, boundary, range and values; every instruction set against the definition in
// double, and the same bits for two threads as for one.
#include "fuzz.h"
#include "isas.h"
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
  // Of a row without a finite sum the elements that are NaN depend on the order of operations.
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

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::test::FuzzInput in(data, size);
  switch (in.between(0, 4)) {
    case 0:
      turnout::test::run<double>(in);
      break;
    case 1:
      turnout::test::run<turnout::f16>(in);
      break;
    case 2:
      turnout::test::run<turnout::bf16>(in);
      break;
    default:
      turnout::test::run<float>(in);
  }
  return 0;
}
