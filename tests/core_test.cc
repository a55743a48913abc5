// Tests tensors, the caller's names in errors, the log and the observer.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/draft.h"
#include "core/pieces.h"
#include "runtime/call.h"
#include "simd/isa.h"
#include "small_dispatch.h"
#include "turnout/turnout.h"

namespace turnout {
namespace {

using test::Dispatch;
using test::Lines;

TEST(Tensor, ViewsAreContiguous) {
  float data[24] = {};
  const Tensor t = view(data, {2, 3, 4});
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.stride[0], 12);
  EXPECT_EQ(t.stride[1], 4);
  EXPECT_EQ(t.stride[2], 1);
  const ConstTensor c = t;
  EXPECT_EQ(c.data, data);
  EXPECT_EQ(c.shape[2], 4);
  for (int i = 0; i < kDTypeCount; ++i) EXPECT_STRNE(name_of(static_cast<DType>(i)), "unknown");
  EXPECT_STREQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(size_of(DType::f8_e8m0), 1);
}

// A const view must not convert to a writable one, and overload resolution must respect that.
TEST(Tensor, ConversionsKeepConst) {
  static_assert(std::is_convertible_v<Tensor, ConstTensor>);
  static_assert(!std::is_convertible_v<ConstTensor, Tensor>);
  static_assert(!std::is_constructible_v<Tensor, const ConstTensor&>);
  static_assert(std::is_trivially_copyable_v<Tensor> && std::is_trivially_copyable_v<ConstTensor>);
}

TEST(Tensor, ViewsOfContainers) {
  std::vector<float> values(6);
  const std::vector<std::int32_t> fixed(3);
  std::array<double, 4> four = {};
  const std::size_t rows = 2;
  const unsigned columns = 3;
  const Tensor matrix = view(values, {rows, columns});
  EXPECT_EQ(matrix.data, values.data());
  EXPECT_EQ(matrix.shape[0], 2);
  EXPECT_EQ(matrix.stride[0], 3);
  const ConstTensor line = view(fixed);
  EXPECT_EQ(line.dtype, DType::i32);
  EXPECT_EQ(line.rank, 1);
  EXPECT_EQ(line.shape[0], 3);
  EXPECT_EQ(view(four, {2, 2}).dtype, DType::f64);
  EXPECT_EQ(view(std::span(values).subspan(2), {4, 1}).data, values.data() + 2);
  EXPECT_EQ(view(std::span<const double>(four)).shape[0], 4);
  const float plain[5] = {};
  EXPECT_EQ(view(plain).shape[0], 5);
  static_assert(std::is_same_v<decltype(view(fixed, {3})), ConstTensor>);
  static_assert(std::is_same_v<decltype(view(four)), Tensor>);
}

TEST(Tensor, ViewsOfContainersMatchTheirNumberOfElements) {
  const std::vector<float> values(6);
  const auto message = [&](std::initializer_list<Size> shape) -> std::string {
    try {
      view(values, shape);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message({6}), "");
  EXPECT_EQ(message({2, 4}), "view: the container has 6 elements, expected as many as in shape [2, 4]");
  EXPECT_NE(message({-2, -3}), "");
  EXPECT_NE(message({std::int64_t{1} << 62, 4}), "");
  EXPECT_NE(message({std::int64_t{1} << 62, 4, 0}), "");
  const std::vector<float> none;
  EXPECT_EQ(view(none, {std::int64_t{1} << 62, 4, 0}).rank, 3);
}

// Errors and records of an operator that runs for another function use the names of that function.
TEST(Caller, NamesAreUsedInErrorsAndRecords) {
  using namespace core;
  static constexpr const Signature& kInner = signature([] {
    return Draft{
        "inner", "rows", {scalar("most", 0)}, {in("x", kFloats, "rows"), out("y", like("x"), "rows")}};
  });
  static constexpr const Signature& kOuter = signature([] {
    return Draft{
        "Outer", "rows", {scalar("limit", 0)}, {in("x", kFloats, "rows"), out("result", like("x"), "rows")}};
  });
  static constexpr Renames kNames(kInner, kOuter, "y=result most=limit");
  Context context;
  std::string seen;
  context.set_observer(
      [](const CallRecord& record, void* user) {
        *static_cast<std::string*>(user) = std::string(record.op) + "(" + record.arguments + ")";
      },
      &seen);
  float x[2] = {}, y[2] = {};
  const auto error_of = [&](const Caller& caller, std::int64_t most, bool is_late) -> std::string {
    try {
      Call call(caller, kInner, {view(x, {2}), view(y, {2})}, {most});
      if (is_late) call.refuse(concat(call.name("y"), " is late, expected ", call.name("most")));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  {
    const Tensor from = view(x, {2}), to = view(y, {2});
    const Slot slots[] = {from, to};
    const ScalarValue limit = -1;
    const Arguments arguments(kOuter, slots, 2, &limit, 1);
    const CallerNames names{.op = arguments.signature().op, .renames = kNames, .arguments = &arguments};
    const CallDetails details{.names = &names};
    const Caller frame = details.caller(context);
    EXPECT_EQ(error_of(frame, -1, false), "Outer: limit is -1, expected 0 or more");
    EXPECT_EQ(seen, "Outer(x f32[2], result f32[2], limit -1)");
    EXPECT_EQ(error_of(frame, 0, true), "Outer: result is late, expected limit");
    EXPECT_EQ(error_of(frame, 0, false), "");
  }
  EXPECT_EQ(error_of(context, 0, true), "inner: y is late, expected most");
  EXPECT_EQ(seen, "inner(x f32[2], y f32[2], most 0)");
}

// Messages about dtypes use the caller's names for them.
TEST(Caller, NamesOfDtypesAreUsedInErrors) {
  using namespace core;
  static constexpr const Signature& kInner = signature([] {
    return Draft{"inner",
                 "rows",
                 {},
                 {in("x", kFloats, "rows"), optional(out("y", like("x"), "rows")),
                  optional(out("z", lane_of("x"), "rows"))}};
  });
  static constexpr Renames kNames(kInner, "x=src");
  const DTypeName dtype_name = [](DType dtype) { return dtype == DType::f64 ? "double" : "other"; };
  Context context;
  const CallerNames names{.op = "outer", .renames = kNames, .dtype_name = dtype_name};
  const auto error_of = [&](const Caller& caller, DType x, const Slot& y, const Slot& z) -> std::string {
    try {
      Call(caller, kInner, {ConstTensor(nullptr, x, {2}), y, z}, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const CallDetails details{.names = &names};
  const Caller frame = details.caller(context);
  const ConstTensor two(nullptr, DType::f64, {2}), bytes(nullptr, DType::i8, {2});
  EXPECT_EQ(error_of(frame, DType::i8, {}, {}),
            "outer: src has dtype other, expected other, double, other, other");
  EXPECT_EQ(error_of(frame, DType::f32, {}, two),
            "outer: z has dtype double, expected other for src of other");
  EXPECT_EQ(error_of(frame, DType::f64, bytes, {}), "outer: y has dtype other, expected that of src");
  EXPECT_EQ(error_of(context, DType::f32, {}, two), "inner: z has dtype f64, expected f32 for x of f32");
  EXPECT_EQ(error_of(frame, kForeign, {}, {}).substr(0, 26), "outer: src has dtype unkno");
}

TEST(Pieces, CoverTheRangeOnceAndNoneIsEmpty) {
  const auto seen = [](std::int64_t first, std::int64_t last, std::int64_t size) {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (const core::Piece piece : core::pieces(first, last, size))
      all.emplace_back(piece.begin, piece.end());
    return all;
  };
  using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(seen(0, 7, 3), (Ranges{{0, 3}, {3, 6}, {6, 7}}));
  EXPECT_EQ(seen(2, 8, 3), (Ranges{{2, 5}, {5, 8}}));
  EXPECT_EQ(seen(2, 3, 3), (Ranges{{2, 3}}));
  EXPECT_EQ(seen(4, 4, 3), Ranges{});
}

TEST(Dims, HoldsFourValues) {
  EXPECT_EQ(Dims::filled(4, 7)[3], 7);
  for (int count : {5, 9, -1}) {
    try {
      Dims::filled(count, 1);
      FAIL() << count << " values were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "Dims: " + std::to_string(count) + " values, expected at most 4");
    }
  }
}

TEST(Log, OneLinePerCallMadeFromTheSignature) {
  Lines lines;
  Context context({.threads = 1});
  Dispatch dispatch;
  dispatch(context);
  EXPECT_TRUE(lines.all.empty());
  set_log(1, &Lines::sink, &lines);
  dispatch(context);
  set_log(0);
  dispatch(context);
  ASSERT_EQ(lines.all.size(), 1u);
  const std::string expected =
      "[turnout] moe_dispatch_forward(gates f32[2], indices i32[2], locations i32[2], input f32[2, 3], "
      "dispatch f32[2, 3], capacity 1, num_experts 2, fill 1): algorithm=\"in order\" isa=" +
      std::string(name_of(core::at_most(context.isa(), Isa::avx512))) + " threads=1 scratch=0 us=";
  EXPECT_EQ(lines.all[0].second.substr(0, expected.size()), expected) << lines.all[0].second;
}

// Most kernels are not compiled for avx512_dl, because they would not use it. The log must not claim it.
TEST(Log, NamesTheInstructionSetThatRuns) {
  Context context({.threads = 1});
  std::vector<Isa> seen;
  context.set_observer([](const CallRecord& record,
                          void* user) { static_cast<std::vector<Isa>*>(user)->push_back(record.isa); },
                       &seen);
  Dispatch dispatch;
  dispatch(context);
  const std::int32_t site[2] = {0, 1};
  std::int32_t out[2], pairs[2], num[1];
  get_indice_pairs(view(site, {1, 2}), view(out, {1, 2}), view(pairs, {1, 2, 1}), view(num, {1}),
                   {.spatial_shape = {4}, .kernel_size = {1}}, context);
  const std::vector<Isa> expected = {core::at_most(context.isa(), Isa::avx512),
                                     core::at_most(context.isa(), Isa::avx512_dl)};
  EXPECT_EQ(seen, expected);
}

TEST(Log, FailuresHaveTheirMessageAndEmptyCallsAreLevelFive) {
  Lines lines;
  Context context;
  const auto call = [&](std::int64_t hidden, std::int64_t out_hidden) {
    moe_dispatch_forward(ConstTensor(nullptr, DType::f32, {0}), ConstTensor(nullptr, DType::i32, {0}),
                         ConstTensor(nullptr, DType::i32, {0}), ConstTensor(nullptr, DType::f32, {0, hidden}),
                         Tensor(nullptr, DType::f32, {0, out_hidden}), {.capacity = 0, .num_experts = 2},
                         context);
  };
  set_log(1, &Lines::sink, &lines);
  EXPECT_THROW(call(3, 4), Error);
  call(3, 3);
  set_log(5, &Lines::sink, &lines);
  call(3, 3);
  set_log(0);
  ASSERT_EQ(lines.all.size(), 2u);
  EXPECT_NE(lines.all[0].second.find(
                "failed: moe_dispatch_forward: dispatch.shape[1] is 4, expected 3 = input.shape[1]"),
            std::string::npos)
      << lines.all[0].second;
  EXPECT_EQ(lines.all[1].first, 5);
  EXPECT_NE(lines.all[1].second.find("skipped"), std::string::npos) << lines.all[1].second;
}

TEST(Log, NothingIsPrintedByDefault) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Context context;
  Dispatch dispatch;
  dispatch(context);
  EXPECT_THROW(moe_dispatch_forward({}, {}, {}, {}, {}, {}, context), Error);
  EXPECT_EQ(testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout(), "");
}

TEST(Observer, SeesWhatHappened) {
  struct Seen {
    int calls = 0;
    std::string op, algorithm, error;
    std::int64_t scratch = -1;
  } seen;
  Context context;
  context.set_observer(
      [](const CallRecord& record, void* user) {
        auto& s = *static_cast<Seen*>(user);
        ++s.calls;
        s.op = record.op;
        s.algorithm = record.algorithm;
        s.error = record.error ? record.error : "";
        s.scratch = record.scratch_bytes;
      },
      &seen);
  Dispatch dispatch;
  dispatch(context, Fill::keep);
  EXPECT_EQ(seen.op, "moe_dispatch_forward");
  EXPECT_EQ(seen.algorithm, "in order");
  EXPECT_EQ(seen.scratch, 0);
  EXPECT_EQ(seen.error, "");
  EXPECT_THROW(moe_dispatch_forward({}, {}, {}, {}, {}, {}, context), Error);
  EXPECT_EQ(seen.error, "moe_dispatch_forward: gates has 0 dimensions, expected [choices?, samples]");
  EXPECT_EQ(seen.calls, 2);
  context.set_observer(nullptr, nullptr);
  dispatch(context);
  EXPECT_EQ(seen.calls, 2);
}

// A throwing observer does not end the process, and a callback always gets the user pointer set with it.
TEST(Observer, MayThrowAndBeReplacedWhileOthersCall) {
  Context context({.threads = 1});
  context.set_observer([](const CallRecord&, void*) { throw 1; }, nullptr);
  Dispatch dispatch;
  EXPECT_NO_THROW(dispatch(context));

  struct Tagged {
    int tag;
    std::atomic<int> wrong{0};
  } one{1}, two{2};
  const auto see = [](int tag) {
    return tag == 1 ? +[](const CallRecord&, void* user) {
      auto& t = *static_cast<Tagged*>(user);
      t.wrong += t.tag != 1;
    }
                    : +[](const CallRecord&, void* user) {
      auto& t = *static_cast<Tagged*>(user);
      t.wrong += t.tag != 2;
    };
  };
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    Dispatch mine;
    while (!stop) mine(context);
  });
  for (int i = 0; i < 500; ++i) context.set_observer(see(i % 2 + 1), i % 2 ? &two : &one);
  stop = true;
  caller.join();
  context.set_observer(nullptr, nullptr);
  EXPECT_EQ(one.wrong + two.wrong, 0);
}

}  // namespace
}  // namespace turnout
