// Compares every operator that has a definition with it: random sizes, dtypes, scalars and data, on all
// instruction sets and several numbers of threads. The test has no code per operator.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "bindings/definition.h"
#include "isas.h"
#include "registry.h"

namespace turnout::test {
namespace {

using core::Operator;

class Differential : public testing::TestWithParam<const Operator*> {};

TEST_P(Differential, ResultsAreThoseOfTheDefinition) {
  std::vector<std::unique_ptr<Context>> owned;
  std::vector<Context*> contexts;
  for (const Isa isa : supported_isas())
    for (const int threads : {1, 2, 5}) {
      owned.push_back(std::make_unique<Context>(Options{.threads = threads, .isa = isa}));
      contexts.push_back(owned.back().get());
    }
  constexpr int kDraws = 400;
  int ran = 0;
  std::string refusal;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    bindings::SeededRandom random(seed);
    const bindings::Comparison found = compare_with_definition(*GetParam(), random, contexts);
    ASSERT_EQ(found.difference, "") << "seed " << seed;
    ran += found.ran;
    if (!found.ran) refusal = found.refusal;
  }
  EXPECT_GE(ran, kDraws / 10) << "most of the calls are refused, the last with: " << refusal;
}

std::vector<const Operator*> defined_operators() {
  std::vector<const Operator*> all;
  for (const Operator& op : core::operators())
    if (op.definition != nullptr) all.push_back(&op);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Operators, Differential, testing::ValuesIn(defined_operators()),
                         [](const auto& one) { return std::string(one.param->signature->op); });

// A definition that differs is noticed.
TEST(Definition, AnotherOneIsNoticed) {
  Operator changed = *defined_operators().at(0);
  changed.definition = [](const Tensor*, const core::ScalarValue*) { return std::int64_t{0}; };
  Context context;
  Context* contexts[] = {&context};
  int noticed = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    bindings::SeededRandom random(seed);
    noticed += !compare_with_definition(changed, random, contexts).difference.empty();
  }
  EXPECT_GT(noticed, 5);
}

}  // namespace
}  // namespace turnout::test
