// Checks the pairs of a convolution and lists them by block of target rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "runtime/call.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;

// The pairs of a call. `counts` is a copy, because the caller's counts may change while the call runs.
struct Pairs {
  const std::int32_t* entries;  // [offsets, 2, columns]
  std::int64_t offsets, columns;
  const std::int64_t* counts;  // pairs of each offset
  std::int64_t total;          // their sum
  std::int64_t identity;       // the offset that maps every row to itself; -1 if none does
  int from_side, to_side;      // 0 or 1: the position in `entries` of the source row, and of the target row
  std::int64_t from_rows, to_rows;

  const std::int32_t* from(std::int64_t k) const { return entries + (2 * k + from_side) * columns; }
  const std::int32_t* to(std::int64_t k) const { return entries + (2 * k + to_side) * columns; }
};

// One of the two tensors that the pairs index.
struct PairRows {
  std::string_view name;
  int side;
  std::int64_t rows;
};

// Copies the counts into memory of `call` and throws if one is out of range. With `subm`, the offset with the
// most pairs (the first one of equals) maps every row to itself, and its pairs are not read.
Pairs read_pairs(Call& call, std::string_view op, const ConstTensor& indice_pairs,
                 const ConstTensor& indice_num, const PairRows& from, const PairRows& to, bool subm);

// Throws if a pair has a row out of range. The message names the first such pair, in ascending offset, then
// position.
void check_pairs(Context& context, Call& call, std::string_view op, const Pairs& pairs, const PairRows& from,
                 const PairRows& to);

// An element of a block's list: kernel offset, target row within the block, source row.
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

// The target rows are divided into blocks; each block has a list of its pairs, in ascending offset, then
// position. All rows in the lists are in range, also if the caller's pairs change during the call.
class PairLists {
 public:
  // A block has 1 << block_bits rows.
  PairLists(const Pairs& pairs, int block_bits, int threads);

  std::size_t scratch_bytes() const;
  // Throws for the same pairs as check_pairs(). Writes only to `scratch`.
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
  std::int64_t* next_ = nullptr;       // [chunks, blocks]: first counts, then the position of the next pair
  std::int64_t* ends_ = nullptr;       // [chunks, blocks]
  std::uint8_t* ascending_ = nullptr;  // [chunk + offset]: whether the target rows of that run never descend
};

}  // namespace turnout::families::sparse_conv
