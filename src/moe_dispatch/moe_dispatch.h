// The operators of this family as the doors call them: the functions of turnout/moe_dispatch.h with a Frame
// in place of the Context.
#pragma once

#include "runtime/frame.h"
#include "turnout/moe_dispatch.h"

namespace turnout::families::moe_dispatch {

using namespace core;

void moe_dispatch_forward(const Frame& frame, const ConstTensor& gates, const ConstTensor& indices,
                          const ConstTensor& locations, const ConstTensor& input, const Tensor& dispatch,
                          const MoeDispatchParams& params);

}  // namespace turnout::families::moe_dispatch
