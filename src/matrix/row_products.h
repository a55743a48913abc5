// Products of rows of any float dtype. Rows of bf16 are multiplied as they are where the CPU has instructions
// for it; other 16-bit rows are widened first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/padding.h"
#include "core/pieces.h"
#include "matrix/bf16.h"
#include "matrix/matrix.h"

namespace turnout::core::matrix {

template <class Lane>
class RowProducts {
 public:
  RowProducts(Isa isa, DType dtype)
      : kernels_(matrix::kernels<Lane>(isa)),
        bf16_(dtype == DType::bf16 ? bf16_kernels(isa) : nullptr),
        dtype_(dtype) {}

  const Kernels<Lane>& kernels() const { return kernels_; }
  // For Call::uses().
  Isa last_isa() const { return bf16_ != nullptr ? Isa::avx512_bf16 : Isa::avx512; }

  // The memory of a packed matrix, aligned to 64 bytes.
  std::size_t packed_bytes(std::int64_t depth, std::int64_t columns) const {
    if (bf16_ != nullptr) return array_bytes<bf16>(bf16_->packed_size(depth, columns));
    return array_bytes<Lane>(kernels_.packed_size(depth, columns));
  }
  void pack(const Source& from, std::byte* packed) const {
    if (bf16_ != nullptr) return bf16_->pack(from, reinterpret_cast<bf16*>(packed));
    kernels_.pack(from, reinterpret_cast<Lane*>(packed));
  }

  // The memory that multiply() and add_outer() need for `rows` rows of `columns` elements.
  std::size_t wide_bytes(std::int64_t rows, std::int64_t columns) const {
    return widens() ? array_bytes<Lane>(rows * columns) : 0;
  }

  // The memory that read() needs.
  std::size_t read_bytes(std::int64_t rows, std::int64_t columns) const {
    return size_of(dtype_) == 2 ? array_bytes<Lane>(rows * columns) : 0;
  }

  // Kernels<Lane>::multiply of rows [depth] of the dtype.
  void multiply(const void* const* from, Lane* const* to, std::int64_t rows, const std::byte* packed,
                std::int64_t depth, std::int64_t columns, Write write, Lane* wide) const {
    if (bf16_ != nullptr) {
      if constexpr (sizeof(Lane) == 4)
        bf16_->multiply_packed(from, to, rows, reinterpret_cast<const bf16*>(packed), depth, columns, write);
      return;
    }
    for (const Piece piece : pieces(0, rows, kMostRows)) {
      const Lane* lanes[kMostRows];
      read(from + piece.begin, piece.count, depth, lanes, wide);
      kernels_.multiply(lanes, to + piece.begin, piece.count, reinterpret_cast<const Lane*>(packed), depth,
                        columns, write);
    }
  }

  // Kernels<Lane>::add_outer of rows [depth] and rows [columns] of the dtype. Padding columns are undefined.
  void add_outer(const void* const* from, const void* const* with, std::int64_t rows, std::int64_t depth,
                 std::int64_t columns, Lane* to, std::int64_t to_stride, Lane* wide_from,
                 Lane* wide_with) const {
    if (bf16_ != nullptr) {
      if constexpr (sizeof(Lane) == 4) bf16_->add_outer(from, with, rows, depth, columns, to, to_stride);
      return;
    }
    for (const Piece piece : pieces(0, rows, kMostRows)) {
      const Lane *lanes[kMostRows], *with_lanes[kMostRows];
      read(from + piece.begin, piece.count, depth, lanes, wide_from);
      read(with + piece.begin, piece.count, columns, with_lanes, wide_with);
      kernels_.add_outer(lanes, with_lanes, piece.count, depth, columns, to, to_stride);
    }
  }

  // Rows of the dtype as rows of lanes: widened into `wide`, or where they are.
  void read(const void* const* from, std::int64_t rows, std::int64_t columns, const Lane** to,
            Lane* wide) const {
    if (size_of(dtype_) == 2) kernels_.widen(from, dtype_, rows, columns, wide, columns);
    for (std::int64_t r = 0; r < rows; ++r)
      to[r] = size_of(dtype_) == 2 ? wide + r * columns : static_cast<const Lane*>(from[r]);
  }

  static constexpr std::int64_t kMostRows = 192;  // that are widened at a time

 private:
  bool widens() const { return bf16_ == nullptr && size_of(dtype_) == 2; }

  const Kernels<Lane>& kernels_;
  const Bf16Kernels* bf16_;
  const DType dtype_;
};

}  // namespace turnout::core::matrix
