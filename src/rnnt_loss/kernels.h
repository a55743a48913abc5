// Loops over a row of classes or of cells, compiled once per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simd/isa.h"
#include "turnout/rnnt_loss.h"
#include "turnout/tensor.h"

namespace turnout::families::rnnt_loss {

// The type in which values of type T are computed.
template <class T>
using LaneOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// log sum exp of a row is max + log_sum.
template <class Lane>
struct LogSum {
  Lane max, log_sum;

  Lane total() const { return max + log_sum; }
};

// A class whose gradient has a term besides its share of the softmax.
template <class Lane>
struct Peak {
  std::int64_t at;
  Lane value;
};

// Rows have any float dtype; the functions with a DType parameter return the kernel of that dtype.
template <class Lane>
struct RowKernels {
  // The largest element; NaN if there is a NaN, -inf without elements.
  using Largest = Lane (*)(const void* row, std::int64_t count);
  Largest (*largest)(DType dtype);

  // max and log_sum, which are NaN or infinite if the sum is 0 or not finite.
  using Sum = LogSum<Lane> (*)(const void* row, std::int64_t count);
  Sum (*sum)(DType dtype);

  // to[c] = exp(row[c] - shift), where row[c] <= shift; 0 for NaN.
  using Shifted = void (*)(const void* row, std::int64_t count, Lane shift, Lane* to);
  Shifted (*shifted)(DType dtype);

  // to[c] = -weight * exp(row[c] - normalizer), plus both peaks; `to` may be `row`.
  using Gradient = void (*)(const void* row, std::int64_t count, Lane normalizer, Lane weight,
                            Peak<Lane> symbol, Peak<Lane> blank, void* to);
  Gradient (*gradient)(DType dtype);

  // sum[c] += row[c]
  using Add = void (*)(const void* row, std::int64_t count, Lane* sum);
  Add (*add)(DType dtype);

  // to[c] = activation(am[c] + lm[c])
  using Activate = void (*)(const void* am, const void* lm, std::int64_t count, RnntActivation activation,
                            Lane* to);
  Activate (*activate)(DType dtype);

  // grad[c] *= the derivative of the activation whose value is h[c]
  void (*activation_gradient)(Lane* grad, const Lane* h, std::int64_t count, RnntActivation activation);

  // to[t] = log(from[t])
  void (*log)(const Lane* from, std::int64_t count, Lane* to);

  // to[t] = (px_grad[t] + py_grad[t]) / exp(normalizer[t] - shift - shifts[t]), NaN if that is NaN, and 0 if
  // the exponential is below exp(kLeastLogSum). Returns whether there is such a 0. A null px_grad means 0.
  bool (*weights)(const Lane* px_grad, const Lane* py_grad, const Lane* normalizer, Lane shift,
                  const Lane* shifts, std::int64_t count, Lane* to);

  // x[c] = -x[c] * by[c]
  void (*negated_product)(Lane* x, const Lane* by, std::int64_t count);
};

// log(1e-30): a sum of products of shifted exponentials below it may have lost terms to underflow.
inline constexpr double kLeastLogSum = -69.07755278982137;

const RowKernels<float>& f32_row_kernels(Isa isa);
const RowKernels<double>& f64_row_kernels(Isa isa);
template <class Lane>
const RowKernels<Lane>& row_kernels(Isa isa) {
  if constexpr (std::is_same_v<Lane, double>) {
    return f64_row_kernels(isa);
  } else {
    return f32_row_kernels(isa);
  }
}

}  // namespace turnout::families::rnnt_loss
