// Tests the order of checks with signatures made for it: which step ends a call, and with which code.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/draft.h"

namespace turnout::core {
namespace {

// A custom order with other error codes, as the C functions have.
constexpr StepSpec kOrder[] = {{Check::dtypes, ErrorCode::not_supported, "y x"},
                               {Check::shapes, ErrorCode::not_supported, "y.1"},
                               {Check::shapes, ErrorCode::bad_param},
                               {Check::any_empty},
                               {Check::large, ErrorCode::not_supported},
                               {Check::rules}};
constexpr const Signature& kOrdered = signature([] {
  return Draft{"ordered",
               "n m",
               {},
               {in("x", dtypes(DType::f32), "n"), out("y", dtypes(DType::f32), "n, m")},
               {at_most("n", "3")},
               {},
               kOrder};
});

TEST(Order, TheFirstStepThatFailsDecides) {
  const auto code_of = [](const Tensor& x, const Tensor& y) {
    const Slot slots[] = {x, y};
    try {
      return Arguments(kOrdered, slots, 2, nullptr, 0).check() ? "runs" : "skipped";
    } catch (const Error& error) {
      return error.code() == ErrorCode::bad_param ? "bad" : "unsupported";
    }
  };
  const Tensor x(nullptr, DType::f32, {2});
  EXPECT_STREQ(code_of(x, Tensor(nullptr, DType::f32, {2, 5})), "runs");
  EXPECT_STREQ(code_of(x, Tensor(nullptr, DType::f32, {3, 5})), "bad");
  EXPECT_STREQ(code_of(x, Tensor(nullptr, DType::f64, {3, 5})), "unsupported");
  EXPECT_STREQ(code_of(x, Tensor(nullptr, DType::f32, {3, -1})), "unsupported");
  EXPECT_STREQ(code_of(x, Tensor(nullptr, DType::f32, {2, 0})), "skipped");
  EXPECT_STREQ(code_of(x, Tensor(nullptr, DType::f32, {2, std::int64_t{1} << 30})), "unsupported");
  EXPECT_STREQ(code_of(Tensor(nullptr, DType::f32, {4}), Tensor(nullptr, DType::f32, {4, 1})), "bad");
}

// Rules and data checks that different steps select by name.
void odd_is_bad(const Arguments& arguments, const Positions&) {
  if (arguments.size(0) % 2 != 0) arguments.fail(ErrorCode::bad_param, "n is odd");
}
void four_is_internal(const Arguments& arguments, const Positions&) {
  if (arguments.size(0) == 4) arguments.fail(ErrorCode::internal, "n is four");
}
constexpr StepSpec kPickedSteps[] = {{Check::shapes},
                                     {Check::rules, ErrorCode::not_supported, "nine"},
                                     {Check::data, ErrorCode::bad_param, "four"},
                                     {Check::rules, ErrorCode::bad_param, "three twice"},
                                     {Check::any_empty},
                                     {Check::data, ErrorCode::bad_param, "even"}};
constexpr const Signature& kPicked = signature([] {
  return Draft{"picked",
               "n",
               {},
               {in("x", dtypes(DType::f32), "n")},
               {at_most("n", "3", "three"), at_most("n", "9", "nine"), at_most("2 * n", "3", "twice")},
               {{"even", "n is even", &odd_is_bad}, {"four", "n is not four", &four_is_internal}},
               kPickedSteps};
});

TEST(Order, RulesAndDataChecksMayBePicked) {
  const auto message = [](std::int64_t n) -> std::string {
    const Tensor x(nullptr, DType::f32, {n});
    const Slot slots[] = {x};
    try {
      return Arguments(kPicked, slots, 1, nullptr, 0).check() ? "runs" : "skipped";
    } catch (const Error& error) {
      return std::to_string(static_cast<int>(error.code())) + " " + error.what();
    }
  };
  const auto with_code = [](ErrorCode code, const std::string& text) {
    return std::to_string(static_cast<int>(code)) + " picked: " + text;
  };
  EXPECT_EQ(message(11), with_code(ErrorCode::not_supported, "x.shape[0] is 11, expected at most 9"));
  EXPECT_EQ(message(4), with_code(ErrorCode::internal, "n is four"));
  EXPECT_EQ(message(5), with_code(ErrorCode::bad_param, "x.shape[0] is 5, expected at most 3"));
  EXPECT_EQ(message(3), with_code(ErrorCode::bad_param, "2 * n is 6, expected at most 3"));
  EXPECT_EQ(message(0), "skipped");
  EXPECT_EQ(message(1), with_code(ErrorCode::bad_param, "n is odd"));
}

// Steps that only C functions have: a scalar that is checked before the handle, layouts, and tensors that
// must have elements.
constexpr StepSpec kOfCSteps[] = {
    {Check::scalars, ErrorCode::bad_param, "early"}, {Check::handle},
    {Check::scalars, ErrorCode::bad_param, "late"},  {Check::shapes},
    {Check::layout, ErrorCode::not_supported, "x"},  {Check::not_empty, ErrorCode::bad_param, "x"},
    {Check::any_empty, ErrorCode::bad_param, "y"}};
constexpr const Signature& kOfC = signature([] {
  return Draft{"of_c",
               "n m",
               {scalar("early", 0), scalar("late", 0)},
               {in("x", dtypes(DType::f32), "n"), out("y", dtypes(DType::f32), "m")},
               {},
               {},
               kOfCSteps};
});

TEST(Order, CFunctionsCheckHandlesLayoutsAndEmptiness) {
  const auto outcome = [](std::int64_t n, std::int64_t m, std::int64_t early, std::int64_t late,
                          const char* x_layout = "LAYOUT_ARRAY", bool is_array = true) -> std::string {
    const Tensor x(nullptr, DType::f32, {n}), y(nullptr, DType::f32, {m});
    Slot slots[] = {x, y};
    for (Slot& slot : slots) slot.layout = "LAYOUT_NTC", slot.is_array = false;  // only that of x is checked
    slots[0].layout = x_layout, slots[0].is_array = is_array;
    const ScalarValue scalars[] = {early, late};
    Arguments arguments(kOfC, slots, 2, scalars, 2);
    try {
      arguments.check_before_handle();
    } catch (const Error& error) {
      return std::string("before the handle: ") + error.what();
    }
    try {
      return arguments.check() ? "runs" : "skipped";
    } catch (const Error& error) {
      return (error.code() == ErrorCode::bad_param ? "bad " : "unsupported ") + std::string(error.what());
    }
  };
  EXPECT_EQ(outcome(2, 3, 0, 0), "runs");
  EXPECT_EQ(outcome(2, 3, -1, -1), "before the handle: of_c: early is -1, expected 0 or more");
  EXPECT_EQ(outcome(0, 0, 0, -1), "bad of_c: late is -1, expected 0 or more");
  EXPECT_EQ(outcome(0, 0, 0, 0, "LAYOUT_NCHW", false),
            "unsupported of_c: x has layout LAYOUT_NCHW, expected LAYOUT_ARRAY");
  EXPECT_EQ(outcome(0, 0, 0, 0, "LAYOUT_ARRAY", false),
            "unsupported of_c: x has an unknown layout, expected LAYOUT_ARRAY");
  EXPECT_EQ(outcome(0, 0, 0, 0), "bad of_c: x has shape [0], expected at least one element");
  EXPECT_EQ(outcome(2, 0, 0, 0), "skipped");
}

// A step that runs only if a scalar has a value.
constexpr StepSpec kConditionalSteps[] = {{Check::scalars},
                                          {Check::shapes, ErrorCode::bad_param, "x"},
                                          {Check::present, ErrorCode::not_supported, "y", "mode=both"},
                                          {Check::shapes, ErrorCode::not_supported, "y", "mode=both"}};
constexpr const Signature& kConditional = signature([] {
  return Draft{"conditional",
               "n",
               {choice("mode", "one both", 1)},
               {in("x", dtypes(DType::f32), "n"), out("y", dtypes(DType::f32), "n")},
               {},
               {},
               kConditionalSteps};
});

TEST(Order, StepsMayDependOnAScalar) {
  const auto outcome = [](std::int64_t mode, std::int64_t n, const Tensor& y) -> std::string {
    const Tensor x(nullptr, DType::f32, {n});
    const Slot slots[] = {x, y};
    const ScalarValue scalars[] = {mode};
    try {
      Arguments(kConditional, slots, 2, scalars, 1).check();
      return "runs";
    } catch (const Error& error) {
      return (error.code() == ErrorCode::bad_param ? "bad " : "unsupported ") + std::string(error.what());
    }
  };
  const Tensor fits(nullptr, DType::f32, {2}), other(nullptr, DType::f32, {3});
  EXPECT_EQ(outcome(3, 2, nullptr), "bad conditional: mode is 3, expected one of 1 .. 2 (one both)");
  for (const Tensor& y : {Tensor(nullptr), fits, other}) EXPECT_EQ(outcome(1, 2, y), "runs");
  EXPECT_EQ(outcome(2, 2, nullptr), "unsupported conditional: y is missing");
  EXPECT_EQ(outcome(2, 2, other), "unsupported conditional: y.shape[0] is 3, expected 2 = x.shape[0]");
  EXPECT_EQ(outcome(2, 2, fits), "runs");
  EXPECT_EQ(outcome(2, -1, nullptr), "bad conditional: x.shape[0] is -1, expected 0 or more");
}

TEST(Order, NegativeExtentsAreNotEmpty) {
  constexpr std::int64_t kNone[1] = {};
  const auto is_empty = [](std::initializer_list<Size> shape) {
    return Slot(Tensor(nullptr, DType::f32, shape)).is_empty();
  };
  EXPECT_FALSE(is_empty({}));
  EXPECT_FALSE(is_empty({2, -1}));
  EXPECT_TRUE(is_empty({2, 0}));
  EXPECT_TRUE(is_empty({0, -1}));
  EXPECT_FALSE(Slot(nullptr, DType::f32, kNone, kNone, 0).is_empty());
  EXPECT_TRUE(Slot(nullptr, DType::f32, nullptr, nullptr, 0).is_empty());
}

constexpr const Signature& kCopy = signature([] {
  return Draft{"copy", "n", {}, {in("x", dtypes(DType::f32), "n"), out("y", dtypes(DType::f32), "n")}};
});

TEST(StandardOrder, EmptyOutputsEndTheCallBeforePointersAreChecked) {
  const auto runs = [](const Tensor& x, const Tensor& y) {
    const Slot slots[] = {x, y};
    return Arguments(kCopy, slots, 2, nullptr, 0).check();
  };
  const Tensor empty(nullptr, DType::f32, {0}), two(nullptr, DType::f32, {2});
  EXPECT_FALSE(runs(empty, empty));
  EXPECT_THROW(runs(two, two), Error);
  EXPECT_THROW(runs(two, empty), Error);
}

// Only the outputs y and z decide whether there is something to do. A workspace of size > 0 must not be null,
// even if it is not needed. The size of the scratch memory depends on the number of threads.
std::size_t scratch_of_others(const Arguments& arguments, const Positions&) {
  return static_cast<std::size_t>(arguments.threads() - 1) * 64;
}
constexpr StepSpec kEndsBySteps[] = {{Check::shapes},
                                     {Check::outputs_empty, ErrorCode::bad_param, "y z"},
                                     {Check::workspace_null, ErrorCode::not_supported},
                                     {Check::workspace}};
constexpr const Signature& kEndsBy = signature([] {
  return Draft{"ends_by",
               "n m",
               {},
               {out("count", dtypes(DType::f32), "1"), out("y", dtypes(DType::f32), "n"),
                out("z", dtypes(DType::f32), "m")},
               {},
               {},
               kEndsBySteps,
               {&scratch_of_others}};
});

TEST(Order, SomeOutputsMayDecideWhetherThereIsSomethingToDo) {
  const auto ends = [](std::int64_t n, std::int64_t m, const Workspace& workspace = {}, int threads = 1) {
    const Tensor count(nullptr, DType::f32, {1}), y(nullptr, DType::f32, {n}), z(nullptr, DType::f32, {m});
    const Slot slots[] = {count, y, z};
    try {
      return Arguments(kEndsBy, slots, 3, nullptr, 0, workspace, threads).check() ? "runs" : "skipped";
    } catch (const Error& error) {
      return error.code() == ErrorCode::bad_param ? "bad" : "unsupported";
    }
  };
  char memory[192];
  EXPECT_STREQ(ends(0, 0), "skipped");
  EXPECT_STREQ(ends(0, 0, {nullptr, 1}, 3), "skipped");
  EXPECT_STREQ(ends(1, 0), "runs");
  EXPECT_STREQ(ends(0, 1), "runs");
  EXPECT_STREQ(ends(1, 1, {nullptr, 1}), "unsupported");
  EXPECT_STREQ(ends(1, 1, {memory, 1}), "runs");
  EXPECT_STREQ(ends(1, 1, {memory, sizeof(memory)}, 3), "runs");
  EXPECT_STREQ(ends(1, 1, {memory, sizeof(memory) - 2}, 3), "bad");
  EXPECT_STREQ(ends(1, 1, {nullptr, 0}, 3), "bad");
}

TEST(Extents, ProductsSaturate) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const Tensor t(nullptr, DType::f32, {huge, huge, huge});
  EXPECT_EQ(Slot(t).elements(), kSizeMax);
  EXPECT_EQ(Slot(Tensor(nullptr, DType::f32, {huge, huge, 0})).elements(), 0);
}

// The byte range of a tensor with huge strides, forwards and backwards, saturates at the address space.
TEST(Overlap, OfHugeStridesSaturates) {
  float memory[8] = {};
  for (std::int64_t stride : {kSizeMax / 2 + 1, -(kSizeMax / 2 + 1)}) {
    for (std::int64_t extent : {2, 4}) {  // with 2 the sum overflows, with 4 each product
      Tensor far(memory + 4, DType::f32, {extent, 2, 2});
      std::fill_n(far.stride, 3, stride);
      EXPECT_EQ(share_memory(Slot(far), Slot(view(memory + 6, {2}))), stride > 0) << stride;
      EXPECT_EQ(share_memory(Slot(far), Slot(view(memory, {2}))), stride < 0) << stride;
    }
  }
}

TEST(DTypes, OnlyNumbersUpToTheLastAreDTypes) {
  for (int number = 0; number < 32; ++number)
    EXPECT_EQ(is_dtype(static_cast<DType>(number)), number < kDTypeCount) << number;
  EXPECT_STREQ(name_of(static_cast<DType>(kDTypeCount - 1)), "f8_e8m0");
  EXPECT_STREQ(name_of(static_cast<DType>(kDTypeCount)), "unknown");
}

// A step that names a dimension checks no other one.
TEST(Order, AStepLooksAtTheDimensionsItNames) {
  const Selection only[] = {{.argument = 1, .dim = 0}, {.argument = 2, .dim = -1}};
  Step step;
  step.only = {only, 2};
  EXPECT_TRUE(step.looks_at(1, 0));
  EXPECT_FALSE(step.looks_at(1, 1));
  EXPECT_FALSE(step.looks_at(0, 0));
  EXPECT_TRUE(step.looks_at(2, 1));
  EXPECT_TRUE(Step().looks_at(0, 3));
}

TEST(Contiguity, IgnoresUnitAndEmptyDimensions) {
  Tensor t(nullptr, DType::f32, {3, 1, 4});
  t.stride[1] = 99;
  EXPECT_TRUE(Slot(t).is_contiguous());
  t.stride[0] = 5;
  EXPECT_FALSE(Slot(t).is_contiguous());
  t.shape[2] = 0;
  EXPECT_TRUE(Slot(t).is_contiguous());
}

// The same operator with and without a check of the workspace, which is not needed. Without it, a call is
// checked in one pass; with it, step by step.
void is_not_seven(const Arguments& arguments, const Positions& at) {
  if (arguments.size(at[0]) == 7) arguments.fail(ErrorCode::bad_param, "seven");
}
template <std::size_t kCount>
consteval auto with_workspace(const StepSpec (&steps)[kCount]) {
  std::array<StepSpec, kCount + 1> more{};
  std::copy_n(steps, kCount, more.begin());
  more.back() = {Check::workspace_null};
  return more;
}
constexpr StepSpec kPartialOrder[] = {{Check::present, ErrorCode::bad_param, "x bias"},
                                      {Check::dtypes, ErrorCode::not_supported},
                                      {Check::ranks},
                                      {Check::shapes},
                                      {Check::data},
                                      {Check::large, ErrorCode::not_supported, "x"},
                                      {Check::any_empty, ErrorCode::bad_param, "bias"},
                                      {Check::contiguous, ErrorCode::bad_param, "x y"},
                                      {Check::scalars, ErrorCode::bad_param, "mode"},
                                      {Check::pointers, ErrorCode::bad_param, "y"}};
constexpr auto kStandardSteps = with_workspace(kStandardOrder);
constexpr auto kPartialSteps = with_workspace(kPartialOrder);
consteval Draft plain_draft(std::span<const StepSpec> steps) {
  return Draft{"plain",
               "batch rows columns",
               {scalar("factor", 1, 3), choice("mode", "keep zero"), vector("pad", "columns", 0, 2),
                real("eps", 0, 1)},
               {in("x", kFloats, "batch?, rows, columns"), optional(in("bias", like("x"), "columns")),
                required_when("mode", "zero", in("mask", dtypes(DType::boolean), "rows")),
                required_with("bias", out("bias_grad", lane_of("x"), "columns")),
                may_overlap("x", out("y", like("x"), "batch?, rows * factor, columns + 1"))},
               {at_most("rows", "columns + 4")},
               {{"seven", "", &is_not_seven, "rows"}},
               steps};
}
constexpr const Signature& kStandardInOnePass = signature([] { return plain_draft(kStandardOrder); });
constexpr const Signature& kStandardByStep = signature([] { return plain_draft(kStandardSteps); });
constexpr const Signature& kPartialInOnePass = signature([] { return plain_draft(kPartialOrder); });
constexpr const Signature& kPartialByStep = signature([] { return plain_draft(kPartialSteps); });

TEST(Order, OnePassDecidesLikeTheSteps) {
  static_assert(kStandardInOnePass.passes_in_any_order && !kStandardByStep.passes_in_any_order);
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  alignas(64) static std::byte memory[8192];
  std::map<std::string, int> outcomes;
  for (int round = 0; round < 50000; ++round) {
    const std::int64_t batch = 1 + below(2), rows = below(9), columns = below(4);
    const std::int64_t factor = below(20) == 0 ? below(5) : 1 + below(3);
    const DType dtype = below(2) == 0 ? DType::f32 : DType::f64;
    const bool has_batch = below(2) == 0, has_bias = below(2) == 0;
    const std::int64_t mode = below(2);
    Tensor tensors[] = {Tensor(nullptr, dtype, {batch, rows, columns}), Tensor(nullptr, dtype, {columns}),
                        Tensor(nullptr, DType::boolean, {rows}), Tensor(nullptr, dtype, {columns}),
                        Tensor(nullptr, dtype, {batch, rows * factor, columns + 1})};
    if (!has_batch) {
      tensors[0] = Tensor(nullptr, dtype, {rows, columns});
      tensors[4] = Tensor(nullptr, dtype, {rows * factor, columns + 1});
    }
    for (int i = 0; i < 5; ++i) tensors[i].data = memory + 1536 * i;
    if (!has_bias) tensors[1] = tensors[3] = nullptr;
    if (mode == 0 && below(2) == 0) tensors[2] = nullptr;
    std::vector<std::int64_t> pad(static_cast<std::size_t>(columns), below(3));
    double eps = 0.5;
    // At most two mistakes, so that most checks are the first to fail in some round.
    for (std::int64_t mistakes = below(3); mistakes > 0; --mistakes) {
      Tensor& tensor = tensors[below(5)];
      const auto d = static_cast<std::size_t>(below(3));
      switch (below(11)) {
        case 0:
          tensor = nullptr;
          break;
        case 1:
          tensor.dtype = static_cast<DType>(below(20));
          break;
        case 2:
          tensor.shape[d] = below(4) - 1;
          break;
        case 3:
          tensor.stride[d] = below(5) - 1;
          break;
        case 4:
          tensor.data = nullptr;
          break;
        case 5:
          tensor.data = memory + below(2000);
          break;
        case 6:
          tensor.rank = static_cast<int>(below(4));
          break;
        case 7:
          pad.assign(static_cast<std::size_t>(below(4)), below(4) - 1);
          break;
        case 8:
          eps = below(2) == 0 ? std::numeric_limits<double>::quiet_NaN() : 2;
          break;
        case 9:
          tensors[4].data = tensors[0].data;
          break;
        default:
          tensors[4].shape[d] += 1;
      }
    }
    const std::vector<Slot> slots(std::begin(tensors), std::end(tensors));
    const ScalarValue scalars[] = {factor, mode, {pad.data(), static_cast<std::int64_t>(pad.size())}, eps};
    const auto outcome = [&](const Signature& signature) {
      try {
        Arguments arguments(signature, slots.data(), 5, scalars, 4);
        std::string text = arguments.check() ? "runs" : "skipped";
        for (int name = 0; name < signature.names.count; ++name) text += concat(" ", arguments.size(name));
        return text;
      } catch (const Error& error) {
        return std::string(error.what());
      }
    };
    const std::string found = outcome(kStandardInOnePass);
    ASSERT_EQ(found, outcome(kStandardByStep));
    ASSERT_EQ(outcome(kPartialInOnePass), outcome(kPartialByStep));
    ++outcomes[found.substr(0, found.find_first_of("0123456789"))];
  }
  EXPECT_GT(outcomes["runs "], 5000);
  EXPECT_GT(outcomes.size(), 50u);
}

}  // namespace
}  // namespace turnout::core
