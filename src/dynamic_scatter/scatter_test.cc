// Tests reduction by an index: examples by hand, comparison with the definition, and rejected calls.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/index_case.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/test_cases.h"
#include "guarded.h"
#include "isas.h"
#include "last_log_line.h"
#include "simd/copy.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

using Floats = std::vector<float>;
using Longs = std::vector<std::int64_t>;
using core::kTileBytes;
namespace own = families::dynamic_scatter;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One channel.
struct Column {
  Floats src;
  Longs index;
  std::int64_t groups;

  ConstTensor src_view() const { return view(src.data(), {std::int64_t(src.size()), 1}); }
  ConstTensor index_view() const { return view(index.data(), {std::int64_t(index.size())}); }
  Floats sum() const {
    Floats out = sized<float>(groups, kOld);
    scatter_sum(src_view(), index_view(), view(out.data(), {groups, 1}));
    return out;
  }
  Floats mean() const {
    Floats out = sized<float>(groups, kOld);
    scatter_mean(src_view(), index_view(), view(out.data(), {groups, 1}));
    return out;
  }
  std::pair<Floats, Longs> max() const {
    Floats out = sized<float>(groups, kOld);
    Longs argmax = sized<std::int64_t>(groups, kOld);
    scatter_max(src_view(), index_view(), view(out.data(), {groups, 1}), view(argmax.data(), {groups, 1}));
    return {out, argmax};
  }
};

// Results of stream_limit() bytes are streamed in tiles of kTileBytes, which must hold at least one row.
TEST(ScatterStreams, RowsThatFitATile) {
  const std::int64_t rows_of_limit = core::stream_limit() / kTileBytes;
  const LastLogLine line;
  const auto run = [&](std::int64_t rows, std::int64_t channels) {
    const Floats src(static_cast<std::size_t>(rows * channels), 1);
    Longs index(static_cast<std::size_t>(rows));
    std::iota(index.begin(), index.end(), 0);
    Floats out(src.size());
    scatter_sum(view(src.data(), {rows, channels}), view(index.data(), {rows}),
                view(out.data(), {rows, channels}));
    EXPECT_EQ(out, src);
    const bool sum = line.has("streamed");
    scatter_sum_backward(view(src.data(), {rows, channels}), view(index.data(), {rows}),
                         view(out.data(), {rows, channels}));
    EXPECT_EQ(out, src);
    EXPECT_EQ(line.has("streamed"), sum) << line.text();
    return sum;
  };
  // Tiles of scatter_max also hold the rows of argmax, whose elements are twice as large.
  const auto run_max = [&](std::int64_t rows, std::int64_t channels) {
    const Floats src(static_cast<std::size_t>(rows * channels), 1);
    Longs index(static_cast<std::size_t>(rows)), argmax(src.size());
    std::iota(index.begin(), index.end(), 0);
    Floats out(src.size());
    scatter_max(view(src.data(), {rows, channels}), view(index.data(), {rows}),
                view(out.data(), {rows, channels}), view(argmax.data(), {rows, channels}));
    EXPECT_EQ(out, src);
    EXPECT_EQ(argmax.back(), rows - 1);
    return line.has("streamed");
  };
  constexpr std::int64_t kArgmaxChannels = kTileBytes / std::int64_t{sizeof(std::int64_t)};
  EXPECT_TRUE(run_max(rows_of_limit, kArgmaxChannels)) << line.text();
  EXPECT_FALSE(run_max(rows_of_limit - 1, kArgmaxChannels)) << line.text();
  EXPECT_FALSE(run_max(rows_of_limit, kArgmaxChannels + 1)) << line.text();
  constexpr std::int64_t kChannels = kTileBytes / std::int64_t{sizeof(float)};
  EXPECT_TRUE(run(rows_of_limit, kChannels)) << line.text();
  EXPECT_FALSE(run(rows_of_limit - 1, kChannels)) << line.text();
  EXPECT_FALSE(run(rows_of_limit, kChannels + 1)) << line.text();
}

