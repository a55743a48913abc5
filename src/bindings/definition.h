// Compares operators with their definitions on random calls, for the differential test, the definition fuzzer
// and `turnout check`.
#pragma once

#include <span>
#include <string>

#include "bindings/random.h"
#include "registry.h"

namespace turnout::bindings {

struct Comparison {
  bool ran = false;        // false: the operator refused the call
  std::string refusal;     // the message of that refusal
  std::string difference;  // empty if the results agree with the definition
};

// Runs one random call on every context. Contexts with the same instruction set must return the same bits,
// and all results must be close to the definition's.
Comparison compare_with_definition(const core::Operator& op, Random& random,
                                   std::span<Context* const> contexts);

}  // namespace turnout::bindings
