// What the caller of an operator hands over beside the arguments.
#pragma once

#include <chrono>
#include <cstddef>

#include "core/check.h"
#include "runtime/caller.h"
#include "turnout/context.h"

namespace turnout::core {

// A function that runs several operators in turn, of which the first ones find the sizes of results. Its log
// has one line: that of the last operator, with the time and the scratch memory of all.
struct Steps {
  bool has_begun = false;
  std::chrono::steady_clock::time_point start;
  std::size_t scratch_bytes = 0;
};

// Inside the library every operator takes a Frame where the public function takes a Context.
struct Frame {
  Context& context;
  Workspace workspace;             // for the scratch memory of the plan; none: the context's memory is used
  const Caller* caller = nullptr;  // nullptr: the operator was called by its own name
  Steps* steps = nullptr;          // nullptr: the operator is all that the function runs
  bool is_last = true;             // of the steps; only the last one is logged and recorded, unless one fails

  Frame(Context& of) : context(of) {}  // NOLINT: a context is a frame without workspace and caller
  Frame(Context& of, const Workspace& lent, const Caller* by) : context(of), workspace(lent), caller(by) {}
  Frame(Context& of, const Caller* by, Steps* all, bool is_last_step)
      : context(of), caller(by), steps(all), is_last(is_last_step) {}
};

}  // namespace turnout::core
