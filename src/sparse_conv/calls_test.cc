// Tests defaults, the number of output rows, the two steps, and error messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sparse_conv/test_cases.h"

namespace turnout::test {
namespace {

constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min(),
                       kMax = std::numeric_limits<std::int32_t>::max();

// The message of a rejected call, in one step and in two, which must write nothing; "" if it succeeds.
template <class Index>
std::string message_of(const std::vector<Index>& indices, int columns, const IndicePairsParams& p,
                       std::int64_t room = 64) {
  const std::int64_t rows = static_cast<std::int64_t>(indices.size()) / columns;
  Results<Index> results(room, columns - 1, volume_of(p.kernel_size), rows);
  const ConstTensor input = view(indices.data(), {rows, columns});
  const auto message = [&](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_param);
      EXPECT_TRUE(results.untouched()) << "a failing call wrote";
      return error.what();
    }
    return "";
  };
  const std::string one = message(
      [&] { get_indice_pairs(input, results.out_view(), results.pairs_view(), results.num_view(), p); });
  results.reset();
  const std::string two = message([&] {
    const IndicePairs index(input, p);
    index.write(results.out_view(), results.pairs_view(), results.num_view());
  });
  EXPECT_EQ(one, two);
  return one;
}

TEST(IndicePairsCalls, TheFirstBadSiteIsNamed) {
  const IndicePairsParams p{.batch_size = 2, .spatial_shape = {5, 6, 7}, .kernel_size = {3, 3, 3}};
  const auto message = [&](std::int64_t i, std::int64_t value) {
    std::vector<std::int64_t> wide(16, 1);
    wide[15] = 99;  // a later one is not named
    wide[static_cast<std::size_t>(i)] = value;
    std::vector<std::int32_t> indices;
    for (std::int64_t v : wide) indices.push_back(static_cast<std::int32_t>(v));
    const std::string text = message_of(indices, 4, p);
    EXPECT_EQ(message_of(wide, 4, p), text);
    return text;
  };
  EXPECT_EQ(message(0, 2), "get_indice_pairs: indices[0, 0] is 2, expected 0 .. 1");
  EXPECT_EQ(message(4, -1), "get_indice_pairs: indices[1, 0] is -1, expected 0 .. 1");
  EXPECT_EQ(message(5, 5), "get_indice_pairs: indices[1, 1] is 5, expected 0 .. 4");
  EXPECT_EQ(message(6, -3), "get_indice_pairs: indices[1, 2] is -3, expected 0 .. 5");
  EXPECT_EQ(message(11, 7), "get_indice_pairs: indices[2, 3] is 7, expected 0 .. 6");
  EXPECT_EQ(message(8, kMin), "get_indice_pairs: indices[2, 0] is -2147483648, expected 0 .. 1");
  EXPECT_EQ(message(9, kMax), "get_indice_pairs: indices[2, 1] is 2147483647, expected 0 .. 4");
  EXPECT_EQ(message(15, kMax), "get_indice_pairs: indices[3, 3] is 2147483647, expected 0 .. 6");
  EXPECT_EQ(message(15, kMin), "get_indice_pairs: indices[3, 3] is -2147483648, expected 0 .. 6");

  // 64-bit values are not truncated to 32 bits.
  std::vector<std::int64_t> wide(4, 1);
  wide[3] = (std::int64_t{1} << 32) + 1;
  EXPECT_EQ(message_of(wide, 4, p), "get_indice_pairs: indices[0, 3] is 4294967297, expected 0 .. 6");
  wide[3] = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(message_of(wide, 4, p),
            "get_indice_pairs: indices[0, 3] is -9223372036854775808, expected 0 .. 6");
}

// The largest value is out of range even in the largest space, for every number of dimensions.
TEST(IndicePairsCalls, TheEndOfInt32IsOutOfRange) {
  EXPECT_EQ(message_of<std::int32_t>({0, kMax}, 2, {.spatial_shape = {kMax}, .kernel_size = {1}}),
            "get_indice_pairs: indices[0, 1] is 2147483647, expected 0 .. 2147483646");
  EXPECT_EQ(message_of<std::int32_t>({0, kMax - 1}, 2, {.spatial_shape = {kMax}, .kernel_size = {1}}), "");
  EXPECT_EQ(message_of<std::int32_t>({0, 0, -1}, 3, {.spatial_shape = {2, kMax}, .kernel_size = {1, 1}}),
            "get_indice_pairs: indices[0, 2] is -1, expected 0 .. 2147483646");
  EXPECT_EQ(message_of<std::int32_t>({0, 0, 1, 0, 9}, 5,
                                     {.spatial_shape = {2, 2, 2, 9}, .kernel_size = {1, 1, 1, 1}}),
            "get_indice_pairs: indices[0, 4] is 9, expected 0 .. 8");
}

