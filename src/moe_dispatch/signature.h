// What the operators of this family accept.
#pragma once

#include "core/signature.h"

namespace turnout::families::moe_dispatch {

using namespace core;

inline constexpr const Signature& kMoeDispatchForward = signature([] {
  return Draft{"moe_dispatch_forward",
               "choices samples hidden",
               {scalar("capacity", 0), scalar("num_experts", 0), choice("fill", "keep zero")},
               {in("gates", like("input", dtypes(DType::f32)), "choices?, samples"),
                in("indices", kIndices, "choices?, samples"), in("locations", kIndices, "choices?, samples"),
                in("input", kFloats, "samples, hidden"),
                may_overlap("input", inout("dispatch", like("input"), "num_experts * capacity, hidden"))}};
});

}  // namespace turnout::families::moe_dispatch
