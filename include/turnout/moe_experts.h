// Mixture of experts: grouped matrix products, and the whole expert block in one call.
#pragma once

#include <cstdint>
#include <limits>

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// With begin = offs[g-1] (0 for the first group) and end = offs[g]:
//   out[s, :] = input[s, :] weight[g] + bias[g]    for begin <= s < end
//   out[s, :] = 0                                  for s >= offs[groups-1]
//
// input [rows, depth]; weight [groups, depth, columns] with any strides (a transposed view needs no copy);
// offs [groups], int32 or int64, ascending, 0 .. rows; bias [groups, columns] or nullptr; out [rows,
// columns]. All floats have the same dtype. Sums are in f32 (f64 for f64) and are rounded once, after adding
// the bias. The bits of a row depend neither on threads nor on the other rows.
TURNOUT_API void grouped_mm(const ConstTensor& input, const ConstTensor& weight, const ConstTensor& offs,
                            const ConstTensor& bias, const Tensor& out, const Caller& caller = {});

// The gradients of grouped_mm for weight and bias, given the gradient of out:
//   weight_grad[g] = sum over the rows s of group g of transpose(input[s, :]) out_grad[s, :]
//   bias_grad[g, :] = sum over the rows s of group g of out_grad[s, :]
// weight_grad [groups, depth, columns]; bias_grad [groups, columns] or nullptr; 0 for an empty group. Terms
// are added in ascending s. The gradient of input is grouped_mm(out_grad, transpose(weight), offs).
TURNOUT_API void grouped_mm_backward_weight(const ConstTensor& input, const ConstTensor& out_grad,
                                            const ConstTensor& offs, const Tensor& weight_grad,
                                            const Tensor& bias_grad, const Caller& caller = {});

// gelu is x Phi(x), gelu_tanh its tanh approximation. swigluoai is the activation of GPT-OSS and always
// gated: (min(max(up, -limit), limit) + 1) g sigmoid(alpha g) with g = min(gate, limit).
enum class ExpertActivation : std::uint8_t { silu, gelu, gelu_tanh, relu, swigluoai };

// The precision of products with bf16 weights on a CPU that multiplies bf16. With float32, f32 operands are
// split into two bf16 numbers, which keep 16 bits of them. With bfloat16 they are rounded to bf16, as in
// torch.
enum class ExpertPrecision : std::uint8_t { float32, bfloat16 };

struct MoeExpertsParams {
  ExpertActivation activation = ExpertActivation::silu;
  bool gated = true;         // w13 has two rows per inner element, gate and up
  bool interleaved = false;  // gate and up rows alternate; otherwise all gate rows come first
  double alpha = 1.702;      // for swigluoai
  double limit = std::numeric_limits<double>::infinity();  // for swigluoai
  ExpertPrecision precision = ExpertPrecision::float32;
};

// For each token t, with e = topk_ids[t,k]:
//   a = w13[e] hidden_states[t] + w13_bias[e]
//   h = activation(gate of a) * (up of a), or activation(a) if not gated
//   out[t] = sum over k of topk_weights[t,k] * (w2[e] h + w2_bias[e])
//
// hidden_states, out [tokens, hidden]; topk_ids [tokens, choices], int32 or int64; topk_weights [tokens,
// choices]; w13 [experts, 2 inner, hidden] (inner if not gated) and w2 [experts, hidden, inner], with any
// strides; biases [experts, 2 inner] and [experts, hidden], or nullptr. hidden_states are f32, f16 or bf16.
// The weights have the same dtype, or are f16 or bf16 with f32 tokens; topk_weights have the dtype of the
// tokens, or f32. An id outside 0 .. experts-1 adds nothing; expert-parallel processes send such ids.
// Intermediate values are f32, or bf16 as `precision` says. Terms are added in ascending k; each product and
// each sum is rounded separately, and out is rounded once. The bits of a token depend neither on threads nor
// on other tokens.
TURNOUT_API void moe_experts(const ConstTensor& hidden_states, const ConstTensor& topk_ids,
                             const ConstTensor& topk_weights, const ConstTensor& w13, const ConstTensor& w2,
                             const ConstTensor& w13_bias, const ConstTensor& w2_bias, const Tensor& out,
                             const MoeExpertsParams& params = {}, const Caller& caller = {});

