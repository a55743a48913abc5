// Plans of the operators that copy tokens into their experts' buffers.
#include "turnout/moe_dispatch.h"
#include "runtime/caller.h"

#include <optional>

#include "moe_dispatch/signature.h"
#include "moe_dispatch/views.h"
#include "rows/rows.h"
#include "runtime/stream_copy.h"

namespace turnout {
using namespace core;
using namespace families::moe_dispatch;

void moe_dispatch_forward(const ConstTensor& gates, const ConstTensor& indices, const ConstTensor& locations,
                          const ConstTensor& input, const Tensor& dispatch, const MoeDispatchParams& params,
                          const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMoeDispatchForward, {gates, indices, locations, input, dispatch},
            {params.capacity, params.num_experts, params.fill});
  if (call.nothing_to_do()) return;

  // If the tensors overlap, read the tokens from a copy made before the first write.
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
      {.routing = with_choices_first(indices, locations, {params.capacity, params.num_experts}),
       .weights = gates,
       .tokens = tokens,
       .routed = dispatch,
       .zero = params.fill == Fill::zero});
}

void moe_dispatch(const ConstTensor& input, const ConstTensor& indices, const ConstTensor& locations,
                  const ConstTensor& gates, const Tensor& dispatch, const MoeBuffers& buffers,
                  const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMoeDispatch, {input, indices, locations, gates, dispatch},
            {buffers.capacity, buffers.num_experts});
  if (call.nothing_to_do()) return;
  rows::scatter_rows(context, call,
                     {.routing = with_choices_last(indices, locations, buffers),
                      .weights = gates,
                      .tokens = input,
                      .routed = flat_buffers(dispatch),
                      .zero = true});
}

}  // namespace turnout
