// Python bindings of this family.
#include <utility>

#include "bindings/python/call.h"
#include "moe_experts/signature.h"
#include "turnout/moe_experts.h"

namespace turnout::families::moe_experts {

using namespace core;
using namespace bindings;
namespace {

// Not a separate operator: moe_experts with weights [experts, hidden, w13_rows] and [experts, inner, hidden].
// The axes are swapped here because Python cannot make views of arrays that only support DLPack.
constexpr PythonFunction kTransposed{"moe_experts", kMoeExperts};

// Returns [experts, a, b] as [experts, b, a]; the operator's check rejects other ranks.
ConstTensor swapped(ConstTensor t) {
  if (t.rank == 3) {
    std::swap(t.shape[1], t.shape[2]);
    std::swap(t.stride[1], t.stride[2]);
  }
  return t;
}

nb::object transposed_experts(nb::handle hidden_states, nb::handle topk_ids, nb::handle topk_weights,
                              nb::handle w13, nb::handle w2, nb::handle w13_bias, nb::handle w2_bias,
                              nb::handle activation, nb::handle gated, nb::handle interleaved,
                              nb::handle alpha, nb::handle limit, nb::handle precision, nb::handle transposed,
                              nb::handle out) {
  PythonCall call(kTransposed, /*use_torch_threads=*/false);
  const bool swap = call.flag(transposed, "transposed");
  const ConstTensor x = call.in(hidden_states), ids = call.in(topk_ids), weights = call.in(topk_weights);
  const ConstTensor given_first = call.in(w13), given_second = call.in(w2);
  const ConstTensor first = swap ? swapped(given_first) : given_first,
                    second = swap ? swapped(given_second) : given_second;
  const ConstTensor first_bias = call.optional_in(w13_bias), second_bias = call.optional_in(w2_bias);
  MoeExpertsParams params;
  params.activation = call.named_choice<ExpertActivation>(activation, "activation");
  params.gated = call.flag(gated, "gated");
  params.interleaved = call.flag(interleaved, "interleaved");
  params.alpha = call.number(alpha, "alpha");
  if (!limit.is_none()) params.limit = call.number(limit, "limit");
  params.precision = call.named_choice<ExpertPrecision>(precision, "precision");
  const Tensor y = call.out(out, x);
  call.run([&](const Caller& caller) {
    turnout::moe_experts(x, ids, weights, first, second, first_bias, second_bias, y, params, caller);
  });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) { define(module, "moe_experts_transposed", &transposed_experts); }

}  // namespace turnout::families::moe_experts
