// Stable sorts of 64-bit elements by some of their bits, by radix. A key in the upper bits carries whatever
// is in the lower ones along.
#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace turnout::core {

// Ascending by the bits low .. low + bits - 1, on this thread. `other` is memory for as many elements.
// Returns which of the two has the result.
std::uint64_t* sort_bits(std::uint64_t* elements, std::uint64_t* other, std::int64_t count, int low,
                         int bits);

// The same on all threads of the context, with memory for so many counters. There are no bits set above those
// that are sorted by.
std::int64_t sort_counters(std::int64_t count);
std::uint64_t* sort_bits(Context& context, std::uint64_t* elements, std::uint64_t* other, std::int64_t count,
                         int low, int bits, std::int64_t* counters);

// By all bits.
std::uint64_t* sort_keys(std::uint64_t* keys, std::uint64_t* other, std::int64_t count);
// Equal neighbours become one; returns how many are left.
std::int64_t unique_keys(std::uint64_t* keys, std::int64_t count);

}  // namespace turnout::core
