// Caller: the last argument of every operator.
#pragma once

#include "turnout/context.h"

namespace turnout {

namespace core {
struct CallDetails;
}

// The context whose threads, instruction set and scratch memory a call uses. A Context converts to a Caller,
// so operators are called as
//
//   moe_combine(expert_output, indices, locations, gates, output, capacity);           // default_context()
//   moe_combine(expert_output, indices, locations, gates, output, capacity, context);
class Caller {
 public:
  Caller() = default;
  Caller(Context& context) : context_(&context) {}  // NOLINT: implicit by intent

  Context& context() const { return context_ == nullptr ? default_context() : *context_; }

 private:
  friend struct core::CallDetails;

  Context* context_ = nullptr;                  // nullptr means default_context()
  const core::CallDetails* details_ = nullptr;  // set by the library's bindings
};

}  // namespace turnout
