// Which cells of a space there are, a bit for each, and the rank of each among them.
#pragma once

#include <bit>
#include <cstdint>

namespace turnout::core {

// A view of memory of the caller: words_for(cells) words, and as many counts.
struct BitRanks {
  std::uint64_t* bits;
  std::uint32_t* before;  // [word] how many bits are set in the words before; known once they are numbered

  static constexpr std::int64_t words_for(std::int64_t cells) { return (cells + 63) / 64; }

  void mark(std::uint32_t cell) const { bits[cell >> 6] |= std::uint64_t{1} << (cell & 63); }
  // For sources that CMakeLists.txt counts among the kernels: popcount is one instruction only there.
  std::uint32_t rank(std::uint32_t cell) const {
    const std::uint64_t lower = bits[cell >> 6] & ((std::uint64_t{1} << (cell & 63)) - 1);
    return before[cell >> 6] + static_cast<std::uint32_t>(std::popcount(lower));
  }
};

}  // namespace turnout::core
