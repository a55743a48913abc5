// Products of gathered rows with a packed matrix, and sums of outer products of such rows. These are
// single-thread loops; the caller splits the work over threads.
//
// Every result is one chain of fused multiply-adds in a fixed order. Its bits depend only on its operands:
// not on the position of its row in the call, the number of rows and columns, or the thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simd/isa.h"
#include "turnout/tensor.h"

namespace turnout::core::matrix {

// The type in which values of T are multiplied and added.
template <class T>
using LaneOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// A [depth, columns] matrix of any float dtype with any strides, in elements.
struct Source {
  const void* data;
  DType dtype;  // f64 for lanes of double, otherwise f32, f16 or bf16
  std::int64_t depth, columns;
  std::int64_t depth_stride, column_stride;
};

enum class Write : std::uint8_t { store, add };

template <class Lane>
struct Kernels {
  std::int64_t lanes;      // of a vector; columns are padded to a multiple
  std::int64_t tile_rows;  // rows multiplied at a time; multiples of it are the most efficient

  std::int64_t padded(std::int64_t columns) const { return (columns + lanes - 1) / lanes * lanes; }
  std::int64_t packed_size(std::int64_t depth, std::int64_t columns) const { return depth * padded(columns); }

  // Copies the matrix to packed[0 .. packed_size-1], which is aligned to 64 bytes, in the order in which
  // multiply() reads it. Padding columns are 0.
  void (*pack)(const Source& from, Lane* packed);

  // to[r][c] = (or +=) from[r][0] B[0][c] + from[r][1] B[1][c] + .., r = 0 .. rows-1, c = 0 .. columns-1. The
  // sum is a chain that starts at 0 and proceeds in ascending depth; it is then added as a whole. Rows of
  // `to` may be equal; they are written in ascending r. `columns` is that of the packed
  // matrix, or padded() of it if the rows of `to` have that many elements, which is faster.
  void (*multiply)(const Lane* const* from, Lane* const* to, std::int64_t rows, const Lane* packed,
                   std::int64_t depth, std::int64_t columns, Write write);

  // multiply() that stores, with weights [depth, columns] whose rows are contiguous and depth_stride apart.
  // The bits are those of multiply(). Efficient for few rows, for which packing does not pay.
  void (*multiply_in_place)(const Lane* const* from, Lane* const* to, std::int64_t rows, const Lane* weights,
                            std::int64_t depth_stride, std::int64_t depth, std::int64_t columns);

  // to[d * to_stride + c] += from[r][d] with[r][c], one chain in ascending r that starts at the old value;
  // d = 0 .. depth-1, c = 0 .. columns-1. to_stride is at least padded(columns); padding columns are written.
  void (*add_outer)(const Lane* const* from, const Lane* const* with, std::int64_t rows, std::int64_t depth,
                    std::int64_t columns, Lane* to, std::int64_t to_stride);

  // to[r * to_stride + c] = from[r][c], converted exactly from any float dtype.
  void (*widen)(const void* const* from, DType dtype, std::int64_t rows, std::int64_t columns, Lane* to,
                std::int64_t to_stride);

  // to[c] = from[c] + bias[c], c = 0 .. columns-1, rounded once to dtype. bias may be null for none.
  void (*round)(const Lane* from, const Lane* bias, std::int64_t columns, void* to, DType dtype);
};

const Kernels<float>& f32_kernels(Isa isa);
const Kernels<double>& f64_kernels(Isa isa);
template <class Lane>
const Kernels<Lane>& kernels(Isa isa) {
  if constexpr (std::is_same_v<Lane, double>) {
    return f64_kernels(isa);
  } else {
    return f32_kernels(isa);
  }
}

}  // namespace turnout::core::matrix
