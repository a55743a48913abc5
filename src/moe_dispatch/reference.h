// The definition of each operator of this family, as serial scalar code. The tests compare against it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

#include "core/elements.h"
#include "simd/half.h"
#include "turnout/moe_dispatch.h"

namespace turnout::reference {

template <class Token, class Gate>
Token scaled(Gate gate, Token token) {
  if constexpr (sizeof(Token) == 2) {
    return core::from_float<Token>(core::to_float(gate) * core::to_float(token));
  } else {
    return static_cast<Token>(core::to_float(gate)) * token;
  }
}

// gates, indices, locations [choices, samples]; input [samples, hidden];
// dispatch [num_experts * capacity, hidden].
template <class Token, class Gate, class Index, class Location>
void moe_dispatch_forward(const Gate* gates, const Index* indices, const Location* locations,
                          const Token* input, Token* dispatch, std::int64_t choices, std::int64_t samples,
                          std::int64_t hidden, const MoeDispatchParams& params) {
  if (params.fill == Fill::zero) {
    for (std::int64_t x = 0; x < params.num_experts * params.capacity * hidden; ++x) dispatch[x] = Token{};
  }
  for (std::int64_t k = 0; k < choices; ++k) {
    for (std::int64_t i = 0; i < samples; ++i) {
      const std::int64_t expert = indices[k * samples + i];
      const std::int64_t slot = locations[k * samples + i];
      if (expert < 0 || expert >= params.num_experts || slot < 0 || slot >= params.capacity) continue;
      for (std::int64_t j = 0; j < hidden; ++j) {
        dispatch[(expert * params.capacity + slot) * hidden + j] =
            scaled(gates[k * samples + i], input[i * hidden + j]);
      }
    }
  }
}

// The row of each position of a routing, or -1. Without locations all locations are 0.
template <class Index, class Location>
std::vector<std::int64_t> rows_of(const Index* indices, const Location* locations, std::int64_t count,
                                  const MoeBuffers& buffers) {
  std::vector<std::int64_t> rows;
  for (std::int64_t q = 0; q < count; ++q) {
    const std::int64_t expert = indices[q], slot = locations == nullptr ? 0 : locations[q];
    const bool valid = expert >= 0 && expert < buffers.num_experts && slot >= 0 && slot < buffers.capacity;
    rows.push_back(valid ? expert * buffers.capacity + slot : -1);
  }
  return rows;
}

// The position of choice k of token i in a routing [choices, samples] or [samples, choices].
struct RoutingShape {
  std::int64_t samples, choices;
  bool choices_first;
  std::size_t at(std::int64_t i, std::int64_t k) const {
    return static_cast<std::size_t>(choices_first ? k * samples + i : i * choices + k);
  }
};

template <class Token>
using Lane = std::conditional_t<std::is_same_v<Token, double>, double, float>;

// tokens[i, :] = sum over k of gates[i,k] * routed[row, :]. Without gates all are 1; a dropped row adds +0.
template <class Token, class Gate>
void gather_rows(const RoutingShape& shape, const std::vector<std::int64_t>& rows, const Gate* gates,
                 const Token* routed, Token* tokens, std::int64_t hidden) {
  for (std::int64_t i = 0; i < shape.samples; ++i) {
    for (std::int64_t j = 0; j < hidden; ++j) {
      Lane<Token> sum = 0;
      for (std::int64_t k = 0; k < shape.choices; ++k) {
        const std::size_t q = shape.at(i, k);
        Lane<Token> term = 0;
        if (rows[q] >= 0) {
          term = core::to_float(routed[rows[q] * hidden + j]);
          if (gates != nullptr) term = static_cast<Lane<Token>>(core::to_float(gates[q])) * term;
        }
        sum = k == 0 ? term : sum + term;
      }
      if constexpr (std::is_same_v<Token, double>) {
        tokens[i * hidden + j] = sum;
      } else {
        tokens[i * hidden + j] = core::from_float<Token>(sum);
      }
    }
  }
}

// Dot products of rows in f64, to compare results with. `sizes` gets the sums of magnitudes.
template <class Token>
void dot_rows(const RoutingShape& shape, const std::vector<std::int64_t>& rows, const Token* tokens,
              const Token* routed, double* products, double* sizes, std::int64_t hidden) {
  for (std::int64_t i = 0; i < shape.samples; ++i) {
    for (std::int64_t k = 0; k < shape.choices; ++k) {
      const std::size_t q = shape.at(i, k);
      products[q] = sizes[q] = 0;
      for (std::int64_t j = 0; rows[q] >= 0 && j < hidden; ++j) {
        const double product = static_cast<double>(core::to_float(tokens[i * hidden + j])) *
                               static_cast<double>(core::to_float(routed[rows[q] * hidden + j]));
        products[q] += product;
        sizes[q] += product < 0 ? -product : product;
      }
    }
  }
}

// Rows without a token are zero; of several tokens the last one wins. Without gates rows are copied.
template <class Token, class Gate>
void scatter_rows(const RoutingShape& shape, const std::vector<std::int64_t>& rows, const Gate* gates,
                  const Token* tokens, Token* routed, std::int64_t row_count, std::int64_t hidden) {
  std::fill_n(routed, row_count * hidden, Token{});
  for (std::int64_t k = 0; k < shape.choices; ++k) {
    for (std::int64_t i = 0; i < shape.samples; ++i) {
      const std::size_t q = shape.at(i, k);
      for (std::int64_t j = 0; rows[q] >= 0 && j < hidden; ++j) {
        const Token token = tokens[i * hidden + j];
        routed[rows[q] * hidden + j] = gates == nullptr ? token : scaled(gates[q], token);
      }
    }
  }
}

// indices, locations [samples, choices]; counts [num_experts]; priority [samples] or nullptr.
template <class Index>
void moe_locations(const Index* indices, const double* priority, std::int32_t* locations,
                   std::int64_t* counts, std::int64_t samples, std::int64_t choices,
                   std::int64_t num_experts) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (priority != nullptr) {
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      const bool nan_a = priority[a] != priority[a], nan_b = priority[b] != priority[b];
      return nan_a || nan_b ? !nan_a && nan_b : priority[a] > priority[b];
    });
  }
  std::fill_n(counts, num_experts, std::int64_t{0});
  for (std::int64_t k = 0; k < choices; ++k) {
    for (const std::int64_t i : order) {
      const std::int64_t expert = indices[i * choices + k];
      const bool valid = expert >= 0 && expert < num_experts;
      locations[i * choices + k] = valid ? static_cast<std::int32_t>(counts[expert]++) : -1;
    }
  }
}

