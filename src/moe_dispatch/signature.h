// What the operators of this family accept.
#pragma once

#include "core/draft.h"

namespace turnout::families::moe_dispatch {

using namespace core::grammar;

inline constexpr const Signature& kMoeDispatchForward = signature([] {
  return Draft{"moe_dispatch_forward",
               "choices samples hidden",
               {scalar("capacity", 0), scalar("num_experts", 0), fill("fill", "keep zero")},
               {in("gates", like("input", dtypes(DType::f32)), "choices?, samples"),
                in("indices", kIndices, "choices?, samples"), in("locations", kIndices, "choices?, samples"),
                in("input", kFloats, "samples, hidden"),
                may_overlap("input", inout("dispatch", like("input"), "num_experts * capacity, hidden"))}};
});

inline constexpr const Signature& kMoeDispatchBackwardData = signature([] {
  return Draft{"moe_dispatch_backward_data",
               "choices samples hidden",
               {scalar("capacity", 0), scalar("num_experts", 0)},
               {or_none(in("gates", like("dispatch", dtypes(DType::f32)), "choices?, samples")),
                in("indices", kIndices, "choices?, samples"), in("locations", kIndices, "choices?, samples"),
                in("dispatch", kFloats, "num_experts * capacity, hidden"),
                out("grad_input", like("dispatch"), "samples, hidden")}};
});

inline constexpr const Signature& kMoeDispatchBackwardGate = signature([] {
  return Draft{"moe_dispatch_backward_gate",
               "choices samples hidden",
               {scalar("capacity", 0), scalar("num_experts", 0)},
               {in("indices", kIndices, "choices?, samples"), in("locations", kIndices, "choices?, samples"),
                in("input", kFloats, "samples, hidden"),
                in("dispatch", like("input"), "num_experts * capacity, hidden"),
                out("grad_gates", like("input", dtypes(DType::f32)), "choices?, samples")}};
});

inline constexpr const Signature& kMoeDispatchBackward = signature([] {
  return Draft{"moe_dispatch_backward",
               "choices samples hidden",
               {scalar("capacity", 0), scalar("num_experts", 0)},
               {in("gates", like("input", dtypes(DType::f32)), "choices?, samples"),
                in("indices", kIndices, "choices?, samples"), in("locations", kIndices, "choices?, samples"),
                in("input", kFloats, "samples, hidden"),
                in("dispatch", like("input"), "num_experts * capacity, hidden"),
                out("grad_input", like("input"), "samples, hidden"),
                out("grad_gates", like("gates"), "choices?, samples")}};
});

// The routings of the operators below are [samples, choices?].

inline constexpr const Signature& kMoeLocations = signature([] {
  return Draft{"moe_locations",
               "samples choices",
               {scalar("num_experts", 0)},
               {in("indices", kIndices, "samples, choices?"), optional(in("priority", kFloats, "samples")),
                out("locations", dtypes(DType::i32), "samples, choices?"),
                out("counts", dtypes(DType::i64), "num_experts")},
               {at_most("samples * choices", "2147483647")}};
});

inline constexpr const Signature& kMoeDispatch = signature([] {
  return Draft{"moe_dispatch",
               "samples hidden choices",
               {scalar("capacity", 0), scalar("num_experts", 0)},
               {in("input", kFloats, "samples, hidden"), in("indices", kIndices, "samples, choices?"),
                or_none(in("locations", kIndices, "samples, choices?")),
                optional(in("gates", like("input", dtypes(DType::f32)), "samples, choices?")),
                out("dispatch", like("input"), "num_experts * capacity.., hidden")}};
});

inline constexpr const Signature& kMoeCombine = signature([] {
  return Draft{
      "moe_combine",
      "experts hidden samples choices",
      {scalar("capacity", 0)},
      {in("expert_output", kFloats, "experts * capacity.., hidden"),
       in("indices", kIndices, "samples, choices?"), or_none(in("locations", kIndices, "samples, choices?")),
       optional(in("gates", like("expert_output", dtypes(DType::f32)), "samples, choices?")),
       out("output", like("expert_output"), "samples, hidden")}};
});

inline constexpr const Signature& kMoeCombineBackward = signature([] {
  return Draft{
      "moe_combine_backward",
      "samples hidden experts choices",
      {scalar("capacity", 0)},
      {in("grad_output", kFloats, "samples, hidden"),
       in("expert_output", like("grad_output"), "experts * capacity.., hidden"),
       in("indices", kIndices, "samples, choices?"), or_none(in("locations", kIndices, "samples, choices?")),
       in("gates", like("grad_output", dtypes(DType::f32)), "samples, choices?"),
       out("grad_expert_output", like("grad_output"), "experts * capacity.., hidden"),
       out("grad_gates", like("gates"), "samples, choices?")}};
});

inline constexpr const Signature& kMoeTokenPermute = signature([] {
  return Draft{"moe_token_permute",
               "samples hidden choices adjusted(num_out_tokens?)",
               {},
               {in("tokens", kAnyDType, "samples, hidden"), in("indices", kIndices, "samples, choices?"),
                out("permuted_tokens", like("tokens"), "num_out_tokens, hidden"),
                out("sorted_indices", dtypes(DType::i32), "samples * choices")},
               {at_most("samples * choices", "2147483647"), at_most("num_out_tokens", "samples * choices")}};
});

}  // namespace turnout::families::moe_dispatch
