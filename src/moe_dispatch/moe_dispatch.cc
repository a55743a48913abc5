// Plans of the operators that copy tokens into the buffers of their experts.
#include "moe_dispatch/moe_dispatch.h"

#include <optional>

#include "moe_dispatch/signature.h"
#include "moe_dispatch/views.h"
#include "rows/rows.h"
#include "runtime/stream_copy.h"

namespace turnout {
namespace families::moe_dispatch {

void moe_dispatch_forward(const Frame& frame, const ConstTensor& gates, const ConstTensor& indices,
                          const ConstTensor& locations, const ConstTensor& input, const Tensor& dispatch,
                          const MoeDispatchParams& params) {
  Context& context = frame.context;
  Call call(frame, kMoeDispatchForward, {gates, indices, locations, input, dispatch},
            {params.capacity, params.num_experts, params.fill});
  if (call.nothing_to_do()) return;

  // In place: tokens are read as they were before the first row is written.
  ConstTensor tokens = input;
  std::optional<Scratch> copy;
  if (share_memory(input, dispatch)) {
    const std::int64_t bytes = Slot(input).elements() * size_of(input.dtype);
    copy.emplace(call.lease(static_cast<std::size_t>(bytes)));
    void* const copied = copy->take<std::byte>(bytes);
    stream_copy(context, copied, input.data, bytes);
    tokens.data = copied;
  }
  rows::scatter_rows(
      context, call,
      {.routing = with_choices_first(indices, &locations, {params.capacity, params.num_experts}),
       .weights = &gates,
       .tokens = tokens,
       .routed = dispatch,
       .zero = params.fill == Fill::zero});
}

void moe_dispatch(const Frame& frame, const ConstTensor& input, const ConstTensor& indices,
                  const ConstTensor* locations, const ConstTensor* gates, const Tensor& dispatch,
                  const MoeBuffers& buffers) {
  Context& context = frame.context;
  const Tensor flat = flat_buffers(dispatch, buffers.capacity);
  Call call(frame, kMoeDispatch, {input, indices, slot_of(locations), slot_of(gates), flat},
            {buffers.capacity, buffers.num_experts});
  if (call.nothing_to_do()) return;
  rows::scatter_rows(context, call,
                     {.routing = with_choices_last(indices, locations, buffers),
                      .weights = gates,
                      .tokens = input,
                      .routed = flat,
                      .zero = true});
}

}  // namespace families::moe_dispatch

void moe_dispatch_forward(Context& context, const ConstTensor& gates, const ConstTensor& indices,
                          const ConstTensor& locations, const ConstTensor& input, const Tensor& dispatch,
                          const MoeDispatchParams& params) {
  families::moe_dispatch::moe_dispatch_forward(context, gates, indices, locations, input, dispatch, params);
}

void moe_dispatch(Context& context, const ConstTensor& input, const ConstTensor& indices,
                  const ConstTensor* locations, const ConstTensor* gates, const Tensor& dispatch,
                  const MoeBuffers& buffers) {
  families::moe_dispatch::moe_dispatch(context, input, indices, locations, gates, dispatch, buffers);
}

}  // namespace turnout