// moe_experts that also returns what a gradient needs: products [tokens * choices, 2 inner] are the values a,
// rounded to the dtype of the tokens, of all choices of expert 0, then of expert 1, .., each in ascending
// order of (t, k). The rows of choices without an expert follow and are 0. out has the bits of moe_experts.
TURNOUT_API void moe_experts_forward(const ConstTensor& hidden_states, const ConstTensor& topk_ids,
                                     const ConstTensor& topk_weights, const ConstTensor& w13,
                                     const ConstTensor& w2, const ConstTensor& w13_bias,
                                     const ConstTensor& w2_bias, const Tensor& out, const Tensor& products,
                                     const MoeExpertsParams& params = {}, const Caller& caller = {});

struct ExpertActivationParams {
  ExpertActivation activation = ExpertActivation::silu;
  bool gated = true;
  bool interleaved = false;
  double alpha = 1.702;
  double limit = std::numeric_limits<double>::infinity();
};

// The gradient of the activation of moe_experts. With h = activation(products), for each row r:
//   weighted_inner[r] = row_weights[r] * h[r]
//   products_grad[r] = the gradient of row_weights[r] * (inner_grad[r] . h[r]) for products[r]
//   row_weights_grad[r] = inner_grad[r] . h[r]
// products, products_grad [rows, 2 inner] (inner if not gated); inner_grad, weighted_inner [rows, inner];
// row_weights [rows], of the dtype of products or f32; row_weights_grad [rows], f32. products are f32, f16 or
// bf16; arithmetic is in f32. A gate above `limit` and an up outside +-limit have no gradient. The gradients
// of a whole block are two grouped_mm and two grouped_mm_backward_weight around this call.
TURNOUT_API void expert_activation_backward(const ConstTensor& products, const ConstTensor& inner_grad,
                                            const ConstTensor& row_weights, const Tensor& products_grad,
                                            const Tensor& weighted_inner, const Tensor& row_weights_grad,
                                            const ExpertActivationParams& params = {},
                                            const Caller& caller = {});

struct MoeExpertsQuantizedParams {
  ExpertActivation activation = ExpertActivation::silu;
  bool gated = true;
  bool interleaved = false;
  double alpha = 1.702;
  double limit = std::numeric_limits<double>::infinity();
};

// moe_experts with weights of 8 or 4 bits, which take a half and a quarter of the memory of 16 bits. An
// element of a row is an integer times the scale of its place; sums are in f32, as for moe_experts.
//   i8, 8 bits: w13 [experts, 2 inner, hidden], w13_scale [experts, 2 inner, 1]: one scale for a row
//   u8, 4 bits: w13 [experts, 2 inner, hidden / 2], w13_scale [experts, 2 inner, hidden / 32]: byte j of the
//     16 of a group has element j in its low bits and element j + 16 in its high bits; an element is its bits
//     minus 8, times the scale of the group
// w2 [experts, hidden, inner] or its half, and w2_scale, likewise. All arrays are contiguous; scales are f32,
// f16 or bf16; biases have the dtype of the tokens, or f32.
TURNOUT_API void moe_experts_quantized(const ConstTensor& hidden_states, const ConstTensor& topk_ids,
                                       const ConstTensor& topk_weights, const ConstTensor& w13,
                                       const ConstTensor& w13_scale, const ConstTensor& w2,
                                       const ConstTensor& w2_scale, const ConstTensor& w13_bias,
                                       const ConstTensor& w2_bias, const Tensor& out,
                                       const MoeExpertsQuantizedParams& params = {},
                                       const Caller& caller = {});
}  // namespace turnout
