// Fuzzes every operator that has a definition: a call made from the bytes must give the definition's results.
#include <cstdio>
#include <span>
#include <vector>

#include "bindings/definition.h"
#include "fuzz.h"
#include "registry.h"

namespace {

class FuzzRandom : public turnout::bindings::Random {
 public:
  explicit FuzzRandom(turnout::test::FuzzInput& input) : input_(input) {}
  std::uint64_t next() override { return input_.value<std::uint32_t>(); }

 private:
  turnout::test::FuzzInput& input_;
};

}  // namespace

namespace turnout::test {

// The operators that this fuzzer must reach.
std::span<const core::Operator> operators() {
  static const auto defined = [] {
    std::vector<core::Operator> all;
    for (const core::Operator& op : core::operators())
      if (op.definition != nullptr) all.push_back(op);
    return all;
  }();
  return defined;
}

}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  const auto operators = test::operators();
  static Context one({.threads = 1}), two({.threads = 2});
  Context* const contexts[] = {&one, &two};
  test::FuzzInput input(data, size);
  const auto i = static_cast<std::size_t>(input.between(0, static_cast<std::int64_t>(operators.size()) - 1));
  FuzzRandom random(input);
  const bindings::Comparison found = compare_with_definition(operators[i], random, contexts);
  if (!found.difference.empty()) std::fprintf(stderr, "%s\n", found.difference.c_str());
  test::require(found.difference.empty());
  return 0;
}
