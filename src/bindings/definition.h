// Compares an operator with its definition, on calls that are made from random numbers. The differential
// test, the fuzzer of definitions and `turnout check` use it for every operator that has a definition.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "registry.h"

namespace turnout::bindings {

// Where random numbers come from: a seed, or the bytes of a fuzzer.
class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t next() = 0;

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }
};

class SeededRandom : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() override;  // splitmix64

 private:
  std::uint64_t state_;
};

struct Comparison {
  bool ran = false;        // false: the operator refused the call
  std::string refusal;     // with this message
  std::string difference;  // empty: the results are those of the definition
};

// One call, the same on every context. Contexts of one instruction set must give the same bits; all results
// must be near to those of the definition.
Comparison compare_with_definition(const core::Operator& op, Random& random,
                                   std::span<Context* const> contexts);

}  // namespace turnout::bindings
