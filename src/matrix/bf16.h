// Products of bf16 rows, summed in f32 by vdpbf16ps: twice the rate of f32 products. These are the loops of
// one thread; the caller splits the work over threads.
//
// Every result is a chain over pairs of terms in ascending order. A pair adds its second product and then its
// first, each fused and rounded to nearest even; subnormal operands and results count as 0. The bits of a
// result depend only on its operands and on the strides of the weights, never on the other rows of the call.
#pragma once

#include <cstdint>

#include "matrix/matrix.h"

namespace turnout::core::matrix {

// Terms of a sum that are added in one chain. The sums of longer depths are added in ascending order.
inline constexpr std::int64_t kBf16Slice = 256;
// The least contiguous depth that is summed in lanes. Adding the lanes would take too long for shorter ones.
inline constexpr std::int64_t kBf16Lanes = 128;

struct Bf16Kernels {
  // to[r][c] = (or +=) from[r][0] B[0][c] + from[r][1] B[1][c] + ..; `weights` are bf16. A depth that is
  // contiguous and at least kBf16Lanes is summed in 32 lanes; otherwise a result is one chain per kBf16Slice
  // terms.
  void (*multiply)(const void* const* from, float* const* to, std::int64_t rows, const Source& weights,
                   Write write);

  // Copies the matrix to packed[0 .. packed_size-1] in the order in which multiply_packed() reads it. A
  // result of multiply_packed() has the bits of multiply() with a depth that is not contiguous. `columns` may
  // be padded to a multiple of 16 if the rows of `to` are that long.
  std::int64_t packed_size(std::int64_t depth, std::int64_t columns) const {
    return (depth + 1) / 2 * 2 * ((columns + 15) / 16 * 16);
  }
  void (*pack)(const Source& from, bf16* packed);
  void (*multiply_packed)(const void* const* from, float* const* to, std::int64_t rows, const bf16* packed,
                          std::int64_t depth, std::int64_t columns, Write write);

  // to[d * to_stride + c] += from[0][d] with[0][c] + from[1][d] with[1][c] + ..: one chain that starts at the
  // old value. Writes no padding columns.
  void (*add_outer)(const void* const* from, const void* const* with, std::int64_t rows, std::int64_t depth,
                    std::int64_t columns, float* to, std::int64_t to_stride);

  // high[i] = from[i] rounded to bf16, low[i] = from[i] - high[i] rounded to bf16; `low` may be null.
  void (*split)(const float* from, std::int64_t count, bf16* high, bf16* low);
};

#if defined(__x86_64__) && TURNOUT_MOST_ISA >= 4
extern const Bf16Kernels kBf16Kernels;
inline const Bf16Kernels* bf16_kernels(Isa isa) { return isa == Isa::avx512_bf16 ? &kBf16Kernels : nullptr; }
#else
inline const Bf16Kernels* bf16_kernels(Isa) { return nullptr; }
#endif

}  // namespace turnout::core::matrix
