// Sets of cells of a large space, and the rank of each cell in the set, without sorting the cells.
//
// The space is divided into leaves of up to 32 cells. A leaf with a cell of the set has a RankWord:
// its cells as bits, and the number of cells in the leaves before it. The rank of a cell is that number plus
// one popcount.
//
// Two classes record which leaves exist and number them 1, 2, .. in ascending order. BitmapLeaves has a bit
// for each leaf of the space. SortedLeaves is for spaces where that would be too large: its memory is
// proportional to the existing leaves. Number 0 means "no such leaf"; callers keep an empty RankWord there.
// src/sparse_conv/README.md has an example.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "runtime/context.h"

namespace turnout::core {

struct RankWord {
  std::uint32_t bits;
  std::uint32_t base;  // number of bits set in all words before this one

  std::uint32_t rank(std::uint32_t position) const {
    return base + static_cast<std::uint32_t>(std::popcount(bits & ((1u << position) - 1)));
  }
};

class BitmapLeaves {
 public:
  // A larger table takes longer to clear and scan than keys take to sort, and its memory grows with the space
  // instead of with the sites.
  static constexpr std::int64_t kMaxBytes = 8 << 20;

  static constexpr std::int64_t bytes(std::uint64_t leaves) {
    return static_cast<std::int64_t>((leaves / 32 + 1) * sizeof(RankWord));
  }
  static constexpr bool fits(std::uint64_t leaves) {
    return leaves / 32 < kMaxBytes / sizeof(RankWord);  // so that leaf * 32 + bit fits 32 bits
  }

  BitmapLeaves() = default;
  BitmapLeaves(RankWord* words, std::uint64_t leaves)
      : words_(words), count_(static_cast<std::int64_t>(leaves / 32 + 1)) {}

  void clear();
  void mark(std::uint64_t leaf) { words_[leaf >> 5].bits |= 1u << (leaf & 31); }
  std::int64_t number();  // called after all marks; returns the number of leaves
  std::uint32_t find(std::uint64_t leaf) const {
    const RankWord word = words_[leaf >> 5];
    const auto position = static_cast<std::uint32_t>(leaf & 31);
    return (word.bits >> position & 1) != 0 ? word.rank(position) : 0;
  }
  // find() for leaves that mostly ascend; here it does the same.
  class Cursor {
   public:
    explicit Cursor(const BitmapLeaves& leaves) : leaves_(leaves) {}
    std::uint32_t find(std::uint64_t leaf) { return leaves_.find(leaf); }

   private:
    const BitmapLeaves& leaves_;
  };

  // Calls f(leaf, number) for each leaf of steps first .. last-1, in order. A step is a word of the bitmap.
  template <class F>
  void for_each(std::int64_t first, std::int64_t last, const F& f) const {
    for_each_group(first, last, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t w = begin; w < end; ++w) {
        std::uint32_t number = words_[w].base;
        for (std::uint32_t bits = words_[w].bits; bits != 0; bits &= bits - 1)
          f(static_cast<std::uint64_t>(w) * 32 + static_cast<std::uint64_t>(std::countr_zero(bits)),
            number++);
      }
    });
  }
  std::int64_t steps() const { return count_; }

 private:
  // Calls f(begin, end) for groups of words that cover all words with bits among first .. last-1. Most words
  // of a large space have none; they are skipped a cache line at a time.
  template <class F>
  void for_each_group(std::int64_t first, std::int64_t last, const F& f) const {
    constexpr std::int64_t kWords = 64 / sizeof(RankWord);
    for (std::int64_t w = first; w < last; w += kWords) {
      if (last - w < kWords) return f(w, last);
      std::uint64_t words[kWords], any = 0;
      std::memcpy(words, words_ + w, sizeof(words));
      for (std::uint64_t word : words) any |= word;  // a word without bits has the base 0
      if (any != 0) f(w, w + kWords);
    }
  }

  RankWord* words_ = nullptr;
  std::int64_t count_ = 0;
};

// Used in two rounds: the first round of marks only counts, start() takes memory for that many, and the
// second round stores them.
class SortedLeaves {
 public:
  static std::size_t bytes(std::int64_t marks);

  // Neighbours are marked in succession, so a leaf that equals the previous one is skipped.
  void mark(std::uint64_t leaf) {
    if (leaf == last_ && count_ > 0) return;
    last_ = leaf;
    if (keys_ != nullptr) keys_[count_] = leaf;
    ++count_;
  }
  std::int64_t marks() const { return count_; }
  void start(Scratch& scratch);  // takes bytes(marks()) from it and starts the second round

  std::int64_t number();
  std::uint32_t find(std::uint64_t leaf) const {
    for (std::uint64_t slot = leaf * kSpread >> shift_;; slot = (slot + 1) & mask_) {
      const std::uint32_t number = table_[slot];
      if (number == 0 || keys_[number - 1] == leaf) return number;
    }
  }
  // find() for leaves that mostly ascend: walks along the keys, ten times faster than the hash table at a
  // million leaves. A distant key is found with doubling strides, in logarithmic time.
  class Cursor {
   public:
    explicit Cursor(const SortedLeaves& leaves) : leaves_(leaves) {}
    std::uint32_t find(std::uint64_t leaf) {
      const std::uint64_t* keys = leaves_.keys_;
      if (place_ > 0 && keys[place_ - 1] >= leaf) place_ = std::lower_bound(keys, keys + place_, leaf) - keys;
      for (const std::int64_t near = place_ + kNear; place_ < near && keys[place_] < leaf;) ++place_;
      if (keys[place_] < leaf) place_ = search_ahead(leaf);
      return keys[place_] == leaf ? static_cast<std::uint32_t>(place_ + 1) : 0;
    }

   private:
    static constexpr std::int64_t kNear = 16;  // number of keys that are compared one by one

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
  static constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15;  // 2^64 / the golden ratio

  static constexpr std::uint64_t kEnd = ~std::uint64_t{0};  // after the last key; larger than any leaf

  std::uint64_t* keys_ = nullptr;
  std::uint64_t* other_ = nullptr;  // memory of the same size, for the sort
  std::uint32_t* table_ = nullptr;  // a hash table with open addressing: the number of each key
  std::int64_t count_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace turnout::core
