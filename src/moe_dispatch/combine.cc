// Plans of the weighted sum of expert outputs, and of its gradient.
#include <string_view>

#include "moe_dispatch/moe_dispatch.h"
#include "moe_dispatch/signature.h"
#include "moe_dispatch/views.h"
#include "rows/rows.h"
#include "turnout/error.h"

namespace turnout {
namespace families::moe_dispatch {
namespace {

// Rows that are no whole experts are refused; with a capacity of 0 no expert has a row.
MoeBuffers buffers_of(std::string_view what, const ConstTensor& flat, std::int64_t capacity) {
  if (capacity == 0) return {0, 0};
  if (flat.shape[0] % capacity != 0)
    throw Error(ErrorCode::bad_param,
                concat(what, " has ", flat.shape[0], " rows, expected a multiple of capacity = ", capacity));
  return {capacity, flat.shape[0] / capacity};
}

}  // namespace

void moe_combine(const Frame& frame, const ConstTensor& expert_output, const ConstTensor& indices,
                 const ConstTensor* locations, const ConstTensor* gates, const Tensor& output,
                 std::int64_t capacity) {
  Context& context = frame.context;
  const ConstTensor flat = flat_buffers(expert_output, capacity);
  Call call(frame, kMoeCombine, {flat, indices, slot_of(locations), slot_of(gates), output}, {capacity});
  MoeBuffers buffers;
  call.check([&] { buffers = buffers_of("moe_combine: expert_output", flat, capacity); });
  if (call.nothing_to_do()) return;
  rows::gather_rows(context, call,
                    {.routing = with_choices_last(indices, locations, buffers),
                     .weights = gates,
                     .routed = flat,
                     .tokens = output});
}

void moe_combine_backward(const Frame& frame, const ConstTensor& grad_output,
                          const ConstTensor& expert_output, const ConstTensor& indices,
                          const ConstTensor* locations, const ConstTensor& gates,
                          const Tensor& grad_expert_output, const Tensor& grad_gates, std::int64_t capacity) {
  Context& context = frame.context;
  const ConstTensor flat = flat_buffers(expert_output, capacity);
  const Tensor flat_grad = flat_buffers(grad_expert_output, capacity);
  Call call(frame, kMoeCombineBackward,
            {grad_output, flat, indices, slot_of(locations), gates, flat_grad, grad_gates}, {capacity});
  MoeBuffers buffers;
  call.check([&] { buffers = buffers_of("moe_combine_backward: expert_output", flat, capacity); });
  if (call.nothing_to_do()) return;
  const rows::Routing routing = with_choices_last(indices, locations, buffers);
  const rows::Dots dots{.routing = routing, .tokens = grad_output, .routed = flat, .products = grad_gates};
  rows::scatter_rows(context, call,
                     {.routing = routing,
                      .weights = &gates,
                      .tokens = grad_output,
                      .routed = flat_grad,
                      .zero = true,
                      .also = &dots});
}

}  // namespace families::moe_dispatch

void moe_combine(Context& context, const ConstTensor& expert_output, const ConstTensor& indices,
                 const ConstTensor* locations, const ConstTensor* gates, const Tensor& output,
                 std::int64_t capacity) {
  families::moe_dispatch::moe_combine(context, expert_output, indices, locations, gates, output, capacity);
}

void moe_combine_backward(Context& context, const ConstTensor& grad_output, const ConstTensor& expert_output,
                          const ConstTensor& indices, const ConstTensor* locations, const ConstTensor& gates,
                          const Tensor& grad_expert_output, const Tensor& grad_gates, std::int64_t capacity) {
  families::moe_dispatch::moe_combine_backward(context, grad_output, expert_output, indices, locations, gates,
                                               grad_expert_output, grad_gates, capacity);
}

}  // namespace turnout
