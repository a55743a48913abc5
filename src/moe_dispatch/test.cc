// Compares moe_dispatch bit by bit with its definition: shapes x dtypes x ISAs x threads x routing patterns.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/dtypes.h"
#include "guarded.h"
#include "isas.h"
#include "last_log_line.h"
#include "moe_dispatch/reference.h"
#include "moe_dispatch/routing_cases.h"
#include "sanitizer.h"
#include "simd/copy.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

template <class T, class Gate, class Index, class Location>
void compare(const Shape& s, Routing routing, std::int64_t offset, const std::vector<Isa>& on,
             std::initializer_list<int> thread_counts, unsigned seed) {
  SCOPED_TRACE(testing::Message() << "choices " << s.choices << " samples " << s.samples << " hidden "
                                  << s.hidden << " experts " << s.num_experts << " capacity " << s.capacity
                                  << " routing " << static_cast<int>(routing) << " offset " << offset << " "
                                  << name_of(dtype_of<T>) << " gates " << name_of(dtype_of<Gate>) << " seed "
                                  << seed);
  std::mt19937 random(seed);
  const std::int64_t rows = s.num_experts * s.capacity;
  Guarded<Gate> gates(s.choices * s.samples, offset);
  Guarded<Index> indices(s.choices * s.samples, offset);
  Guarded<Location> locations(s.choices * s.samples, offset);
  Guarded<T> input(s.samples * s.hidden, offset), before(rows * s.hidden, offset);
  Guarded<T> expected(rows * s.hidden, offset), actual(rows * s.hidden, offset);
  fill_values(gates, random);
  fill_values(input, random);
  fill_values(before, random);
  route(routing, s, random, indices, locations);
  for (Fill fill : {Fill::keep, Fill::zero}) {
    const MoeDispatchParams params{.capacity = s.capacity, .num_experts = s.num_experts, .fill = fill};
    expected.copy_from(before);
    reference::moe_dispatch_forward(gates.data(), indices.data(), locations.data(), input.data(),
                                    expected.data(), s.choices, s.samples, s.hidden, params);
    for (Isa isa : on) {
      for (int threads : thread_counts) {
        SCOPED_TRACE(testing::Message()
                     << name_of(isa) << " threads " << threads << " fill " << static_cast<int>(fill));
        Context context({.threads = threads, .isa = isa});
        actual.copy_from(before);
        const bool flat = s.choices == 1;
        const auto routing_view = [&](auto& g) {
          return flat ? view(g.data(), {s.samples}) : view(g.data(), {s.choices, s.samples});
        };
        moe_dispatch_forward(routing_view(gates), routing_view(indices), routing_view(locations),
                             view(input.data(), {s.samples, s.hidden}), view(actual.data(), {rows, s.hidden}),
                             params, context);
        std::int64_t differing = 0;
        for (std::int64_t x = 0; x < expected.size(); ++x) differing += !same(expected[x], actual[x]);
        ASSERT_EQ(differing, 0);
      }
    }
  }
}

template <class T, class Gate>
void compare_small() {
  constexpr std::int64_t kHidden[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257};
  unsigned seed = 1;
  for (std::int64_t hidden : kHidden) {
    for (Routing routing : kRoutings) {
      const std::int64_t offset = static_cast<std::int64_t>(seed % 5);
      ++seed;
      compare<T, Gate, std::int32_t, std::int32_t>({1, 13, hidden, 2, 8}, routing, offset, supported_isas(),
                                                   {1}, seed);
      compare<T, Gate, std::int64_t, std::int32_t>({2, 9, hidden, 3, 5}, routing, offset, supported_isas(),
                                                   {1}, seed);
    }
  }
}

TEST(MoeDispatchForward, EqualsTheDefinitionF32) { compare_small<float, float>(); }
TEST(MoeDispatchForward, EqualsTheDefinitionF64) {
  compare_small<double, double>();
  compare_small<double, float>();
}
TEST(MoeDispatchForward, EqualsTheDefinitionF16) {
  compare_small<f16, f16>();
  compare_small<f16, float>();
}
TEST(MoeDispatchForward, EqualsTheDefinitionBf16) {
  compare_small<bf16, bf16>();
  compare_small<bf16, float>();
}

