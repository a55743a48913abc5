// A set of cells as bits, and the rank of each cell in the set.
#pragma once

#include <bit>
#include <cstdint>

namespace turnout::core {

// A view of the caller's memory: words_for(cells) words of bits, and equally many counts.
struct BitRanks {
  std::uint64_t* bits;
  // before[w] is the number of bits set in all words before w. The caller fills it after the last mark().
  std::uint32_t* before;

  static constexpr std::int64_t words_for(std::int64_t cells) { return (cells + 63) / 64; }

  void mark(std::uint32_t cell) const { bits[cell >> 6] |= std::uint64_t{1} << (cell & 63); }
  // Use it only in sources that CMakeLists.txt lists as kernels, where popcount is one instruction.
  std::uint32_t rank(std::uint32_t cell) const {
    const std::uint64_t lower = bits[cell >> 6] & ((std::uint64_t{1} << (cell & 63)) - 1);
    return before[cell >> 6] + static_cast<std::uint32_t>(std::popcount(lower));
  }
};

}  // namespace turnout::core
