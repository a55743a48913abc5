// Tests the environment variables and the choice of the instruction set.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "simd/isa.h"
#include "small_dispatch.h"
#include "turnout/mluop/mlu_op.h"
#include "turnout/turnout.h"

namespace turnout {
namespace {

using test::Dispatch;
using test::Lines;

TEST(IsaChoice, IsCappedByTheEnvironmentAndNeverAboveTheCpu) {
  const Isa best = core::best_isa();
  EXPECT_TRUE(is_supported(best));
#if defined(__x86_64__)
  ASSERT_EQ(setenv("TURNOUT_ISA", "sse4", 1), 0);
  EXPECT_EQ(Context().isa(), Isa::sse4);
  ASSERT_EQ(setenv("TURNOUT_ISA", "avx512_bf16", 1), 0);
  EXPECT_EQ(Context().isa(), best);
  unsetenv("TURNOUT_ISA");
  EXPECT_THROW(Context({.isa = Isa::neon}), Error);
  for (Isa isa : {Isa::sse4, Isa::avx2, Isa::avx512, Isa::avx512_dl, Isa::avx512_bf16}) {
    if (is_supported(isa)) {
      EXPECT_EQ(Context({.isa = isa}).isa(), isa);
    } else {
      EXPECT_THROW(Context({.isa = isa}), Error);
    }
  }
#endif
}

#if defined(__x86_64__)
// Linux lists a feature only if the CPU has it and the kernel saves its registers.
TEST(IsaChoice, AgreesWithTheKernelsListOfFeatures) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line, features;
  while (features.empty() && std::getline(cpuinfo, line))
    if (line.starts_with("flags")) features = line.substr(line.find(':') + 1) + " ";
  if (features.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags";
  const auto listed = [&](const std::string& words) {
    std::istringstream stream(words);
    for (std::string word; stream >> word;)
      if (features.find(" " + word + " ") == std::string::npos) return false;
    return true;
  };
  const std::string words[] = {
      "ssse3 sse4_1 sse4_2 popcnt pclmulqdq aes", "avx avx2 fma bmi1 bmi2 f16c",
      "avx512f avx512bw avx512dq avx512vl avx512cd",
      "avx512_vnni vpclmulqdq avx512vbmi avx512_vbmi2 avx512_bitalg avx512_vpopcntdq "
      "gfni vaes",
      "avx512_bf16"};
  bool expected = true;
  for (int i = 0; i <= TURNOUT_MOST_ISA; ++i) {
    expected = expected && listed(words[i]);
    EXPECT_EQ(is_supported(static_cast<Isa>(i)), expected) << words[i];
  }
}
#endif

// An invalid value is an error that names the variable, the value and the valid values, in C++ and in C.
TEST(Environment, InvalidValuesAreErrors) {
  const struct {
    const char *name, *value, *message;
  } rows[] = {
      {"TURNOUT_ISA", "mmx",
       "TURNOUT_ISA is 'mmx', expected one of sse4, avx2, avx512, avx512_dl, avx512_bf16, "
       "neon"},
      {"TURNOUT_ISA", "best",
       "TURNOUT_ISA is 'best', expected one of sse4, avx2, avx512, avx512_dl, avx512_bf16, "
       "neon"},
      {"TURNOUT_LOG", "yes", "TURNOUT_LOG is 'yes', expected a level, 0 .. 5"},
      {"TURNOUT_LOG", "-1", "TURNOUT_LOG is '-1', expected a level, 0 .. 5"},
      {"TURNOUT_LOG", "1x", "TURNOUT_LOG is '1x', expected a level, 0 .. 5"},
      {"TURNOUT_NUM_THREADS", "0", "TURNOUT_NUM_THREADS is '0', expected 1 .. 1024"},
  };
  for (const auto& [name, value, message] : rows) {
    ASSERT_EQ(setenv(name, value, 1), 0);
    try {
      Context context;
      ADD_FAILURE() << name << "=" << value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_param);
      EXPECT_STREQ(error.what(), message);
    }
    mluOpHandle_t handle = nullptr;
    EXPECT_EQ(mluOpCreate(&handle), MLUOP_STATUS_BAD_PARAM);
    EXPECT_EQ(handle, nullptr);
    EXPECT_STREQ(turnoutLastError(), message);
    ASSERT_EQ(setenv(name, "", 1), 0);  // an empty value counts as unset
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

// Runs in its own process, because the note is logged once per process.
TEST(EnvironmentDeathTest, AnInstructionSetThatTheCpuLacksIsLoggedOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto log_two_calls = [] {
    setenv("TURNOUT_ISA", kForeignIsa, 1);
    Lines lines;
    Context context({.threads = 1});
    Dispatch dispatch;
    dispatch(context);  // the log is off: no note
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
