// Plans of the gradients of moe_dispatch_forward.
#include "moe_dispatch/signature.h"
#include "moe_dispatch/views.h"
#include "rows/rows.h"
#include "runtime/caller.h"
#include "turnout/moe_dispatch.h"

namespace turnout {
namespace families::moe_dispatch {}  // namespace families::moe_dispatch

using namespace core;
using namespace families::moe_dispatch;

void moe_dispatch_backward_data(const ConstTensor& gates, const ConstTensor& indices,
                                const ConstTensor& locations, const ConstTensor& dispatch,
                                const Tensor& grad_input, const MoeBuffers& buffers, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMoeDispatchBackwardData, {gates, indices, locations, dispatch, grad_input},
            {buffers.capacity, buffers.num_experts});
  if (call.nothing_to_do()) return;
  rows::gather_rows(context, call,
                    {.routing = with_choices_first(indices, locations, buffers),
                     .weights = gates,
                     .routed = dispatch,
                     .tokens = grad_input});
}

void moe_dispatch_backward_gate(const ConstTensor& indices, const ConstTensor& locations,
                                const ConstTensor& input, const ConstTensor& dispatch,
                                const Tensor& grad_gates, const MoeBuffers& buffers, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMoeDispatchBackwardGate, {indices, locations, input, dispatch, grad_gates},
            {buffers.capacity, buffers.num_experts});
  if (call.nothing_to_do()) return;
  rows::dot_rows(context, call,
                 {.routing = with_choices_first(indices, locations, buffers),
                  .tokens = input,
                  .routed = dispatch,
                  .products = grad_gates});
}

void moe_dispatch_backward(const ConstTensor& gates, const ConstTensor& indices, const ConstTensor& locations,
                           const ConstTensor& input, const ConstTensor& dispatch, const Tensor& grad_input,
                           const Tensor& grad_gates, const MoeBuffers& buffers, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMoeDispatchBackward,
            {gates, indices, locations, input, dispatch, grad_input, grad_gates},
            {buffers.capacity, buffers.num_experts});
  if (call.nothing_to_do()) return;
  const rows::Routing routing = with_choices_first(indices, locations, buffers);
  const rows::Dots dots{.routing = routing, .tokens = input, .routed = dispatch, .products = grad_gates};
  rows::gather_rows(
      context, call,
      {.routing = routing, .weights = gates, .routed = dispatch, .tokens = grad_input, .also = &dots});
}

}  // namespace turnout
