// The definition of each operator of this family, as serial scalar code. The tests compare against it.
#pragma once

#include <cstdint>

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

}  // namespace turnout::reference
