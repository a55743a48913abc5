// Tensors, contexts, scratch memory, the log, the observer, the instruction set.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include "core/draft.h"
#include "runtime/call.h"
#include "simd/isa.h"
#include "turnout/mluop/mlu_op.h"
#include "turnout/turnout.h"

namespace turnout {
namespace {

// The smallest dispatch that uses the table of last writers: 2 rows of 3.
struct Dispatch {
  float gates[2] = {2, 3}, input[6] = {1, 2, 3, 4, 5, 6}, dispatch[6] = {};
  std::int32_t indices[2] = {1, 0}, locations[2] = {0, 0};
  void operator()(Context& context, Fill fill = Fill::zero) {
    moe_dispatch_forward(context, view(gates, {2}), view(indices, {2}), view(locations, {2}),
                         view(input, {2, 3}), view(dispatch, {2, 3}),
                         {.capacity = 1, .num_experts = 2, .fill = fill});
  }
};

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

TEST(Scratch, FailsCleanlyWhenMemoryIsOut) {
  Context context;
  try {
    core::Scratch scratch(context, std::numeric_limits<std::size_t>::max() - 100);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::alloc_failed);
  }
  core::Scratch works(context, 100);
  int* ints = works.take<int>(10);
  ints[9] = 1;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ints) % core::kScratchAlignment, 0u);
}

