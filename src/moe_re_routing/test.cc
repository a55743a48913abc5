// Compares moe_re_routing and its inverse with the definitions: count patterns x row widths x ISA x threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "guarded.h"
#include "isas.h"
#include "moe_re_routing/moe_re_routing.h"
#include "moe_re_routing/reference.h"
#include "runtime/parallel.h"
#include "sanitizer.h"
#include "simd/copy.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

enum class Counts { even, random, with_zeros, empty_rank, empty_expert, one_run, last_run, single_tokens };
constexpr Counts kCounts[] = {Counts::even,       Counts::random,       Counts::with_zeros,
                              Counts::empty_rank, Counts::empty_expert, Counts::one_run,
                              Counts::last_run,   Counts::single_tokens};

struct Shape {
  std::int64_t rows, hidden, ranks, experts;
  std::int64_t scale_width = 0;  // 0: no scales; -1: scales of one dimension
};

std::vector<std::int64_t> make_counts(Counts pattern, const Shape& s, std::mt19937& random) {
  std::vector<std::int64_t> c(static_cast<std::size_t>(s.ranks * s.experts), 0);
  const auto allowed = [&](std::size_t i) {
    const auto r = static_cast<std::int64_t>(i) / s.experts, e = static_cast<std::int64_t>(i) % s.experts;
    if (pattern == Counts::with_zeros) return (r + e) % 2 == 0 || c.size() == 1;
    if (pattern == Counts::empty_rank) return r != s.ranks / 2 || s.ranks == 1;
    if (pattern == Counts::empty_expert) return e != s.experts / 2 || s.experts == 1;
    if (pattern == Counts::one_run) return i == 0;
    if (pattern == Counts::last_run) return i + 1 == c.size();
    return true;
  };
  for (std::int64_t left = s.rows; left > 0;) {
    const std::size_t i = pattern == Counts::even || pattern == Counts::single_tokens
                              ? static_cast<std::size_t>(s.rows - left) % c.size()
                              : random() % c.size();
    if (!allowed(i)) continue;
    const std::int64_t take = pattern == Counts::random ? std::min<std::int64_t>(left, 1 + random() % 5) : 1;
    c[i] += take;
    left -= take;
  }
  return c;
}

template <class T>
void fill_bytes(Guarded<T>& values, std::mt19937& random) {
  auto* bytes = reinterpret_cast<unsigned char*>(values.data());
  const auto start = static_cast<std::uint32_t>(random());
  for (std::size_t i = 0; i < values.bytes(); ++i)
    bytes[i] = static_cast<unsigned char>((start + i) * 2654435761u >> 24);
}

