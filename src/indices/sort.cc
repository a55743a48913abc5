// Radix sorts: from the lowest digit up; on several threads a first cut by the highest digit.
#include "indices/sort.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "runtime/parallel.h"

namespace turnout::core {
namespace {

// Few passes with many digits each: 26 bits in two passes took two thirds of the time of three, and with
// fewer than 256 digits neighbours often have the same one and wait for each other's count. But a pass must
// have more elements than counters.
constexpr int kMaxDigitBits = 14;
constexpr int kMaxDigits = 1 << kMaxDigitBits;
int digit_bits(std::int64_t count) { return count < 8192 ? 11 : kMaxDigitBits; }

constexpr std::int64_t kFew = 24;  // elements that are sorted by insertion

constexpr int kCutBits = 9;
constexpr std::int64_t kParts = 1 << kCutBits;
constexpr std::int64_t kLeastChunk = 16384;  // elements that are worth a thread
std::int64_t most_chunks(std::int64_t count) { return std::min<std::int64_t>(count / kLeastChunk, 16); }

int passes_for(int bits, std::int64_t count) { return (bits + digit_bits(count) - 1) / digit_bits(count); }

// The result is in `other` after an odd number of passes.
template <class Counter>
void sort_digits(std::uint64_t* elements, std::uint64_t* other, std::int64_t count, int low, int bits,
                 int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    const int first = bits * pass / passes, width = bits * (pass + 1) / passes - first;
    const int shift = low + first;
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    Counter next[kMaxDigits];
    std::fill_n(next, mask + 1, Counter{0});
    for (std::int64_t i = 0; i < count; ++i) ++next[elements[i] >> shift & mask];
    Counter sum = 0;
    for (std::uint64_t digit = 0; digit <= mask; ++digit) sum += std::exchange(next[digit], sum);
    for (std::int64_t i = 0; i < count; ++i) other[next[elements[i] >> shift & mask]++] = elements[i];
    std::swap(elements, other);
  }
}

void insert_in_order(std::uint64_t* elements, std::int64_t count, int low, std::uint64_t mask) {
  for (std::int64_t i = 1; i < count; ++i) {
    const std::uint64_t element = elements[i], key = element >> low & mask;
    std::int64_t j = i;
    for (; j > 0 && (elements[j - 1] >> low & mask) > key; --j) elements[j] = elements[j - 1];
    elements[j] = element;
  }
}

// The result is in `other` when the number of passes is odd, as if they were all made.
void sort_part(std::uint64_t* elements, std::uint64_t* other, std::int64_t count, int low, int bits,
               int passes) {
  if (count > std::int64_t{std::numeric_limits<std::uint32_t>::max()})
    return sort_digits<std::uint64_t>(elements, other, count, low, bits, passes);
  if (count > kFew) return sort_digits<std::uint32_t>(elements, other, count, low, bits, passes);
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  insert_in_order(elements, count, low, mask);
  if (passes % 2 != 0) std::copy_n(elements, count, other);
}

}  // namespace

std::uint64_t* sort_bits(std::uint64_t* elements, std::uint64_t* other, std::int64_t count, int low,
                         int bits) {
  const int passes = passes_for(bits, count);
  sort_part(elements, other, count, low, bits, passes);
  return passes % 2 == 0 ? elements : other;
}

std::int64_t sort_counters(std::int64_t count) { return most_chunks(count) * kParts; }

std::uint64_t* sort_bits(Context& context, std::uint64_t* elements, std::uint64_t* other, std::int64_t count,
                         int low, int bits, std::int64_t* counters) {
  const std::int64_t chunks = std::min<std::int64_t>(context.threads(), most_chunks(count));
  if (chunks <= 1 || bits <= kCutBits) return sort_bits(elements, other, count, low, bits);

  // Each chunk of the elements counts its digits; then it knows where its own elements of each digit go.
  const int rest = bits - kCutBits, shift = low + rest;
  const auto chunk_begin = [&](std::int64_t chunk) { return count * chunk / chunks; };
  parallel_for(context, chunks, 1, [&](std::int64_t chunk, std::int64_t) {
    std::int64_t* counter = counters + chunk * kParts;
    std::fill_n(counter, kParts, std::int64_t{0});
    for (std::int64_t i = chunk_begin(chunk); i < chunk_begin(chunk + 1); ++i)
      ++counter[elements[i] >> shift];
  });
  std::int64_t sum = 0;
  for (std::int64_t part = 0; part < kParts; ++part)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      sum += std::exchange(counters[chunk * kParts + part], sum);
  parallel_for(context, chunks, 1, [&](std::int64_t chunk, std::int64_t) {
    std::int64_t* next = counters + chunk * kParts;
    for (std::int64_t i = chunk_begin(chunk); i < chunk_begin(chunk + 1); ++i)
      other[next[elements[i] >> shift]++] = elements[i];
  });

  // Now the last chunk's counters are where each part ends.
  const std::int64_t* ends = counters + (chunks - 1) * kParts;
  const int passes = passes_for(rest, count / kParts);  // the same for all parts: they end in one array
  parallel_for(context, kParts, 8, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      const std::int64_t begin = part == 0 ? 0 : ends[part - 1], size = ends[part] - begin;
      if (size > 0) sort_part(other + begin, elements + begin, size, low, rest, passes);
    }
  });
  return passes % 2 == 0 ? other : elements;
}

std::uint64_t* sort_keys(std::uint64_t* keys, std::uint64_t* other, std::int64_t count) {
  std::uint64_t any = 0, all = ~std::uint64_t{0};
  for (std::int64_t i = 0; i < count; ++i) {
    any |= keys[i];
    all &= keys[i];
  }
  const std::uint64_t differing = any & ~all;
  if (differing == 0) return keys;
  const int low = std::countr_zero(differing);
  return sort_bits(keys, other, count, low, static_cast<int>(std::bit_width(differing)) - low);
}

std::int64_t unique_keys(std::uint64_t* keys, std::int64_t count) {
  return std::unique(keys, keys + count) - keys;
}

}  // namespace turnout::core