// Names that differ are replaced as whole words, in calls whose frame has a caller.
TEST(Caller, LendsItsNamesToErrorsAndRecords) {
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
  const auto error_of = [&](const Frame& frame, std::int64_t most, const char* sentence) -> std::string {
    try {
      Call call(frame, kInner, {view(x, {2}), view(y, {2})}, {most});
      call.check([&] {
        if (sentence != nullptr) throw Error(ErrorCode::not_supported, sentence);
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const char* late = "inner: y is almost most of y[most], yy";
  {
    const Tensor from = view(x, {2}), to = view(y, {2});
    const Slot slots[] = {from, to};
    const ScalarValue limit = -1;
    const Arguments arguments(kOuter, slots, 2, &limit, 1);
    const Caller caller(arguments, kNames);
    const Frame frame(context, {}, &caller);
    EXPECT_EQ(error_of(frame, -1, nullptr), "Outer: limit is -1, expected 0 or more");
    EXPECT_EQ(seen, "Outer(x f32[2], result f32[2], limit -1)");
    EXPECT_EQ(error_of(frame, 0, late), "Outer: result is almost limit of result[limit], yy");
    EXPECT_EQ(error_of(frame, 0, nullptr), "");
  }
  EXPECT_EQ(error_of(context, 0, late), late);
  EXPECT_EQ(seen, "inner(x f32[2], y f32[2], most 0)");
}

TEST(Scratch, ManyLeasesAtOnceAreSeparate) {
  Context context;
  std::vector<std::unique_ptr<core::Scratch>> leases;
  std::vector<int*> memory;
  for (int i = 0; i < 40; ++i) {
    leases.push_back(std::make_unique<core::Scratch>(context, 64));
    memory.push_back(leases.back()->take<int>(16));
    *memory.back() = i;
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(*memory[static_cast<std::size_t>(i)], i);
}

// Idle arenas stay within the limit; the least recently used go first.
TEST(Scratch, IdleArenasAreBounded) {
  constexpr std::size_t kUnit = 64 << 10;
  core::ArenaList arenas(10 * kUnit);
  core::Arena* leased[4];
  const std::size_t sizes[] = {5 * kUnit, 1 * kUnit, 4 * kUnit, 3 * kUnit};
  for (int i = 0; i < 4; ++i) leased[i] = arenas.take(sizes[i]);
  for (core::Arena* arena : leased) arenas.give_back(arena);
  EXPECT_EQ(arenas.idle_bytes(), 8 * kUnit);  // all but the first
  core::Arena* four = arenas.take(4 * kUnit);
  EXPECT_EQ(four, leased[2]);
  EXPECT_EQ(arenas.idle_bytes(), 4 * kUnit);
  arenas.give_back(four);
  arenas.give_back(arenas.take(1 * kUnit));     // now the one of 3 units is the oldest
  core::Arena* most = arenas.take(10 * kUnit);  // the largest grows
  EXPECT_EQ(arenas.idle_bytes(), 4 * kUnit);
  arenas.give_back(most);
  EXPECT_EQ(arenas.idle_bytes(), 10 * kUnit);  // it alone
  arenas.give_back(arenas.take(11 * kUnit));   // more than is kept
  EXPECT_EQ(arenas.idle_bytes(), 0u);
}

// More arenas than there are places for: the rest is freed, and none is lost or shared.
TEST(Scratch, IdleArenasAreBoundedWhenManyThreadsLease) {
  core::ArenaList arenas(6 << 20);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int repeat = 0; repeat < 300; ++repeat) {
        core::Arena* held[8];
        for (int i = 0; i < 8; ++i) {
          held[i] = arenas.take(static_cast<std::size_t>((i + repeat) % 8 + 1) << 18);
          *static_cast<int*>(held[i]->data) = t * 8 + i;
        }
        for (int i = 0; i < 8; ++i) wrong += *static_cast<int*>(held[i]->data) != t * 8 + i;
        for (core::Arena* arena : held) arenas.give_back(arena);
        if (repeat % 50 == 49) arenas.trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(arenas.idle_bytes(), std::size_t{6 << 20});
  arenas.trim();
  EXPECT_EQ(arenas.idle_bytes(), 0u);
}

TEST(Scratch, TrimFreesAllThatIsIdle) {
  Context context;
  { const core::Scratch small(context, 100), large(context, 3 << 20); }
  EXPECT_GT(context.state().arenas.idle_bytes(), std::size_t{3 << 20});
  context.trim();
  EXPECT_EQ(context.state().arenas.idle_bytes(), 0u);
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

struct Lines {
  std::vector<std::pair<int, std::string>> all;
  static void sink(int level, const char* line, void* user) {
    static_cast<Lines*>(user)->all.emplace_back(level, line);
  }
};

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
      "dispatch f32[2, 3], capacity 1, num_experts 2, fill 1): algorithm=last writers isa=" +
      std::string(name_of(context.isa())) + " threads=1 scratch=64 us=";
  EXPECT_EQ(lines.all[0].second.substr(0, expected.size()), expected) << lines.all[0].second;
}

TEST(Log, FailuresHaveTheirSentenceAndEmptyCallsAreLevelFive) {
  Lines lines;
  Context context;
  const auto call = [&](std::int64_t hidden, std::int64_t wanted) {
    moe_dispatch_forward(context, ConstTensor(nullptr, DType::f32, {0}),
                         ConstTensor(nullptr, DType::i32, {0}), ConstTensor(nullptr, DType::i32, {0}),
                         ConstTensor(nullptr, DType::f32, {0, hidden}),
                         Tensor(nullptr, DType::f32, {0, wanted}), {.capacity = 0, .num_experts = 2});
  };
  set_log(1, &Lines::sink, &lines);
  EXPECT_THROW(call(3, 4), Error);
  call(3, 3);
  set_log(5, &Lines::sink, &lines);
  call(3, 3);
  set_log(0);
  ASSERT_EQ(lines.all.size(), 2u);
  EXPECT_NE(
      lines.all[0].second.find("failed: moe_dispatch_forward: dispatch.shape[1] is 4, expected hidden = 3"),
      std::string::npos)
      << lines.all[0].second;
  EXPECT_EQ(lines.all[1].first, 5);
  EXPECT_NE(lines.all[1].second.find("skipped"), std::string::npos) << lines.all[1].second;
}

TEST(Log, NothingIsPrintedUnlessAsked) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  Context context;
  Dispatch dispatch;
  dispatch(context);
  EXPECT_THROW(moe_dispatch_forward(context, {}, {}, {}, {}, {}, {}), Error);
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
  EXPECT_THROW(moe_dispatch_forward(context, {}, {}, {}, {}, {}, {}), Error);
  EXPECT_EQ(seen.error, "moe_dispatch_forward: gates has 0 dimensions, expected [choices?, samples]");
  EXPECT_EQ(seen.calls, 2);
  context.set_observer(nullptr, nullptr);
  dispatch(context);
  EXPECT_EQ(seen.calls, 2);
}

// What is logged or observed cannot end the process, and a pair of callback and user is never mixed.
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

TEST(IsaChoice, IsCappedByTheEnvironmentAndNeverAboveTheCpu) {
  const Isa best = core::best_isa();
  EXPECT_TRUE(is_supported(best));
#if defined(__x86_64__)
  ASSERT_EQ(setenv("TURNOUT_ISA", "sse4", 1), 0);
  EXPECT_EQ(Context().isa(), Isa::sse4);
  ASSERT_EQ(setenv("TURNOUT_ISA", "avx512_dl", 1), 0);
  EXPECT_EQ(Context().isa(), best);
  unsetenv("TURNOUT_ISA");
  EXPECT_THROW(Context({.isa = Isa::neon}), Error);
  for (Isa isa : {Isa::sse4, Isa::avx2, Isa::avx512, Isa::avx512_dl}) {
    if (is_supported(isa)) {
      EXPECT_EQ(Context({.isa = isa}).isa(), isa);
    } else {
      EXPECT_THROW(Context({.isa = isa}), Error);
    }
  }
#endif
}

// A variable that cannot be understood is one sentence, from C++ and from C.
TEST(Environment, BadWordsAreOneSentence) {
  const struct {
    const char *name, *value, *sentence;
  } rows[] = {
      {"TURNOUT_ISA", "mmx", "TURNOUT_ISA is 'mmx', expected one of sse4, avx2, avx512, avx512_dl, neon"},
      {"TURNOUT_ISA", "best", "TURNOUT_ISA is 'best', expected one of sse4, avx2, avx512, avx512_dl, neon"},
      {"TURNOUT_LOG", "yes", "TURNOUT_LOG is 'yes', expected a level, 0 .. 5"},
      {"TURNOUT_LOG", "-1", "TURNOUT_LOG is '-1', expected a level, 0 .. 5"},
      {"TURNOUT_LOG", "1x", "TURNOUT_LOG is '1x', expected a level, 0 .. 5"},
      {"TURNOUT_NUM_THREADS", "0", "TURNOUT_NUM_THREADS is '0', expected 1 .. 1024"},
  };
  for (const auto& [name, value, sentence] : rows) {
    ASSERT_EQ(setenv(name, value, 1), 0);
    try {
      Context context;
      ADD_FAILURE() << name << "=" << value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_param);
      EXPECT_STREQ(error.what(), sentence);
    }
    mluOpHandle_t handle = nullptr;
    EXPECT_EQ(mluOpCreate(&handle), MLUOP_STATUS_BAD_PARAM);
    EXPECT_EQ(handle, nullptr);
    EXPECT_STREQ(turnoutLastError(), sentence);
    ASSERT_EQ(setenv(name, "", 1), 0);  // as if it were not there
    EXPECT_NO_THROW(Context());
    unsetenv(name);
  }
}

#if defined(__x86_64__)
constexpr const char* kForeignIsa = "neon";
#else
constexpr const char* kForeignIsa = "sse4";
#endif

TEST(Environment, AnInstructionSetThatTheCpuLacksChangesNothing) {
  const Isa best = core::best_isa();
  EXPECT_EQ(core::isa_note(), "");
  ASSERT_EQ(setenv("TURNOUT_ISA", kForeignIsa, 1), 0);
  EXPECT_EQ(Context().isa(), best);
  EXPECT_EQ(core::isa_note(), std::string("TURNOUT_ISA is ") + kForeignIsa +
                                  ", which this CPU or this build lacks: " + name_of(best) + " is used");
  ASSERT_EQ(setenv("TURNOUT_ISA", name_of(best), 1), 0);
  EXPECT_EQ(core::isa_note(), "");
  unsetenv("TURNOUT_ISA");
}

// In a process of its own, which has said nothing yet.
TEST(EnvironmentDeathTest, AnInstructionSetThatTheCpuLacksIsLoggedOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto log_two_calls = [] {
    setenv("TURNOUT_ISA", kForeignIsa, 1);
    Lines lines;
    Context context({.threads = 1});
    Dispatch dispatch;
    dispatch(context);  // nothing is said while the log is off
    set_log(1, &Lines::sink, &lines);
    dispatch(context);
    dispatch(context);
    for (const auto& [level, line] : lines.all)
      std::fprintf(stderr, "%d %s;", level, line.substr(0, 40).c_str());
    std::exit(lines.all.size() == 3 ? 0 : 1);
  };
  EXPECT_EXIT(log_two_calls(), testing::ExitedWithCode(0),
              std::string("^1 .turnout. TURNOUT_ISA is ") + kForeignIsa +
                  ".*;1 .turnout. moe_dispatch_forward.*;1 .turnout. moe_dispatch_forward");
}

}  // namespace
}  // namespace turnout
