// Tests the signature grammar with signatures made for it: what it accepts, and its error messages.
#include "core/draft.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "core/check.h"

namespace turnout::core {
namespace {

void sum_matches(const Arguments& arguments, const Positions& at) {
  const auto* counts = static_cast<const std::int32_t*>(arguments.slot(at[0]).data);
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < arguments.size(at[1]); ++i) sum += counts[i];
  const std::int64_t rows = arguments.size(at[2]);
  if (sum != rows)
    arguments.fail(ErrorCode::bad_param, concat("counts sum to ", sum, ", expected rows = ", rows));
}

constexpr const Signature& kGroup = signature([] {
  return Draft{"group",
               "batch rows D groups scale_width",
               {scalar("factor", 1, 64), choice("mode", "keep zero"), vector("stride", "D", 1, 9)},
               {in("x", kFloats, "batch?, rows, D + 1"), in("counts", dtypes(DType::i32), "groups"),
                optional(in("scales", like("x", dtypes(DType::f32)), "rows, scale_width?")),
                out("y", like("x"), "rows * factor, 4")},
               {at_most("groups", "rows * factor"), at_most("1", "rows"), at_most("groups", "7")},
               {{"sum", "counts sum to rows", &sum_matches, "counts groups rows"}}};
});

class SignatureTest : public testing::Test {
 protected:
  float x[24] = {}, scales[8] = {}, y[64] = {};
  std::int32_t counts[2] = {1, 2};
  std::int64_t stride[3] = {1, 2, 3};
  ConstTensor x_t = view(static_cast<const float*>(x), {2, 3, 4});
  ConstTensor counts_t = view(static_cast<const std::int32_t*>(counts), {2});
  ConstTensor scales_t = view(static_cast<const float*>(scales), {3});
  Tensor y_t = view(y, {6, 4});
  bool with_scales = true;
  std::int64_t factor = 2, mode = 0, stride_count = 3;