// Rows are checked in chunks. Here each chunk ascends, and the next one starts at group 0 again.
TEST(ScatterOrder, AnIndexThatAscendsInEachChunk) {
  constexpr std::int64_t kChunk = families::dynamic_scatter::kPointGrain;
  Column column{{}, {}, kChunk};
  for (std::int64_t row = 0; row < 6 * kChunk; ++row) {
    column.src.push_back(static_cast<float>(row / kChunk + 1));
    column.index.push_back(row % kChunk);
  }
  EXPECT_EQ(column.sum(), Floats(kChunk, 1 + 2 + 3 + 4 + 5 + 6));
  column.index[0] = -1;
  try {
    column.sum();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "scatter_sum: index[0] is -1, expected 0 .. " + std::to_string(kChunk - 1));
  }
}

TEST(ScatterByHand, FiveRowsFourGroups) {
  const Column column{{1, 2, 3, 4, 6}, {3, 0, 3, 0, 3}, 5};
  EXPECT_EQ(scatter_dim_size(column.index_view()), 4);
  EXPECT_EQ(column.sum(), (Floats{6, 0, 0, 10, 0}));
  EXPECT_EQ(column.mean(), (Floats{3, 0, 0, 10.0f / 3, 0}));
  EXPECT_EQ(column.max(), (std::pair<Floats, Longs>{{4, 0, 0, 6, 0}, {3, 5, 5, 4, 5}}));
}

TEST(ScatterByHand, TheFirstOfEqualRowsIsTheMaximum) {
  EXPECT_EQ((Column{{2, 7, 7, 7}, {0, 0, 0, 1}, 2}.max()), (std::pair<Floats, Longs>{{7, 7}, {1, 3}}));
}

// As in torch_scatter, which starts at the lowest finite number.
TEST(ScatterByHand, NanMinusInfinityAndTheLeastNumberAreNeverTheMaximum) {
  const float least = std::numeric_limits<float>::lowest();
  EXPECT_EQ((Column{{kNan, -5, kNan, -kInfinity, least, kInfinity}, {0, 0, 1, 2, 3, 4}, 5}.max()),
            (std::pair<Floats, Longs>{{-5, 0, 0, 0, kInfinity}, {1, 6, 6, 6, 5}}));
}

TEST(ScatterByHand, Gradients) {
  const Longs index = {3, 0, 3, 0, 3}, argmax = {3, 5, 5, 4};
  const Floats grad = {6, 7, 8, 9};
  const auto run = [&](auto&& backward) {
    Floats grad_src(5, kOld);
    backward(view(grad.data(), {4, 1}), view(index.data(), {5}), view(grad_src.data(), {5, 1}));
    return grad_src;
  };
  EXPECT_EQ(run([](auto... t) { scatter_sum_backward(t...); }), (Floats{9, 6, 9, 6, 9}));
  EXPECT_EQ(run([](auto... t) { scatter_mean_backward(t...); }), (Floats{3, 3, 3, 3, 3}));
  EXPECT_EQ(run([&](const auto& g, const auto& i, const auto& to) {
              scatter_max_backward(g, i, view(argmax.data(), {4, 1}), to);
            }),
            (Floats{0, 0, 0, 6, 9}));
}

TEST(ScatterByHand, IntegersWrapAround) {
  const std::int32_t most = std::numeric_limits<std::int32_t>::max(), src[] = {most, 3, most - 2};
  const std::int32_t index[] = {0, 0, 1};
  std::int32_t out[2], argmax[2];
  scatter_sum(view(src, {3, 1}), view(index, {3}), view(out, {2, 1}));
  EXPECT_EQ(out[0], std::numeric_limits<std::int32_t>::min() + 2);
  EXPECT_EQ(out[1], most - 2);
  scatter_max(view(src, {3, 1}), view(index, {3}), view(out, {2, 1}), view(argmax, {2, 1}));
  EXPECT_EQ(out[0], most);
  EXPECT_EQ(argmax[1], 2);
}

TEST(ScatterByHand, NoRows) {
  const Column column{{}, {}, 2};
  EXPECT_EQ(scatter_dim_size(column.index_view()), 0);
  EXPECT_EQ(column.sum(), (Floats{0, 0}));
  EXPECT_EQ(column.mean(), (Floats{0, 0}));
  EXPECT_EQ(column.max(), (std::pair<Floats, Longs>{{0, 0}, {0, 0}}));
}

