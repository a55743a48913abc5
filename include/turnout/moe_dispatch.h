// Mixture of experts: tokens into their experts' buffers.
#pragma once

#include <cstdint>

#include "turnout/context.h"
#include "turnout/tensor.h"

namespace turnout {

// What happens to rows of `dispatch` that no token names.
enum class Fill : std::uint8_t { keep, zero };

struct MoeDispatchParams {
  std::int64_t capacity = 0;     // slots of one expert
  std::int64_t num_experts = 0;  // experts in all
  Fill fill = Fill::keep;
};

// for k in 0 .. choices-1, i in 0 .. samples-1, in this order:
//   if 0 <= indices[k,i] < num_experts and 0 <= locations[k,i] < capacity:
//     dispatch[indices[k,i] * capacity + locations[k,i], :] = gates[k,i] * input[i, :]
//
// gates, indices, locations [samples] or [choices, samples]; input [samples, hidden];
// dispatch [num_experts * capacity, hidden].
// A token out of either range is dropped. Of several tokens on one row the last one wins. Rows that no token
// names keep their content, or become zero with Fill::zero. One multiplication per element, in the tokens'
// type (16-bit floats: in float, then rounded to nearest even). The bits depend on neither threads nor ISA.
// dispatch may share memory with input, wholly or in part: the result is that of a copied input.
TURNOUT_API void moe_dispatch_forward(Context& context, const ConstTensor& gates, const ConstTensor& indices,
                                      const ConstTensor& locations, const ConstTensor& input,
                                      const Tensor& dispatch, const MoeDispatchParams& params);
inline void moe_dispatch_forward(const ConstTensor& gates, const ConstTensor& indices,
                                 const ConstTensor& locations, const ConstTensor& input,
                                 const Tensor& dispatch, const MoeDispatchParams& params) {
  moe_dispatch_forward(default_context(), gates, indices, locations, input, dispatch, params);
}

}  // namespace turnout
