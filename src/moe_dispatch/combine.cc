// Plans of the weighted sum of expert outputs, and of its gradient.
#include "moe_dispatch/signature.h"
#include "moe_dispatch/views.h"
#include "rows/rows.h"
#include "runtime/caller.h"
#include "turnout/moe_dispatch.h"

namespace turnout {
using namespace core;
using namespace families::moe_dispatch;

void moe_combine(const ConstTensor& expert_output, const ConstTensor& indices, const ConstTensor& locations,
                 const ConstTensor& gates, const Tensor& output, std::int64_t capacity,
                 const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMoeCombine, {expert_output, indices, locations, gates, output}, {capacity});
  const MoeBuffers buffers{capacity, call.size(kMoeCombine.size("experts"))};
  if (call.nothing_to_do()) return;
  rows::gather_rows(context, call,
                    {.routing = with_choices_last(indices, locations, buffers),
                     .weights = gates,
                     .routed = flat_buffers(expert_output),
                     .tokens = output});
}

void moe_combine_backward(const ConstTensor& grad_output, const ConstTensor& expert_output,
                          const ConstTensor& indices, const ConstTensor& locations, const ConstTensor& gates,
                          const Tensor& grad_expert_output, const Tensor& grad_gates, std::int64_t capacity,
                          const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMoeCombineBackward,
            {grad_output, expert_output, indices, locations, gates, grad_expert_output, grad_gates},
            {capacity});
  const MoeBuffers buffers{capacity, call.size(kMoeCombineBackward.size("experts"))};
  if (call.nothing_to_do()) return;
  const rows::Routing routing = with_choices_last(indices, locations, buffers);
  const rows::Dots dots{.routing = routing,
                        .tokens = grad_output,
                        .routed = flat_buffers(expert_output),
                        .products = grad_gates};
  rows::scatter_rows(context, call,
                     {.routing = routing,
                      .weights = gates,
                      .tokens = grad_output,
                      .routed = flat_buffers(grad_expert_output),
                      .zero = true,
                      .also = &dots});
}

}  // namespace turnout