// -- against the definition --------------------------------------------------------------------------------

enum class Order { random, sorted, one_group, all_different, gaps };
constexpr Order kOrders[] = {Order::random, Order::sorted, Order::one_group, Order::all_different,
                             Order::gaps};

template <class T>
T any_element(std::uint64_t r) {
  if constexpr (std::is_integral_v<T>) {
    return r % 7 == 0 ? static_cast<T>(r) : static_cast<T>(r % 40) - 20;
  } else {
    return feature<T>(r);
  }
}

template <class T, class Index>
IndexCase<T, Index> make_index_case(Order order, std::int64_t rows, std::int64_t channels, unsigned seed) {
  const std::int64_t groups = order == Order::one_group       ? 1
                              : order == Order::all_different ? rows
                              : order == Order::gaps          ? 3 * rows + 5
                                                              : rows / 3 + 1;
  IndexCase<T, Index> c{rows, channels, groups};
  std::mt19937_64 random(seed);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto any = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(groups));
    c.index.push_back(static_cast<Index>(order == Order::all_different ? rows - 1 - i
                                         : order == Order::gaps        ? any / 7 * 7
                                                                       : any));
    for (std::int64_t j = 0; j < channels; ++j) c.src.push_back(any_element<T>(random()));
  }
  if (order == Order::sorted) std::sort(c.index.begin(), c.index.end());
  return c;
}

// Maxima or minima.
template <class T, class Index>
struct Expected {
  const char* name;
  own::Extreme which;
  void (*scatter)(const ConstTensor&, const ConstTensor&, const Tensor&, const Tensor&, const Caller&);
  std::vector<T> out;
  std::vector<Index> arg;
};
template <class T, class Index>
std::vector<Expected<T, Index>> expected_extremes(const IndexCase<T, Index>& c) {
  const auto maxima = c.expected_maxima(), minima = c.expected_minima();
  return {{"max", own::Extreme::maximum, &scatter_max, maxima.out, {maxima.arg.begin(), maxima.arg.end()}},
          {"min", own::Extreme::minimum, &scatter_min, minima.out, {minima.arg.begin(), minima.arg.end()}}};
}

template <class T, class Index>
void compare(const IndexCase<T, Index>& c, const How& how) {
  const auto sum = c.expected(Reduce::sum);
  const auto extremes = expected_extremes(c);
  const std::vector<Index>& argmax = extremes[0].arg;
  std::vector<T> grad;
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i < sum.size(); ++i) grad.push_back(any_element<T>(random()));
  std::vector<T> mean, grads_of[3];
  if constexpr (!std::is_integral_v<T>) {
    mean = c.expected(Reduce::mean);
    for (const Reduce type : kReductions)
      grads_of[static_cast<int>(type)] = c.expected_backward(grad, {argmax.begin(), argmax.end()}, type);
  }
  const std::int64_t elements = c.groups * c.channels;
  for (const Isa isa : how.isas) {
    for (const int threads : how.threads) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.channels << " -> " << c.groups << ", "
                                      << name_of(isa) << ", threads " << threads);
      Context context({.threads = threads, .isa = isa});
      Guarded<T> out(elements, how.offset), grad_src(c.rows * c.channels, how.offset);
      Guarded<Index> arg(elements, how.offset);
      const Tensor to = view(out.data(), {c.groups, c.channels});
      const auto clear = [&] {
        std::fill_n(out.data(), out.size(), any_element<T>(11));
        std::fill_n(grad_src.data(), grad_src.size(), any_element<T>(11));
      };
      clear();
      scatter_sum(c.src_view(), c.index_view(), to, context);
      expect_same(out, sum, "sum");
      for (const auto& expected : extremes) {
        SCOPED_TRACE(expected.name);
        clear();
        std::fill_n(arg.data(), arg.size(), Index{kOld});
        expected.scatter(c.src_view(), c.index_view(), to, view(arg.data(), {c.groups, c.channels}), context);
        expect_same(out, expected.out, "values");
        expect_same(arg, expected.arg, "rows");
        clear();
        expected.scatter(c.src_view(), c.index_view(), to, nullptr, context);
        expect_same(out, expected.out, "values without rows");
      }
      if constexpr (!std::is_integral_v<T>) {
        clear();
        scatter_mean(c.src_view(), c.index_view(), to, context);
        expect_same(out, mean, "mean");
        const ConstTensor given = view(grad.data(), {c.groups, c.channels});
        const Tensor grads = view(grad_src.data(), {c.rows, c.channels});
        scatter_sum_backward(given, c.index_view(), grads, context);
        expect_same(grad_src, grads_of[0], "gradient of sum");
        scatter_mean_backward(given, c.index_view(), grads, context);
        expect_same(grad_src, grads_of[1], "gradient of mean");
        scatter_max_backward(given, c.index_view(), view(argmax.data(), {c.groups, c.channels}), grads,
                             context);
        expect_same(grad_src, grads_of[2], "gradient of max");
      }
      EXPECT_LE(scatter_dim_size(c.index_view(), context), c.groups);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// The kernels that go group by group. The public functions call them only for results beyond the cache.
