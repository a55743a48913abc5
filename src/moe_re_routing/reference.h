// The definition of each operator of this family, as serial code row by row. The tests compare against it.
#pragma once

#include <cstdint>
#include <cstring>

#include "turnout/moe_re_routing.h"

namespace turnout::reference {

// Rows are bytes: row_bytes per token and scale_bytes per scale row (0: no scales).
template <class Count>
void moe_re_routing(const char* tokens, std::int64_t row_bytes, const Count* c, std::int64_t ranks,
                    std::int64_t experts, const char* scales, std::int64_t scale_bytes, char* permute_tokens,
                    char* permute_scales, std::int32_t* idx, Count* expert_token_num,
                    const MoeReRoutingParams& params) {
  const auto before = [&](std::int64_t r, std::int64_t e, bool by_rank) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < ranks; ++i)
      for (std::int64_t j = 0; j < experts; ++j)
        if (by_rank ? (i < r || (i == r && j < e)) : (j < e || (j == e && i < r))) sum += c[i * experts + j];
    return sum;
  };
  for (std::int64_t r = 0; r < ranks; ++r) {
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t src = before(r, e, true), dst = before(r, e, false);
      for (std::int64_t k = 0; k < c[r * experts + e]; ++k) {
        std::memcpy(permute_tokens + (dst + k) * row_bytes, tokens + (src + k) * row_bytes,
                    static_cast<std::size_t>(row_bytes));
        if (scale_bytes > 0)
          std::memcpy(permute_scales + (dst + k) * scale_bytes, scales + (src + k) * scale_bytes,
                      static_cast<std::size_t>(scale_bytes));
        if (params.idx_type == TokenIdx::gather) {
          idx[dst + k] = static_cast<std::int32_t>(src + k);
        } else {
          idx[src + k] = static_cast<std::int32_t>(dst + k);
        }
      }
    }
  }
  Count running = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    Count count = 0;
    for (std::int64_t r = 0; r < ranks; ++r) count = static_cast<Count>(count + c[r * experts + e]);
    running = static_cast<Count>(running + count);
    expert_token_num[e] = params.expert_token_num_type == ExpertTokenNum::count ? count : running;
  }
}

template <class Index>
void moe_re_routing_inverse(const char* permute_tokens, const Index* idx, char* tokens, std::int64_t rows,
                            std::int64_t row_bytes, TokenIdx idx_type) {
  for (std::int64_t d = 0; d < rows; ++d) {
    const std::int64_t to = idx_type == TokenIdx::gather ? idx[d] : d;
    const std::int64_t from = idx_type == TokenIdx::gather ? d : idx[d];
    std::memcpy(tokens + to * row_bytes, permute_tokens + from * row_bytes,
                static_cast<std::size_t>(row_bytes));
  }
}

// Rows of row_bytes bytes; both index arrays [chunks].
inline void sort_chunks_by_idxs(const char* input, const std::int64_t* split_sizes,
                                const std::int64_t* sorted_idxs, std::int64_t chunks, std::int64_t row_bytes,
                                char* output) {
  for (std::int64_t p = 0; p < chunks; ++p) {
    std::int64_t start = 0;
    for (std::int64_t c = 0; c < sorted_idxs[p]; ++c) start += split_sizes[c];
    const std::int64_t bytes = split_sizes[sorted_idxs[p]] * row_bytes;
    for (std::int64_t b = 0; b < bytes; ++b) *output++ = input[start * row_bytes + b];
  }
}

}  // namespace turnout::reference