template <class T, class Count>
void compare(const Shape& s, Counts pattern, std::int64_t offset, const std::vector<Isa>& on,
             std::initializer_list<int> thread_counts, unsigned seed) {
  SCOPED_TRACE(testing::Message() << "rows " << s.rows << " hidden " << s.hidden << " ranks " << s.ranks
                                  << " experts " << s.experts << " scale_width " << s.scale_width
                                  << " counts " << static_cast<int>(pattern) << " offset " << offset
                                  << " seed " << seed);
  std::mt19937 random(seed);
  const std::vector<std::int64_t> numbers = make_counts(pattern, s, random);
  const std::vector<Count> counts(numbers.begin(), numbers.end());
  const std::int64_t width = std::abs(s.scale_width);
  Guarded<T> tokens(s.rows * s.hidden, offset), permuted(s.rows * s.hidden, offset),
      expected(s.rows * s.hidden);
  Guarded<T> back(s.rows * s.hidden, offset);
  Guarded<float> scales(s.rows * width, offset), permuted_scales(s.rows * width),
      expected_scales(s.rows * width);
  Guarded<std::int32_t> idx(s.rows), expected_idx(s.rows);
  Guarded<Count> num(s.experts), expected_num(s.experts);
  fill_bytes(tokens, random);
  fill_bytes(scales, random);
  for (TokenIdx idx_type : {TokenIdx::gather, TokenIdx::scatter}) {
    const MoeReRoutingParams params{seed % 2 ? ExpertTokenNum::count : ExpertTokenNum::cumsum, idx_type};
    reference::moe_re_routing(
        reinterpret_cast<const char*>(tokens.data()), s.hidden * std::int64_t{sizeof(T)}, counts.data(),
        s.ranks, s.experts, reinterpret_cast<const char*>(scales.data()), width * 4,
        reinterpret_cast<char*>(expected.data()), reinterpret_cast<char*>(expected_scales.data()),
        expected_idx.data(), expected_num.data(), params);
    for (Isa isa : on) {
      for (int threads : thread_counts) {
        SCOPED_TRACE(testing::Message()
                     << name_of(isa) << " threads " << threads << " idx_type " << static_cast<int>(idx_type));
        Context context({.threads = threads, .isa = isa});
        const auto scale_view = [&](float* data) {
          return s.scale_width < 0 ? view(data, {s.rows}) : view(data, {s.rows, width});
        };
        const ConstTensor scales_in = scale_view(scales.data());
        const Tensor scales_out = scale_view(permuted_scales.data());
        const bool scaled = s.scale_width != 0;
        moe_re_routing(view(tokens.data(), {s.rows, s.hidden}), view(counts.data(), {s.ranks, s.experts}),
                       scaled ? scales_in : nullptr, view(permuted.data(), {s.rows, s.hidden}),
                       scaled ? scales_out : nullptr, view(idx.data(), {s.rows}),
                       view(num.data(), {s.experts}), params, context);
        ASSERT_TRUE(permuted.same_bytes(expected));
        ASSERT_TRUE(permuted_scales.same_bytes(expected_scales));
        ASSERT_TRUE(idx.same_bytes(expected_idx));
        ASSERT_TRUE(num.same_bytes(expected_num));
        fill_bytes(back, random);
        moe_re_routing_inverse(view(permuted.data(), {s.rows, s.hidden}), view(idx.data(), {s.rows}),
                               view(back.data(), {s.rows, s.hidden}), idx_type, context);
        ASSERT_TRUE(back.same_bytes(tokens));
      }
    }
  }
}

TEST(MoeReRouting, EqualsTheDefinition) {
  unsigned seed = 1;
  for (std::int64_t hidden : {1, 3, 16, 64, 129}) {
    for (Counts pattern : kCounts) {
      ++seed;
      const std::int64_t offset = seed % 4;
      compare<std::int8_t, std::int32_t>({23, hidden, 3, 4, 3}, pattern, offset, supported_isas(), {1}, seed);
      compare<bf16, std::int64_t>({17, hidden, 2, 5, -1}, pattern, offset, supported_isas(), {1}, seed);
      compare<float, std::int32_t>({40, hidden, 7, 2, 0}, pattern, offset, supported_isas(), {1}, seed);
      compare<double, std::int64_t>({9, hidden, 1, 3, 1}, pattern, offset, supported_isas(), {1}, seed);
      compare<f16, std::int32_t>({9, hidden, 4, 1, 2}, pattern, offset, supported_isas(), {1}, seed);
    }
  }
}

// Enough bytes for several threads and streamed stores; rows do or do not end at cache-line boundaries.
TEST(MoeReRouting, SameBitsForEveryThreadCount) {
  unsigned seed = 100;
  for (Counts pattern : kCounts) {
    ++seed;
    compare<std::int8_t, std::int32_t>({1200, 2049, 8, 4, -1}, pattern, 1, supported_isas(), {1, 2, 5}, seed);
    compare<bf16, std::int64_t>({600, 2048, 4, 8, 3}, pattern, 0, supported_isas(), {2, 5}, seed);
  }
}