TEST(MoeDispatchForward, IndexTypes) {
  const Shape s{3, 11, 20, 4, 6};
  for (Routing routing : kRoutings) {
    compare<float, float, std::int32_t, std::int64_t>(s, routing, 0, supported_isas(), {1}, 3);
    compare<float, float, std::int64_t, std::int64_t>(s, routing, 1, supported_isas(), {1}, 4);
  }
}

// Large enough for several threads and for streamed stores; rows do not end at cache-line boundaries.
TEST(MoeDispatchForward, SameBitsForEveryThreadCount) {
  for (Routing routing : kRoutings) {
    compare<float, float, std::int32_t, std::int32_t>({1, 700, 1031, 4, 200}, routing, 1, supported_isas(),
                                                      {1, 2, 5}, 11);
    compare<bf16, float, std::int64_t, std::int32_t>({2, 900, 1001, 2, 700}, routing, 3, supported_isas(),
                                                     {2}, 12);
  }
  compare<double, double, std::int32_t, std::int32_t>({1, 500, 513, 3, 200}, Routing::random, 1,
                                                      supported_isas(), {2, 5}, 13);
  compare<f16, f16, std::int32_t, std::int32_t>({1, 2000, 1024, 2, 1000}, Routing::distinct, 0,
                                                supported_isas(), {2}, 14);
}

TEST(MoeDispatchForward, VeryLongRowsAreCutIntoPieces) {
  compare<float, float, std::int32_t, std::int32_t>({1, 5, 300001, 1, 4}, Routing::random, 1,
                                                    supported_isas(), {1, 2, 5}, 21);
}

TEST(MoeDispatchForward, FewTokensInAVeryLargeBuffer) {
  compare<float, float, std::int32_t, std::int32_t>({1, 5, 3, 100, 20000}, Routing::random, 0,
                                                    supported_isas(), {2}, 22);
}

// Streaming depends on the bytes written, not read: if only the last token is kept, stores are not streamed.
TEST(MoeDispatchForward, LargeResultsAreStreamed) {
  constexpr std::int64_t kHidden = 1024;
  const std::int64_t tokens = core::stream_limit() / (kHidden * std::int64_t{sizeof(float)});
  const std::vector<float> gates(static_cast<std::size_t>(tokens), 1);
  const std::vector<float> input(static_cast<std::size_t>(tokens * kHidden), 2);
  std::vector<std::int32_t> indices(gates.size()), locations(gates.size());
  std::vector<float> dispatch(input.size());
  const LastLogLine line;
  const auto run = [&] {
    moe_dispatch_forward(view(gates.data(), {tokens}), view(indices.data(), {tokens}),
                         view(locations.data(), {tokens}), view(input.data(), {tokens, kHidden}),
                         view(dispatch.data(), {tokens, kHidden}), {.capacity = 1, .num_experts = tokens});
  };
  run();
  EXPECT_TRUE(line.has("last writers")) << line.text();
  EXPECT_FALSE(line.has("streamed")) << line.text();
  std::iota(indices.begin(), indices.end(), 0);
  run();
  EXPECT_TRUE(line.has("last writers, streamed")) << line.text();
  indices[0] = 1;
  run();
  EXPECT_FALSE(line.has("streamed")) << line.text();
}

TEST(MoeDispatchForward, NamedScales) {
  const std::vector<Isa> best = {Context().isa()};
  constexpr std::int64_t kReduction = kReducedShapes ? 16 : 1;
  const Shape shapes[] = {{1, 4608 / kReduction, 1024, 2, 2880 / kReduction},
                          {1, 31, 10240, 2, 2880 / kReduction},
                          {1, 33, 512, 2, 10},
                          {1, 8, 128, 2, 256},
                          {1, 1, 5, 1, 1}};
  for (const Shape& s : shapes) {
    compare<float, float, std::int32_t, std::int32_t>(s, Routing::random, 0, best, {2}, 31);
    compare<float, float, std::int32_t, std::int32_t>(s, Routing::all_equal, 0, best, {2}, 32);
  }
  if (kReducedShapes) return;
  compare<float, float, std::int32_t, std::int32_t>({1, 18432, 512, 2, 11520}, Routing::distinct, 0, best,
                                                    {1, 2}, 33);
  compare<float, float, std::int32_t, std::int32_t>({1, 18432, 512, 2, 11520}, Routing::random, 0, best, {2},
                                                    34);
}

