// What the operators of this family accept.
#pragma once

#include "core/draft.h"

namespace turnout::families::moe_experts {

using namespace core::grammar;

// Fails unless offs ascend within 0 .. rows.
void check_offs(const Arguments& arguments, const Positions& at);
// Fails unless w13 has one row per inner element (two if gated) and 16-bit tokens have weights of that dtype.
void check_block(const Arguments& arguments, const Positions& at);
// Fails unless products have one column per inner element, or two if gated.
void check_activation(const Arguments& arguments, const Positions& at);
// check_block() for quantized weights; also checks the extents of bytes and scales.
void check_quantized(const Arguments& arguments, const Positions& at);

// The standard order, but weights may have any strides.
inline constexpr StepSpec kGroupedOrder[] = {{Check::present},
                                             {Check::ranks},
                                             {Check::dtypes},
                                             {Check::scalars},
                                             {Check::shapes},
                                             {Check::rules},
                                             {Check::contiguous, ErrorCode::bad_param, "input offs bias out"},
                                             {Check::outputs_empty},
                                             {Check::pointers},
                                             {Check::overlap},
                                             {Check::data}};

inline constexpr const Signature& kGroupedMm = signature([] {
  return Draft{"grouped_mm",
               "rows depth groups columns",
               {},
               {in("input", kFloats, "rows, depth"), in("weight", like("input"), "groups, depth, columns"),
                in("offs", kIndices, "groups"), optional(in("bias", like("input"), "groups, columns")),
                out("out", like("input"), "rows, columns")},
               {},
               {{"offs", "ascending, 0 .. rows", &check_offs, "offs rows"}},
               kGroupedOrder};
});

inline constexpr const Signature& kGroupedMmBackwardWeight = signature([] {
  return Draft{"grouped_mm_backward_weight",
               "rows depth columns groups",
               {},
               {in("input", kFloats, "rows, depth"), in("out_grad", like("input"), "rows, columns"),
                in("offs", kIndices, "groups"), out("weight_grad", like("input"), "groups, depth, columns"),
                on_request("with_bias", out("bias_grad", like("input"), "groups, columns"))},
               {},
               {{"offs", "ascending, 0 .. rows", &check_offs, "offs rows"}}};
});

inline constexpr DTypes kHalves = dtypes(DType::f16, DType::bf16);
inline constexpr StepSpec kExpertsOrder[] = {
    {Check::present},
    {Check::ranks},
    {Check::dtypes},
    {Check::scalars},
    {Check::shapes},
    {Check::rules},
    {Check::contiguous, ErrorCode::bad_param, "hidden_states topk_ids topk_weights w13_bias w2_bias out"},
    {Check::outputs_empty},
    {Check::pointers},
    {Check::overlap},
    {Check::data}};

inline constexpr const Signature& kMoeExperts = signature([] {
  return Draft{
      "moe_experts",
      "tokens hidden choices experts w13_rows inner",
      {by_default("silu", choice("activation", "silu gelu gelu_tanh relu swigluoai")),
       by_default("yes", flag("gated")), by_default("no", flag("interleaved")),
       by_default(1.702, real("alpha", -kFinite, kFinite)), or_none(kInfinity, real("limit", kPositive)),
       by_default("float32", choice("precision", "float32 bfloat16"))},
      {in("hidden_states", dtypes(DType::f32, DType::f16, DType::bf16), "tokens, hidden"),
       in("topk_ids", kIndices, "tokens, choices"),
       in("topk_weights", like("hidden_states", dtypes(DType::f32)), "tokens, choices"),
       in("w13", like("hidden_states", kHalves), "experts, w13_rows, hidden"),
       in("w2", like("w13"), "experts, hidden, inner"),
       optional(in("w13_bias", like("w13", dtypes(DType::f32)), "experts, w13_rows")),
       optional(in("w2_bias", like("w13", dtypes(DType::f32)), "experts, hidden")),
       out("out", like("hidden_states"), "tokens, hidden")},
      {at_most("tokens * choices", "2147483647")},
      {{"block", "w13_rows = 2 inner if gated, else inner; with 16-bit tokens, weights have their dtype",
        &check_block, "hidden_states w13 activation gated interleaved w13_rows inner"}},
      kExpertsOrder};
});

inline constexpr StepSpec kExpertsForwardOrder[] = {{Check::present},
                                                    {Check::ranks},
                                                    {Check::dtypes},
                                                    {Check::scalars},
                                                    {Check::shapes},
                                                    {Check::rules},
                                                    {Check::contiguous, ErrorCode::bad_param,
                                                     "hidden_states topk_ids topk_weights w13_bias w2_bias "
                                                     "out products"},
                                                    {Check::outputs_empty},
                                                    {Check::pointers},
                                                    {Check::overlap},
                                                    {Check::data}};

inline constexpr const Signature& kMoeExpertsForward = signature([] {
  return Draft{
      "moe_experts_forward",
      "tokens hidden choices experts w13_rows inner",
      {by_default("silu", choice("activation", "silu gelu gelu_tanh relu swigluoai")),
       by_default("yes", flag("gated")), by_default("no", flag("interleaved")),
       by_default(1.702, real("alpha", -kFinite, kFinite)), or_none(kInfinity, real("limit", kPositive)),
       by_default("float32", choice("precision", "float32 bfloat16"))},
      {in("hidden_states", dtypes(DType::f32, DType::f16, DType::bf16), "tokens, hidden"),
       in("topk_ids", kIndices, "tokens, choices"),
       in("topk_weights", like("hidden_states", dtypes(DType::f32)), "tokens, choices"),
       in("w13", like("hidden_states", kHalves), "experts, w13_rows, hidden"),
       in("w2", like("w13"), "experts, hidden, inner"),
       optional(in("w13_bias", like("w13", dtypes(DType::f32)), "experts, w13_rows")),
       optional(in("w2_bias", like("w13", dtypes(DType::f32)), "experts, hidden")),
       out("out", like("hidden_states"), "tokens, hidden"),
       out("products", like("hidden_states"), "tokens * choices, w13_rows")},
      {at_most("tokens * choices", "2147483647")},
      {{"block", "w13_rows = 2 inner if gated, else inner; with 16-bit tokens, weights have their dtype",
        &check_block, "hidden_states w13 activation gated interleaved w13_rows inner"}},
      kExpertsForwardOrder};
});

inline constexpr const Signature& kExpertActivationBackward = signature([] {
  return Draft{
      "expert_activation_backward",
      "rows w13_rows inner",
      {by_default("silu", choice("activation", "silu gelu gelu_tanh relu swigluoai")),
       by_default("yes", flag("gated")), by_default("no", flag("interleaved")),
       by_default(1.702, real("alpha", -kFinite, kFinite)), or_none(kInfinity, real("limit", kPositive))},
      {in("products", dtypes(DType::f32, DType::f16, DType::bf16), "rows, w13_rows"),
       in("inner_grad", like("products"), "rows, inner"),
       in("row_weights", like("products", dtypes(DType::f32)), "rows"),
       out("products_grad", like("products"), "rows, w13_rows"),
       out("weighted_inner", like("products"), "rows, inner"),
       out("row_weights_grad", dtypes(DType::f32), "rows")},
      {},
      {{"activation", "w13_rows = 2 inner if gated, else inner", &check_activation,
        "activation gated interleaved w13_rows inner"}}};
});

inline constexpr const Signature& kMoeExpertsQuantized = signature([] {
  return Draft{
      "moe_experts_quantized",
      "tokens hidden choices experts w13_rows w13_bytes w13_scales w2_bytes w2_scales",
      {by_default("silu", choice("activation", "silu gelu gelu_tanh relu swigluoai")),
       by_default("yes", flag("gated")), by_default("no", flag("interleaved")),
       by_default(1.702, real("alpha", -kFinite, kFinite)), or_none(kInfinity, real("limit", kPositive))},
      {in("hidden_states", dtypes(DType::f32, DType::f16, DType::bf16), "tokens, hidden"),
       in("topk_ids", kIndices, "tokens, choices"),
       in("topk_weights", like("hidden_states", dtypes(DType::f32)), "tokens, choices"),
       in("w13", dtypes(DType::i8, DType::u8), "experts, w13_rows, w13_bytes"),
       in("w13_scale", dtypes(DType::f32, DType::f16, DType::bf16), "experts, w13_rows, w13_scales"),
       in("w2", like("w13"), "experts, hidden, w2_bytes"),
       in("w2_scale", like("w13_scale"), "experts, hidden, w2_scales"),
       optional(in("w13_bias", like("hidden_states", dtypes(DType::f32)), "experts, w13_rows")),
       optional(in("w2_bias", like("hidden_states", dtypes(DType::f32)), "experts, hidden")),
       out("out", like("hidden_states"), "tokens, hidden")},
      {at_most("tokens * choices", "2147483647")},
      {{"block",
        "i8: one byte per element, one scale per row; u8: one byte per 2 elements, one scale per 32; "
        "w13_rows "
        "as for moe_experts",
        &check_quantized,
        "w13 hidden activation gated interleaved w13_rows w13_bytes w13_scales w2_bytes w2_scales"}}};
});

}  // namespace turnout::families::moe_experts
