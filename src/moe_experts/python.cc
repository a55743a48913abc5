// Python bindings of this family.
#include <utility>

#include "bindings/python/call.h"
#include "moe_experts/signature.h"
#include "turnout/moe_experts.h"

namespace turnout::families::moe_experts {

using namespace core;
using namespace bindings;
namespace {

constexpr PythonFunction kGrouped{"grouped_mm", kGroupedMm};
constexpr PythonFunction kGroupedBackward{
    "grouped_mm_backward_weight", kGroupedMmBackwardWeight, "", {flag("with_bias")}};
constexpr PythonFunction kExperts{"moe_experts", kMoeExperts};
constexpr PythonFunction kQuantized{"moe_experts_quantized", kMoeExpertsQuantized};

// Of an input whose rank the operator has yet to check.
std::int64_t extent(const ConstTensor& t, int d) { return d < t.rank && t.rank <= kMaxRank ? t.shape[d] : 0; }

// [experts, a, b] as [experts, b, a]; another rank is left to the operator's check.
ConstTensor swapped(ConstTensor t) {
  if (t.rank == 3) {
    std::swap(t.shape[1], t.shape[2]);
    std::swap(t.stride[1], t.stride[2]);
  }
  return t;
}

nb::object grouped(nb::handle input, nb::handle weight, nb::handle offs, nb::handle bias, nb::handle out,
                   bool use_torch_threads) {
  PythonCall call(kGrouped, use_torch_threads);
  const ConstTensor x = call.in(input), w = call.in(weight), ends = call.in(offs);
  const ConstTensor b = call.optional_in(bias);
  const Tensor y = call.out(out, {extent(x, 0), extent(w, 2)});
  call.run([&](const Caller& caller) { grouped_mm(x, w, ends, b, y, caller); });
  return call.result();
}

nb::object grouped_backward(nb::handle input, nb::handle out_grad, nb::handle offs, bool with_bias,
                            nb::handle out, bool use_torch_threads) {
  PythonCall call(kGroupedBackward, use_torch_threads);
  const ConstTensor x = call.in(input), y = call.in(out_grad), ends = call.in(offs);
  const auto outs = call.outs(out);
  const Tensor weight_grad = call.out(outs[0], {extent(ends, 0), extent(x, 1), extent(y, 1)});
  Tensor bias_grad(nullptr);
  if (with_bias) {
    bias_grad = call.out(outs[1], {extent(ends, 0), extent(y, 1)});
  } else {
    call.no_out();
  }
  call.run(
      [&](const Caller& caller) { grouped_mm_backward_weight(x, y, ends, weight_grad, bias_grad, caller); });
  return call.result();
}

MoeExpertsParams params_of(PythonCall& call, nb::handle activation, nb::handle interleaved, nb::handle gated,
                           nb::handle alpha, nb::handle limit) {
  MoeExpertsParams params;
  params.activation = call.named_choice<ExpertActivation>(activation);
  params.gated = call.flag(gated, "gated");
  params.interleaved = call.flag(interleaved, "interleaved");
  params.alpha = call.number(alpha, "alpha");
  if (!limit.is_none()) params.limit = call.number(limit, "limit");
  return params;
}

nb::object experts(nb::handle hidden_states, nb::handle topk_ids, nb::handle topk_weights, nb::handle w13,
                   nb::handle w2, nb::handle w13_bias, nb::handle w2_bias, nb::handle activation,
                   nb::handle interleaved, nb::handle transposed, nb::handle gated, nb::handle alpha,
                   nb::handle limit, nb::handle out, bool use_torch_threads) {
  PythonCall call(kExperts, use_torch_threads);
  const ConstTensor x = call.in(hidden_states), ids = call.in(topk_ids), weights = call.in(topk_weights);
  const bool swap = call.flag(transposed, "transposed");
  const ConstTensor given_first = call.in(w13), given_second = call.in(w2);
  const ConstTensor first = swap ? swapped(given_first) : given_first,
                    second = swap ? swapped(given_second) : given_second;
  const ConstTensor first_bias = call.optional_in(w13_bias), second_bias = call.optional_in(w2_bias);
  const MoeExpertsParams params = params_of(call, activation, interleaved, gated, alpha, limit);
  const Tensor y = call.out(out, {extent(x, 0), extent(x, 1)});
  call.run([&](const Caller& caller) {
    turnout::moe_experts(x, ids, weights, first, second, first_bias, second_bias, y, params, caller);
  });
  return call.result();
}

nb::object experts_quantized(nb::handle hidden_states, nb::handle topk_ids, nb::handle topk_weights,
                             nb::handle w13, nb::handle w13_scale, nb::handle w2, nb::handle w2_scale,
                             nb::handle w13_bias, nb::handle w2_bias, nb::handle activation,
                             nb::handle interleaved, nb::handle gated, nb::handle alpha, nb::handle limit,
                             nb::handle out, bool use_torch_threads) {
  PythonCall call(kQuantized, use_torch_threads);
  const ConstTensor x = call.in(hidden_states), ids = call.in(topk_ids), weights = call.in(topk_weights);
  const ConstTensor first = call.in(w13), first_scale = call.in(w13_scale), second = call.in(w2),
                    second_scale = call.in(w2_scale);
  const ConstTensor first_bias = call.optional_in(w13_bias), second_bias = call.optional_in(w2_bias);
  const MoeExpertsParams params = params_of(call, activation, interleaved, gated, alpha, limit);
  const Tensor y = call.out(out, {extent(x, 0), extent(x, 1)});
  call.run([&](const Caller& caller) {
    moe_experts_quantized(x, ids, weights, first, first_scale, second, second_scale, first_bias, second_bias,
                          y, params, caller);
  });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  for (const PythonFunction* function : {&kGrouped, &kGroupedBackward, &kExperts, &kQuantized})
    list_function(*function);
  define(module, "grouped_mm", &grouped);
  define(module, "grouped_mm_backward_weight", &grouped_backward);
  define(module, "moe_experts", &experts);
  define(module, "moe_experts_quantized", &experts_quantized);
}

}  // namespace turnout::families::moe_experts
