// moe_re_routing of as many ranks and experts as memory allows: neither number has a limit.
#include "moe_re_routing/many_counts_case.h"

#include <gtest/gtest.h>

#include "turnout/turnout.h"

namespace turnout::test {
namespace {

using Ints = ManyCounts::Ints;

TEST(MoeReRouting, ManyRanksAndExperts) {
  for (const ManyCounts& many : all_many_counts()) {
    SCOPED_TRACE(testing::Message() << many.ranks << " ranks, " << many.experts << " experts");
    const std::vector<std::int64_t> counts(many.counts.begin(), many.counts.end());
    Ints tokens(many.gather.size());
    std::iota(tokens.begin(), tokens.end(), 0);
    for (int threads : {1, 2, 5}) {
      Context context({.threads = threads});
      for (TokenIdx idx_type : {TokenIdx::gather, TokenIdx::scatter}) {
        const bool gathers = idx_type == TokenIdx::gather;
        Ints permuted(tokens.size()), idx(tokens.size());
        std::vector<std::int64_t> number(many.number.size());
        moe_re_routing(view(tokens.data(), {many.rows, 1}), view(counts.data(), {many.ranks, many.experts}),
                       nullptr, view(permuted.data(), {many.rows, 1}), nullptr, view(idx.data(), {many.rows}),
                       view(number.data(), {many.experts}),
                       {gathers ? ExpertTokenNum::count : ExpertTokenNum::cumsum, idx_type}, context);
        EXPECT_EQ(permuted, many.gather);
        EXPECT_EQ(idx, gathers ? many.gather : many.scatter);
        EXPECT_EQ(Ints(number.begin(), number.end()), gathers ? many.number : many.running);
      }
    }
  }
}

}  // namespace
}  // namespace turnout::test
