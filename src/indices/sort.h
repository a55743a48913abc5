// Stable radix sorts of 64-bit elements by some of their bits, for example by a key in the upper bits that
// carries a payload in the lower ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/context.h"
#include "runtime/interrupt.h"

namespace turnout::core {

// The two arrays of a sort, which moves the elements between them and returns which one has the result.
struct SortArrays {
  std::uint64_t* sorted;  // before a sort, the elements
  std::uint64_t* spare;   // memory of the same size
};

// Ascending by the bits low .. low + bits - 1, on this thread.
SortArrays sort_bits(SortArrays arrays, std::int64_t count, int low, int bits);

// The same on all threads of the context. `counters` has room for sort_counters(count) numbers; a single
// thread needs none. No element may have a bit set above those that are sorted by.
std::int64_t sort_counters(std::int64_t count);
SortArrays sort_bits(Context& context, SortArrays arrays, std::int64_t count, int low, int bits,
                     std::int64_t* counters);

// std::sort on this thread, for comparisons that do not reduce to bits.
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
// Removes equal neighbours; returns the number of remaining keys.
std::int64_t unique_keys(std::uint64_t* keys, std::int64_t count);

}  // namespace turnout::core
