// Scatter, gather and dot products of rows, as loops over a range of tokens; compiled once per instruction
// set.
//
// A routing gives each choice of each token a row of `routed`, or -1 for none. The kernels get these rows as
// rows[token][choice].
#pragma once

#include <cstdint>

#include "simd/isa.h"
#include "turnout/tensor.h"

namespace turnout::rows {

// Columns [first, first + count) of a row.
struct Columns {
  std::int64_t first, count;
};

// Where choice k of token t is in an array of the routing: at t * token + k * choice.
struct Layout {
  std::int64_t token, choice;
};

struct ScatterTask {
  const void* weights;  // in the layout, or nullptr for ones
  Layout layout;
  const void* tokens;  // [tokens, hidden]
  void* routed;        // [rows, hidden]
  std::int64_t hidden, element_bytes;
  bool stream;  // use non-temporal stores
};

struct GatherTask {
  const void* weights;  // in the layout, or nullptr for ones
  bool f32_weights;     // otherwise they have the dtype of the rows
  Layout layout;
  const void* routed;  // [rows, hidden]
  void* tokens;        // [tokens, hidden]
  std::int64_t hidden, element_bytes;
  bool stream;
};

struct DotTask {
  const void* tokens;  // [tokens, hidden]
  const void* routed;  // [rows, hidden]
  void* products;      // in the layout
  Layout layout;
  std::int64_t hidden;
};

// Weights are f32 or have the rows' dtype. Without weights, rows to scatter may have any dtype.
struct ScatterKernels {
  // routed[row, :] = weight * tokens[t, :] for tokens [token, token + count) and choices
  // [choice, choice + choices).
  using Scatter = void (*)(const ScatterTask& task, const std::int64_t* rows, std::int64_t token,
                           std::int64_t count, std::int64_t choice, std::int64_t choices, Columns columns);

  Scatter (*scatter)(DType dtype, bool weighted, DType weight);
};

struct GatherKernels {
  // tokens[t, :] = the sum over choices k = 0, 1, .. of weight * routed[row, :]. Product and sum are rounded
  // separately, in f64 for f64 and in f32 otherwise; the result is rounded once. A choice without a row adds
  // +0.
  using Gather = void (*)(const GatherTask& task, const std::int64_t* rows, std::int64_t token,
                          std::int64_t count, std::int64_t choices, Columns columns);
  // products[t, k] = the sum over j of tokens[t, j] * routed[row, j]; 0 without a row.
  using Dot = void (*)(const DotTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
                       std::int64_t choices);
  // Both for the same routing, with the same bits; products have the dtype of the weights.
  using GatherAndDot = void (*)(const GatherTask& sum, const DotTask& dots, const std::int64_t* rows,
                                std::int64_t token, std::int64_t count, std::int64_t choices);

  Gather (*gather)(DType dtype, bool weighted);
  Dot (*dot)(DType dtype, DType product);
  GatherAndDot (*gather_and_dot)(DType dtype);
};

const ScatterKernels& scatter_kernels(Isa isa);
const GatherKernels& gather_kernels(Isa isa);

}  // namespace turnout::rows