// sorted_indices[f[d]] = d, with f the stable order of `count` experts.
template <class Index>
void sort_experts(const Index* experts, std::int32_t* sorted_indices, std::int64_t count) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return experts[a] < experts[b]; });
  for (std::int64_t d = 0; d < count; ++d)
    sorted_indices[order[static_cast<std::size_t>(d)]] = static_cast<std::int32_t>(d);
}

}  // namespace turnout::reference

namespace turnout::definition {

// The same operators on tensors of f64 and i64, with the operators' parameters, for the registry.

// A routing [choices, samples], [samples, choices] or [samples].
struct Routing {
  core::Elements<const std::int64_t> indices, locations;
  std::int64_t capacity, num_experts;
  bool choices_first;

  std::int64_t samples() const { return indices.extent(choices_first ? indices.rank() - 1 : 0); }
  std::int64_t choices() const { return indices.rank() == 1 ? 1 : indices.extent(choices_first ? 0 : 1); }
  template <class T>
  T& at(const core::Elements<T>& of, std::int64_t i, std::int64_t k) const {
    return of.rank() == 1 ? of(i) : choices_first ? of(k, i) : of(i, k);
  }
  // The row of choice k of token i, or -1 if it is dropped.
  std::int64_t row(std::int64_t i, std::int64_t k) const {
    const std::int64_t expert = at(indices, i, k), slot = locations.are_given() ? at(locations, i, k) : 0;
    const bool valid = expert >= 0 && expert < num_experts && slot >= 0 && slot < capacity;
    return valid ? expert * capacity + slot : -1;
  }
  // Calls f(i, k, row) for each choice that is not dropped, first choices of all tokens before second ones.
  template <class F>
  void for_each(const F& f) const {
    for (std::int64_t k = 0; k < choices(); ++k)
      for (std::int64_t i = 0; i < samples(); ++i)
        if (row(i, k) >= 0) f(i, k, row(i, k));
  }
};

// A tensor of rows as [rows, hidden]; buffers may be [experts, capacity, hidden].
inline core::Elements<double> rows_of(const Tensor& tensor) {
  Tensor flat = tensor;
  if (tensor.rank == 3)
    flat = Tensor(tensor.data, tensor.dtype, {tensor.shape[0] * tensor.shape[1], tensor.shape[2]});
  return core::numbers(flat);
}
inline core::Elements<const double> rows_of(const ConstTensor& tensor) {
  ConstTensor flat = tensor;
  if (tensor.rank == 3)
    flat = ConstTensor(tensor.data, tensor.dtype, {tensor.shape[0] * tensor.shape[1], tensor.shape[2]});
  return core::numbers(flat);
}

inline void set_zero(const core::Elements<double>& rows) {
  for (std::int64_t r = 0; r < rows.extent(0); ++r)
    for (std::int64_t j = 0; j < rows.extent(1); ++j) rows(r, j) = 0;
}

// routed[row, :] = gate * tokens[i, :]
inline void scatter_tokens(const Routing& routing, const ConstTensor& tokens, const ConstTensor& gates,
                           const core::Elements<double>& routed) {
  const auto from = core::numbers(tokens), weights = core::numbers(gates);
  routing.for_each([&](std::int64_t i, std::int64_t k, std::int64_t row) {
    const double gate = weights.are_given() ? routing.at(weights, i, k) : 1;
    for (std::int64_t j = 0; j < from.extent(1); ++j) routed(row, j) = gate * from(i, j);
  });
}
// tokens[i, :] = sum over k of gate * routed[row, :]
inline void gather_tokens(const Routing& routing, const core::Elements<const double>& routed,
                          const ConstTensor& gates, const Tensor& tokens) {
  const auto to = core::numbers(tokens);
  const auto weights = core::numbers(gates);
  set_zero(to);
  routing.for_each([&](std::int64_t i, std::int64_t k, std::int64_t row) {
    const double gate = weights.are_given() ? routing.at(weights, i, k) : 1;
    for (std::int64_t j = 0; j < to.extent(1); ++j) to(i, j) += gate * routed(row, j);
  });
}
// products[i, k] = sum over j of tokens[i, j] * routed[row, j]
inline void dot_tokens(const Routing& routing, const ConstTensor& tokens,
                       const core::Elements<const double>& routed, const Tensor& products) {
  const auto from = core::numbers(tokens);
  const auto to = core::numbers(products);
  for (std::int64_t i = 0; i < routing.samples(); ++i)
    for (std::int64_t k = 0; k < routing.choices(); ++k) routing.at(to, i, k) = 0;
  routing.for_each([&](std::int64_t i, std::int64_t k, std::int64_t row) {
    for (std::int64_t j = 0; j < from.extent(1); ++j) routing.at(to, i, k) += from(i, j) * routed(row, j);
  });
}

inline void moe_dispatch_forward(const ConstTensor& gates, const ConstTensor& indices,
                                 const ConstTensor& locations, const ConstTensor& input,
                                 const Tensor& dispatch, const MoeDispatchParams& params) {
  const auto rows = rows_of(dispatch);
  if (params.fill == Fill::zero) set_zero(rows);
  const Routing routing{core::integers(indices), core::integers(locations), params.capacity,
                        params.num_experts, true};
  scatter_tokens(routing, input, gates, rows);
}

inline void moe_dispatch_backward_data(const ConstTensor& gates, const ConstTensor& indices,
                                       const ConstTensor& locations, const ConstTensor& dispatch,
                                       const Tensor& grad_input, const MoeBuffers& buffers) {
  const Routing routing{core::integers(indices), core::integers(locations), buffers.capacity,
                        buffers.num_experts, true};
  gather_tokens(routing, rows_of(dispatch), gates, grad_input);
}

inline void moe_dispatch_backward_gate(const ConstTensor& indices, const ConstTensor& locations,
                                       const ConstTensor& input, const ConstTensor& dispatch,
                                       const Tensor& grad_gates, const MoeBuffers& buffers) {
  const Routing routing{core::integers(indices), core::integers(locations), buffers.capacity,
                        buffers.num_experts, true};
  dot_tokens(routing, input, rows_of(dispatch), grad_gates);
}

inline void moe_dispatch_backward(const ConstTensor& gates, const ConstTensor& indices,
                                  const ConstTensor& locations, const ConstTensor& input,
                                  const ConstTensor& dispatch, const Tensor& grad_input,
                                  const Tensor& grad_gates, const MoeBuffers& buffers) {
  definition::moe_dispatch_backward_data(gates, indices, locations, dispatch, grad_input, buffers);
  definition::moe_dispatch_backward_gate(indices, locations, input, dispatch, grad_gates, buffers);
}

inline void moe_dispatch(const ConstTensor& input, const ConstTensor& indices, const ConstTensor& locations,
                         const ConstTensor& gates, const Tensor& dispatch, const MoeBuffers& buffers) {
  const auto rows = rows_of(dispatch);
  set_zero(rows);
  const Routing routing{core::integers(indices), core::integers(locations), buffers.capacity,
                        buffers.num_experts, false};
  scatter_tokens(routing, input, gates, rows);
}

// A routing with as many experts as fit into the rows.
inline Routing combining(const ConstTensor& indices, const ConstTensor& locations,
                         const core::Elements<const double>& rows, std::int64_t capacity) {
  return {core::integers(indices), core::integers(locations), capacity,
          capacity == 0 ? 0 : rows.extent(0) / capacity, false};
}

inline void moe_combine(const ConstTensor& expert_output, const ConstTensor& indices,
                        const ConstTensor& locations, const ConstTensor& gates, const Tensor& output,
                        std::int64_t capacity) {
  const auto rows = rows_of(expert_output);
  gather_tokens(combining(indices, locations, rows, capacity), rows, gates, output);
}

inline void moe_combine_backward(const ConstTensor& grad_output, const ConstTensor& expert_output,
                                 const ConstTensor& indices, const ConstTensor& locations,
                                 const ConstTensor& gates, const Tensor& grad_expert_output,
                                 const Tensor& grad_gates, std::int64_t capacity) {
  const auto rows = rows_of(expert_output);
  const Routing routing = combining(indices, locations, rows, capacity);
  set_zero(rows_of(grad_expert_output));
  scatter_tokens(routing, grad_output, gates, rows_of(grad_expert_output));
  dot_tokens(routing, grad_output, rows, grad_gates);
}

}  // namespace turnout::definition