  std::string message() {
    const Slot slots[] = {x_t, counts_t, with_scales ? Slot(scales_t) : Slot(), y_t};
    const ScalarValue scalars[] = {factor, mode, {stride, stride_count}};
    Arguments arguments(kGroup, slots, 4, scalars, 3);
    described = arguments.describe();
    try {
      ran = arguments.check();
      batch = arguments.size(kGroup.size("batch"));
      d = arguments.size(kGroup.size("D"));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::string described;
  bool ran = false;
  std::int64_t batch = 0, d = 0;
};

TEST_F(SignatureTest, BindsSizes) {
  EXPECT_EQ(message(), "");
  EXPECT_TRUE(ran);
  EXPECT_EQ(batch, 2);
  EXPECT_EQ(d, 3);
  EXPECT_EQ(described,
            "x f32[2, 3, 4], counts i32[2], scales f32[3], y f32[6, 4], factor 2, mode 0, stride 1x2x3");
}

TEST_F(SignatureTest, OptionalDimensionsAndArguments) {
  x_t = view(static_cast<const float*>(x), {3, 4});
  EXPECT_EQ(message(), "");
  EXPECT_EQ(batch, 1);
  scales_t = view(static_cast<const float*>(scales), {3, 2});
  EXPECT_EQ(message(), "");
  with_scales = false;
  EXPECT_EQ(message(), "");
  EXPECT_EQ(described, "x f32[3, 4], counts i32[2], y f32[6, 4], factor 2, mode 0, stride 1x2x3");
}

TEST_F(SignatureTest, MessagesNameArgumentPositionValueAndLimit) {
  struct Case {
    std::function<void()> damage;
    const char* message;
  };
  const auto reset = [this, x0 = x_t, c0 = counts_t, s0 = scales_t, y0 = y_t] {
    x_t = x0, counts_t = c0, scales_t = s0, y_t = y0;
    factor = 2, mode = 0, stride_count = 3, stride[1] = 2, counts[0] = 1;
  };
  const Case cases[] = {
      {[&] { x_t.rank = 1; }, "group: x has 1 dimensions, expected [batch?, rows, D + 1]"},
      {[&] { counts_t.dtype = DType::i64; }, "group: counts has dtype i64, expected i32"},
      {[&] { counts_t.dtype = kForeign; }, "group: counts has dtype unknown, expected i32"},
      {[&] { counts_t.dtype = static_cast<DType>(77); },
       "group: counts has dtype 77, which is not a DType, expected i32"},
      {[&] { y_t.dtype = DType::f64; }, "group: y has dtype f64, expected that of x"},
      {[&] { scales_t.dtype = DType::i8; }, "group: scales has dtype i8, expected that of x, or f32"},
      {[&] { factor = 65; }, "group: factor is 65, expected 1 .. 64"},
      {[&] { mode = 2; }, "group: mode is 2, expected one of 0 .. 1 (keep zero)"},
      {[&] { stride[1] = 0; }, "group: stride[1] is 0, expected 1 .. 9"},
      {[&] { stride_count = 2; }, "group: stride has 2 elements, expected 3 = x.shape[2] - 1"},
      {[&] { y_t.shape[0] = 7; }, "group: y.shape[0] is 7, expected 6 = x.shape[1] * factor"},
      {[&] { y_t.shape[1] = 5; }, "group: y.shape[1] is 5, expected 4"},
      {[&] { scales_t.shape[0] = 4; }, "group: scales.shape[0] is 4, expected 3 = x.shape[1]"},
      {[&] { x_t.shape[2] = 0; }, "group: x.shape[2] is 0, expected 1 or more"},
      {[&] { x_t.shape[1] = -2; }, "group: x.shape[1] is -2, expected 0 or more"},
      {[&] { counts_t.shape[0] = 7; },
       "group: counts.shape[0] is 7, expected at most 6 = x.shape[1] * factor"},
      {[&] { x_t.shape[1] = scales_t.shape[0] = y_t.shape[0] = counts_t.shape[0] = 0; },
       "group: x.shape[1] is 0, expected 1 or more"},
      {[&] { counts_t.shape[0] = 8, factor = 4, y_t.shape[0] = 12; },
       "group: counts.shape[0] is 8, expected at most 7"},
      {[&] { x_t.stride[1] = 5; },
       "group: x is strided, expected contiguous row-major memory for shape [2, 3, 4]"},
      {[&] { y_t.data = nullptr; }, "group: y.data is null, expected memory for shape [6, 4]"},
      {[&] { y_t.data = reinterpret_cast<char*>(y) + 2; },
       "group: y.data is not aligned to its element size 4"},
      {[&] { y_t.data = x; }, "group: y overlaps x in memory, expected separate buffers"},
      {[&] { counts[0] = 2; }, "group: counts sum to 4, expected rows = 3"},
  };
  for (const Case& one : cases) {
    reset();
    ASSERT_EQ(message(), "");
    one.damage();
    EXPECT_EQ(message(), one.message);
  }
}

TEST_F(SignatureTest, TheLogShowsTheExtentsThatATensorCanHold) {
  x_t = ConstTensor(x, DType::f32, {1, 2, 3, 4, 5, 6, 7, 8});
  x_t.rank = kMaxRank + 1;
  EXPECT_EQ(message(), "group: x has 9 dimensions, expected [batch?, rows, D + 1]");
  EXPECT_EQ(described.substr(0, described.find(", counts")), "x f32[1, 2, 3, 4, 5, 6, 7, 8]");
}

TEST_F(SignatureTest, AWrongNumberOfArgumentsIsAnInternalError) {
  const Slot slots[] = {x_t, counts_t, scales_t, y_t};
  const ScalarValue scalars[] = {factor, mode, {stride, stride_count}};
  for (const auto& [slot_count, scalar_count] : {std::pair(3, 3), std::pair(4, 2)}) {
    try {
      Arguments(kGroup, slots, slot_count, scalars, scalar_count);
      ADD_FAILURE() << slot_count << " tensors, " << scalar_count << " scalars";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::internal);
    }
  }
}

// Several arguments share a size: the error names the one that disagrees with the rest.
constexpr const Signature& kRouted = signature([] {
  return Draft{
      "routed",
      "choices samples hidden",
      {},
      {in("gates", dtypes(DType::f32), "choices?, samples"),
       in("indices", dtypes(DType::f32), "choices?, samples"),
       in("locations", dtypes(DType::f32), "choices?, samples"),
       in("input", dtypes(DType::f32), "samples, hidden"), out("y", like("input"), "samples + 1, hidden")}};
});

TEST(Blame, IsOnTheMinority) {
  using Shape = std::vector<std::int64_t>;
  const auto message = [](const Shape& gates, const Shape& indices, const Shape& locations,
                          const Shape& input, const Shape& y) -> std::string {
    const auto tensor = [](const Shape& shape) {
      return Tensor(nullptr, DType::f32, shape.data(), static_cast<int>(shape.size()));
    };
    const Tensor tensors[] = {tensor(gates), tensor(indices), tensor(locations), tensor(input), tensor(y)};
    const Slot slots[] = {tensors[0], tensors[1], tensors[2], tensors[3], tensors[4]};
    try {
      Arguments(kRouted, slots, 5, nullptr, 0).check();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({5}, {7}, {7}, {7, 3}, {8, 3}),
            "routed: gates.shape[0] is 5, expected 7 = indices.shape[0]");
  EXPECT_EQ(message({7}, {5}, {7}, {7, 3}, {8, 3}),
            "routed: indices.shape[0] is 5, expected 7 = gates.shape[0]");
  EXPECT_EQ(message({7}, {7}, {7}, {5, 3}, {8, 3}),
            "routed: input.shape[0] is 5, expected 7 = gates.shape[0]");
  EXPECT_EQ(message({2, 7}, {2, 7}, {2, 5}, {7, 3}, {8, 3}),
            "routed: locations.shape[1] is 5, expected 7 = gates.shape[1]");
  // Two against two: the first argument is taken to be right. Outputs have no vote.
  EXPECT_EQ(message({7}, {5}, {7}, {5, 3}, {6, 3}),
            "routed: indices.shape[0] is 5, expected 7 = gates.shape[0]");
  EXPECT_EQ(message({7}, {7}, {7}, {7, 3}, {6, 3}),
            "routed: y.shape[0] is 6, expected 8 = gates.shape[0] + 1");
  const std::string way = ": its dimensions are the other way round, transpose it";
  EXPECT_EQ(message({7, 2}, {7, 2}, {7, 2}, {7, 3}, {8, 3}),
            "routed: gates has shape [7, 2], expected [choices?, samples] with samples = 7" + way);
  EXPECT_EQ(message({2, 7}, {7, 2}, {2, 7}, {7, 3}, {8, 3}),
            "routed: indices has shape [7, 2], expected [choices?, samples] with choices = 2" + way);
  EXPECT_EQ(message({2, 7}, {2, 7}, {2, 7}, {3, 7}, {8, 3}),
            "routed: input.shape[0] is 3, expected 7 = gates.shape[1]");
  EXPECT_EQ(
      message({7}, {2, 7}, {2, 7}, {7, 3}, {8, 3}),
      "routed: indices has a dimension choices that an earlier argument does not have; its shape is [2, 7]");
  EXPECT_EQ(message({2, 7}, {7}, {2, 7}, {7, 3}, {8, 3}),
            "routed: indices has no dimension choices, expected [choices?, samples] with choices = 2");
  EXPECT_EQ(message({0, 7}, {7}, {7}, {7, 3}, {8, 3}),
            "routed: indices has no dimension choices, expected [choices?, samples] with choices = 0");
}

// The same if the rows come first, and one or several of the other arguments are transposed.
constexpr const Signature& kRowsFirst = signature([] {
  return Draft{"rows_first",
               "samples hidden choices",
               {},
               {in("input", kFloats, "samples, hidden"), in("indices", kIndices, "samples, choices?"),
                optional(in("gates", kFloats, "samples, choices?"))}};
});

TEST(SignatureBlame, TransposedAfterRows) {
  const auto told = [](std::initializer_list<Size> indices, std::initializer_list<Size> gates,
                       bool gated) -> std::string {
    const ConstTensor x(nullptr, DType::f32, {7, 3}), i(nullptr, DType::i32, indices),
        g(nullptr, DType::f32, gates);
    const Slot slots[] = {x, i, gated ? Slot(g) : Slot()};
    try {
      Arguments(kRowsFirst, slots, 3, nullptr, 0).check();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto message = [&](std::initializer_list<Size> indices, bool gated) {
    return told(indices, indices, gated);
  };
  // The gates confirm 7 choices, so only the number of rows is wrong.
  EXPECT_EQ(told({2, 7}, {7, 7}, true), "rows_first: indices.shape[0] is 2, expected 7 = input.shape[0]");
  for (const bool gated : {false, true}) {
    EXPECT_EQ(message({2, 7}, gated),
              "rows_first: indices has shape [2, 7], expected [samples, choices?] with samples = 7: its "
              "dimensions are the other way round, transpose it");
    EXPECT_EQ(message({2, 5}, gated), gated
                                          ? "rows_first: input.shape[0] is 7, expected 2 = indices.shape[0]"
                                          : "rows_first: indices.shape[0] is 2, expected 7 = input.shape[0]");
  }
}

// Two matrices of the same extents, of which the second requires the first.
constexpr const Signature& kTwins = signature([] {
  return Draft{"twins",
               "rows columns",
               {},
               {required_with("b", in("a", kFloats, "rows, columns")), in("b", kFloats, "rows, columns"),
                required_with("a", in("c", kFloats, "rows"))}};
});

TEST(SignatureBlame, OneOfTwoMatrices) {
  const auto message = [](std::initializer_list<Size> a, std::initializer_list<Size> b,
                          bool with_c = true) -> std::string {
    const ConstTensor first(nullptr, DType::f32, a), second(nullptr, DType::f32, b),
        third(nullptr, DType::f32, {0});
    const Slot slots[] = {first, second, with_c ? Slot(third) : Slot()};
    try {
      Arguments(kTwins, slots, 3, nullptr, 0).check();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({7, 3}, {3, 7}),
            "twins: b has shape [3, 7], expected [rows, columns] with rows = 7: its dimensions are the other "
            "way round, transpose it");
  EXPECT_EQ(message({3, 7}, {7, 5}), "twins: b.shape[0] is 7, expected 3 = a.shape[0]");
  EXPECT_EQ(message({0, 3}, {0, 3}), "");
  EXPECT_EQ(message({0, 3}, {0, 3}, false), "twins: c is missing, expected together with a");
}

// Messages compute a size from the extent that states it.
constexpr const Signature& kDerived = signature([] {
  return Draft{"derived",
               "n m",
               {scalar("limit", 0), vector("kernel", "n", 1)},
               {in("a", kFloats, "2 * n + 1"), optional(in("b", kFloats, "m + 3")),
                out("same", kFloats, "2 * n + 4"), out("half", kFloats, "n"), out("both", kFloats, "n * m"),
                out("all", kFloats, "3 * m"), out("volume", kFloats, "volume(kernel) + 1")},
               {at_most("limit + 2", "n"), at_most("n", "limit + 9"), at_most("n * m", "limit * 8")}};
});

TEST(SignatureBlame, ShowsWhereASizeComesFrom) {
  const auto told = [](std::int64_t a, std::int64_t b, std::int64_t same, std::int64_t half,
                       std::int64_t both, std::int64_t all, std::int64_t volume,
                       std::int64_t limit) -> std::string {
    const ConstTensor tensors[] = {{nullptr, DType::f32, {a}},     {nullptr, DType::f32, {b}},
                                   {nullptr, DType::f32, {same}},  {nullptr, DType::f32, {half}},
                                   {nullptr, DType::f32, {both}},  {nullptr, DType::f32, {all}},
                                   {nullptr, DType::f32, {volume}}};
    const Slot slots[] = {tensors[0], tensors[1], tensors[2], tensors[3], tensors[4], tensors[5], tensors[6]};
    const std::int64_t kernel[] = {3, 5, 1, 1};
    const ScalarValue scalars[] = {limit, {kernel, 4}};
    try {
      Arguments(kDerived, slots, 7, scalars, 2).check();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(told(9, 8, 13, 4, 20, 15, 16, 1), "derived: same.shape[0] is 13, expected 12 = a.shape[0] + 3");
  EXPECT_EQ(told(9, 8, 12, 5, 20, 15, 16, 1),
            "derived: half.shape[0] is 5, expected 4 = (a.shape[0] - 1) / 2");
  EXPECT_EQ(told(9, 8, 12, 4, 9, 15, 16, 1),
            "derived: both.shape[0] is 9, expected 20 = ((a.shape[0] - 1) / 2) * (b.shape[0] - 3)");
  EXPECT_EQ(told(9, 8, 12, 4, 20, 9, 16, 1),
            "derived: all.shape[0] is 9, expected 15 = 3 * (b.shape[0] - 3)");
  EXPECT_EQ(told(9, 8, 12, 4, 20, 15, 9, 1),
            "derived: volume.shape[0] is 9, expected 16 = volume(kernel) + 1");
  EXPECT_EQ(told(9, 2, 12, 4, 20, 15, 16, 1), "derived: b.shape[0] is 2, expected 3 or more");
  EXPECT_EQ(told(7, 8, 10, 3, 15, 15, 16, 1),
            "derived: kernel has 4 elements, expected 3 = (a.shape[0] - 1) / 2");
  EXPECT_EQ(told(9, 8, 12, 4, 20, 15, 16, 3),
            "derived: limit is 3, expected at most 2 = (a.shape[0] - 1) / 2 - 2");
  EXPECT_EQ(told(9, 8, 12, 4, 20, 15, 16, 1),
            "derived: ((a.shape[0] - 1) / 2) * (b.shape[0] - 3) is 20, expected at most 8 = 8 * limit");
}

// Scalars with excluded values, or with a single valid value.
constexpr const Signature& kNarrow = signature([] {
  return Draft{
      "narrow",
      "n",
      {choice("mode", "mean max", 1), choice("only", "max", 2), scalar("dims", 3, 3), scalar("least", 1)},
      {out("y", dtypes(DType::f32), "n")}};
});

// A traced call has shapes and dtypes, but no memory and no outputs.
TEST_F(SignatureTest, DescriptionsAreCheckedWithoutMemory) {
  const auto told = [&] {
    const Slot slots[] = {x_t, counts_t, with_scales ? Slot(scales_t) : Slot(), Slot()};
    const ScalarValue scalars[] = {factor, mode, {stride, stride_count}};
    try {
      Arguments(kGroup, slots, 4, scalars, 3).check_metadata();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  x_t.data = nullptr, counts_t.data = nullptr, scales_t.data = nullptr;
  EXPECT_EQ(told(), "");
  scales_t.shape[0] = 4;
  EXPECT_EQ(told(), "group: scales.shape[0] is 4, expected 3 = x.shape[1]");
  scales_t.shape[0] = kUnknownExtent;
  EXPECT_EQ(told(), "");
  factor = 65;
  EXPECT_EQ(told(), "group: factor is 65, expected 1 .. 64");
  factor = 2;
  stride_count = 2;
  EXPECT_EQ(told(), "group: stride has 2 elements, expected 3 = x.shape[2] - 1");
  x_t.shape[2] = kUnknownExtent;  // so D is unknown too
  EXPECT_EQ(told(), "");
  x_t.shape[1] = kUnknownExtent, counts_t.shape[0] = 7;
  EXPECT_EQ(told(), "");
  counts_t.shape[0] = 8;
  EXPECT_EQ(told(), "group: counts.shape[0] is 8, expected at most 7");
  counts_t.dtype = DType::i64;
  EXPECT_EQ(told(), "group: counts has dtype i64, expected i32");
  // A real call rejects unknown extents.
  EXPECT_EQ(message(), "group: counts has dtype i64, expected i32");
  counts_t.dtype = DType::i32;
  EXPECT_EQ(message(), "group: x.shape[1] is -9223372036854775808, expected 0 or more");
}

TEST(Scalars, MessagesListTheValidValues) {
  const auto message = [](std::int64_t mode, std::int64_t only, std::int64_t dims,
                          std::int64_t least) -> std::string {
    const Tensor y(nullptr, DType::f32, {0});
    const Slot slots[] = {y};
    const ScalarValue scalars[] = {mode, only, dims, least};
    try {
      Arguments(kNarrow, slots, 1, scalars, 4).check();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(1, 2, 3, 1), "");
  EXPECT_EQ(message(2, 2, 3, 9), "");
  EXPECT_EQ(message(0, 2, 3, 1), "narrow: mode is 0, expected one of 1 .. 2 (mean max)");
  EXPECT_EQ(message(3, 2, 3, 1), "narrow: mode is 3, expected one of 1 .. 2 (mean max)");
  EXPECT_EQ(message(1, 1, 3, 1), "narrow: only is 1, expected 2 (max)");
  EXPECT_EQ(message(1, 2, 4, 1), "narrow: dims is 4, expected 3");
  EXPECT_EQ(message(1, 2, 3, 0), "narrow: least is 0, expected 1 or more");
}

// A flag of bindings that determines a size, which callers of the function state by the shape of y.
constexpr const Signature& kWiden = signature([] {
  return Draft{"widen",
               "n computed(width)",
               {scalar("factor", 1), for_sizes(flag("wide")), unused(flag("in_place"))},
               {in("x", kFloats, "n"), out("y", like("x"), "n, width")}};
});
static_assert(kWiden.scalars.count == 1 && kWiden.names.count == 3);
static_assert(kWiden.size_flags.count == 1 && kWiden.size_flag("wide") == 1);
static_assert(kWiden.size_flags[0].has_default && kWiden.size_flags[0].default_value == 0);

TEST(SignatureGrammar, TheFunctionDoesNotHaveFlagsForSizes) {
  float x[2] = {}, y[6] = {};
  const Tensor from = view(x, {2}), to = view(y, {2, 3});
  const Slot slots[] = {from, to};
  const ScalarValue scalars[] = {4};
  Arguments arguments(kWiden, slots, 2, scalars, 1);
  EXPECT_EQ(arguments.describe(), "x f32[2], y f32[2, 3], factor 4");
  EXPECT_TRUE(arguments.check());
  EXPECT_EQ(arguments.size(kWiden.size("width")), 3);
}

// Valid plain arguments pass in one pass; everything else is left to check_metadata().
constexpr const Signature& kPlain = signature([] {
  return Draft{"plain",
               "n width",
               {scalar("factor", 1, 3), real("limit", 0)},
               {in("x", kFloats, "n, width + 1"), optional(in("scales", like("x"), "n")),
                out("y", lane_of("x"), "n, 2")},
               {at_most("width", "n")}};
});

TEST(SignatureGrammar, PlainMetadata) {
  double memory[16] = {};
  struct Case {
    Tensor x, scales, y;
    std::int64_t factor = 2;
    double limit = 0;
  };
  const auto passes = [](const Case& given) {
    const Slot slots[] = {given.x, given.scales, given.y};
    const ScalarValue scalars[] = {given.factor, given.limit};
    Arguments arguments(kPlain, slots, 3, scalars, 2);
    const bool passed = arguments.passes_plain_metadata();
    EXPECT_EQ(arguments.is_bound(kPlain.size("n")), passed);
    EXPECT_EQ(arguments.is_bound(kPlain.size("width")), passed);
    bool is_valid = true;
    try {
      Arguments(kPlain, slots, 3, scalars, 2).check_metadata();
    } catch (const Error&) {
      is_valid = false;
    }
    EXPECT_EQ(passed, is_valid);  // because all these arguments are plain
    return passed;
  };
  const Case valid{Tensor(memory, DType::f16, {2, 3}), Tensor(memory, DType::f16, {2}),
                   Tensor(memory, DType::f32, {2, 2})};
  EXPECT_TRUE(passes(valid));
  EXPECT_TRUE(passes({valid.x, nullptr, nullptr}));
  EXPECT_FALSE(passes({nullptr, nullptr, valid.y}));
  EXPECT_FALSE(passes({valid.x, Tensor(memory, DType::f32, {2}), valid.y}));
  EXPECT_FALSE(passes({valid.x, Tensor(memory, DType::f16, {3}), valid.y}));
  EXPECT_FALSE(passes({valid.x, valid.scales, Tensor(memory, DType::f16, {2, 2})}));
  EXPECT_FALSE(passes({valid.x, valid.scales, Tensor(memory, DType::f32, {2, 1})}));
  EXPECT_FALSE(passes({valid.x, valid.scales, Tensor(memory, DType::f32, {4})}));
  EXPECT_FALSE(passes({Tensor(memory, DType::i32, {2, 3}), nullptr, valid.y}));
  EXPECT_FALSE(passes({Tensor(memory, DType::f32, {2, 0}), nullptr, valid.y}));
  EXPECT_FALSE(passes({Tensor(memory, DType::f32, {2, 4}), nullptr, valid.y}));  // the rule
  EXPECT_FALSE(passes({valid.x, valid.scales, valid.y, 4}));
  EXPECT_FALSE(passes({valid.x, valid.scales, valid.y, 2, -1}));
}

// An argument that one value of an enum requires, and a dtype that follows from another argument's.
constexpr const Signature& kReduce = signature([] {
  return Draft{"reduce",
               "n",
               {choice("kind", "sum mean max", 3)},
               {in("x", kFloats, "n"), required_when("kind", "max", in("best", like("x"), "n")),
                out("y", lane_of("x"), "n")}};
});

TEST(SignatureGrammar, RequiredWhenAndLaneOf) {
  double values[2] = {}, results[2] = {};
  const auto message = [&](std::int64_t kind, DType x, DType y, bool with_best) -> std::string {
    const Tensor from(values, x, {2}), to(results, y, {2});
    const Slot slots[] = {from, with_best ? Slot(from) : Slot(), to};
    const ScalarValue scalars[] = {kind};
    try {
      return Arguments(kReduce, slots, 3, scalars, 1).check() ? "runs" : "skipped";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message(3, DType::f32, DType::f32, false), "runs");
  EXPECT_EQ(message(4, DType::f64, DType::f64, false), "runs");
  EXPECT_EQ(message(5, DType::f32, DType::f32, true), "runs");
  EXPECT_EQ(message(5, DType::f32, DType::f32, false),
            "reduce: best is missing, expected a tensor with kind max");
  EXPECT_EQ(message(3, DType::bf16, DType::f32, false), "runs");
  EXPECT_EQ(message(3, DType::bf16, DType::bf16, false),
            "reduce: y has dtype bf16, expected f32 for x of bf16");
  EXPECT_EQ(message(3, DType::f64, DType::f32, false), "reduce: y has dtype f32, expected f64 for x of f64");
}

// An argument that is written only if a flag is set.
constexpr const Signature& kUpdate = signature([] {
  return Draft{"update",
               "n",
               {scalar("factor", 1), by_default("no", flag("in_place"))},
               {in("x", kFloats, "n"), written_if("in_place", inout("state", like("x"), "n"))}};
});
static_assert(kUpdate.arguments[0].written_if == -1);
static_assert(kUpdate.arguments[1].written_if == 1 && kUpdate.arguments[1].is_output());

constexpr const Signature& kWindows = signature([] {
  return Draft{
      "windows",
      "rows dims computed(found)",
      {symbolic(scalar("batch_size", 1)), by_default(3, vector("kernel_size", "dims", 1, 9))},
      {in("x", kFloats, "rows, dims + 1"), out("y", like("x"), "found"), out("z", like("x"), "found")}};
});
static_assert(kWindows.scalars[0].is_symbolic && !kWindows.scalars[1].is_symbolic);
static_assert(kWindows.scalars[1].has_default && kWindows.scalars[1].default_value == 3);

TEST(SignatureGrammar, TheLengthOfAVectorFollowsFromShapes) {
  const Scalar& kernel = kWindows.scalars[1];
  const auto length = [&](std::initializer_list<Size> shape) {
    const Tensor x(nullptr, DType::f32, shape);
    const Slot slots[] = {x, Slot(), Slot()};
    return length_of(kWindows, kernel, slots);
  };
  EXPECT_EQ(length({2, 4}), 3);
  EXPECT_EQ(length({2, 1}), 0);
  EXPECT_EQ(length({2, 0}), kUnbound);
  EXPECT_EQ(length({4}), kUnbound);
  EXPECT_EQ(length({0, 1000000}), kUnbound);
  const Slot absent[3];
  EXPECT_EQ(length_of(kWindows, kernel, absent), kUnbound);
}

TEST(SignatureGrammar, AResultDoesNotDetermineAComputedSize) {
  float memory[8] = {};
  const Tensor x = view(memory, {2, 2}), y = view(memory + 4, {2}), z = view(memory + 6, {3});
  const Slot slots[] = {x, y, z};
  const std::int64_t kernel[1] = {3};
  const ScalarValue scalars[] = {1, {kernel, 1}};
  Arguments arguments(kWindows, slots, 3, scalars, 2);
  arguments.bind(kWindows.size("found"), 3);
  try {
    arguments.check_metadata();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "windows: y.shape[0] is 2, expected 3 = found");
  }
}

// A size that tensors may spread over any number of dimensions, including none.
constexpr const Signature& kRows = signature([] {
  return Draft{"rows",
               "rows channels computed(groups?)",
               {reals("side", "2", std::numeric_limits<double>::denorm_min(), kFinite)},
               {in("x", kFloats, "rows, channels..?"), cpp_only(in("count", kIndices, "1")),
                by_default(DType::i64, out("y", kIndices, "groups, channels..?"))}};
});
static_assert(kRows.arguments[1].optional && kRows.arguments[1].is_cpp_only);
static_assert(kRows.arguments[2].default_dtype() == DType::i64);

TEST(SignatureGrammar, SpreadDimensions) {
  float values[24] = {};
  std::int32_t results[24] = {};
  std::vector<double> side = {1, 2};
  std::int64_t groups = -1;
  const auto message = [&](std::initializer_list<std::int64_t> x,
                           std::initializer_list<std::int64_t> y) -> std::string {
    const Tensor from(values, DType::f32, x.begin(), static_cast<int>(x.size()));
    const Tensor to(results, DType::i32, y.begin(), static_cast<int>(y.size()));
    const Slot slots[] = {from, Slot(), to};
    const ScalarValue scalars[] = {{side.data(), static_cast<std::int64_t>(side.size())}};
    Arguments arguments(kRows, slots, 3, scalars, 1);
    if (groups >= 0) arguments.bind(kRows.size("groups"), groups);
    try {
      arguments.check();
      std::int64_t shape[kMaxRank];
      const int rank = arguments.result_shape(kRows.argument("y"), shape);
      return concat(arguments.size(kRows.size("channels")), " in ",
                    shape_text(Tensor(results, DType::i32, shape, rank)));
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message({4, 6}, {3, 6}), "6 in [3, 6]");
  EXPECT_EQ(message({4, 2, 3}, {3, 2, 3}), "6 in [3, 2, 3]");
  EXPECT_EQ(message({4}, {3}), "1 in [3]");
  EXPECT_EQ(message({4, 2, 3}, {3, 6}), "6 in [3, 2, 3]");
  EXPECT_EQ(message({4, 2, 3}, {3, 3, 2}), "rows: y.shape[1] is 3, expected 2 = x.shape[1]");
  EXPECT_EQ(message({4, 2, 3}, {3, 1, 2, 3}),
            "rows: y has 4 dimensions, expected 3: as many for channels as x has");
  EXPECT_EQ(message({4, 2, 3}, {3, 5}), "rows: y.shape[1] is 5, expected 6 = the product of x.shape[1:3]");
  EXPECT_EQ(message({}, {3}), "rows: x has 0 dimensions, expected [rows, channels..?]");
  groups = 2;  // messages use the name of a size that the caller passes
  EXPECT_EQ(message({4, 6}, {3, 6}), "rows: y.shape[0] is 3, expected 2 = groups");
  side[1] = 0;
  EXPECT_EQ(message({4, 6}, {2, 6}), "rows: side[1] is 0, expected a positive finite number");
}

}  // namespace
}  // namespace turnout::core
