// The definition of each operator of this family, as serial scalar code. The tests compare against it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <vector>

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

// The row of each position of a routing, or -1. Without locations all are 0.
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

// Where choice k of token i is in a routing: [choices, samples], or [samples, choices].
struct RoutingShape {
  std::int64_t samples, choices;
  bool choices_first;
  std::size_t at(std::int64_t i, std::int64_t k) const {
    return static_cast<std::size_t>(choices_first ? k * samples + i : i * choices + k);
  }
};

template <class Token>
using Lane = std::conditional_t<std::is_same_v<Token, double>, double, float>;

// tokens[i, :] = sum over k of gates[i,k] * routed[row, :]; without gates they are 1, and a row that is not
// there is +0.
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

// Products of rows, in f64: what the results are near to. `sizes` gets the sums of magnitudes.
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

// Rows without a token are zero; the last of several wins. Without gates rows are copied.
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