TEST(IndicePairsCalls, AnOutputShapeFollowsFromTheLargestDilation) {
  const std::int32_t site[] = {0, 4};
  Context context;
  const IndicePairs index(view(site, {1, 2}), {.spatial_shape = {5}, .kernel_size = {1}, .dilation = {kMax}},
                          context);
  EXPECT_EQ(index.num_act_out(), 1);
}

TEST(IndicePairsCalls, ParametersThatDoNotFitAreNamed) {
  constexpr auto kSubm = ConvMode::submanifold;
  const auto message = [](const IndicePairsParams& p) { return message_of<std::int32_t>({0, 0, 0}, 3, p); };
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3}, .stride = {1, 2}, .mode = kSubm}),
            "get_indice_pairs: stride[1] is 2, expected 1 in submanifold mode");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 2}, .mode = kSubm}),
            "get_indice_pairs: kernel_size[1] is 2, expected an odd number in submanifold mode when no "
            "padding is given");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 2}, .padding = {1, 1}, .mode = kSubm}), "");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3}, .output_shape = {4, 5}, .mode = kSubm}),
            "get_indice_pairs: output_shape[1] is 5, expected 4 as spatial_shape in submanifold mode");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3}, .output_shape = {4, 0}}),
            "get_indice_pairs: output_shape[1] is 0, expected 1 .. 2147483647");
  EXPECT_EQ(message({.spatial_shape = {4, 2}, .kernel_size = {3, 3}}),
            "get_indice_pairs: output_shape[1] is 0, expected 1 .. 2147483647");
  EXPECT_EQ(message({.spatial_shape = {4, 4, 4}, .kernel_size = {3, 3, 3}}),
            "get_indice_pairs: spatial_shape has 3 elements, expected 2 = indices.shape[1] - 1");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3, 3}}),
            "get_indice_pairs: kernel_size has 3 elements, expected 2 = indices.shape[1] - 1");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3}, .dilation = {1, 0}}),
            "get_indice_pairs: dilation[1] is 0, expected 1 .. 2147483647");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3}, .padding = {-1, 0}}),
            "get_indice_pairs: padding[0] is -1, expected 0 .. 2147483647");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3}, .output_padding = {0, -1}}),
            "get_indice_pairs: output_padding[1] is -1, expected 0 .. 2147483647");
  EXPECT_EQ(message({.spatial_shape = {4, 4},
                     .kernel_size = {3, 3},
                     .output_padding = {2147483648, 0},
                     .mode = ConvMode::transposed}),
            "get_indice_pairs: output_padding[0] is 2147483648, expected 0 .. 2147483647");
  EXPECT_EQ(message({.spatial_shape = {4, 4},
                     .kernel_size = {3, 3},
                     .output_padding = {kMax, 0},
                     .mode = ConvMode::transposed}),
            "get_indice_pairs: output_shape[0] is 2147483653, expected 1 .. 2147483647");
  EXPECT_EQ(message({.spatial_shape = {4, 4},
                     .kernel_size = {3, 3},
                     .output_shape = {6, 6},
                     .output_padding = {kMax, 0},
                     .mode = ConvMode::transposed}),
            "");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3}, .stride = {1, 0}}),
            "get_indice_pairs: stride[1] is 0, expected 1 .. 2147483647");
  EXPECT_EQ(message({.spatial_shape = {4, 4}, .kernel_size = {3, 3}, .output_padding = {1}}),
            "get_indice_pairs: output_padding has 1 elements, expected 2 = indices.shape[1] - 1");
  EXPECT_EQ(message({.batch_size = 0, .spatial_shape = {4, 4}, .kernel_size = {3, 3}}),
            "get_indice_pairs: batch_size is 0, expected 1 .. 2147483647");
  EXPECT_EQ(message_of<std::int32_t>({0, 0, 0, 0, 0, 0}, 6,
                                     {.spatial_shape = {4, 4, 4, 4}, .kernel_size = {3, 3, 3, 3}}),
            "get_indice_pairs: spatial_shape has 4 elements, expected 5 = indices.shape[1] - 1");
  try {
    const Dims five{1, 2, 3, 4, 5};
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_param);
    EXPECT_STREQ(error.what(), "Dims: 5 values, expected at most 4");
  }
}