TEST(MoeReRouting, NamedScales) {
  const std::vector<Isa> best = {Context().isa()};
  unsigned seed = 200;
  for (Counts pattern : {Counts::random, Counts::with_zeros, Counts::single_tokens}) {
    ++seed;
    compare<f16, std::int32_t>({256, 7168, 16, 16, -1}, pattern, 0, best, {2}, seed);
    compare<bf16, std::int64_t>({256, 7168, 16, 16, -1}, pattern, 0, best, {2}, seed);
    compare<std::int8_t, std::int64_t>({256, 7168, 16, 16, -1}, pattern, 0, best, {2}, seed);
    compare<f16, std::int32_t>({1, 7168, 16, 16, -1}, pattern, 0, best, {1}, seed);
    compare<std::int8_t, std::int32_t>({64, 7168, 16, 16, 0}, pattern, 0, best, {1}, seed);
    compare<std::int8_t, std::int32_t>({64, 7168, 4, 4, 0}, pattern, 0, best, {1}, seed);
    compare<std::int8_t, std::int32_t>({36, 385, 3, 4, 3}, pattern, 0, best, {1}, seed);
    compare<std::int8_t, std::int32_t>({3, 12, 2, 2, 0}, pattern, 0, best, {1}, seed);
    compare<f16, std::int32_t>({50, 128, 4, 4, 0}, pattern, 0, best, {1}, seed);
    for (std::int64_t hidden : {16383, 16384, 16385})
      compare<std::int8_t, std::int32_t>({30, hidden, 3, 3, -1}, pattern, 0, best, {2}, seed);
  }
  if (kReducedShapes) return;
  compare<std::int8_t, std::int32_t>({16384, 7168, 16, 16, -1}, Counts::random, 0, best, {2}, 300);
}

TEST(MoeReRouting, VeryLongRowsAreCutIntoRanges) {
  compare<std::int8_t, std::int32_t>({5, 3'000'001, 2, 2, -1}, Counts::random, 1, supported_isas(), {1, 2, 5},
                                     400);
}

TEST(MoeReRouting, ThreadsAndStreamsBeginAtTheirSizes) {
  using core::kParallelBytes, core::kRangeBytes, families::moe_re_routing::RowMove;
  const RowMove alone(1, kParallelBytes - 1, 0, 8), shared(1, kParallelBytes, 0, 8);
  EXPECT_EQ(alone.threads, 1);
  EXPECT_EQ(alone.grain, kParallelBytes - 1);
  EXPECT_EQ(shared.threads, 8);
  EXPECT_EQ(shared.grain, kRangeBytes);
  EXPECT_EQ(RowMove(kParallelBytes / 8, 4, 4, 8).threads, 8) << "the side bytes count too";
  EXPECT_FALSE(RowMove(1, core::stream_limit() - 1, 0, 8).stream);
  EXPECT_TRUE(RowMove(1, core::stream_limit(), 0, 8).stream);
}

TEST(MoeReRouting, WorkedExample) {
  const std::int32_t counts[] = {1, 2, 1, 2, 1, 0};
  const std::int16_t tokens[] = {0, 1, 2, 3, 4, 5, 6};
  std::int16_t permuted[7] = {};
  std::int32_t idx[7] = {}, num[3] = {};
  const auto call = [&](ExpertTokenNum num_type, TokenIdx idx_type) {
    moe_re_routing(view(tokens, {7, 1}), view(counts, {2, 3}), nullptr, view(permuted, {7, 1}), nullptr,
                   view(idx, {7}), view(num, {3}), {num_type, idx_type});
  };
  using Ints = std::vector<std::int32_t>;
  call(ExpertTokenNum::count, TokenIdx::gather);
  EXPECT_EQ(std::vector<std::int16_t>(permuted, permuted + 7),
            (std::vector<std::int16_t>{0, 4, 5, 1, 2, 6, 3}));
  EXPECT_EQ(Ints(idx, idx + 7), (Ints{0, 4, 5, 1, 2, 6, 3}));
  EXPECT_EQ(Ints(num, num + 3), (Ints{3, 3, 1}));
  call(ExpertTokenNum::cumsum, TokenIdx::scatter);
  EXPECT_EQ(std::vector<std::int16_t>(permuted, permuted + 7),
            (std::vector<std::int16_t>{0, 4, 5, 1, 2, 6, 3}));
  EXPECT_EQ(Ints(idx, idx + 7), (Ints{0, 3, 4, 6, 1, 2, 5}));
  EXPECT_EQ(Ints(num, num + 3), (Ints{3, 6, 7}));

  const std::int32_t small[] = {2, 1, 3, 2};
  std::int16_t eight[8] = {}, eight_out[8] = {};
  std::int32_t eight_idx[8] = {}, two[2] = {};
  moe_re_routing(view(eight, {8, 1}), view(small, {2, 2}), nullptr, view(eight_out, {8, 1}), nullptr,
                 view(eight_idx, {8}), view(two, {2}));
  EXPECT_EQ(Ints(eight_idx, eight_idx + 8), (Ints{0, 1, 3, 4, 5, 2, 6, 7}));
}

