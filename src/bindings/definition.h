// Compares an operator with its definition, on calls that are made from random numbers. The differential
// test, the fuzzer of definitions and `turnout check` use it for every operator that has a definition.
#pragma once

#include <span>
#include <string>

#include "bindings/random.h"
#include "registry.h"

namespace turnout::bindings {

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
