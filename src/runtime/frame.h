// What the caller of an operator hands over beside the arguments.
#pragma once

#include "core/check.h"
#include "runtime/caller.h"
#include "turnout/context.h"

namespace turnout::core {

// Inside the library every operator takes a Frame where the public function takes a Context.
struct Frame {
  Context& context;
  Workspace workspace;             // for the scratch memory of the plan; none: the context's memory is used
  const Caller* caller = nullptr;  // nullptr: the operator was called by its own name

  Frame(Context& of) : context(of) {}  // NOLINT: a context is a frame without workspace and caller
  Frame(Context& of, const Workspace& lent, const Caller* by) : context(of), workspace(lent), caller(by) {}
};

}  // namespace turnout::core
