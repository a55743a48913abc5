// Counts of many ranks and experts, and what re-routing must make of them: a stable sort of the rows by
// expert. The definition in reference.h takes a time quadratic in the number of counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "sanitizer.h"

namespace turnout::test {

struct ManyCounts {
  using Ints = std::vector<std::int32_t>;

  std::int64_t ranks, experts, rows;
  Ints counts;
  Ints gather, scatter;  // permute_token_idx of both types
  Ints number, running;  // expert_token_num of both types

  // A third of the rows have the same rank and expert; the others are spread over all of them.
  ManyCounts(std::int64_t ranks_, std::int64_t experts_, std::int64_t rows_)
      : ranks(ranks_), experts(experts_), rows(rows_), counts(static_cast<std::size_t>(ranks * experts)) {
    for (std::int64_t row = 0; row < rows; ++row) ++counts[at(row % 3 == 0 ? 1 : row * 7919) % counts.size()];
    number.resize(at(experts));
    Ints expert_of;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t expert = i % at(experts);
      number[expert] += counts[i];
      expert_of.insert(expert_of.end(), at(counts[i]), static_cast<std::int32_t>(expert));
    }
    gather.resize(at(rows));
    std::iota(gather.begin(), gather.end(), 0);
    std::stable_sort(gather.begin(), gather.end(),
                     [&](std::int32_t a, std::int32_t b) { return expert_of[at(a)] < expert_of[at(b)]; });
    scatter.resize(gather.size());
    for (std::size_t i = 0; i < gather.size(); ++i) scatter[at(gather[i])] = static_cast<std::int32_t>(i);
    running.resize(number.size());
    std::partial_sum(number.begin(), number.end(), running.begin());
  }

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
};

// A million counts, in a square, and of one rank or one expert.
inline std::vector<ManyCounts> all_many_counts() {
  const std::int64_t side = kReducedShapes ? 100 : 1'000, rows = 20'000;
  return {{side, side, rows}, {side * side, 1, rows}, {1, side * side, rows}};
}

}  // namespace turnout::test
