// Data for the example calls of this family, for which zeros are not valid. Both registries use it.
#pragma once

#include <cstdint>

#include "turnout/tensor.h"

namespace turnout::families::moe_re_routing {

inline void set_index(const Tensor& t, std::int64_t i, std::int64_t value) {
  if (t.dtype == DType::i64) {
    static_cast<std::int64_t*>(t.data)[i] = value;
  } else {
    static_cast<std::int32_t*>(t.data)[i] = static_cast<std::int32_t>(value);
  }
}

// The first rank sends all tokens to the first expert.
inline void fill_counts(const Tensor& tokens, const Tensor& counts) { set_index(counts, 0, tokens.shape[0]); }

inline void fill_identity(const Tensor& idx) {
  for (std::int64_t i = 0; i < idx.shape[0]; ++i) set_index(idx, i, i);
}

}  // namespace turnout::families::moe_re_routing
