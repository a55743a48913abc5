// What a binding passes to an operator in its Caller.
#pragma once

#include <chrono>
#include <cstddef>

#include "core/check.h"
#include "core/names.h"
#include "turnout/caller.h"
#include "turnout/context.h"

namespace turnout::core {

// A function that runs several operators, of which the first ones find the sizes of results. It logs one
// line: that of the last operator, with the times and the scratch memory of all.
struct Steps {
  bool has_begun = false;
  std::chrono::steady_clock::time_point start;
  std::size_t scratch_bytes = 0;
  double shared_microseconds = 0;
};

struct CallDetails {
  Workspace workspace = {};            // for the plan's scratch memory; if empty, the context's is used
  const CallerNames* names = nullptr;  // nullptr if the operator was called by its own name
  Steps* steps = nullptr;              // nullptr if the function runs only this operator
  bool is_last = true;  // of the steps; only the last one is logged and recorded, unless one fails

  // A Caller with these details, which must outlive it.
  Caller caller(Context& context) const {
    Caller made(context);
    made.details_ = this;
    return made;
  }
  static CallDetails of(const Caller& caller) {
    return caller.details_ == nullptr ? CallDetails{} : *caller.details_;
  }
};

}  // namespace turnout::core
