// Loops of the expert products over a block of rows and columns, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "simd/isa.h"
#include "turnout/moe_experts.h"

namespace turnout::families::moe_experts {

// Columns of a weight matrix whose depth is contiguous: column c begins at data + c * stride.
struct Columns {
  const void* data;
  std::int64_t stride;  // in elements of `data`
  std::int64_t count, depth;
  // i8 has one scale per column. u8 has two 4-bit elements per byte and one scale per kGroup elements of a
  // column: scales[c * scale_stride + k / kGroup].
  const float* scales = nullptr;
  std::int64_t scale_stride = 0;
};

// The number of 4-bit elements that share a scale. Of the 16 bytes of a group, byte j holds element j in its
// low bits and element j + 16 in its high bits; an element is its bits - 8.
inline constexpr std::int64_t kGroup = 32;

struct ExpertKernels {
  // to[r][c] = rows[r][0] column[c][0] + rows[r][1] column[c][1] + .., for count rows. Elements are summed in
  // lanes; the lanes are added after each kSlice elements. So the bits depend only on the instruction set and
  // the operands.
  using Dots = void (*)(const float* const* rows, float* const* to, std::int64_t count,
                        const Columns& columns);
  Dots (*dots)(DType weight);  // f32, f16, bf16, i8, u8

  // to[c] = weights[0] * rows[0][c] + weights[1] * rows[1][c] + .., with each product and each sum rounded
  // separately; 0 without rows.
  void (*weighted_sum)(const float* const* rows, const float* weights, std::int64_t count,
                       std::int64_t columns, float* to);
};
const ExpertKernels& expert_kernels(Isa isa);

// The activation between the products of a block, and its gradient.
struct Activation {
  // to[i] = activation(gate[i]) * up[i], or activation(gate[i]) if up is nullptr; `to` may be `gate`.
  void (*apply)(const float* gate, const float* up, std::int64_t count, float alpha, float limit, float* to);
  // With h[i] what apply() writes: to[i] = weight * h[i]; replaces gate[i] and up[i] by the gradients of
  // weight * (grad[0] h[0] + grad[1] h[1] + ..). Returns grad[0] h[0] + grad[1] h[1] + .., summed in lanes.
  float (*differentiate)(float* gate, float* up, const float* grad, std::int64_t count, float alpha,
                         float limit, float weight, float* to);
};
struct ActivationKernels {
  const Activation& (*of)(ExpertActivation activation);
};
const ActivationKernels& activation_kernels(Isa isa);

inline constexpr std::int64_t kSlice = 1024;  // elements; a tile of rows of this length stays in the L1 cache

}  // namespace turnout::families::moe_experts
