// Sites for the tests of this family, and a bit-by-bit comparison of a call with the definition.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "guarded.h"
#include "isas.h"
#include "sparse_conv/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {

using Sites = std::vector<reference::Site>;

enum class Pattern {
  random,
  duplicates,
  sorted,
  reversed,
  sorted_duplicates,
  one_batch,
  batch_gaps,
  full_grid,
  one_site,
  no_site
};
// The first kOrders patterns cover the order of sites and repeated sites.
inline constexpr Pattern kPatterns[] = {Pattern::random,     Pattern::duplicates,        Pattern::sorted,
                                        Pattern::reversed,   Pattern::sorted_duplicates, Pattern::one_batch,
                                        Pattern::batch_gaps, Pattern::full_grid,         Pattern::one_site,
                                        Pattern::no_site};
inline constexpr unsigned kOrders = 5;

inline std::int64_t volume_of(const Dims& dims) {
  std::int64_t volume = 1;
  for (int d = 0; d < dims.count(); ++d) volume *= dims[d];
  return volume;
}

// Cell `number` of the space, the last dimension fastest.
inline reference::Site site_at(const IndicePairsParams& p, std::int64_t number) {
  reference::Site site(static_cast<std::size_t>(p.spatial_shape.count() + 1));
  for (int d = p.spatial_shape.count() - 1; d >= 0; --d) {
    site[static_cast<std::size_t>(d + 1)] = number % p.spatial_shape[d];
    number /= p.spatial_shape[d];
  }
  site[0] = number;
  return site;
}

// `rows` sites, at most half the space; all different unless the pattern has repeated ones.
inline Sites make_sites(Pattern pattern, const IndicePairsParams& p, std::int64_t rows, unsigned seed) {
  std::mt19937_64 random(seed);
  const std::int64_t volume = volume_of(p.spatial_shape), all = volume * p.batch_size;
  if (pattern == Pattern::no_site) return {};
  if (pattern == Pattern::one_site) return {site_at(p, all - 1)};
  std::vector<std::int64_t> numbers;
  if (pattern == Pattern::full_grid) {
    for (std::int64_t i = 0; i < all; ++i) numbers.push_back(i);
  } else {
    rows = std::clamp<std::int64_t>(volume / 2, 1, rows);
    while (static_cast<std::int64_t>(numbers.size()) < rows) {
      while (static_cast<std::int64_t>(numbers.size()) < rows + rows / 8 + 1) {
        std::int64_t batch = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(p.batch_size));
        if (pattern == Pattern::one_batch) batch = p.batch_size - 1;
        if (pattern == Pattern::batch_gaps) batch -= batch % 2;
        numbers.push_back(batch * volume +
                          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(volume)));
      }
      std::sort(numbers.begin(), numbers.end());
      numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    }
    std::shuffle(numbers.begin(), numbers.end(), random);
    numbers.resize(static_cast<std::size_t>(rows));
  }
  const bool sorted_duplicates = pattern == Pattern::sorted_duplicates;
  if (pattern == Pattern::duplicates || sorted_duplicates)
    for (std::size_t i = 0; i < numbers.size() / 2; ++i) numbers[random() % numbers.size()] = numbers[i];
  if (pattern == Pattern::sorted || sorted_duplicates) std::sort(numbers.begin(), numbers.end());
  if (pattern == Pattern::reversed) std::sort(numbers.rbegin(), numbers.rend());
  Sites sites;
  for (std::int64_t number : numbers) sites.push_back(site_at(p, number));
  return sites;
}

// Fills in the defaults, with the formulas written out independently.
inline IndicePairsParams completed(IndicePairsParams p) {
  const int dims = p.spatial_shape.count();
  const bool centred = p.mode == ConvMode::submanifold && p.padding.count() == 0;
  const bool derived = p.output_shape.count() == 0;
  for (Dims* ones : {&p.stride, &p.dilation, &p.output_shape})
    if (ones->count() == 0) *ones = Dims::filled(dims, 1);
  for (Dims* zeros : {&p.padding, &p.output_padding})
    if (zeros->count() == 0) *zeros = Dims::filled(dims, 0);
  for (int d = 0; d < dims; ++d) {
    const std::int64_t in = p.spatial_shape[d], kernel = p.kernel_size[d];
    if (centred) p.padding[d] = kernel / 2 * p.dilation[d];
    if (derived && p.mode == ConvMode::submanifold) p.output_shape[d] = in;
    if (derived && p.mode == ConvMode::transposed)
      p.output_shape[d] = (in - 1) * p.stride[d] - 2 * p.padding[d] + kernel + p.output_padding[d];
    if (derived && p.mode == ConvMode::sparse && kernel > 0) {
      std::int64_t size = 0;  // the number of positions of the kernel
      while (size * p.stride[d] + p.dilation[d] * (kernel - 1) < in + 2 * p.padding[d]) ++size;
      p.output_shape[d] = size;
    }
    if (kernel == -1) p.kernel_size[d] = in;
  }
  return p;
}

