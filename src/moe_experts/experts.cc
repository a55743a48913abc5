// The expert block, with weights of 32 to 4 bits, and its checks.
#include "moe_experts/block_plan.h"
#include "moe_experts/signature.h"
#include "runtime/call.h"
#include "turnout/error.h"
#include "turnout/moe_experts.h"

namespace turnout {
namespace families::moe_experts {

using namespace core;
namespace {

// packed: the number of elements per byte of w2. The texts name the two extents.
void check_form(const Arguments& arguments, std::int64_t activation, bool gated, bool interleaved,
                std::int64_t w13_rows, std::int64_t inner, std::int64_t packed,
                const char* of_rows = "w13.shape[1]", const char* of_inner = "w2.shape[2]") {
  const bool is_oai = activation == static_cast<std::int64_t>(ExpertActivation::swigluoai);
  if (is_oai && !gated) arguments.fail(ErrorCode::bad_param, "gated is no, expected yes with swigluoai");
  if (interleaved && !gated)
    arguments.fail(ErrorCode::bad_param, "interleaved is yes, expected no if gated is no");
  const std::int64_t factor = (gated ? 2 : 1) * packed;
  if (w13_rows != factor * inner)
    arguments.fail(ErrorCode::bad_param, concat(of_rows, " is ", w13_rows, ", expected ", factor * inner,
                                                " = ", factor == 1 ? "" : concat(factor, " * "), of_inner));
}

}  // namespace

void check_block(const Arguments& arguments, const Positions& at) {
  const DType tokens = arguments.slot(at[0]).dtype, weights = arguments.slot(at[1]).dtype;
  if (tokens != weights && tokens != DType::f32)
    arguments.fail(ErrorCode::bad_param,
                   concat("w13 has dtype ", arguments.dtype_text(weights), ", expected ",
                          arguments.dtype_text(tokens), ", the dtype of hidden_states"));
  check_form(arguments, arguments.size(at[2]), arguments.size(at[3]) != 0, arguments.size(at[4]) != 0,
             arguments.size(at[5]), arguments.size(at[6]), 1);
}

void check_activation(const Arguments& arguments, const Positions& at) {
  check_form(arguments, arguments.size(at[0]), arguments.size(at[1]) != 0, arguments.size(at[2]) != 0,
             arguments.size(at[3]), arguments.size(at[4]), 1, "products.shape[1]", "inner_grad.shape[1]");
}

void check_quantized(const Arguments& arguments, const Positions& at) {
  const bool packed = arguments.slot(at[0]).dtype == DType::u8;
  const std::int64_t hidden = arguments.size(at[1]);
  const auto check = [&](const char* name, std::int64_t bytes, const auto& depth_text, std::int64_t depth,
                         std::int64_t scales) {
    if (packed && depth % kGroup != 0)
      arguments.fail(ErrorCode::bad_param,
                     concat(depth_text(), " is ", depth, ", expected a multiple of 32 with 4-bit weights"));
    const std::int64_t expected = packed ? depth / 2 : depth, groups = packed ? depth / kGroup : 1;
    if (bytes != expected)
      arguments.fail(ErrorCode::bad_param,
                     concat(name, ".shape[2] is ", bytes, ", expected ", expected,
                            packed ? " bytes of 2 elements for " : " for ", depth_text(), " = ", depth));
    if (scales != groups)
      arguments.fail(ErrorCode::bad_param, concat(name, "_scale.shape[2] is ", scales, ", expected ", groups,
                                                  packed ? ", one per 32 elements" : ", one per row"));
  };
  check(
      "w13", arguments.size(at[6]), [&] { return arguments.size_text(at[1]); }, hidden,
      arguments.size(at[7]));
  const std::int64_t bytes = arguments.size(at[8]);
  check(
      "w2", bytes, [&] { return packed ? "2 * w2.shape[2]" : "w2.shape[2]"; }, packed ? 2 * bytes : bytes,
      arguments.size(at[9]));
  check_form(arguments, arguments.size(at[2]), arguments.size(at[3]) != 0, arguments.size(at[4]) != 0,
             arguments.size(at[5]), bytes, packed ? 2 : 1);
}

}  // namespace families::moe_experts

using namespace families::moe_experts;
namespace {

void run_block(Call& call, const Caller& caller, const ConstTensor& hidden_states,
               const ConstTensor& topk_ids, const ConstTensor& topk_weights, const ConstTensor& w13,
               const ConstTensor& w2, const ConstTensor& w13_bias, const ConstTensor& w2_bias,
               const Tensor& out, const Tensor& products, const MoeExpertsParams& params) {
  if (call.nothing_to_do()) return;
  const BlockShape shape{hidden_states.shape[0], hidden_states.shape[1], topk_ids.shape[1], w13.shape[0],
                         w2.shape[2]};
  // Columns of the products are rows of w13 and w2.
  const Weights first{w13.data,      w13.dtype,     shape.hidden, w13.shape[1],
                      w13.stride[0], w13.stride[2], w13.stride[1]};
  const Weights second{w2.data,      w2.dtype,     shape.inner, shape.hidden,
                       w2.stride[0], w2.stride[2], w2.stride[1]};
  BlockPlan plan(shape, params, first, second, hidden_states.dtype, caller.context().threads(),
                 caller.context().isa());
  call.chose(plan.algorithm(), plan.threads());
  call.uses(plan.last_isa());
  plan.run(caller.context(), hidden_states, topk_ids, topk_weights, w13_bias, w2_bias, out, products,
           call.scratch(plan.scratch_bytes()));
}

}  // namespace

void moe_experts(const ConstTensor& hidden_states, const ConstTensor& topk_ids,
                 const ConstTensor& topk_weights, const ConstTensor& w13, const ConstTensor& w2,
                 const ConstTensor& w13_bias, const ConstTensor& w2_bias, const Tensor& out,
                 const MoeExpertsParams& params, const Caller& caller) {
  Call call(
      caller, kMoeExperts, {hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, out},
      {params.activation, params.gated, params.interleaved, params.alpha, params.limit, params.precision});
  run_block(call, caller, hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, out, nullptr,
            params);
}

void moe_experts_forward(const ConstTensor& hidden_states, const ConstTensor& topk_ids,
                         const ConstTensor& topk_weights, const ConstTensor& w13, const ConstTensor& w2,
                         const ConstTensor& w13_bias, const ConstTensor& w2_bias, const Tensor& out,
                         const Tensor& products, const MoeExpertsParams& params, const Caller& caller) {
  Call call(
      caller, kMoeExpertsForward,
      {hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, out, products},
      {params.activation, params.gated, params.interleaved, params.alpha, params.limit, params.precision});
  run_block(call, caller, hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, out, products,
            params);
}

void moe_experts_quantized(const ConstTensor& hidden_states, const ConstTensor& topk_ids,
                           const ConstTensor& topk_weights, const ConstTensor& w13,
                           const ConstTensor& w13_scale, const ConstTensor& w2, const ConstTensor& w2_scale,
                           const ConstTensor& w13_bias, const ConstTensor& w2_bias, const Tensor& out,
                           const MoeExpertsQuantizedParams& params, const Caller& caller) {
  Call call(caller, kMoeExpertsQuantized,
            {hidden_states, topk_ids, topk_weights, w13, w13_scale, w2, w2_scale, w13_bias, w2_bias, out},
            {params.activation, params.gated, params.interleaved, params.alpha, params.limit});
  if (call.nothing_to_do()) return;
  const std::int64_t inner = w13.shape[1] / (params.gated ? 2 : 1);
  const BlockShape shape{hidden_states.shape[0], hidden_states.shape[1], topk_ids.shape[1], w13.shape[0],
                         inner};
  const auto weights = [](const ConstTensor& w, const ConstTensor& scale, std::int64_t depth) {
    return Weights{w.data, w.dtype,    depth,      w.shape[1],  w.shape[1] * w.shape[2],
                   1,      w.shape[2], scale.data, scale.dtype, scale.shape[2]};
  };
  const MoeExpertsParams form{params.activation, params.gated, params.interleaved, params.alpha,
                              params.limit};
  BlockPlan plan(shape, form, weights(w13, w13_scale, shape.hidden), weights(w2, w2_scale, inner),
                 hidden_states.dtype, caller.context().threads(), caller.context().isa());
  call.chose(w13.dtype == DType::u8 ? "4-bit weights in place" : "8-bit weights in place", plan.threads());
  plan.run(caller.context(), hidden_states, topk_ids, topk_weights, w13_bias, w2_bias, out, nullptr,
           call.scratch(plan.scratch_bytes()));
}

}  // namespace turnout
