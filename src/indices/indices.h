// Primitives on index arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "runtime/call.h"
#include "runtime/interrupt.h"

namespace turnout::core {

// The element *from of a caller's array, read exactly once. Another thread of the caller may write to it at
// any time, so the value that is used must be the value that was checked. The compiler may repeat a plain
// read; the empty assembly hides where the value was loaded from.
template <class Index>
std::int64_t load_once(const Index* from) {
  std::int64_t value = *from;
  __asm__("" : "+r"(value));
  return value;
}

// Whether value is in 0 .. limit-1, for values of any sign and width.
template <class Index>
bool in_range(Index value, std::int64_t limit) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) < static_cast<std::uint64_t>(limit);
}

// Inverts a permutation of 0 .. n-1: position[index[i]] = i. Rejects the call at the first entry that is
// out of range or equal to an earlier one; `name` is the argument. Each entry is read once.
template <class Index>
void invert_permutation(Call& call, std::string_view name, const Index* index, std::int64_t n,
                        std::int64_t* position) {
  serial_for(0, n, [&](std::int64_t begin, std::int64_t end) {
    std::fill(position + begin, position + end, std::int64_t{-1});
  });
  serial_for(0, n, [&, index, n, position](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t value = load_once(index + i);
      if (!in_range(value, n))
        call.refuse(concat(call.name(name), "[", i, "] is ", value, ", expected 0 .. ", n - 1));
      if (position[value] >= 0)
        call.refuse(concat(call.name(name), "[", i, "] is ", value, ", equal to [", position[value],
                           "], expected a permutation"));
      position[value] = i;
    }
  });
}

}  // namespace turnout::core