// One integer applies to every dimension, as in Python; a list is used as given.
TEST(IndicePairsCalls, OneIntegerForAllDimensions) {
  const std::vector<std::int32_t> indices = {0, 1, 1, 1, 0, 2, 1, 3};
  const std::size_t three = 3;
  const IndicePairsParams lists{.spatial_shape = {5, 6, 7},
                                .kernel_size = {3, 3, 3},
                                .stride = {2, 2, 2},
                                .padding = {1, 1, 1},
                                .dilation = {1, 1, 1}};
  const IndicePairsParams integers{
      .spatial_shape = {5, 6, 7}, .kernel_size = three, .stride = 2, .padding = 1, .dilation = 1};
  for (int d = 0; d < 3; ++d)
    EXPECT_EQ(indice_pairs_output_shape(integers)[d], indice_pairs_output_shape(lists)[d]);
  Results<std::int32_t> expected(16, 3, 27, 2), actual(16, 3, 27, 2);
  const auto run = [&](Results<std::int32_t>& results, const IndicePairsParams& p) {
    return get_indice_pairs(view(indices, {2, 4}), results.out_view(), results.pairs_view(),
                            results.num_view(), p);
  };
  EXPECT_EQ(run(actual, integers), run(expected, lists));
  const auto same = [](auto& a, auto& b) { return std::equal(a.data(), a.data() + a.size(), b.data()); };
  EXPECT_TRUE(same(actual.out, expected.out));
  EXPECT_TRUE(same(actual.pairs, expected.pairs));
  EXPECT_TRUE(same(actual.num, expected.num));
  EXPECT_EQ(message_of<std::int32_t>({0, 0, 0}, 3, {.spatial_shape = {4, 4}, .kernel_size = {3}}),
            "get_indice_pairs: kernel_size has 1 elements, expected 2 = indices.shape[1] - 1");
  EXPECT_EQ(message_of<std::int32_t>({0, 0, 0}, 3, {.spatial_shape = {4, 4}, .kernel_size = 0}),
            "get_indice_pairs: kernel_size[0] is 0, expected 1 .. 2147483647");
}

