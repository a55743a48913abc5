// If symbols, ranges or boundaries change during a call, no access leaves the tensors.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "racing.h"
#include "rnnt_loss/fused_case.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

constexpr std::chrono::milliseconds kTime{200};

// Pruned lattices, large enough for several threads, with a joiner before them.
FusedCase<float> made() {
  std::mt19937 random(1);
  FusedCase<float> fused(5, 60, 6, 50, 4, 70, false, RnntActivation::tanh, random);
  fused.steps.fill_boundary(random);
  return fused;
}
std::vector<std::vector<std::int64_t>*> indices_of(FusedCase<float>& fused) {
  return {&fused.steps.text, &fused.steps.ranges, &fused.steps.boundary};
}

TEST(RnntRaces, IndicesThatChangeBetweenCheckAndUse) {
  if (kThreadSanitizer) GTEST_SKIP() << "the values change between loops, on one thread";
  expect_survives([] {
    FusedCase<float> fused = made();
    for (std::vector<std::int64_t>* indices : indices_of(fused)) {
      const std::vector<std::int64_t> places = {0, static_cast<std::int64_t>(indices->size()) - 1};
      flip_in_each_loop<std::int64_t>(indices->data(), places, [&](Context& c) { fused.steps.run(c); });
      flip_in_each_loop<std::int64_t>(indices->data(), places, [&](Context& c) { fused.run(c); });
    }
  });
}

TEST(RnntRaces, IndicesThatChangeAtAnyTime) {
  if (kThreadSanitizer) GTEST_SKIP() << "the test causes a data race on purpose";
  expect_survives([] {
    FusedCase<float> fused = made();
    Context context({.threads = 1});
    for (std::vector<std::int64_t>* indices : indices_of(fused)) {
      const Flipper<std::int64_t> flipper(indices->data(), static_cast<std::int64_t>(indices->size()));
      call_for(kTime, [&] { fused.steps.run(context); });
      call_for(kTime, [&] { fused.run(context); });
    }
  });
}

}  // namespace
}  // namespace turnout::test