template <class T, class Index>
void compare_by_group(const IndexCase<T, Index>& c) {
  if (c.rows * c.channels == 0) return;
  const auto extremes = expected_extremes(c);
  const std::vector<std::int32_t> map(c.index.begin(), c.index.end());
  const own::MapGrouping grouping(c.rows, c.groups, 1);
  for (const Isa isa : supported_isas()) {
    Context context({.threads = 1, .isa = isa});
    core::Scratch scratch(context, grouping.scratch_bytes());
    const own::ExtremeTask values{grouping.run(context, map.data(), scratch), c.channels, c.src.data(), 0};
    own::ExtremeTask with_rows = values;
    with_rows.arg_bytes = sizeof(Index);
    const std::int64_t elements = c.groups * c.channels;
    Guarded<T> out(elements), only(elements);
    Guarded<Index> arg(elements);
    const DType dtype = c.src_view().dtype;
    const own::ExtremeKernels& kernels = own::extreme_kernels(isa);
    for (const auto& expected : extremes) {
      SCOPED_TRACE(expected.name);
      kernels.reduce(expected.which, dtype, true)(with_rows, 0, c.groups, out.data(), arg.data());
      kernels.reduce(expected.which, dtype, false)(values, 0, c.groups, only.data(), nullptr);
      expect_same(out, expected.out, "values by group");
      expect_same(arg, expected.arg, "rows by group");
      expect_same(only, expected.out, "values without rows by group");
    }
  }
}