// With the counts transposed and the result as input, the order is restored.
TEST(MoeReRouting, TransposedCountsUndoIt) {
  std::mt19937 random(5);
  const std::int64_t ranks = 5, experts = 7, rows = 100;
  const auto counts = make_counts(Counts::random, {rows, 1, ranks, experts}, random);
  std::vector<std::int64_t> transposed(counts.size()), num(7), num_back(5);
  for (std::int64_t r = 0; r < ranks; ++r)
    for (std::int64_t e = 0; e < experts; ++e)
      transposed[static_cast<std::size_t>(e * ranks + r)] = counts[static_cast<std::size_t>(r * experts + e)];
  std::vector<std::int32_t> tokens(100), permuted(100), back(100), idx(100), idx_back(100);
  std::iota(tokens.begin(), tokens.end(), 0);
  moe_re_routing(view(tokens.data(), {rows, 1}), view(counts.data(), {ranks, experts}), nullptr,
                 view(permuted.data(), {rows, 1}), nullptr, view(idx.data(), {rows}),
                 view(num.data(), {experts}));
  moe_re_routing(view(permuted.data(), {rows, 1}), view(transposed.data(), {experts, ranks}), nullptr,
                 view(back.data(), {rows, 1}), nullptr, view(idx_back.data(), {rows}),
                 view(num_back.data(), {ranks}));
  EXPECT_EQ(back, tokens);
  EXPECT_EQ(std::accumulate(num.begin(), num.end(), std::int64_t{0}), rows);
}

TEST(MoeReRouting, NoRowsStillWritesExpertTokenNum) {
  const std::int64_t counts[] = {0, 0, 0, 0};
  std::int64_t num[2] = {7, 7};
  moe_re_routing(ConstTensor(nullptr, DType::f16, {0, 16}), view(counts, {2, 2}), nullptr,
                 Tensor(nullptr, DType::f16, {0, 16}), nullptr, Tensor(nullptr, DType::i32, {0}),
                 view(num, {2}));
  EXPECT_EQ(num[0], 0);
  EXPECT_EQ(num[1], 0);
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_param);
    return error.what();
  }
  return "";
}

TEST(MoeReRouting, BadCountsAreNamed) {
  const auto message = [](std::vector<std::int64_t> counts) {
    const std::int16_t tokens[7] = {};
    std::int16_t permuted[7] = {};
    std::int32_t idx[7] = {};
    std::int64_t num[3] = {5, 5, 5};
    const std::string text = message_of([&] {
      moe_re_routing(view(tokens, {7, 1}), view(counts.data(), {2, 3}), nullptr, view(permuted, {7, 1}),
                     nullptr, view(idx, {7}), view(num, {3}));
    });
    EXPECT_TRUE(text.empty() || num[0] + num[1] + num[2] == 15) << "a failing call wrote";
    return text;
  };
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(message({1, 2, 1, 2, 1, 0}), "");
  EXPECT_EQ(message({1, 2, 1, 2, -1, 2}),
            "moe_re_routing: expert_token_num_per_rank[1, 1] is -1, expected 0 or more");
  EXPECT_EQ(message({1, 2, 1, 2, 0, 0}),
            "moe_re_routing: expert_token_num_per_rank sums to 6, expected the 7 rows of tokens");
  EXPECT_EQ(
      message({1, 2, 1, 2, 1, 1}),
      "moe_re_routing: expert_token_num_per_rank[1, 2] is 1, expected at most 0, the remainder of the 7 rows "
      "of tokens");
  EXPECT_EQ(message({1, huge, huge, 3, 0, 0}),
            "moe_re_routing: expert_token_num_per_rank[0, 1] is 9223372036854775807, expected at most 6, the "
            "remainder of the 7 rows of tokens");
}

