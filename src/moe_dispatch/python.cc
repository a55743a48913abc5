// Python bindings of this family.
#include "doors/python/call.h"
#include "moe_dispatch/moe_dispatch.h"
#include "moe_dispatch/signature.h"

namespace turnout::families::moe_dispatch {

using namespace core;
using namespace doors;
namespace {

constexpr PythonFunction kForward{"moe_dispatch_forward", kMoeDispatchForward, "dispatch=out fill="};

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

}  // namespace

void bind(nb::module_& module) {
  list_function(kForward);
  define(module, "moe_dispatch_forward", &forward);
}

}  // namespace turnout::families::moe_dispatch
