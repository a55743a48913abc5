// Stable radix sorts of 64-bit elements by some of their bits. A key in the upper bits carries a payload in
// the lower ones along.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/context.h"
#include "runtime/interrupt.h"

namespace turnout::core {

// The two arrays of a sort: it moves the elements to and fro between them, and says which one has the result.
struct SortArrays {
  std::uint64_t* sorted;  // before a sort: the elements
  std::uint64_t* spare;   // memory for as many
};

// Ascending by the bits low .. low + bits - 1, on this thread.
SortArrays sort_bits(SortArrays arrays, std::int64_t count, int low, int bits);

// The same on all threads of the context. `counters` is memory for sort_counters(count) numbers, of which a
// single thread needs none. No element has a bit set above those that are sorted by.
std::int64_t sort_counters(std::int64_t count);
SortArrays sort_bits(Context& context, SortArrays arrays, std::int64_t count, int low, int bits,
                     std::int64_t* counters);

// std::sort for comparisons that take more than bits, on this thread.
template <class T, class IsLess>
void sort_by(T* begin, T* end, const IsLess& is_less) {
  std::int64_t compared = 0;
  std::sort(begin, end, [&](const T& a, const T& b) {
    if (++compared % Stop::kGrain == 0) throw_if_interrupted();
    return is_less(a, b);
  });
}

// Ascending by all bits.
SortArrays sort_keys(SortArrays arrays, std::int64_t count);
// Keeps one of equal neighbours; returns how many keys are left.
std::int64_t unique_keys(std::uint64_t* keys, std::int64_t count);

}  // namespace turnout::core
