// Primitives on index arrays.
#pragma once

#include <algorithm>
#include <cstdint>

namespace turnout::core {

// value in 0 .. limit-1, for values of any sign and width.
template <class Index>
bool in_range(Index value, std::int64_t limit) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) < static_cast<std::uint64_t>(limit);
}

// last[r] = the largest q in 0 .. n-1 with row_of(q) == r, or -1. row_of gives -1 for "none".
// Returns how many rows are named.
template <class RowOf>
std::int64_t last_writers(std::int64_t n, const RowOf& row_of, std::int64_t* last, std::int64_t rows) {
  std::fill_n(last, rows, std::int64_t{-1});
  std::int64_t named = 0;
  for (std::int64_t q = 0; q < n; ++q) {
    const std::int64_t row = row_of(q);
    if (row < 0) continue;
    named += last[row] < 0;
    last[row] = q;
  }
  return named;
}

}  // namespace turnout::core
