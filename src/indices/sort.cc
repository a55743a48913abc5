// Radix sorts from the lowest digit up; on several threads after a first partition by the highest digit.
#include "indices/sort.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "core/grain.h"
#include "runtime/parallel.h"

namespace turnout::core {
namespace {

// A digit has as many bits as keep its counters in the cache, so that there are few passes. With fewer than 8
// bits, neighbours often have the same digit and wait for each other's counter. But a pass must have more
// elements than counters.
constexpr int kMaxDigitBits = 14;
constexpr int kMaxDigits = 1 << kMaxDigitBits;
int digit_bits(std::int64_t count) { return count < 8192 ? 11 : kMaxDigitBits; }

constexpr std::int64_t kFew = 24;  // up to this many elements are sorted by insertion

constexpr int kCutBits = 9;
constexpr std::int64_t kParts = 1 << kCutBits;
constexpr std::int64_t kLeastChunk = 16384 / kGrainDivisor;  // fewest elements worth a thread
std::int64_t most_chunks(std::int64_t count) { return std::min<std::int64_t>(count / kLeastChunk, 16); }

int passes_for(int bits, std::int64_t count) { return (bits + digit_bits(count) - 1) / digit_bits(count); }

// Makes `passes` passes over the bits low .. low + bits - 1, from the lowest digit up. Returns early, without
// a sorted result, if `stop` is requested.
template <class Counter>
SortArrays sort_digits(SortArrays arrays, std::int64_t count, int low, int bits, int passes,
                       const Stop& stop) {
  for (int pass = 0; pass < passes; ++pass) {
    const int first = bits * pass / passes, width = bits * (pass + 1) / passes - first;
    const int shift = low + first;
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    const std::uint64_t* from = arrays.sorted;
    std::uint64_t* to = arrays.spare;
    Counter counters[kMaxDigits];
    Counter* const next = counters;  // the loops below copy the pointer: their stores cannot change it
    std::fill_n(next, mask + 1, Counter{0});
    const bool is_counted = stop.blocks(0, count, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++next[from[i] >> shift & mask];
    });
    if (!is_counted) return arrays;
    Counter sum = 0;
    for (std::uint64_t digit = 0; digit <= mask; ++digit) sum += std::exchange(next[digit], sum);
    const bool is_moved = stop.blocks(0, count, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[next[from[i] >> shift & mask]++] = from[i];
    });
    if (!is_moved) return arrays;
    std::swap(arrays.sorted, arrays.spare);
  }
  return arrays;
}

void insert_in_order(std::uint64_t* elements, std::int64_t count, int low, std::uint64_t mask) {
  for (std::int64_t i = 1; i < count; ++i) {
    const std::uint64_t element = elements[i], key = element >> low & mask;
    std::int64_t j = i;
    for (; j > 0 && (elements[j - 1] >> low & mask) > key; --j) elements[j] = elements[j - 1];
    elements[j] = element;
  }
}

// Small parts are sorted in place, and copied if `passes` is odd: all parts of one array must end in the same
// one of the two arrays.
SortArrays sort_part(SortArrays arrays, std::int64_t count, int low, int bits, int passes, const Stop& stop) {
  if (count > std::int64_t{std::numeric_limits<std::uint32_t>::max()})
    return sort_digits<std::uint64_t>(arrays, count, low, bits, passes, stop);
  if (count > kFew) return sort_digits<std::uint32_t>(arrays, count, low, bits, passes, stop);
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  insert_in_order(arrays.sorted, count, low, mask);
  if (passes % 2 == 0) return arrays;
  std::copy_n(arrays.sorted, count, arrays.spare);
  return {arrays.spare, arrays.sorted};
}

}  // namespace

SortArrays sort_bits(SortArrays arrays, std::int64_t count, int low, int bits) {
  const SortArrays result = sort_part(arrays, count, low, bits, passes_for(bits, count), Stop());
  throw_if_interrupted();  // otherwise it is sorted
  return result;
}

std::int64_t sort_counters(std::int64_t count) { return most_chunks(count) * kParts; }

SortArrays sort_bits(Context& context, SortArrays arrays, std::int64_t count, int low, int bits,
                     std::int64_t* counters) {
  const std::int64_t chunks = std::min<std::int64_t>(context.threads(), most_chunks(count));
  if (chunks <= 1) return sort_bits(arrays, count, low, bits);
  std::uint64_t *elements = arrays.sorted, *cut = arrays.spare;

  // First, partition into kParts parts by the highest digit. Each chunk of the elements counts its digits;
  // the counts of all chunks determine where its elements of each digit go.
  const int rest = bits - std::min(bits, kCutBits), shift = low + rest;
  const Stop stop;
  const auto chunk_begin = [&](std::int64_t chunk) { return count * chunk / chunks; };
  parallel_for(context, chunks, 1, [&](std::int64_t chunk, std::int64_t) {
    std::int64_t* counter = counters + chunk * kParts;
    std::fill_n(counter, kParts, std::int64_t{0});
    static_cast<void>(
        stop.blocks(chunk_begin(chunk), chunk_begin(chunk + 1), [=](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) ++counter[elements[i] >> shift];
        }));
  });
  std::int64_t sum = 0;
  for (std::int64_t part = 0; part < kParts; ++part)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      sum += std::exchange(counters[chunk * kParts + part], sum);
  parallel_for(context, chunks, 1, [&](std::int64_t chunk, std::int64_t) {
    std::int64_t* next = counters + chunk * kParts;
    static_cast<void>(
        stop.blocks(chunk_begin(chunk), chunk_begin(chunk + 1), [=](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) cut[next[elements[i] >> shift]++] = elements[i];
        }));
  });

  // Then sort the parts by the other digits. The counters of the last chunk now hold where each part ends.
  const std::int64_t* ends = counters + (chunks - 1) * kParts;
  const int passes = passes_for(rest, count / kParts);  // the same for all parts
  parallel_for(context, kParts, 8, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      const std::int64_t begin = part == 0 ? 0 : ends[part - 1], size = ends[part] - begin;
      sort_part({cut + begin, elements + begin}, size, low, rest, passes, stop);
    }
  });
  return passes % 2 == 0 ? SortArrays{cut, elements} : SortArrays{elements, cut};
}

SortArrays sort_keys(SortArrays arrays, std::int64_t count) {
  std::uint64_t any = 0, all = ~std::uint64_t{0};
  serial_for(0, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      any |= arrays.sorted[i];
      all &= arrays.sorted[i];
    }
  });
  const std::uint64_t differing = any & ~all;
  if (differing == 0) return arrays;
  const int low = std::countr_zero(differing);
  return sort_bits(arrays, count, low, static_cast<int>(std::bit_width(differing)) - low);
}

std::int64_t unique_keys(std::uint64_t* keys, std::int64_t count) {
  return std::unique(keys, keys + count) - keys;
}

}  // namespace turnout::core
