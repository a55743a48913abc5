// Tensors of more than 2^31 elements and more than 4 GB, all of whose elements are in memory and checked. Not
// part of the regular tests, because one test takes up to 9 GB. `./dev test big` runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/parallel.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 1;  // more elements than int32 can count

// Uninitialized, so that the test touches each page once.
template <class T>
std::unique_ptr<T[]> many(std::int64_t count) {
  return std::unique_ptr<T[]>(new T[static_cast<std::size_t>(count)]);
}

// The number of i in 0 .. n-1 without is_right(i), counted on all threads.
template <class IsRight>
std::int64_t count_wrong(std::int64_t n, const IsRight& is_right) {
  std::atomic<std::int64_t> wrong{0};
  core::parallel_for(default_context(), n, 4096, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t own = 0;
    for (std::int64_t i = begin; i < end; ++i) own += !is_right(i);
    wrong += own;
  });
  return wrong;
}

template <class T>
bool is_filled(const T* row, std::int64_t count, T value) {
  return std::all_of(row, row + count, [&](T one) { return one == value; });
}

// Bits of a float16 that differ from row to row; all are finite.
std::uint16_t half_of(std::int64_t row) { return static_cast<std::uint16_t>(row * 40503 % 0x7C00); }

TEST(Big, DispatchWritesRowsBeyond4GB) {
  constexpr std::int64_t kHidden = 64, kChoices = 8, kTokens = kFar / kHidden / kChoices + 1;
  constexpr std::int64_t kRows = kTokens * kChoices;  // 4.3 GB of them
  const auto input = many<std::uint16_t>(kTokens * kHidden), output = many<std::uint16_t>(kRows * kHidden);
  const auto gates = many<std::uint16_t>(kRows);
  const auto experts = many<std::int32_t>(kRows), locations = many<std::int32_t>(kRows);
  constexpr std::int64_t kExperts = 4, kCapacity = kRows / kExperts;
  const auto row_of = [](std::int64_t token, std::int64_t choice) {  // a permutation
    return (token * kChoices + choice + kRows / 3) % kRows;
  };
  for (std::int64_t token = 0; token < kTokens; ++token) {
    std::fill_n(input.get() + token * kHidden, kHidden, half_of(token));
    for (std::int64_t choice = 0; choice < kChoices; ++choice) {
      const std::int64_t at = choice * kTokens + token, row = row_of(token, choice);
      gates[at] = 0x3C00;  // 1
      experts[at] = static_cast<std::int32_t>(row / kCapacity);
      locations[at] = static_cast<std::int32_t>(row % kCapacity);
    }
  }
  const std::int64_t routing[] = {kChoices, kTokens}, rows[] = {kRows, kHidden},
                     tokens[] = {kTokens, kHidden};
  moe_dispatch_forward(
      ConstTensor(gates.get(), DType::f16, routing, 2), ConstTensor(experts.get(), DType::i32, routing, 2),
      ConstTensor(locations.get(), DType::i32, routing, 2), ConstTensor(input.get(), DType::f16, tokens, 2),
      Tensor(output.get(), DType::f16, rows, 2), {.capacity = kCapacity, .num_experts = kExperts});
  EXPECT_EQ(count_wrong(kRows,
                        [&](std::int64_t i) {
                          const std::int64_t row = row_of(i / kChoices, i % kChoices);
                          return is_filled(output.get() + row * kHidden, kHidden, half_of(i / kChoices));
                        }),
            0);
}

TEST(Big, ReRoutingMovesMoreThan4GB) {
  constexpr std::int64_t kHidden = 128, kRows = (std::int64_t{1} << 25) + 3;  // 4.3 GB
  const auto tokens = many<std::uint8_t>(kRows * kHidden), moved = many<std::uint8_t>(kRows * kHidden);
  const auto idx = many<std::int32_t>(kRows);
  const auto byte_of = [](std::int64_t row) { return static_cast<std::uint8_t>(row * 167 >> 3); };
  for (std::int64_t row = 0; row < kRows; ++row)
    std::fill_n(tokens.get() + row * kHidden, kHidden, byte_of(row));
  // Two ranks, two experts: the middle two blocks are swapped.
  const std::int64_t first = kRows / 4 + 1, second = kRows / 4, third = kRows / 3;
  std::vector<std::int64_t> counts = {first, second, third, kRows - first - second - third}, number(2);
  const std::int64_t rows[] = {kRows, kHidden};
  moe_re_routing(ConstTensor(tokens.get(), DType::u8, rows, 2), view(counts.data(), {2, 2}), nullptr,
                 Tensor(moved.get(), DType::u8, rows, 2), nullptr, view(idx.get(), {kRows}),
                 view(number.data(), {2}));
  const auto source_of = [&](std::int64_t row) {
    if (row < first || row >= first + second + third) return row;
    return row < first + third ? row + second : row - third;
  };
  EXPECT_EQ(count_wrong(kRows,
                        [&](std::int64_t row) {
                          return idx[row] == source_of(row) &&
                                 is_filled(moved.get() + row * kHidden, kHidden, byte_of(source_of(row)));
                        }),
            0);
}

