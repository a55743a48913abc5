// Numbers leaves: by a running count over a bitmap, or by sorting unique keys and hashing them.
#include "indices/rank.h"

#include <algorithm>
#include <cstring>

#include "indices/sort.h"

namespace turnout::core {
namespace {

// Large enough that the table is at most half full.
std::uint64_t table_size(std::int64_t keys) {
  return std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(keys, 1)) * 2);
}

}  // namespace

void BitmapLeaves::clear() { std::memset(words_, 0, static_cast<std::size_t>(count_) * sizeof(RankWord)); }

std::int64_t BitmapLeaves::number() {
  std::uint32_t next = 1;
  for_each_group(0, count_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t w = begin; w < end; ++w) {
      words_[w].base = next;
      next += static_cast<std::uint32_t>(std::popcount(words_[w].bits));
    }
  });
  return next - 1;
}

std::size_t SortedLeaves::bytes(std::int64_t marks) {
  const auto keys = padded(static_cast<std::size_t>(marks + 1) * sizeof(std::uint64_t));
  return 2 * keys + padded(table_size(marks) * sizeof(std::uint32_t));
}

void SortedLeaves::start(Scratch& scratch) {
  keys_ = scratch.take<std::uint64_t>(count_ + 1);
  other_ = scratch.take<std::uint64_t>(count_ + 1);
  table_ = scratch.take<std::uint32_t>(static_cast<std::int64_t>(table_size(count_)));
  count_ = 0;
}

std::int64_t SortedLeaves::number() {
  keys_ = sort_keys({keys_, other_}, count_).sorted;
  count_ = unique_keys(keys_, count_);
  keys_[count_] = kEnd;
  const std::uint64_t size = table_size(count_);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  serial_for(0, static_cast<std::int64_t>(size),
             [&](std::int64_t begin, std::int64_t end) { std::fill(table_ + begin, table_ + end, 0u); });
  serial_for(0, count_, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::uint64_t slot = keys_[i] * kSpread >> shift_;
      while (table_[slot] != 0) slot = (slot + 1) & mask_;
      table_[slot] = static_cast<std::uint32_t>(i + 1);
    }
  });
  return count_;
}

}  // namespace turnout::core