// A faster form of the definition, for as many sites as networks have: sorts and searches output numbers.
inline reference::Pairs sorted_pairs(const Sites& sites, const IndicePairsParams& p) {
  const int dims = p.kernel_size.count();
  const std::size_t rows = sites.size(), volume = static_cast<std::size_t>(volume_of(p.kernel_size));
  const auto number_of = [&](const reference::Site& site, std::int64_t k) -> std::int64_t {
    std::int64_t number = 0, radix = 1;
    for (int d = dims - 1; d >= 0; --d) {
      const auto o = reference::output_of(site[static_cast<std::size_t>(d + 1)], k % p.kernel_size[d], p, d,
                                          p.output_shape[d]);
      if (!o) return -1;
      number += *o * radix;
      radix *= p.output_shape[d];
      k /= p.kernel_size[d];
    }
    return number + site[0] * radix;
  };
  std::vector<std::size_t> order(rows);  // of the sites, so that outputs are ordered and near each other
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return sites[a] < sites[b]; });
  std::vector<std::int64_t> numbers(volume * rows);  // by kernel offset, then in order
  for (std::size_t k = 0; k < volume; ++k)
    for (std::size_t j = 0; j < rows; ++j)
      numbers[k * rows + j] = number_of(sites[order[j]], static_cast<std::int64_t>(k));

  reference::Pairs pairs;
  std::vector<std::pair<std::int64_t, std::int32_t>> known;  // number and row, the last of equal numbers wins
  if (p.mode == ConvMode::submanifold) {
    pairs.outputs = sites;
    for (std::size_t i = 0; i < rows; ++i) {
      std::int64_t number = sites[i][0];
      for (int d = 0; d < dims; ++d)
        number = number * p.output_shape[d] + sites[i][static_cast<std::size_t>(d + 1)];
      known.emplace_back(number, static_cast<std::int32_t>(i));
    }
    std::sort(known.begin(), known.end());
  } else {
    IndicePairsParams outputs = p;
    outputs.spatial_shape = p.output_shape;
    std::vector<std::int64_t> all = numbers;
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (!all.empty() && all[0] < 0) all.erase(all.begin());
    for (std::int64_t number : all) {
      known.emplace_back(number, static_cast<std::int32_t>(pairs.outputs.size()));
      pairs.outputs.push_back(site_at(outputs, number));
    }
  }
  std::vector<std::int32_t> output_of(rows);
  for (std::size_t k = 0; k < volume; ++k) {
    for (std::size_t j = 0; j < rows; ++j) {
      const std::int64_t number = numbers[k * rows + j];
      const auto behind = std::upper_bound(known.begin(), known.end(), std::pair(number, 2147483647));
      const bool found = number >= 0 && behind != known.begin() && (behind - 1)->first == number;
      output_of[order[j]] = found ? (behind - 1)->second : -1;
    }
    auto& in = pairs.in.emplace_back();
    auto& out = pairs.out.emplace_back();
    for (std::size_t i = 0; i < rows; ++i) {
      if (output_of[i] < 0) continue;
      in.push_back(static_cast<std::int32_t>(i));
      out.push_back(output_of[i]);
    }
  }
  return pairs;
}

template <class Index>
std::vector<Index> flattened(const Sites& sites) {
  std::vector<Index> indices;
  for (const reference::Site& site : sites)
    for (std::int64_t value : site) indices.push_back(static_cast<Index>(value));
  return indices;
}

// The three results of a call in guarded memory, painted with values that no call writes.
template <class Index>
struct Results {
  std::int64_t room, columns, volume, rows;
  Guarded<Index> out;
  Guarded<std::int32_t> pairs, num;