TEST(Big, ScatterReadsRowsBeyond4GB) {
  constexpr std::int64_t kChannels = 64, kRows = kFar / kChannels + 1, kGroups = 1000;  // 4.3 GB
  const auto src = many<std::uint16_t>(kRows * kChannels);
  const auto index = many<std::int32_t>(kRows);
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::fill_n(src.get() + row * kChannels, kChannels, half_of(row));
    index[row] = static_cast<std::int32_t>(row * 7 % kGroups);
  }
  std::vector<std::uint16_t> out(kGroups * kChannels);
  std::vector<std::int64_t> argmax(kGroups * kChannels);
  const std::int64_t rows[] = {kRows, kChannels}, groups[] = {kGroups, kChannels};
  scatter_max(ConstTensor(src.get(), DType::f16, rows, 2), view(index.get(), {kRows}),
              Tensor(out.data(), DType::f16, groups, 2), view(argmax.data(), {kGroups, kChannels}));
  // The bits of positive floats have the same order as the numbers.
  std::vector<std::int64_t> best(kGroups, -1);
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::int64_t& of_group = best[static_cast<std::size_t>(index[row])];
    if (of_group < 0 || half_of(row) > half_of(of_group)) of_group = row;
  }
  EXPECT_EQ(count_wrong(kGroups,
                        [&](std::int64_t g) {
                          const std::int64_t row = best[static_cast<std::size_t>(g)];
                          return is_filled(out.data() + g * kChannels, kChannels, half_of(row)) &&
                                 is_filled(argmax.data() + g * kChannels, kChannels, row);
                        }),
            0);
}

// A line on which every cell is a site: offset k leads from x to x + padding - k.
TEST(Big, PairsHaveMoreThan2To31Elements) {
  constexpr std::int64_t kOffsets = 1331, kPadding = kOffsets / 2, kRows = kFar / kOffsets / 2 + 1;  // 8.6 GB
  const auto pairs = many<std::int32_t>(kOffsets * 2 * kRows);
  std::vector<std::int32_t> sites(2 * kRows), out(2 * kRows), num(kOffsets);
  for (std::int64_t x = 0; x < kRows; ++x)
    sites[static_cast<std::size_t>(2 * x + 1)] = static_cast<std::int32_t>(x);
  const std::int64_t active =
      get_indice_pairs(view(sites.data(), {kRows, 2}), view(out.data(), {kRows, 2}),
                       view(pairs.get(), {kOffsets, 2, kRows}), view(num.data(), {kOffsets}),
                       {.spatial_shape = {kRows}, .kernel_size = {kOffsets}, .padding = {kPadding}});
  EXPECT_EQ(active, kRows);
  EXPECT_EQ(out, sites);
  EXPECT_EQ(count_wrong(kOffsets,
                        [&](std::int64_t k) {
                          const std::int64_t shift = kPadding - k, first = std::max<std::int64_t>(0, -shift);
                          const std::int64_t count = kRows - std::abs(shift);
                          const std::int32_t *in = pairs.get() + k * 2 * kRows, *to = in + kRows;
                          if (num[static_cast<std::size_t>(k)] != count) return false;
                          for (std::int64_t j = 0; j < count; ++j)
                            if (in[j] != first + j || to[j] != first + j + shift) return false;
                          return is_filled(in + count, kRows - count, -1) &&
                                 is_filled(to + count, kRows - count, -1);
                        }),
            0);
}

}  // namespace
}  // namespace turnout::test
