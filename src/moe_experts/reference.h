// The definition of each operator of this family, as serial scalar code in f64. The tests compare against it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "turnout/moe_experts.h"

namespace turnout::reference {

// weight(g, d, c) and bias(g, c) are functions; bias may return 0.
template <class Weight, class Bias>
std::vector<double> grouped_mm(const std::vector<double>& input, std::int64_t rows,
                               const std::vector<std::int64_t>& offs, std::int64_t depth,
                               std::int64_t columns, const Weight& weight, const Bias& bias) {
  std::vector<double> out(static_cast<std::size_t>(rows * columns), 0.0);
  std::int64_t s = 0;
  for (std::size_t g = 0; g < offs.size(); ++g) {
    for (; s < offs[g]; ++s) {
      for (std::int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::int64_t d = 0; d < depth; ++d)
          sum += input[static_cast<std::size_t>(s * depth + d)] * weight(static_cast<std::int64_t>(g), d, c);
        out[static_cast<std::size_t>(s * columns + c)] = sum + bias(static_cast<std::int64_t>(g), c);
      }
    }
  }
  return out;
}

// The gradient of weight, then that of bias, in one vector.
inline std::vector<double> grouped_mm_backward_weight(const std::vector<double>& input,
                                                      const std::vector<double>& out_grad,
                                                      const std::vector<std::int64_t>& offs,
                                                      std::int64_t depth, std::int64_t columns) {
  const auto groups = static_cast<std::int64_t>(offs.size());
  std::vector<double> grads(static_cast<std::size_t>(groups * (depth + 1) * columns), 0.0);
  std::int64_t s = 0;
  for (std::int64_t g = 0; g < groups; ++g)
    for (; s < offs[static_cast<std::size_t>(g)]; ++s)
      for (std::int64_t c = 0; c < columns; ++c) {
        const double y = out_grad[static_cast<std::size_t>(s * columns + c)];
        for (std::int64_t d = 0; d < depth; ++d)
          grads[static_cast<std::size_t>((g * depth + d) * columns + c)] +=
              input[static_cast<std::size_t>(s * depth + d)] * y;
        grads[static_cast<std::size_t>((groups * depth + g) * columns + c)] += y;
      }
  return grads;
}

inline double activated(ExpertActivation activation, double x, double alpha) {
  switch (activation) {
    case ExpertActivation::silu:
      return x / (1 + std::exp(-x));
    case ExpertActivation::gelu:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case ExpertActivation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case ExpertActivation::relu:
      return std::max(x, 0.0);
    case ExpertActivation::swigluoai:
      return x / (1 + std::exp(-alpha * x));
  }
  return 0;
}

// The shape of an expert block.
struct ExpertBlock {
  std::int64_t tokens, choices, experts, hidden, inner;
};

// w13(e, row, h), w2(e, h, i), b13(e, row) and b2(e, h) are functions.
template <class W13, class W2, class B13, class B2>
std::vector<double> moe_experts(const ExpertBlock& block, const std::vector<double>& hidden_states,
                                const std::vector<std::int64_t>& ids, const std::vector<double>& weights,
                                const W13& w13, const W2& w2, const B13& b13, const B2& b2,
                                const MoeExpertsParams& params) {
  std::vector<double> out(static_cast<std::size_t>(block.tokens * block.hidden), 0.0);
  std::vector<double> h(static_cast<std::size_t>(block.inner));
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    const double* x = &hidden_states[static_cast<std::size_t>(t * block.hidden)];
    const auto row_of_w13 = [&](std::int64_t e, std::int64_t row) {
      double sum = 0;
      for (std::int64_t d = 0; d < block.hidden; ++d) sum += x[d] * w13(e, row, d);
      return sum + b13(e, row);
    };
    for (std::int64_t k = 0; k < block.choices; ++k) {
      const auto q = static_cast<std::size_t>(t * block.choices + k);
      const std::int64_t e = ids[q];
      if (e < 0 || e >= block.experts) continue;
      for (std::int64_t i = 0; i < block.inner; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (!params.gated) {
          h[at] = activated(params.activation, row_of_w13(e, i), params.alpha);
          continue;
        }
        double gate = row_of_w13(e, params.interleaved ? 2 * i : i);
        double up = row_of_w13(e, params.interleaved ? 2 * i + 1 : block.inner + i);
        if (params.activation == ExpertActivation::swigluoai) {
          gate = std::min(gate, params.limit);
          up = std::clamp(up, -params.limit, params.limit) + 1;
        }
        h[at] = activated(params.activation, gate, params.alpha) * up;
      }
      for (std::int64_t d = 0; d < block.hidden; ++d) {
        double sum = b2(e, d);
        for (std::int64_t i = 0; i < block.inner; ++i) sum += h[static_cast<std::size_t>(i)] * w2(e, d, i);
        out[static_cast<std::size_t>(t * block.hidden + d)] += weights[q] * sum;
      }
    }
  }
  return out;
}

}  // namespace turnout::reference
