// Sets of cells of a large space, and the rank of each among them, without a sort of the cells.
//
// The space is cut into leaves of up to 32 cells. A leaf that has a cell is a RankWord: which cells, and how
// many lie in the leaves before it; so a cell's rank is one popcount. Which leaves exist, and where, says a
// BitmapLeaves (a bit per leaf of the space, in RankWords again) or, where that would be too large, a
// SortedLeaves (memory proportional to the leaves that exist). Both number the leaves 1, 2, .. in ascending
// order; 0 is "no such leaf", and leaf word 0 an empty one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "runtime/context.h"

namespace turnout::core {

struct RankWord {
  std::uint32_t bits;
  std::uint32_t base;  // how many bits are set in the words before this one

  std::uint32_t rank(std::uint32_t position) const {
    return base + static_cast<std::uint32_t>(std::popcount(bits & ((1u << position) - 1)));
  }
};

class BitmapLeaves {
 public:
  // Beyond this the table is slower to clear and to scan than keys are to sort, and memory would grow with
  // the space instead of with the sites.
  static constexpr std::int64_t kMaxBytes = 8 << 20;

  static constexpr std::int64_t bytes(std::uint64_t leaves) {
    return static_cast<std::int64_t>((leaves / 32 + 1) * sizeof(RankWord));
  }
  static constexpr bool fits(std::uint64_t leaves) {
    return leaves / 32 <
           kMaxBytes / sizeof(RankWord);  // so a leaf's number and 5 bits of position fit 32 bits
  }

  BitmapLeaves() = default;
  BitmapLeaves(RankWord* words, std::uint64_t leaves)
      : words_(words), count_(static_cast<std::int64_t>(leaves / 32 + 1)) {}

  void clear();
  void mark(std::uint64_t leaf) { words_[leaf >> 5].bits |= 1u << (leaf & 31); }
  std::int64_t number();  // after all marks: how many
  std::uint32_t find(std::uint64_t leaf) const {
    const RankWord word = words_[leaf >> 5];
    const auto position = static_cast<std::uint32_t>(leaf & 31);
    return (word.bits >> position & 1) != 0 ? word.rank(position) : 0;
  }
  // find() for leaves that mostly ascend.
  class Cursor {
   public:
    explicit Cursor(const BitmapLeaves& leaves) : leaves_(leaves) {}
    std::uint32_t find(std::uint64_t leaf) { return leaves_.find(leaf); }

   private:
    const BitmapLeaves& leaves_;
  };

  // f(leaf, number) for each leaf of the words first .. last-1, in order.
  template <class F>
  void for_each(std::int64_t first, std::int64_t last, const F& f) const {
    for (std::int64_t w = first; w < last; ++w) {
      std::uint32_t number = words_[w].base;
      for (std::uint32_t bits = words_[w].bits; bits != 0; bits &= bits - 1)
        f(static_cast<std::uint64_t>(w) * 32 + static_cast<std::uint64_t>(std::countr_zero(bits)), number++);
    }
  }
  // What for_each counts in.
  std::int64_t steps() const { return count_; }

 private:
  RankWord* words_ = nullptr;
  std::int64_t count_ = 0;
};

// Marks are counted first, then made again with memory for them.
class SortedLeaves {
 public:
  static std::size_t bytes(std::int64_t marks);

  // A leaf that was the last one marked is not marked again: neighbours come one after the other.
  void mark(std::uint64_t leaf) {
    if (leaf == last_ && count_ > 0) return;
    last_ = leaf;
    if (keys_ != nullptr) keys_[count_] = leaf;
    ++count_;
  }
  std::int64_t marks() const { return count_; }
  void start(Scratch& scratch);  // bytes(marks()) of it; the marks begin anew

  std::int64_t number();
  std::uint32_t find(std::uint64_t leaf) const {
    for (std::uint64_t slot = leaf * kSpread >> shift_;; slot = (slot + 1) & mask_) {
      const std::uint32_t number = table_[slot];
      if (number == 0 || keys_[number - 1] == leaf) return number;
    }
  }
  // find() for leaves that mostly ascend: walks along the keys, ten times faster than the hash table at a
  // million leaves. A far step is searched for in ever larger strides, so that it takes the logarithm of its
  // length.
  class Cursor {
   public:
    explicit Cursor(const SortedLeaves& leaves) : leaves_(leaves) {}
    std::uint32_t find(std::uint64_t leaf) {
      const std::uint64_t* keys = leaves_.keys_;
      const std::int64_t count = leaves_.count_;
      if (place_ > 0 && keys[place_ - 1] >= leaf) place_ = std::lower_bound(keys, keys + place_, leaf) - keys;
      for (std::int64_t near = std::min(place_ + kNear, count); place_ < near && keys[place_] < leaf;)
        ++place_;
      if (place_ < count && keys[place_] < leaf) place_ = search_ahead(leaf);
      return place_ < count && keys[place_] == leaf ? static_cast<std::uint32_t>(place_ + 1) : 0;
    }

   private:
    static constexpr std::int64_t kNear = 16;  // keys that are looked at one by one

    std::int64_t search_ahead(std::uint64_t leaf) const {
      const std::uint64_t* keys = leaves_.keys_;
      std::int64_t low = place_, stride = kNear;  // keys[low] is smaller
      while (low + stride < leaves_.count_ && keys[low + stride] < leaf) {
        low += stride;
        stride *= 2;
      }
      return std::lower_bound(keys + low, keys + std::min(low + stride, leaves_.count_), leaf) - keys;
    }

    const SortedLeaves& leaves_;
    std::int64_t place_ = 0;  // all keys before it are smaller than the last leaf
  };

  template <class F>
  void for_each(std::int64_t first, std::int64_t last, const F& f) const {
    for (std::int64_t i = first; i < last; ++i) f(keys_[i], static_cast<std::uint32_t>(i + 1));
  }
  std::int64_t steps() const { return count_; }

 private:
  static constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio

  std::uint64_t* keys_ = nullptr;
  std::uint64_t* other_ = nullptr;  // as many, for the sort
  std::uint32_t* table_ = nullptr;  // open addressing: numbers of keys
  std::int64_t count_ = 0;
  std::int64_t capacity_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace turnout::core
