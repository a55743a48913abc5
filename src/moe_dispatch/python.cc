// Python bindings of this family.
#include <algorithm>

#include "doors/python/call.h"
#include "moe_dispatch/moe_dispatch.h"
#include "moe_dispatch/signature.h"

namespace turnout::families::moe_dispatch {

using namespace core;
using namespace doors;
namespace {

constexpr PythonFunction kForward{"moe_dispatch_forward", kMoeDispatchForward, "dispatch=out fill="};
constexpr PythonFunction kBackwardData{"moe_dispatch_backward_data", kMoeDispatchBackwardData,
                                       "grad_input=out"};
constexpr PythonFunction kBackwardGate{"moe_dispatch_backward_gate", kMoeDispatchBackwardGate,
                                       "grad_gates=out"};
constexpr PythonFunction kBackward{"moe_dispatch_backward", kMoeDispatchBackward};
constexpr PythonFunction kLocations{"moe_locations", kMoeLocations};
constexpr PythonFunction kDispatch{"moe_dispatch", kMoeDispatch, "dispatch=out"};
constexpr PythonFunction kCombine{"moe_combine", kMoeCombine, "output=out"};
constexpr PythonFunction kCombineBackward{"moe_combine_backward", kMoeCombineBackward};
constexpr PythonFunction kPermute{
    "moe_token_permute", kMoeTokenPermute, "", {scalar("num_out_tokens", -kSizeMax)}};
constexpr PythonFunction kUnpermute{
    "moe_token_unpermute", kMoeCombine,
    "expert_output=permuted_tokens indices=sorted_indices locations= gates=probs output=out capacity="};

nb::object forward(nb::handle gates, nb::handle indices, nb::handle locations, nb::handle input,
                   nb::handle capacity, nb::handle num_experts, nb::handle dispatch, bool torch_team) {
  PythonCall call(kForward, torch_team);
  const ConstTensor g = call.in(gates);
  const ConstTensor i = call.in(indices);
  const ConstTensor l = call.in(locations);
  const ConstTensor x = call.in(input);
  MoeDispatchParams params;
  params.capacity = call.scalar(capacity);
  params.num_experts = call.scalar(num_experts);
  params.fill = dispatch.is_none() ? Fill::zero : Fill::keep;
  const Tensor d = call.out(dispatch, {extent_product(params.num_experts, params.capacity), x.shape[1]});
  call.run([&](const Frame& frame) { moe_dispatch_forward(frame, g, i, l, x, d, params); });
  return call.result();
}

const ConstTensor* pointer(const std::optional<ConstTensor>& tensor) { return tensor ? &*tensor : nullptr; }

// An argument of a wrong rank gets to the operator, whose check says what was expected.
std::int64_t extent(const ConstTensor& t, int d) { return d < t.rank ? t.shape[d] : 0; }
std::int64_t last_extent(const ConstTensor& t) { return t.rank > 0 ? t.shape[t.rank - 1] : 0; }

MoeBuffers buffers(PythonCall& call, nb::handle capacity, nb::handle num_experts) {
  MoeBuffers given;
  given.capacity = call.scalar(capacity);
  given.num_experts = call.scalar(num_experts);
  return given;
}

nb::object backward_data(nb::handle gates, nb::handle indices, nb::handle locations, nb::handle dispatch,
                         nb::handle capacity, nb::handle num_experts, nb::handle out, bool torch_team) {
  PythonCall call(kBackwardData, torch_team);
  const std::optional<ConstTensor> g = call.optional_in(gates);
  const ConstTensor i = call.in(indices);
  const ConstTensor l = call.in(locations);
  const ConstTensor d = call.in(dispatch);
  const MoeBuffers b = buffers(call, capacity, num_experts);
  const Tensor to = call.out(out, {last_extent(i), extent(d, 1)});
  call.run([&](const Frame& frame) { moe_dispatch_backward_data(frame, pointer(g), i, l, d, to, b); });
  return call.result();
}

nb::object backward_gate(nb::handle indices, nb::handle locations, nb::handle input, nb::handle dispatch,
                         nb::handle capacity, nb::handle num_experts, nb::handle out, bool torch_team) {
  PythonCall call(kBackwardGate, torch_team);
  const ConstTensor i = call.in(indices);
  const ConstTensor l = call.in(locations);
  const ConstTensor x = call.in(input);
  const ConstTensor d = call.in(dispatch);
  const MoeBuffers b = buffers(call, capacity, num_experts);
  const Tensor to = call.out(out, i);
  call.run([&](const Frame& frame) { moe_dispatch_backward_gate(frame, i, l, x, d, to, b); });
  return call.result();
}

nb::object backward(nb::handle gates, nb::handle indices, nb::handle locations, nb::handle input,
                    nb::handle dispatch, nb::handle capacity, nb::handle num_experts, nb::handle out,
                    bool torch_team) {
  PythonCall call(kBackward, torch_team);
  const ConstTensor g = call.in(gates);
  const ConstTensor i = call.in(indices);
  const ConstTensor l = call.in(locations);
  const ConstTensor x = call.in(input);
  const ConstTensor d = call.in(dispatch);
  const MoeBuffers b = buffers(call, capacity, num_experts);
  const auto to = call.outs(out);
  const Tensor grad_input = call.out(to[0], x);
  const Tensor grad_gates = call.out(to[1], g);
  call.run(
      [&](const Frame& frame) { moe_dispatch_backward(frame, g, i, l, x, d, grad_input, grad_gates, b); });
  return call.result();
}

nb::object locations_of(nb::handle indices, nb::handle num_experts, nb::handle priority, nb::handle out,
                        bool torch_team) {
  PythonCall call(kLocations, torch_team);
  const ConstTensor i = call.in(indices);
  const std::optional<ConstTensor> order = call.optional_in(priority);
  const std::int64_t experts = call.scalar(num_experts);
  const auto to = call.outs(out);
  const Tensor locations = call.out(to[0], i);
  const Tensor counts = call.out(to[1], {experts});
  call.run([&](const Frame& frame) { moe_locations(frame, i, pointer(order), locations, counts, experts); });
  return call.result();
}

nb::object dispatch(nb::handle input, nb::handle indices, nb::handle locations, nb::handle capacity,
                    nb::handle num_experts, nb::handle gates, nb::handle out, bool torch_team) {
  PythonCall call(kDispatch, torch_team);
  const ConstTensor x = call.in(input);
  const ConstTensor i = call.in(indices);
  const std::optional<ConstTensor> l = call.optional_in(locations);
  const std::optional<ConstTensor> g = call.optional_in(gates);
  const MoeBuffers b = buffers(call, capacity, num_experts);
  const Tensor to = call.out(out, {b.num_experts, b.capacity, extent(x, 1)});
  call.run([&](const Frame& frame) { moe_dispatch(frame, x, i, pointer(l), pointer(g), to, b); });
  return call.result();
}

nb::object combine(nb::handle expert_output, nb::handle indices, nb::handle locations, nb::handle capacity,
                   nb::handle gates, nb::handle out, bool torch_team) {
  PythonCall call(kCombine, torch_team);
  const ConstTensor d = call.in(expert_output);
  const ConstTensor i = call.in(indices);
  const std::optional<ConstTensor> l = call.optional_in(locations);
  const std::optional<ConstTensor> g = call.optional_in(gates);
  const std::int64_t slots = call.scalar(capacity);
  const Tensor to = call.out(out, {extent(i, 0), last_extent(d)});
  call.run([&](const Frame& frame) { moe_combine(frame, d, i, pointer(l), pointer(g), to, slots); });
  return call.result();
}

nb::object combine_backward(nb::handle grad_output, nb::handle expert_output, nb::handle indices,
                            nb::handle locations, nb::handle capacity, nb::handle gates, nb::handle out,
                            bool torch_team) {
  PythonCall call(kCombineBackward, torch_team);
  const ConstTensor y = call.in(grad_output);
  const ConstTensor d = call.in(expert_output);
  const ConstTensor i = call.in(indices);
  const std::optional<ConstTensor> l = call.optional_in(locations);
  const ConstTensor g = call.in(gates);
  const std::int64_t slots = call.scalar(capacity);
  const auto to = call.outs(out);
  const Tensor grad_expert_output = call.out(to[0], d);
  const Tensor grad_gates = call.out(to[1], g);
  call.run([&](const Frame& frame) {
    moe_combine_backward(frame, y, d, i, pointer(l), g, grad_expert_output, grad_gates, slots);
  });
  return call.result();
}

// num_out_tokens as in a slice of Python; 0 is all.
nb::object permute(nb::handle tokens, nb::handle indices, nb::handle num_out_tokens, nb::handle out,
                   bool torch_team) {
  PythonCall call(kPermute, torch_team);
  const ConstTensor x = call.in(tokens);
  const ConstTensor i = call.in(indices);
  const std::int64_t choices = extent_product(extent(i, 0), i.rank == 2 ? i.shape[1] : 1);
  const std::int64_t wanted = num_out_tokens.is_none() ? 0 : call.integer(num_out_tokens, "num_out_tokens");
  const std::int64_t rows =
      wanted > 0 ? std::min(wanted, choices) : std::max<std::int64_t>(choices + wanted, 0);
  const auto to = call.outs(out);
  const Tensor permuted = call.out(to[0], {rows, extent(x, 1)});
  const Tensor sorted = call.out(to[1], {choices});
  call.run([&](const Frame& frame) { moe_token_permute(frame, x, i, permuted, sorted); });
  return call.result();
}

nb::object unpermute(nb::handle permuted_tokens, nb::handle sorted_indices, nb::handle probs, nb::handle out,
                     bool torch_team) {
  PythonCall call(kUnpermute, torch_team);
  const ConstTensor d = call.in(permuted_tokens);
  ConstTensor i = call.in(sorted_indices);
  call.optional_in(nb::none());  // locations
  const std::optional<ConstTensor> g = call.optional_in(probs);
  // The index comes flat beside probs [samples, choices].
  if (g && g->rank == 2 && i.rank == 1 && i.shape[0] == extent_product(g->shape[0], g->shape[1]))
    i = ConstTensor(i.data, i.dtype, {g->shape[0], g->shape[1]});
  const Tensor to = call.out(out, {extent(i, 0), last_extent(d)});
  call.run([&](const Frame& frame) { moe_combine(frame, d, i, nullptr, pointer(g), to, 1); });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  for (const PythonFunction* function : {&kForward, &kBackwardData, &kBackwardGate, &kBackward, &kLocations,
                                         &kDispatch, &kCombine, &kCombineBackward, &kPermute, &kUnpermute})
    list_function(*function);
  define(module, "moe_dispatch_forward", &forward);
  define(module, "moe_dispatch_backward_data", &backward_data);
  define(module, "moe_dispatch_backward_gate", &backward_gate);
  define(module, "moe_dispatch_backward", &backward);
  define(module, "moe_locations", &locations_of);
  define(module, "moe_dispatch", &dispatch);
  define(module, "moe_combine", &combine);
  define(module, "moe_combine_backward", &combine_backward);
  define(module, "moe_token_permute", &permute);
  define(module, "moe_token_unpermute", &unpermute);
}

}  // namespace turnout::families::moe_dispatch
