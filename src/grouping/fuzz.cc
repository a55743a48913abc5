// Differential fuzzer: sizes up to a few blocks of channels and repeated indices; sums have the bits of sums
// in the order of the definition.
#include <cstdio>

#include "fuzz.h"
#include "grouping/grouping_case.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  test::FuzzInput in(data, size);
  const auto operators = families::grouping::operators();
  const auto i = static_cast<std::size_t>(in.between(0, static_cast<std::int64_t>(operators.size()) - 1));
  const test::Below below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(in.value<std::uint32_t>() % static_cast<std::uint64_t>(bound));
  };
  const std::string wrong = test::compare_with_definition(operators[i], below, 24);
  if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
  test::require(wrong.empty());
  return 0;
}