template <class T, class Index>
void check_index_shapes(unsigned seed) {
  for (const std::int64_t rows : {1, 2, 7, 40, 222}) {
    for (const std::int64_t channels : {0, 1, 3, 17, 67}) {
      for (const Order order : kOrders) {
        ++seed;
        const auto c = make_index_case<T, Index>(order, rows, channels, seed);
        compare(c, {.offset = seed % 5});
        compare_by_group(c);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Scatter, F32I32) { check_index_shapes<float, std::int32_t>(0); }
TEST(Scatter, F32I64) { check_index_shapes<float, std::int64_t>(1); }
TEST(Scatter, F64I32) { check_index_shapes<double, std::int32_t>(2); }
TEST(Scatter, F64I64) { check_index_shapes<double, std::int64_t>(3); }
TEST(Scatter, F16I64) { check_index_shapes<f16, std::int64_t>(4); }
TEST(Scatter, BF16I32) { check_index_shapes<bf16, std::int32_t>(5); }
TEST(Scatter, I32I64) { check_index_shapes<std::int32_t, std::int64_t>(6); }
TEST(Scatter, I64I32) { check_index_shapes<std::int64_t, std::int32_t>(7); }

// Enough rows for several threads and chunks, results of 2 MB and more, and one group with all rows.
template <class T, class Index>
void check_many_groups(std::int64_t rows, std::int64_t channels, unsigned seed) {
  IndexCase<T, Index> c = make_index_case<T, Index>(Order::random, rows, channels, seed);
  c.groups = (1 << 20) + 3;
  std::mt19937_64 random(seed);
  for (Index& g : c.index) g = static_cast<Index>(random() % 97 * 10'811);
  if (rows > 0) c.index[0] = static_cast<Index>(c.groups - 1);
  compare(c, {.threads = {1, 3}});
}

TEST(Scatter, ManyGroups) {
  check_many_groups<float, std::int64_t>(200, 1, 1);
  check_many_groups<bf16, std::int32_t>(5000, 1, 2);
  check_many_groups<double, std::int32_t>(1, 2, 3);
  check_many_groups<std::int64_t, std::int64_t>(300, 1, 4);
  check_many_groups<float, std::int32_t>(0, 1, 5);
}

TEST(Scatter, ThreadsAndStreams) {
  const std::int64_t rows = 90'000;
  for (const Order order : {Order::random, Order::sorted, Order::gaps})
    compare(make_index_case<float, std::int64_t>(order, rows, 11, 1),
            {.isas = {supported_isas().back()}, .threads = {1, 3}, .offset = 3});
  compare(make_index_case<bf16, std::int32_t>(Order::one_group, rows, 40, 2),
          {.isas = {supported_isas().back()}, .threads = {1, 2}});
}

// -- refusals ----------------------------------------------------------------------------------------------

template <class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ScatterRefusals, AnIndexOutsideNamesItsPosition) {
  for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{4}, std::int64_t{1} << 32}) {
    const Column column{{1, 2, 3}, {0, 3, value}, 4};
    const std::string what = "index[2] is " + std::to_string(value) + ", expected 0 .. 3";
    Floats out(4, kOld), grad(3, kOld);
    Longs argmax(4, kOld);
    const Tensor to = view(out.data(), {4, 1}), to_src = view(grad.data(), {3, 1}),
                 to_argmax = view(argmax.data(), {4, 1});
    const ConstTensor src = column.src_view(), index = column.index_view();
    EXPECT_EQ(message([&] { scatter_sum(src, index, to); }), "scatter_sum: " + what);
    EXPECT_EQ(message([&] { scatter_mean(src, index, to); }), "scatter_mean: " + what);
    EXPECT_EQ(message([&] { scatter_max(src, index, to, to_argmax); }), "scatter_max: " + what);
    EXPECT_EQ(message([&] { scatter_sum_backward(to, index, to_src); }), "scatter_sum_backward: " + what);
    EXPECT_EQ(message([&] { scatter_mean_backward(to, index, to_src); }), "scatter_mean_backward: " + what);
    EXPECT_EQ(message([&] { scatter_max_backward(to, index, to_argmax, to_src); }),
              "scatter_max_backward: " + what);
    EXPECT_EQ(out, Floats(4, kOld));
    EXPECT_EQ(argmax, Longs(4, kOld));
    EXPECT_EQ(grad, Floats(3, kOld));
  }
}

TEST(ScatterRefusals, TheFirstOfSeveralInALateChunk) {
  Column column{Floats(100'000, 1), Longs(100'000, 0), 1};
  column.index[90'001] = -7;
  column.index[90'000] = 5;
  Context context({.threads = 3});
  Floats out(1, kOld);
  EXPECT_EQ(message([&] {
              scatter_sum(column.src_view(), column.index_view(), view(out.data(), {1, 1}), context);
            }),
            "scatter_sum: index[90000] is 5, expected 0 .. 0");
  EXPECT_EQ(message([&] { scatter_dim_size(column.index_view(), context); }),
            "scatter_dim_size: index[90001] is -7, expected 0 .. 2147483646");
  column.index[90'001] = 2147483647;
  EXPECT_EQ(message([&] { scatter_dim_size(column.index_view(), context); }),
            "scatter_dim_size: index[90001] is 2147483647, expected 0 .. 2147483646");
  column.index[90'001] = 2147483646;
  EXPECT_EQ(scatter_dim_size(column.index_view(), context), 2147483647);
}

TEST(ScatterRefusals, NoGroupsForAGradient) {
  const Column column{{1}, {0}, 0};
  Floats grad(1, kOld);
  EXPECT_EQ(message([&] {
              scatter_sum_backward(view(grad.data(), {0, 1}), column.index_view(), view(grad.data(), {1, 1}));
            }),
            "scatter_sum_backward: index[0] is 0, expected no elements, since dim_size is 0");
}

}  // namespace
}  // namespace turnout::test