// If tensors have no elements, nothing is read and pointers may be null.
TEST(MoeDispatchForward, ZeroCases) {
  Context context;
  const auto call = [&](const Shape& s, void* dispatch, const void* rest, Fill fill) {
    moe_dispatch_forward(
        ConstTensor(rest, DType::f32, {s.samples}), ConstTensor(rest, DType::i32, {s.samples}),
        ConstTensor(rest, DType::i32, {s.samples}), ConstTensor(rest, DType::f32, {s.samples, s.hidden}),
        Tensor(dispatch, DType::f32, {s.num_experts * s.capacity, s.hidden}),
        {.capacity = s.capacity, .num_experts = s.num_experts, .fill = fill}, context);
  };
  std::vector<float> zeros(8192), out(16, 7.0f);
  EXPECT_NO_THROW(call({1, 8192, 0, 2, 8192}, nullptr, zeros.data(), Fill::keep));
  EXPECT_NO_THROW(call({1, 8192, 0, 2, 8192}, nullptr, nullptr, Fill::keep));
  EXPECT_NO_THROW(call({1, 8192, 2048, 2, 0}, nullptr, nullptr, Fill::zero));
  EXPECT_NO_THROW(call({1, 0, 0, 0, 0}, nullptr, nullptr, Fill::zero));
  // No tokens; the rows are kept or set to zero.
  call({1, 0, 8, 2, 1}, out.data(), nullptr, Fill::keep);
  EXPECT_EQ(out, std::vector<float>(16, 7.0f));
  call({1, 0, 8, 2, 1}, out.data(), nullptr, Fill::zero);
  EXPECT_EQ(out, std::vector<float>(16, 0.0f));
}

TEST(MoeDispatchForward, WorkedExample) {
  // Tokens 0 and 2 go to expert 1, slot 0: token 2 wins. Token 1 is beyond the capacity. No token goes to
  // expert 0.
  const float gates[] = {10, 20, 30}, input[] = {1, 2, 3, 4, 5, 6};
  const std::int32_t indices[] = {1, 1, 1}, locations[] = {0, 2, 0};
  std::vector<float> dispatch(8, -1);
  moe_dispatch_forward(view(gates, {3}), view(indices, {3}), view(locations, {3}), view(input, {3, 2}),
                       view(dispatch.data(), {4, 2}), {.capacity = 2, .num_experts = 2});
  EXPECT_EQ(dispatch, (std::vector<float>{-1, -1, -1, -1, 150, 180, -1, -1}));
  moe_dispatch_forward(view(gates, {3}), view(indices, {3}), view(locations, {3}), view(input, {3, 2}),
                       view(dispatch.data(), {4, 2}), {.capacity = 2, .num_experts = 2, .fill = Fill::zero});
  EXPECT_EQ(dispatch, (std::vector<float>{0, 0, 0, 0, 150, 180, 0, 0}));
}

TEST(MoeDispatchForward, ReferenceOfTheWorkedExample) {
  const float gates[] = {10, 20, 30}, input[] = {1, 2, 3, 4, 5, 6};
  const std::int32_t indices[] = {1, 1, 1}, locations[] = {0, 2, 0};
  std::vector<float> dispatch(8, -1);
  reference::moe_dispatch_forward(gates, indices, locations, input, dispatch.data(), 1, 3, 2,
                                  {.capacity = 2, .num_experts = 2});
  EXPECT_EQ(dispatch, (std::vector<float>{-1, -1, -1, -1, 150, 180, -1, -1}));
}

