// Splits a range into pieces of one size; the last piece may be smaller:
//
//   for (const Piece piece : pieces(0, rows, 256)) work(piece.begin, piece.count);
#pragma once

#include <algorithm>
#include <cstdint>

namespace turnout::core {

struct Piece {
  std::int64_t begin, count;
  constexpr std::int64_t end() const { return begin + count; }
};

class Pieces {
 public:
  struct End {};
  struct Iterator {
    std::int64_t place, last, size;
    constexpr Piece operator*() const { return {place, std::min(size, last - place)}; }
    constexpr void operator++() { place += size; }
    constexpr bool operator!=(End) const { return place < last; }
  };

  constexpr Pieces(std::int64_t first, std::int64_t last, std::int64_t size)
      : first_(first), last_(last), size_(size) {}
  constexpr Iterator begin() const { return {first_, last_, size_}; }
  constexpr End end() const { return {}; }

 private:
  std::int64_t first_, last_, size_;
};

// first .. last-1 in pieces of `size` elements; size >= 1.
constexpr Pieces pieces(std::int64_t first, std::int64_t last, std::int64_t size) {
  return {first, last, size};
}

}  // namespace turnout::core
