// The pairs of a convolution, checked and in the order of the rows they are added to.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "runtime/call.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;

// Which pairs there are.
struct Pairs {
  const std::int32_t* entries;  // [offsets, 2, columns]
  std::int64_t offsets, columns;
  int from_side, to_side;  // where entries have the row that is read, and the row that is added to
  std::int64_t from_rows, to_rows;
  std::int64_t total = 0;                // over all offsets
  std::int64_t identity = -1;            // the offset that maps every row to itself; -1 if none does
  const std::int64_t* counts = nullptr;  // of each offset, once keep_counts() has them

  std::size_t scratch_bytes() const { return array_bytes<std::int64_t>(offsets); }  // of the counts
  const std::int32_t* from(std::int64_t k) const { return entries + (2 * k + from_side) * columns; }
  const std::int32_t* to(std::int64_t k) const { return entries + (2 * k + to_side) * columns; }
};

// One of the two tensors whose rows the pairs name.
struct PairRows {
  std::string_view name;
  int side;
  std::int64_t rows;
};

// How many pairs there are, by counts that were checked: all that the size of a plan depends on. With `subm`
// the offset with the most pairs, the first of equals, maps every row to itself, and its pairs are not looked
// at.
Pairs sum_pairs(const ConstTensor& indice_pairs, const ConstTensor& indice_num, const PairRows& from,
                const PairRows& to, bool subm);
// Likewise; a count that is out of range is refused.
Pairs read_pairs(Call& call, std::string_view op, const ConstTensor& indice_pairs,
                 const ConstTensor& indice_num, const PairRows& from, const PairRows& to, bool subm);
// Copies the counts to `scratch`: the caller's may change while a call runs. If they have, that is refused.
void keep_counts(Call& call, std::string_view op, const ConstTensor& indice_num, Pairs& pairs,
                 Scratch& scratch);

// Refuses the first pair, in ascending offset and place, that names a row that is not there.
void check_pairs(Context& context, Call& call, std::string_view op, const Pairs& pairs, const PairRows& from,
                 const PairRows& to);

// A pair in the list of its block: which offset, which row of the block, which row it reads.
class ListedPair {
 public:
  static constexpr int kRowBits = 9;
  static constexpr std::int64_t kMostRows = 1 << kRowBits;

  ListedPair() = default;
  ListedPair(std::int64_t offset, std::uint32_t row, std::uint32_t from)
      : bits_(static_cast<std::uint64_t>(offset) << kOffsetAt | std::uint64_t{row} << kRowAt | from) {}
  std::int64_t offset() const { return static_cast<std::int64_t>(bits_ >> kOffsetAt); }
  std::int64_t row() const { return static_cast<std::int64_t>(bits_ >> kRowAt & (kMostRows - 1)); }
  std::int64_t from() const { return static_cast<std::int64_t>(bits_ & 0x7FFFFFFFu); }
  // Grows with the offset.
  std::uint32_t upper_half() const { return static_cast<std::uint32_t>(bits_ >> 32); }
  static std::int64_t offset_in(std::uint32_t upper_half) { return upper_half >> (kOffsetAt - 32); }
  bool is_within(std::int64_t offsets, std::int64_t from_rows) const {
    return offset() < offsets && from() < from_rows;
  }

 private:
  static constexpr int kRowAt = 31, kOffsetAt = kRowAt + kRowBits;  // 24 bits are left: kMaxOffsets
  std::uint64_t bits_ = 0;
};

// The rows that are added to, in blocks, and for each block its pairs in ascending offset and place: the
// order in which a convolution needs them. In memory: where each block begins, [blocks + 1], then the pairs.
struct PairIndex {
  // Of an index that is kept between calls; a plan with smaller blocks takes a part of one of these.
  static constexpr int kKeptBits = ListedPair::kRowBits;

  std::int64_t row_count = 0;
  int block_bits = 0;  // the logarithm of the rows of a block
  const std::int64_t* starts = nullptr;
  const ListedPair* list = nullptr;

  static std::int64_t words(std::int64_t row_count, int block_bits, std::int64_t pairs) {
    return PairIndex{row_count, block_bits}.blocks() + 1 + pairs;
  }
  std::int64_t blocks() const { return (row_count + (std::int64_t{1} << block_bits) - 1) >> block_bits; }
  std::int64_t first_row(std::int64_t block) const { return block << block_bits; }
  std::int64_t rows(std::int64_t block) const {
    return std::min(std::int64_t{1} << block_bits, row_count - first_row(block));
  }
  const ListedPair* begin(std::int64_t block) const { return list + starts[block]; }
  const ListedPair* end(std::int64_t block) const { return list + starts[block + 1]; }
};

// Looks at an index that the caller kept. Where blocks begin is copied to `scratch`, so that a walk stays
// within the list whatever happens to the caller's memory; what pairs name must be looked at again.
class KeptIndex {
 public:
  KeptIndex(const ConstTensor& index, const Pairs& pairs) : index_(index), pairs_(pairs) {}

  std::size_t scratch_bytes() const;
  // Refuses one that is not for these pairs as far as sizes tell, or that names a row that is not there.
  PairIndex check(Context& context, Call& call, std::string_view op, const PairRows& from,
                  Scratch& scratch) const;

 private:
  std::int64_t first_outside(const PairIndex& index, std::int64_t block) const;
  [[noreturn]] void refuse(std::string_view op, const ListedPair& pair, std::int64_t position,
                           const PairRows& from) const;

  const ConstTensor& index_;
  const Pairs& pairs_;
};

// Makes an index.
class PairLists {
 public:
  PairLists(const Pairs& pairs, int block_bits, int threads);

  std::int64_t words() const { return PairIndex::words(index_.row_count, index_.block_bits, pairs_.total); }
  std::size_t scratch_bytes() const;
  // Writes `words`, [words()]. Refuses a pair as check_pairs() does, before it writes there.
  PairIndex build(Context& context, Call& call, std::string_view op, const PairRows& from, const PairRows& to,
                  std::int64_t* words, Scratch& scratch);

 private:
  struct Run;  // consecutive pairs of one offset
  template <class F>
  void each_run(std::int64_t chunk, const F& f) const;
  template <class F>
  void each_block_of(const Run& run, const F& f) const;
  void count(std::int64_t chunk, std::atomic<std::int64_t>& bad);
  bool place(std::int64_t chunk);

  const Pairs& pairs_;
  PairIndex index_;
  std::int64_t blocks_, chunks_;
  ListedPair* list_ = nullptr;
  std::int64_t* next_ = nullptr;       // [chunks, blocks]: how many, then where the next one goes
  std::int64_t* ends_ = nullptr;       // [chunks, blocks]
  std::uint8_t* ascending_ = nullptr;  // of run `chunk + offset`: its rows never descend
};

}  // namespace turnout::families::sparse_conv