// dispatch may overlap input, wholly or in part; the result is as if input had been copied first.
TEST(MoeDispatchForward, InPlace) {
  for (const std::int64_t hidden : {3, 1000}) {  // in order, and by last writer on several threads
    constexpr std::int64_t kSamples = 600, kRows = 700;
    std::mt19937 random(7);
    std::vector<float> gates(2 * kSamples);
    std::vector<std::int32_t> indices(2 * kSamples), locations(2 * kSamples);
    for (float& gate : gates) gate = static_cast<float>(random() % 100) / 10;
    for (std::int32_t& index : indices) index = static_cast<std::int32_t>(random() % 8) - 1;
    for (std::int32_t& location : locations) location = static_cast<std::int32_t>(random() % 110);
    const auto row = static_cast<std::size_t>(hidden);
    std::vector<float> memory(row * (kSamples + kRows) + 8);
    for (float& x : memory) x = static_cast<float>(random() % 1000);
    // Offsets of input and dispatch: equal, one inside the other, one element in common, disjoint.
    const std::size_t places[][2] = {
        {0, 0}, {0, 5}, {5, 0}, {row, 0}, {0, kSamples * row - 1}, {kRows * row - 1, 0}, {0, kSamples * row}};
    for (const auto& [from, to] : places) {
      for (const Fill fill : {Fill::keep, Fill::zero}) {
        const MoeDispatchParams params{.capacity = 100, .num_experts = 7, .fill = fill};
        std::vector<float> expected = memory;
        reference::moe_dispatch_forward(gates.data(), indices.data(), locations.data(), memory.data() + from,
                                        expected.data() + to, 2, kSamples, hidden, params);
        for (const int threads : {1, 3}) {
          Context context({.threads = threads});
          std::vector<float> actual = memory;
          moe_dispatch_forward(view(gates.data(), {2, kSamples}), view(indices.data(), {2, kSamples}),
                               view(locations.data(), {2, kSamples}),
                               view(actual.data() + from, {kSamples, hidden}),
                               view(actual.data() + to, {kRows, hidden}), params, context);
          EXPECT_TRUE(actual == expected) << "input at " << from << ", dispatch at " << to << ", " << threads
                                          << " threads, hidden " << hidden;
        }
      }
    }
  }
}

// Counts the calls of run().
class CountingExecutor : public Executor {
 public:
  int threads() const override { return 2; }
  void run(int, void (*work)(void*), void* argument) override {
    ++runs;
    work(argument);
  }
  int runs = 0;
};

TEST(MoeDispatchForward, SmallCallsStayOnTheCallersThread) {
  CountingExecutor executor;
  Context context({.executor = &executor});
  const auto call = [&](std::int64_t hidden, Fill fill) {
    const float gates[] = {1, 2};
    const std::int32_t indices[] = {0, 1}, locations[] = {0, 0};
    std::vector<float> input(static_cast<std::size_t>(2 * hidden)), dispatch(input.size());
    moe_dispatch_forward(view(gates, {2}), view(indices, {2}), view(locations, {2}),
                         view(input.data(), {2, hidden}), view(dispatch.data(), {2, hidden}),
                         {.capacity = 1, .num_experts = 2, .fill = fill}, context);
  };
  call(8, Fill::keep);
  call(8, Fill::zero);
  EXPECT_EQ(executor.runs, 0);
  call(1 << 20, Fill::zero);
  EXPECT_EQ(executor.runs, 1);
}

TEST(MoeDispatchForward, ZeroTimesInfinityIsNanAndMinusZeroStays) {
  const float gates[] = {0.0f, 1.0f}, input[] = {INFINITY, -0.0f};
  const std::int32_t indices[] = {0, 0}, locations[] = {0, 1};
  float dispatch[2] = {};
  moe_dispatch_forward(view(gates, {2}), view(indices, {2}), view(locations, {2}), view(input, {2, 1}),
                       view(dispatch, {2, 1}), {.capacity = 2, .num_experts = 1});
  EXPECT_TRUE(std::isnan(dispatch[0]));
  EXPECT_TRUE(std::signbit(dispatch[1]));
}

}  // namespace
}  // namespace turnout::test
