// Checks the pairs of a convolution and lists them by block of target rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "indices/indices.h"
#include "runtime/call.h"
#include "runtime/interrupt.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

// The pairs of a call.
struct Pairs {
  const std::int32_t* entries;  // [offsets, 2, columns]
  std::int64_t offsets, columns;
  int from_side, to_side;  // 0 or 1: the position in `entries` of the source row, and of the target row
  std::int64_t from_rows, to_rows;
  std::int64_t total = 0;                // pairs of all offsets
  std::int64_t identity = -1;            // the offset that maps every row to itself; -1 if none does
  const std::int64_t* counts = nullptr;  // pairs of each offset; set by keep_counts()

  std::size_t scratch_bytes() const { return core::array_bytes<std::int64_t>(offsets); }  // of the counts
  const std::int32_t* from(std::int64_t k) const { return entries + (2 * k + from_side) * columns; }
  const std::int32_t* to(std::int64_t k) const { return entries + (2 * k + to_side) * columns; }
};

// An entry of the caller's pairs, read once and limited to `last`, as it may have changed since the check.
inline std::uint32_t row_once(const std::int32_t* entry, std::uint32_t last) {
  return std::min(static_cast<std::uint32_t>(core::load_once(entry)), last);
}

// One of the two tensors that the pairs index.
struct PairRows {
  std::string_view name;  // in the operator's Signature
  int side;
  std::int64_t rows;
};

// Sums the counts, which must have been checked. The size of a plan depends on no other data. With `subm`,
// the offset with the most pairs (the first one of equals) maps every row to itself, and its pairs are not
// read.
Pairs sum_pairs(const ConstTensor& indice_pairs, const ConstTensor& indice_num, const PairRows& from,
                const PairRows& to, bool subm);
// The same; throws if a count is out of range.
Pairs read_pairs(core::Call& call, const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                 const PairRows& from, const PairRows& to, bool subm);
// Copies the counts to `scratch`, because the caller's counts may change while the call runs. Throws if they
// have changed already.
void keep_counts(core::Call& call, const ConstTensor& indice_num, Pairs& pairs, core::Scratch& scratch);

// Throws if a pair has a row out of range. The message names the first such pair, in ascending offset, then
// position.
void check_pairs(Context& context, core::Call& call, const Pairs& pairs, const PairRows& from,
                 const PairRows& to);

// Sets `least` to the minimum of itself and `value`.
inline void keep_least(std::atomic<std::int64_t>& least, std::int64_t value) {
  std::int64_t seen = least.load(std::memory_order_relaxed);
  while (value < seen && !least.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

// An element of a block's list: kernel offset, target row within the block, source row.
class ListedPair {
 public:
  static constexpr int kRowBits = 9;
  static constexpr std::int64_t kMostRows = 1 << kRowBits;

  ListedPair() = default;
  ListedPair(std::int64_t offset, std::uint32_t row, std::uint32_t from)
      : bits_(static_cast<std::uint64_t>(offset) << kOffsetAt | std::uint64_t{row} << kRowAt | from) {}
  // An element of a list in the caller's memory, read once.
  static ListedPair once(const ListedPair* from) {
    ListedPair pair;
    pair.bits_ = static_cast<std::uint64_t>(core::load_once(&from->bits_));
    return pair;
  }
  std::int64_t offset() const { return static_cast<std::int64_t>(bits_ >> kOffsetAt); }
  std::int64_t row() const { return static_cast<std::int64_t>(bits_ >> kRowAt & (kMostRows - 1)); }
  std::int64_t from() const { return static_cast<std::int64_t>(bits_ & 0x7FFFFFFFu); }
  // A larger offset has a larger upper half.
  std::uint32_t upper_half() const { return static_cast<std::uint32_t>(bits_ >> 32); }
  static std::int64_t offset_in(std::uint32_t upper_half) { return upper_half >> (kOffsetAt - 32); }
  bool is_within(std::int64_t offsets, std::int64_t from_rows) const {
    return offset() < offsets && from() < from_rows;
  }

 private:
  static constexpr int kRowAt = 31, kOffsetAt = kRowAt + kRowBits;  // 24 bits are left: kMaxOffsets
  std::uint64_t bits_ = 0;
};

// The target rows are divided into blocks; each block has a list of its pairs, in ascending offset, then
// position. In memory: the beginning of each list, [blocks + 1], followed by the lists.
struct PairsByRow {
  // For an index that is kept between calls. A plan whose blocks are smaller uses a part of a list.
  static constexpr int kKeptBits = ListedPair::kRowBits;

  std::int64_t row_count = 0;
  int block_bits = 0;  // a block has 1 << block_bits rows
  const std::int64_t* starts = nullptr;
  const ListedPair* list = nullptr;

  static std::int64_t words(std::int64_t row_count, int block_bits, std::int64_t pairs) {
    return PairsByRow{row_count, block_bits}.blocks() + 1 + pairs;
  }
  std::int64_t blocks() const { return (row_count + (std::int64_t{1} << block_bits) - 1) >> block_bits; }
  std::int64_t first_row(std::int64_t block) const { return block << block_bits; }
  std::int64_t rows(std::int64_t block) const {
    return std::min(std::int64_t{1} << block_bits, row_count - first_row(block));
  }
  const ListedPair* begin(std::int64_t block) const { return list + starts[block]; }
  const ListedPair* end(std::int64_t block) const { return list + starts[block + 1]; }
};

// Builds a PairsByRow. All rows in the lists are in range, even if the caller's pairs change during the call.
class PairLists {
 public:
  PairLists(const Pairs& pairs, int block_bits, int threads);

  // The size of the result, in 8-byte words.
  std::int64_t words() const {
    return PairsByRow::words(by_row_.row_count, by_row_.block_bits, pairs_.total);
  }
  std::size_t scratch_bytes() const;
  // Throws for the same pairs as check_pairs(), before it writes to `words`.
  PairsByRow build(Context& context, core::Call& call, const PairRows& from, const PairRows& to,
                   std::int64_t* words, core::Scratch& scratch);

 private:
  struct Run;  // consecutive pairs of one offset
  template <class F>
  void each_run(std::int64_t chunk, const F& f) const;
  template <class F>
  void each_block_of(const Run& run, const F& f) const;
  void count(std::int64_t chunk, std::atomic<std::int64_t>& bad);
  bool place(std::int64_t chunk);

  const Pairs& pairs_;
  const core::Stop stop_;
  PairsByRow by_row_;
  std::int64_t blocks_, chunks_;
  ListedPair* list_ = nullptr;
  std::int64_t* next_ = nullptr;       // [chunks, blocks]: first counts, then the position of the next pair
  std::int64_t* ends_ = nullptr;       // [chunks, blocks]
  std::uint8_t* ascending_ = nullptr;  // [chunk + offset]: whether the target rows of that run never descend
};

}  // namespace turnout::families::sparse_conv
