// Sums and maxima of consecutive rows for global pooling, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "simd/isa.h"
#include "turnout/tensor.h"

namespace turnout::families::sparse_conv {

// Rows are reduced into this many results in turn, so that rows of few channels fill a vector. Part of the
// definition of a mean.
inline constexpr std::int64_t kPoolTurns = 8;

template <class Lane>
struct PoolKernels {
  // results[i % kPoolTurns, :] = results[i % kPoolTurns, :] + rows[i, :] (or the larger one) for rows
  // 0 .. count-1 of [count, channels].
  using Reduce = void (*)(const void* rows, std::int64_t count, std::int64_t channels, Lane* results);
  Reduce (*reduce)(DType dtype, bool is_max);
};
template <class Lane>
const PoolKernels<Lane>& pool_kernels(Isa isa);

}  // namespace turnout::families::sparse_conv
