// Products of rows that lie anywhere with a packed matrix, and sums of outer products of such rows. The loops
// of one thread: who calls them cuts the work.
//
// Every result is one chain of fused multiply-adds in a fixed order, so its bits depend on its operands
// alone: not on where its row stands in a call, how many rows and columns there are beside it, or who runs
// what.
#pragma once

#include <cstdint>
#include <type_traits>

#include "simd/isa.h"
#include "turnout/tensor.h"

namespace turnout::core::matrix {

// What T is multiplied and added in.
template <class T>
using LaneOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// A [depth, columns] matrix of any float dtype with any strides, in elements.
struct Source {
  const void* data;
  DType dtype;  // f64 for lanes of double, else f32, f16 or bf16
  std::int64_t depth, columns;
  std::int64_t depth_stride, column_stride;
};

enum class Write : std::uint8_t { store, add };

template <class Lane>
struct Kernels {
  std::int64_t lanes;      // of a vector: what columns are padded to
  std::int64_t tile_rows;  // rows that are multiplied together: a multiple of it makes the best of a call

  std::int64_t padded(std::int64_t columns) const { return (columns + lanes - 1) / lanes * lanes; }
  std::int64_t packed_size(std::int64_t depth, std::int64_t columns) const { return depth * padded(columns); }

  // packed[0 .. packed_size-1], aligned to 64 bytes = the matrix, in the order that multiply() reads it.
  // Columns beyond the last are 0.
  void (*pack)(const Source& from, Lane* packed);

  // to[r][c] = (or +=) from[r][0] B[0][c] + from[r][1] B[1][c] + .., r = 0 .. rows-1, c = 0 .. columns-1.
  // The sum is a chain from 0 in ascending depth, and then added as a whole. Rows of `to` may be equal: they
  // are added to in ascending r. columns is that of the packed matrix, or padded() of it where the rows of
  // `to` have room, which is faster.
  void (*multiply)(const Lane* const* from, Lane* const* to, std::int64_t rows, const Lane* packed,
                   std::int64_t depth, std::int64_t columns, Write write);

  // to[d * to_stride + c] = chain of from[r][d] with[r][c] in ascending r, from what is there; d = 0 ..
  // depth-1, c = 0 .. columns-1. to_stride is padded(columns) or more, and the columns between are written.
  void (*add_outer)(const Lane* const* from, const Lane* const* with, std::int64_t rows, std::int64_t depth,
                    std::int64_t columns, Lane* to, std::int64_t to_stride);

  // to[r * to_stride + c] = from[r][c]: rows of any float dtype as lanes, exactly.
  void (*widen)(const void* const* from, DType dtype, std::int64_t rows, std::int64_t columns, Lane* to,
                std::int64_t to_stride);

  // to[c] = from[c] + bias[c], c = 0 .. columns-1, rounded once to dtype. bias may be null: nothing is added.
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
