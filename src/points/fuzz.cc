// Differential fuzzer: clouds of any kind, with NaN and infinities; results have the bits of the definitions.
#include <cstdio>

#include "fuzz.h"
#include "points/list_case.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  test::FuzzInput in(data, size);
  const auto operators = families::points::operators();
  const auto i = static_cast<std::size_t>(in.between(0, static_cast<std::int64_t>(operators.size()) - 1));
  const test::Below below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(in.value<std::uint32_t>() % static_cast<std::uint64_t>(bound));
  };
  const std::string wrong = test::compare_any(operators[i].signature->op, below, 60);
  if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
  test::require(wrong.empty());
  return 0;
}
