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

// The derivative of activated(), by the formulas of textbooks.
inline double derivative(ExpertActivation activation, double x, double alpha) {
  const double pi = 3.14159265358979323846;
  switch (activation) {
    case ExpertActivation::gelu:
      return 0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-x * x / 2) / std::sqrt(2 * pi);
    case ExpertActivation::gelu_tanh: {
      const double scale = std::sqrt(2 / pi), t = std::tanh(scale * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
    }
    case ExpertActivation::relu:
      return x > 0 ? 1 : 0;
    default: {
      const double a = activation == ExpertActivation::silu ? 1 : alpha, s = 1 / (1 + std::exp(-a * x));
      return s + a * x * s * (1 - s);
    }
  }
}

struct ActivationGradients {
  std::vector<double> products, inner, weights;
};

inline ActivationGradients expert_activation_backward(const std::vector<double>& products,
                                                      const std::vector<double>& inner_grad,
                                                      const std::vector<double>& row_weights,
                                                      std::int64_t inner, const MoeExpertsParams& params) {
  ActivationGradients made{products, inner_grad, row_weights};
  const std::int64_t both = params.gated ? 2 * inner : inner;
  const bool is_oai = params.activation == ExpertActivation::swigluoai;
  for (std::size_t r = 0; r < row_weights.size(); ++r) {
    double dot = 0;
    for (std::int64_t i = 0; i < inner; ++i) {
      const std::size_t row = r * static_cast<std::size_t>(both),
                        at_gate = row + static_cast<std::size_t>(params.interleaved ? 2 * i : i),
                        at_up = row + static_cast<std::size_t>(params.interleaved ? 2 * i + 1 : inner + i),
                        at = r * static_cast<std::size_t>(inner) + static_cast<std::size_t>(i);
      const double gate = products[at_gate], up = params.gated ? products[at_up] : 1;
      const double g = is_oai ? std::min(gate, params.limit) : gate;
      const double u = is_oai ? std::clamp(up, -params.limit, params.limit) + 1 : up;
      const double value = activated(params.activation, g, params.alpha);
      const double weighted = inner_grad[at] * row_weights[r];
      dot += inner_grad[at] * value * u;
      made.inner[at] = row_weights[r] * value * u;
      made.products[at_gate] =
          is_oai && gate > params.limit ? 0 : weighted * u * derivative(params.activation, g, params.alpha);
      if (params.gated) made.products[at_up] = is_oai && std::abs(up) > params.limit ? 0 : weighted * value;
    }
    made.weights[r] = dot;
  }
  return made;
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