TEST(MoeReRouting, ScalesNeedAPlaceToGo) {
  const std::int16_t tokens[1] = {};
  const std::int32_t counts[1] = {1};
  const float scale[1] = {};
  std::int16_t permuted[1] = {3};
  std::int32_t idx[1] = {}, num[1] = {};
  const ConstTensor scales = view(scale, {1});
  EXPECT_EQ(message_of([&] {
              moe_re_routing(view(tokens, {1, 1}), view(counts, {1, 1}), scales, view(permuted, {1, 1}),
                             nullptr, view(idx, {1}), view(num, {1}));
            }),
            "moe_re_routing: permute_per_token_scales is missing, expected together with per_token_scales");
  // Without scales, their output is not written.
  double untouched[5] = {1, 2, 3, 4, 5};
  const Tensor unused = view(untouched, {5});
  moe_re_routing(view(tokens, {1, 1}), view(counts, {1, 1}), nullptr, view(permuted, {1, 1}), unused,
                 view(idx, {1}), view(num, {1}));
  EXPECT_EQ(untouched[0], 1);
  EXPECT_EQ(permuted[0], 0);
}

TEST(MoeReRoutingInverse, OnlyAPermutationIsAccepted) {
  const auto message = [](std::vector<std::int64_t> idx) {
    const std::int16_t permuted[4] = {1, 2, 3, 4};
    std::int16_t tokens[4] = {9, 9, 9, 9};
    const std::string text = message_of([&] {
      moe_re_routing_inverse(view(permuted, {4, 1}), view(idx.data(), {4}), view(tokens, {4, 1}));
    });
    EXPECT_TRUE(text.empty() || tokens[0] + tokens[1] + tokens[2] + tokens[3] == 36)
        << "a failing call wrote";
    return text;
  };
  EXPECT_EQ(message({3, 1, 0, 2}), "");
  EXPECT_EQ(message({3, 1, 4, 2}), "moe_re_routing_inverse: permute_token_idx[2] is 4, expected 0 .. 3");
  EXPECT_EQ(message({3, -1, 0, 2}), "moe_re_routing_inverse: permute_token_idx[1] is -1, expected 0 .. 3");
  EXPECT_EQ(message({3, 1, 0, 3}),
            "moe_re_routing_inverse: permute_token_idx[3] is 3, equal to [0], expected a permutation");
}

TEST(MoeReRoutingInverse, ArbitraryPermutations) {
  for (std::int64_t hidden : {1, 700}) {
    const std::int64_t rows = 3000;
    std::vector<std::int64_t> idx(3000);
    std::iota(idx.begin(), idx.end(), 0);
    std::mt19937 random(9);
    std::shuffle(idx.begin(), idx.begin() + 2000, random);
    std::vector<std::int16_t> x(static_cast<std::size_t>(rows * hidden)), expected(x.size()),
        actual(x.size());
    for (auto& v : x) v = static_cast<std::int16_t>(random());
    for (TokenIdx type : {TokenIdx::gather, TokenIdx::scatter}) {
      reference::moe_re_routing_inverse(reinterpret_cast<const char*>(x.data()), idx.data(),
                                        reinterpret_cast<char*>(expected.data()), rows, hidden * 2, type);
      for (int threads : {1, 2, 5}) {
        Context context({.threads = threads});
        moe_re_routing_inverse(view(x.data(), {rows, hidden}), view(idx.data(), {rows}),
                               view(actual.data(), {rows, hidden}), type, context);
        EXPECT_EQ(actual, expected);
      }
    }
  }
}

}  // namespace
}  // namespace turnout::test