  Results(std::int64_t out_rows, int dims, std::int64_t kernel_volume, std::int64_t sites,
          std::int64_t offset = 0)
      : room(out_rows),
        columns(dims + 1),
        volume(kernel_volume),
        rows(sites),
        out(room * columns, offset),
        pairs(volume * 2 * rows, offset),
        num(volume, offset) {
    reset();
  }
  void reset() {
    std::fill_n(out.data(), out.size(), Index{-77});
    std::fill_n(pairs.data(), pairs.size(), -77);
    std::fill_n(num.data(), num.size(), -77);
  }
  bool untouched() {
    const auto same = [](auto& values) {
      return std::all_of(values.data(), values.data() + values.size(), [](auto v) { return v == -77; });
    };
    return same(out) && same(pairs) && same(num);
  }
  void take(const reference::Pairs& expected) {
    std::fill_n(out.data(), out.size(), Index{-1});
    std::fill_n(pairs.data(), pairs.size(), -1);
    const auto indices = flattened<Index>(expected.outputs);
    std::copy(indices.begin(), indices.end(), out.data());
    for (std::int64_t k = 0; k < volume; ++k) {
      const auto &in = expected.in[static_cast<std::size_t>(k)],
                 &to = expected.out[static_cast<std::size_t>(k)];
      std::copy(in.begin(), in.end(), pairs.data() + 2 * k * rows);
      std::copy(to.begin(), to.end(), pairs.data() + (2 * k + 1) * rows);
      num[k] = static_cast<std::int32_t>(in.size());
    }
  }
  bool same(Results& other) {
    return out.same_bytes(other.out) && pairs.same_bytes(other.pairs) && num.same_bytes(other.num);
  }
  Tensor out_view() { return view(out.data(), {room, columns}); }
  Tensor pairs_view() { return view(pairs.data(), {volume, 2, rows}); }
  Tensor num_view() { return view(num.data(), {volume}); }
};

struct On {
  std::vector<Isa> isas = supported_isas();
  std::vector<int> threads = {1};
  std::int64_t spare = 0;   // additional rows of out_indices
  std::int64_t offset = 0;  // elements between a cache line and the start of the results
};

inline testing::Message describe(const IndicePairsParams& p, std::size_t rows) {
  testing::Message text;
  text << "mode " << static_cast<int>(p.mode) << " rows " << rows;
  const std::pair<const char*, const Dims*> all[] = {
      {"space", &p.spatial_shape}, {"kernel", &p.kernel_size}, {"stride", &p.stride},
      {"padding", &p.padding},     {"dilation", &p.dilation},  {"output", &p.output_shape}};
  for (const auto& [name, dims] : all) {
    text << ", " << name;
    for (int d = 0; d < dims->count(); ++d) text << " " << (*dims)[d];
  }
  return text;
}

// Calls with `given`, in one step and in two, and compares with the expected results.
template <class Index>
void compare(const Sites& sites, const IndicePairsParams& given, const reference::Pairs& expected,
             const On& on = {}) {
  const IndicePairsParams p = completed(given);
  SCOPED_TRACE(describe(p, sites.size()));
  const auto rows = static_cast<std::int64_t>(sites.size()),
             active = static_cast<std::int64_t>(expected.outputs.size());
  const int dims = p.kernel_size.count();
  const std::int64_t volume = volume_of(p.kernel_size);
  const std::vector<Index> indices = flattened<Index>(sites);
  Results<Index> actual(active + on.spare, dims, volume, rows, on.offset);
  Results<Index> wanted(active + on.spare, dims, volume, rows);
  wanted.take(expected);
  const ConstTensor input = view(indices.data(), {rows, dims + 1});
  for (Isa isa : on.isas) {
    for (int threads : on.threads) {
      SCOPED_TRACE(testing::Message() << name_of(isa) << " threads " << threads << " offset " << on.offset);
      Context context({.threads = threads, .isa = isa});
      actual.reset();
      const IndicePairs index(input, given, context);
      ASSERT_EQ(index.num_act_out(), active);
      ASSERT_EQ(index.kernel_volume(), volume);
      index.write(actual.out_view(), actual.pairs_view(), actual.num_view());
      ASSERT_TRUE(actual.same(wanted)) << "in two steps";
      actual.reset();
      ASSERT_EQ(
          get_indice_pairs(input, actual.out_view(), actual.pairs_view(), actual.num_view(), given, context),
          active);
      ASSERT_TRUE(actual.same(wanted)) << "in one step";
    }
  }
}

// Compares with the plain definition.
template <class Index>
void compare(const Sites& sites, const IndicePairsParams& given, const On& on = {}) {
  compare<Index>(sites, given, reference::indice_pairs(sites, completed(given)), on);
}

}  // namespace turnout::test
