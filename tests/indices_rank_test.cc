// Compares sets of leaves and their numbers with std::set, and the sorts with std::stable_sort.
#include "indices/rank.h"
#include "indices/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace turnout::core {
namespace {

using Leaf = std::uint64_t;

// Checks one kind of set after the leaves in `expected` have been marked.
template <class Leaves>
void expect_numbered(const Leaves& leaves, const std::set<Leaf>& expected, const std::vector<Leaf>& absent) {
  std::uint32_t number = 0;
  for (Leaf leaf : expected) EXPECT_EQ(leaves.find(leaf), ++number) << leaf;
  for (Leaf leaf : absent) EXPECT_TRUE(leaves.find(leaf) == 0 || expected.contains(leaf)) << leaf;
  // A cursor finds the same numbers, with short and long steps in both directions.
  const std::vector<Leaf> all(expected.begin(), expected.end());
  typename Leaves::Cursor cursor(leaves);
  for (const std::size_t stride : {1u, 15u, 16u, 17u, 40u, 1009u})
    for (std::size_t i = 0; i < all.size(); i += stride) EXPECT_EQ(cursor.find(all[i]), i + 1) << all[i];
  for (Leaf leaf : absent) EXPECT_EQ(cursor.find(leaf), leaves.find(leaf)) << leaf;
  // for_each() in two parts visits all leaves in order.
  for (std::int64_t cut : {std::int64_t{0}, leaves.steps() / 3, leaves.steps()}) {
    std::vector<Leaf> seen;
    const auto see = [&](Leaf leaf, std::uint32_t its_number) {
      seen.push_back(leaf);
      EXPECT_EQ(its_number, seen.size());
    };
    leaves.for_each(0, cut, see);
    leaves.for_each(cut, leaves.steps(), see);
    EXPECT_EQ(seen, std::vector<Leaf>(expected.begin(), expected.end()));
  }
}

void mark_and_expect(Leaf space, const std::vector<Leaf>& marks) {
  const std::set<Leaf> expected(marks.begin(), marks.end());
  std::vector<Leaf> absent;
  for (Leaf leaf : marks)
    for (Leaf near : {leaf - 1, leaf + 1, leaf + 32})
      if (near < space) absent.push_back(near);
  Context context({.threads = 1});

  SortedLeaves sorted;
  const auto mark_all = [&] {
    for (Leaf leaf : marks) sorted.mark(leaf);
  };
  mark_all();  // counts
  Scratch memory(context, SortedLeaves::bytes(sorted.marks()));
  EXPECT_LE(sorted.marks(), static_cast<std::int64_t>(marks.size()));
  sorted.start(memory);
  mark_all();
  EXPECT_EQ(sorted.number(), static_cast<std::int64_t>(expected.size()));
  expect_numbered(sorted, expected, absent);

  if (!BitmapLeaves::fits(space)) return;
  std::vector<RankWord> words(static_cast<std::size_t>(BitmapLeaves::bytes(space)) / sizeof(RankWord),
                              RankWord{~0u, ~0u});
  BitmapLeaves bitmap(words.data(), space);
  bitmap.clear();
  for (Leaf leaf : marks) bitmap.mark(leaf);
  EXPECT_EQ(bitmap.number(), static_cast<std::int64_t>(expected.size()));
  expect_numbered(bitmap, expected, absent);
}

TEST(Leaves, AreNumberedInAscendingOrder) {
  mark_and_expect(1, {});
  mark_and_expect(1, {0});
  mark_and_expect(64, {63, 0, 31, 32, 32, 31, 0});
  mark_and_expect(65, {64});
  std::mt19937_64 random(1);
  for (const Leaf space : {Leaf{40}, Leaf{1000}, Leaf{1} << 20, Leaf{1} << 40, Leaf{1} << 58}) {
    for (const int count : {1, 2, 3, 100, 3000}) {
      std::vector<Leaf> marks;
      for (int i = 0; i < count; ++i) marks.push_back(i % 4 == 1 ? marks.back() : random() % space);
      marks.push_back(space - 1);
      mark_and_expect(space, marks);
    }
  }
}

// Colliding keys: their products with the hash factor have equal upper bits. The chain starts in the last
// slot of the table and wraps around to the first.
TEST(Leaves, CollidingKeysAreDistinguished) {
  constexpr Leaf kFactor = 0x9E3779B97F4A7C15;
  Leaf inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;  // doubles the number of correct bits
  ASSERT_EQ(inverse * kFactor, 1u);
  std::vector<Leaf> marks;
  for (Leaf i = 1; i <= 500; ++i) marks.push_back(inverse * (0 - i));
  mark_and_expect(~Leaf{0}, marks);
}

TEST(Leaves, TheBitmapsTableIsAtMostEightMegabytes) {
  const Leaf most = Leaf{32} * (BitmapLeaves::kMaxBytes / sizeof(RankWord)) - 1;
  EXPECT_TRUE(BitmapLeaves::fits(most));
  EXPECT_EQ(BitmapLeaves::bytes(most), BitmapLeaves::kMaxBytes);
  EXPECT_FALSE(BitmapLeaves::fits(most + 1));
  EXPECT_FALSE(BitmapLeaves::fits(~Leaf{0}));
}

TEST(RankWord, CountsTheBitsBelow) {
  const RankWord word{0x80000005u, 10};
  EXPECT_EQ(word.rank(0), 10u);
  EXPECT_EQ(word.rank(1), 11u);
  EXPECT_EQ(word.rank(2), 11u);
  EXPECT_EQ(word.rank(3), 12u);
  EXPECT_EQ(word.rank(31), 12u);
}

TEST(Keys, AreSortedAndMadeUnique) {
  std::mt19937_64 random(2);
  for (const std::size_t count : {0u, 1u, 2u, 100u, 5000u}) {
    for (const Leaf mask : {~Leaf{0}, Leaf{7}, Leaf{0xFFF}, Leaf{0xFF} << 56, Leaf{0}}) {
      std::vector<Leaf> keys(count), other(count);
      for (Leaf& key : keys) key = (random() & mask) | 0x100;
      std::vector<Leaf> expected = keys;
      std::sort(expected.begin(), expected.end());
      Leaf* sorted = sort_keys({keys.data(), other.data()}, static_cast<std::int64_t>(count)).sorted;
      ASSERT_EQ(std::vector<Leaf>(sorted, sorted + count), expected);
      expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
      const std::int64_t left = unique_keys(sorted, static_cast<std::int64_t>(count));
      EXPECT_EQ(std::vector<Leaf>(sorted, sorted + left), expected);
    }
  }
}

// -- sorts by some of the bits ------------------------------------------------------------------------------

// Random elements. The key is in the bits low .. low + bits - 1 and has at most `values` different values.
// The lower bits hold as much of the element's number as fits, to test stability. The bits above the key are
// random, or 0 with clean_above.
std::vector<Leaf> elements_with_keys(std::int64_t count, int low, int bits, Leaf values, bool clean_above,
                                     std::mt19937_64& random) {
  const Leaf mask = bits == 64 ? ~Leaf{0} : (Leaf{1} << bits) - 1;
  std::vector<Leaf> elements;
  for (std::int64_t i = 0; i < count; ++i) {
    const Leaf key = (random() % values * 0x9E3779B97F4A7C15) & mask;
    Leaf element = bits == 0 ? 0 : key << low;
    if (low > 0) element |= static_cast<Leaf>(i) & ((Leaf{1} << low) - 1);
    if (!clean_above && low + bits < 64) element |= random() << (low + bits);
    elements.push_back(element);
  }
  return elements;
}

std::vector<Leaf> stably_sorted(std::vector<Leaf> elements, int low, int bits) {
  const Leaf mask = bits == 64 ? ~Leaf{0} : (Leaf{1} << bits) - 1;
  std::stable_sort(elements.begin(), elements.end(),
                   [&](Leaf a, Leaf b) { return (a >> low & mask) < (b >> low & mask); });
  return elements;
}

// Positions and widths of keys: odd and even numbers of passes, and keys that fill the element.
struct KeyBits {
  int low, bits;
};
constexpr KeyBits kKeyBits[] = {{0, 0},   {5, 0},  {0, 1},  {63, 1},  {20, 8},  {20, 9},  {16, 11},
                                {17, 12}, {3, 22}, {3, 23}, {16, 33}, {16, 34}, {19, 45}, {0, 55},
                                {9, 55},  {0, 63}, {0, 64}, {1, 63},  {31, 33}, {24, 40}};

TEST(SortBits, EqualsAStableSortOnOneThread) {
  std::mt19937_64 random(3);
  for (const KeyBits k : kKeyBits) {
    for (const std::int64_t count : {0, 1, 2, 23, 24, 25, 26, 100, 3000}) {
      for (const Leaf values : {Leaf{1}, Leaf{3}, ~Leaf{0}}) {
        auto elements = elements_with_keys(count, k.low, k.bits, values, false, random);
        const auto expected = stably_sorted(elements, k.low, k.bits);
        elements.push_back(7);  // so that data() is not null for 0 elements
        std::vector<Leaf> other(elements.size(), 7);
        const auto [sorted, spare] = sort_bits({elements.data(), other.data()}, count, k.low, k.bits);
        ASSERT_TRUE(sorted == elements.data() ? spare == other.data() : sorted == other.data());
        ASSERT_EQ(std::vector<Leaf>(sorted, sorted + count), expected)
            << count << " elements, bits " << k.low << " and " << k.bits << " more";
      }
    }
  }
}

TEST(SortBits, EqualsAStableSortOnAnyNumberOfThreads) {
  std::mt19937_64 random(4);
  // Too few elements for a second thread, enough for several, and a number that the threads do not divide.
  for (const std::int64_t count : {0, 1, 20, 16'383, 32'768, 50'021}) {
    for (const KeyBits k : kKeyBits) {
      for (const Leaf values : {Leaf{1}, Leaf{600}, ~Leaf{0}}) {
        if (count > 16'383 && values == 1 && k.bits % 3 != 0) continue;  // would repeat the same test
        const auto elements = elements_with_keys(count, k.low, k.bits, values, true, random);
        const auto expected = stably_sorted(elements, k.low, k.bits);
        for (const int threads : {1, 2, 3, 24}) {
          Context context({.threads = threads});
          std::vector<Leaf> from = elements;
          from.push_back(7);
          std::vector<Leaf> other(from.size(), 7);
          std::vector<std::int64_t> counters(static_cast<std::size_t>(sort_counters(count)));
          const auto [sorted, spare] = sort_bits(context, {from.data(), other.data()}, count, k.low, k.bits,
                                                 threads == 1 ? nullptr : counters.data());
          ASSERT_TRUE(sorted == from.data() ? spare == other.data() : sorted == other.data());
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), sorted))
              << count << " elements, bits " << k.low << " and " << k.bits << " more, threads " << threads;
        }
      }
    }
  }
}

}  // namespace
}  // namespace turnout::core
