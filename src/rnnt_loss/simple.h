// Shared by both directions of the simple form (logits lm + am). The sum over classes of exp(lm + am) is a
// product of the matrices exp(lm - max) and exp(am - max), computed a tile at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/padding.h"
#include "core/pieces.h"
#include "core/sanitizer.h"
#include "matrix/matrix.h"
#include "rnnt_loss/lattices.h"

namespace turnout::families::rnnt_loss {

inline constexpr std::int64_t kTileFrames = 64;    // frames per product
inline constexpr std::int64_t kTileClasses = 256;  // classes per range of the gradient
inline constexpr std::int64_t kBatchRows = 96;     // rows per call of multiply()

struct SimpleShape {
  LatticeShape lattice;
  std::int64_t classes, columns, blank;

  SimpleShape(const ConstTensor& lm, const ConstTensor& am, std::int64_t px_columns, std::int64_t termination)
      : lattice{lm.shape[0], lm.shape[1] - 1, am.shape[1], px_columns == am.shape[1]},
        classes(lm.shape[2]),
        columns(px_columns),
        blank(termination) {}

  std::int64_t positions() const { return lattice.symbols + 1; }
  bool is_parallel() const {
    return static_cast<double>(lattice.batch) * static_cast<double>(positions()) *
               static_cast<double>(lattice.frames) * static_cast<double>(classes) >=
           kParallelProducts;
  }
};

inline std::int64_t tiles_of(std::int64_t count, std::int64_t tile) { return (count + tile - 1) / tile; }

// Divides the memory of a thread into consecutive arrays.
class Cursor {
 public:
  explicit Cursor(std::byte* memory) : next_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* begin = reinterpret_cast<T*>(next_);
    next_ += core::array_bytes<T>(count);
    core::allow(begin, core::array_bytes<T>(count));
    core::forbid(begin + count, core::array_bytes<T>(count) - static_cast<std::size_t>(count) * sizeof(T));
    return begin;
  }

 private:
  std::byte* next_;
};

// multiply() for any number of rows: row r of `from` begins at from + r * from_stride.
template <class Lane>
void multiply_rows(const core::matrix::Kernels<Lane>& kernels, const Lane* from, std::int64_t from_stride,
                   Lane* to, std::int64_t to_stride, std::int64_t rows, const Lane* packed,
                   std::int64_t depth, std::int64_t columns, core::matrix::Write write) {
  const Lane* from_rows[kBatchRows];
  Lane* to_rows[kBatchRows];
  for (const auto [begin, count] : core::pieces(0, rows, kBatchRows)) {
    for (std::int64_t i = 0; i < count; ++i) {
      from_rows[i] = from + (begin + i) * from_stride;
      to_rows[i] = to + (begin + i) * to_stride;
    }
    kernels.multiply(from_rows, to_rows, count, packed, depth, columns, write);
  }
}

}  // namespace turnout::families::rnnt_loss
