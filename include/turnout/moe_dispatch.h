// Mixture of experts: copies tokens into the buffers of their experts.
#pragma once

#include <cstdint>

#include "turnout/context.h"
#include "turnout/tensor.h"

namespace turnout {

// Rows of `dispatch` to which no token is routed keep their content, or are set to zero.
enum class Fill : std::uint8_t { keep, zero };

struct MoeDispatchParams {
  std::int64_t capacity = 0;  // slots per expert
  std::int64_t num_experts = 0;
  Fill fill = Fill::keep;
};

// for k in 0 .. choices-1, i in 0 .. samples-1, in this order:
//   if 0 <= indices[k,i] < num_experts and 0 <= locations[k,i] < capacity:
//     dispatch[indices[k,i] * capacity + locations[k,i], :] = gates[k,i] * input[i, :]
//
// gates, indices, locations [samples] or [choices, samples]; input [samples, hidden];
// dispatch [num_experts * capacity, hidden].
// A token whose expert or slot is out of range is dropped. If several tokens are routed to one row, the last
// one wins. Rows without a token keep their content, or are set to zero with Fill::zero. Each element is one
// multiplication in the tokens' type; 16-bit floats are multiplied in float and rounded to nearest even.
// Results are bit-identical for any thread count and instruction set. dispatch may share memory with input,
// wholly or in part: the result is that of a copied input.
TURNOUT_API void moe_dispatch_forward(Context& context, const ConstTensor& gates, const ConstTensor& indices,
                                      const ConstTensor& locations, const ConstTensor& input,
                                      const Tensor& dispatch, const MoeDispatchParams& params);
inline void moe_dispatch_forward(const ConstTensor& gates, const ConstTensor& indices,
                                 const ConstTensor& locations, const ConstTensor& input,
                                 const Tensor& dispatch, const MoeDispatchParams& params) {
  moe_dispatch_forward(default_context(), gates, indices, locations, input, dispatch, params);
}

}  // namespace turnout
