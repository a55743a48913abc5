// The pairs of a convolution, checked and in the order of the rows they are added to.
#pragma once

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

 private:
  static constexpr int kRowAt = 31, kOffsetAt = kRowAt + kRowBits;  // 24 bits are left: kMaxOffsets
  std::uint64_t bits_ = 0;
};

// The rows that are added to, in blocks, and for each block its pairs in ascending offset and place. Once
// made, a walk along it stays within the rows, whatever happens to the caller's pairs.
class PairLists {
 public:
  // block_bits: the logarithm of the rows of a block.
  PairLists(const Pairs& pairs, int block_bits, int threads);

  std::size_t scratch_bytes() const;
  // Refuses a pair as check_pairs() does, before anything is written outside of `scratch`.
  void build(Context& context, Call& call, std::string_view op, const PairRows& from, const PairRows& to,
             Scratch& scratch);

  std::int64_t blocks() const { return blocks_; }
  std::int64_t first_row(std::int64_t block) const { return block << block_bits_; }
  std::int64_t rows(std::int64_t block) const;
  const ListedPair* begin(std::int64_t block) const { return list_ + starts_[block]; }
  const ListedPair* end(std::int64_t block) const { return list_ + starts_[block + 1]; }

 private:
  struct Run;  // consecutive pairs of one offset
  template <class F>
  void each_run(std::int64_t chunk, const F& f) const;
  template <class F>
  void each_block_of(const Run& run, const F& f) const;
  void count(std::int64_t chunk, std::atomic<std::int64_t>& bad);
  bool place(std::int64_t chunk);

  const Pairs& pairs_;
  int block_bits_;
  std::int64_t blocks_, chunks_;
  ListedPair* list_ = nullptr;
  std::int64_t* starts_ = nullptr;     // [blocks + 1]
  std::int64_t* next_ = nullptr;       // [chunks, blocks]: how many, then where the next one goes
  std::int64_t* ends_ = nullptr;       // [chunks, blocks]
  std::uint8_t* ascending_ = nullptr;  // of run `chunk + offset`: its rows never descend
};

}  // namespace turnout::families::sparse_conv