// The number of threads may change while a call runs, without effect on that call.
TEST(IndicePairsCalls, ThreadsMayChange) {
  std::vector<std::int32_t> indices;
  for (std::int32_t i = 0; i < 20'000; ++i)
    indices.insert(indices.end(), {i % 2, i / 400, i / 20 % 20, i % 20});
  const auto rows = static_cast<std::int64_t>(indices.size() / 4);
  const IndicePairsParams p{.batch_size = 2,
                            .spatial_shape = {60, 60, 60},
                            .kernel_size = {3, 3, 3},
                            .mode = ConvMode::submanifold};
  Context context({.threads = 2});
  const auto pairs = [&] {
    std::vector<std::int32_t> out(indices.size()), values(static_cast<std::size_t>(27 * 2 * rows)), num(27);
    get_indice_pairs(view(static_cast<const std::int32_t*>(indices.data()), {rows, 4}),
                     view(out.data(), {rows, 4}), view(values.data(), {27, 2, rows}), view(num.data(), {27}),
                     p, context);
    return values;
  };
  const auto first = pairs();
  std::atomic<bool> done{false};
  std::thread changing([&] {
    while (!done)
      for (int threads : {1, 7, 2, 24}) context.set_threads(threads);
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(pairs(), first);
  done = true;
  changing.join();
}

// An observer gets every error, whichever step throws it.
TEST(IndicePairsCalls, RefusalsAreObserved) {
  Context context({.threads = 1});
  std::string heard;
  context.set_observer(
      [](const CallRecord& record, void* user) {
        *static_cast<std::string*>(user) = record.error != nullptr ? record.error : "";
      },
      &heard);
  const auto expect_heard = [&](const std::vector<std::int32_t>& site, const IndicePairsParams& p) {
    heard.clear();
    const auto columns = static_cast<std::int64_t>(site.size());
    try {
      const IndicePairs index(view(site.data(), {1, columns}), p, context);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(heard, error.what());
    }
  };
  expect_heard({0, 7}, {.spatial_shape = {7}, .kernel_size = {3}});
  expect_heard({0, 0}, {.spatial_shape = {7}, .kernel_size = {2}, .mode = ConvMode::submanifold});
  expect_heard({0, 0, 0, 0, 0}, {.spatial_shape = Dims::filled(4, kMax),
                                 .kernel_size = {1, 1, 1, 1}});  // too large for any index
}

TEST(IndicePairsCalls, TooLittleRoomIsRefusedAndMoreIsFilled) {
  // One site has the outputs 0 .. 2.
  const IndicePairsParams p{.spatial_shape = {5}, .kernel_size = {3}};
  EXPECT_EQ(message_of<std::int32_t>({0, 2}, 2, p, 2),
            "get_indice_pairs: out_indices.shape[0] is 2, expected at least 3 = num_act_out");
  EXPECT_EQ(message_of<std::int32_t>({0, 2}, 2, p, 0),
            "get_indice_pairs: out_indices.shape[0] is 0, expected at least 3 = num_act_out");
  EXPECT_EQ(
      message_of<std::int32_t>({0, 2, 0, 2}, 2,
                               {.spatial_shape = {5}, .kernel_size = {3}, .mode = ConvMode::submanifold}, 1),
      "get_indice_pairs: out_indices.shape[0] is 1, expected at least 2 = num_act_out");
  for (std::int64_t spare : {0, 1, 1000}) compare<std::int64_t>({{0, 2}}, p, {.spare = spare});
}

TEST(IndicePairsCalls, NoSitesAndNoOutputsStillHaveResults) {
  std::int32_t out[3][3], num[4];
  const auto run = [&](std::int64_t rows, const IndicePairsParams& p) {
    const std::int32_t site[3] = {0, 3, 3};
    std::int32_t pairs[8];
    std::fill_n(&out[0][0], 9, 7);
    std::fill_n(num, 4, 7);
    std::fill_n(pairs, 8, 7);
    const std::int64_t active =
        get_indice_pairs(view(rows == 0 ? nullptr : site, {rows, 3}), view(&out[0][0], {3, 3}),
                         view(pairs, {4, 2, rows}), view(num, {4}), p);
    EXPECT_EQ(std::vector(pairs, pairs + 8), std::vector<std::int32_t>(8, rows == 0 ? 7 : -1));
    return active;
  };
  const std::vector<std::int32_t> minus(9, -1), zeros(4, 0);
  EXPECT_EQ(run(0, {.spatial_shape = {4, 4}, .kernel_size = {2, 2}}), 0);
  EXPECT_EQ(std::vector(&out[0][0], &out[0][0] + 9), minus);
  EXPECT_EQ(std::vector(num, num + 4), zeros);
  // The site is between the kernels.
  EXPECT_EQ(
      run(1, {.spatial_shape = {4, 4}, .kernel_size = {2, 2}, .stride = {5, 5}, .output_shape = {1, 1}}), 0);
  EXPECT_EQ(std::vector(&out[0][0], &out[0][0] + 9), minus);
  EXPECT_EQ(std::vector(num, num + 4), zeros);
}

TEST(IndicePairsCalls, DefaultsAndOutputShapes) {
  const auto shape = [](const IndicePairsParams& p) {
    const Dims dims = indice_pairs_output_shape(p);
    return std::vector(dims.data(), dims.data() + dims.count());
  };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape({.spatial_shape = {11, 360, 360},
                   .kernel_size = {3, 3, 3},
                   .stride = {2, 2, 2},
                   .padding = {0, 1, 1}}),
            (Shape{5, 180, 180}));
  EXPECT_EQ(shape({.spatial_shape = {10, 7}, .kernel_size = {3, -1}, .dilation = {4, 1}}), (Shape{2, 1}));
  EXPECT_EQ(shape({.spatial_shape = {10, 7}, .kernel_size = {3, 5}, .mode = ConvMode::submanifold}),
            (Shape{10, 7}));
  EXPECT_EQ(shape({.spatial_shape = {5, 6},
                   .kernel_size = {3, 4},
                   .stride = {2, 3},
                   .padding = {1, 0},
                   .output_padding = {1, 0},
                   .mode = ConvMode::transposed}),
            (Shape{10, 19}));
  // If the kernel does not fit, the formula rounds down, even below zero.
  EXPECT_EQ(shape({.spatial_shape = {1}, .kernel_size = {5}, .stride = {3}}), (Shape{-1}));
  // A given output shape is ignored.
  EXPECT_EQ(shape({.spatial_shape = {9}, .kernel_size = {2}, .output_shape = {77}}), (Shape{8}));
}

// In submanifold mode a padding moves the kernel off its site unless it is dropped. Other modes keep it.
TEST(IndicePairsCalls, CentredOnSites) {
  IndicePairsParams p{.spatial_shape = {4}, .kernel_size = {3}, .padding = {0}};
  const std::int32_t indices[2][2] = {{0, 1}, {0, 2}};
  const auto num_of = [&](const IndicePairsParams& params) {
    std::int32_t out[4][2], pairs[3][2][2], num[3];
    get_indice_pairs(view(&indices[0][0], {2, 2}), view(&out[0][0], {4, 2}), view(&pairs[0][0][0], {3, 2, 2}),
                     view(num, {3}), params);
    return std::vector(num, num + 3);
  };
  using Num = std::vector<std::int32_t>;
  EXPECT_EQ(centred_on_sites(p).padding.count(), 1);
  p.mode = ConvMode::submanifold;
  EXPECT_EQ(num_of(p), (Num{2, 1, 0}));
  EXPECT_EQ(num_of(centred_on_sites(p)), (Num{1, 2, 1}));
}

TEST(IndicePairsCalls, ResultsMayBeWrittenAgain) {
  const IndicePairsParams p{
      .batch_size = 2, .spatial_shape = {20, 30}, .kernel_size = {3, 3}, .stride = {2, 2}};
  const Sites sites = make_sites(Pattern::duplicates, p, 200, 1);
  const auto indices = flattened<std::int64_t>(sites);
  const IndicePairs index(view(indices.data(), {200, 3}), p);
  EXPECT_EQ(index.output_shape()[0], 9);
  EXPECT_EQ(index.output_shape()[1], 14);
  Results<std::int64_t> first(index.num_act_out(), 2, 9, 200), again(index.num_act_out(), 2, 9, 200, 1),
      expected(index.num_act_out(), 2, 9, 200);
  expected.take(reference::indice_pairs(sites, completed(p)));
  for (Results<std::int64_t>* results : {&first, &again, &first}) {
    results->reset();
    index.write(results->out_view(), results->pairs_view(), results->num_view());
    EXPECT_TRUE(results->same(expected));
  }
}

// Several indexes of one context coexist and are destroyed in any order.
TEST(IndicePairsCalls, IndexesAreIndependent) {
  Context context({.threads = 2});
  const IndicePairsParams p{.batch_size = 2, .spatial_shape = {20, 30}, .kernel_size = {3, 3}};
  std::vector<std::vector<std::int64_t>> indices;
  std::vector<Sites> sites;
  std::vector<std::unique_ptr<IndicePairs>> indexes;
  for (unsigned seed = 0; seed < 8; ++seed) {
    sites.push_back(make_sites(Pattern::random, p, 100, seed));
    indices.push_back(flattened<std::int64_t>(sites.back()));
    indexes.push_back(std::make_unique<IndicePairs>(view(indices.back().data(), {100, 3}), p, context));
  }
  for (std::size_t i : {3u, 0u, 7u, 1u}) {
    Results<std::int64_t> results(indexes[i]->num_act_out(), 2, 9, 100),
        expected(indexes[i]->num_act_out(), 2, 9, 100);
    indexes[i]->write(results.out_view(), results.pairs_view(), results.num_view());
    expected.take(reference::indice_pairs(sites[i], completed(p)));
    EXPECT_TRUE(results.same(expected));
    indexes[i].reset();
  }
}

}  // namespace
}  // namespace turnout::test
