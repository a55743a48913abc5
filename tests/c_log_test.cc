// Tests the environment variables that turn on the log of the C interface, and its lines. The variables are
// read once per process, so each case runs this program again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "turnout/mluop/mlu_op.h"

namespace turnout::test {
namespace {

mluOpStatus_t dispatch_one(mluOpHandle_t handle, int hidden, const float* gate, const float* input,
                           float* dispatch) {
  mluOpTensorDescriptor_t vector, route, matrix;
  const int one[] = {1}, row[] = {1, hidden};
  const std::int32_t zero = 0;
  mluOpCreateTensorDescriptor(&vector);
  mluOpCreateTensorDescriptor(&route);
  mluOpCreateTensorDescriptor(&matrix);
  mluOpSetTensorDescriptor(vector, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, one);
  mluOpSetTensorDescriptor(route, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_INT32, 1, one);
  mluOpSetTensorDescriptor(matrix, MLUOP_LAYOUT_NTC, MLUOP_DTYPE_FLOAT, 2, row);
  const mluOpStatus_t status = mluOpMoeDispatchForward(handle, vector, gate, route, &zero, route, &zero,
                                                       matrix, input, 1, 1, hidden, 1, matrix, dispatch);
  mluOpDestroyTensorDescriptor(vector);
  mluOpDestroyTensorDescriptor(route);
  mluOpDestroyTensorDescriptor(matrix);
  return status;
}

// The calls of each case: a success, an empty call, and one failure of each kind.
TEST(CLog, Calls) {
  mluOpHandle_t handle = nullptr;
  ASSERT_EQ(mluOpCreate(&handle), MLUOP_STATUS_SUCCESS);
  const float gate = 1, input = 2;
  float dispatch = 0;
  EXPECT_EQ(dispatch_one(handle, 1, &gate, &input, &dispatch), MLUOP_STATUS_SUCCESS);
  EXPECT_EQ(dispatch_one(handle, 0, &gate, &input, &dispatch), MLUOP_STATUS_SUCCESS);
  EXPECT_EQ(dispatch_one(handle, 1, nullptr, &input, &dispatch), MLUOP_STATUS_BAD_PARAM);
  EXPECT_EQ(dispatch_one(handle, 1, &dispatch, &input, &dispatch), MLUOP_STATUS_BAD_PARAM);
  EXPECT_EQ(mluOpResetTensorDescriptor(nullptr), MLUOP_STATUS_BAD_PARAM);
  EXPECT_EQ(mluOpDestroy(handle), MLUOP_STATUS_SUCCESS);
}

std::string stderr_with(const std::string& variables) {
  char self[4096] = "";
  EXPECT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string command = "env -u TURNOUT_LOG -u MLUOP_MIN_LOG_LEVEL -u MLUOP_MIN_VLOG_LEVEL " +
                              variables + " '" + self + "' --gtest_filter=CLog.Calls" +
                              " --gtest_output= 2>&1 >/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  char chunk[512];
  while (std::fgets(chunk, sizeof(chunk), pipe) != nullptr) text += chunk;
  EXPECT_EQ(pclose(pipe), 0) << text;
  return text;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(CLog, LinesByVariable) {
  struct Row {
    const char* variables;
    int calls, skipped, failures;
  };
  const Row rows[] = {
      {"", 0, 0, 0},
      {"MLUOP_LOG_PRINT=1 MLUOP_LOG_ONLY_SHOW=OFF MLUOP_CPP_VMODULE=x=9 MLUOP_GEN_CASE=3", 0, 0, 0},
      {"MLUOP_MIN_LOG_LEVEL=0", 1, 0, 3},
      {"MLUOP_MIN_LOG_LEVEL=INFO", 1, 0, 3},
      {"MLUOP_MIN_LOG_LEVEL=1", 0, 0, 3},
      {"MLUOP_MIN_LOG_LEVEL=error", 0, 0, 3},
      {"MLUOP_MIN_LOG_LEVEL=FATAL", 0, 0, 0},
      {"MLUOP_MIN_VLOG_LEVEL=0", 1, 0, 3},
      {"MLUOP_MIN_VLOG_LEVEL=4", 1, 0, 3},
      {"MLUOP_MIN_VLOG_LEVEL=5", 1, 1, 3},
      {"MLUOP_MIN_LOG_LEVEL=2 MLUOP_MIN_VLOG_LEVEL=7", 0, 1, 3},
      {"TURNOUT_LOG=1", 1, 0, 3},
      {"TURNOUT_LOG=5", 1, 1, 3},
      {"TURNOUT_LOG=0 MLUOP_MIN_LOG_LEVEL=0 MLUOP_MIN_VLOG_LEVEL=5", 0, 0, 0}};
  for (const Row& row : rows) {
    const std::string log = stderr_with(row.variables);
    EXPECT_EQ(count(log, "\n"), row.calls + row.skipped + row.failures) << row.variables << "\n" << log;
    EXPECT_EQ(count(log, "algorithm="), row.calls) << row.variables << "\n" << log;
    EXPECT_EQ(count(log, "skipped"), row.skipped) << row.variables << "\n" << log;
    EXPECT_EQ(count(log, "failed: "), row.failures) << row.variables << "\n" << log;
  }
}

TEST(CLog, FailuresHaveTheMessageAndTheArguments) {
  const std::string log = stderr_with("MLUOP_MIN_LOG_LEVEL=2");
  EXPECT_EQ(count(log, "mluOpMoeDispatchForward: gates.data is null"), 1) << log;
  EXPECT_EQ(count(log, "dispatch f32[1, 1] LAYOUT_NTC, samples 1"), 2) << log;
  EXPECT_EQ(count(log, "mluOpMoeDispatchForward: dispatch overlaps gates"), 1) << log;
  EXPECT_EQ(count(log, "mluOpResetTensorDescriptor: desc is NULL"), 1) << log;
}

TEST(CLog, CallsHaveTheNamesOfTheCFunctionAndTheLayouts) {
  const std::string log = stderr_with("TURNOUT_LOG=5");
  const std::string beginning =
      "[turnout] mluOpMoeDispatchForward(gates f32[1] LAYOUT_ARRAY, indices i32[1] LAYOUT_ARRAY, "
      "locations i32[1] LAYOUT_ARRAY, ";
  EXPECT_EQ(count(log, beginning + "input f32[1, 1] LAYOUT_NTC, dispatch f32[1, 1] LAYOUT_NTC, samples 1, "
                                   "capacity 1, hidden 1, num_experts 1): algorithm="),
            1)
      << log;
  EXPECT_EQ(count(log, beginning + "input f32[1, 0] LAYOUT_NTC, dispatch f32[1, 0] LAYOUT_NTC, samples 1, "
                                   "capacity 1, hidden 0, num_experts 1): skipped"),
            1)
      << log;
  EXPECT_EQ(count(log, "moe_dispatch_forward"), 0) << log;
}

}  // namespace
}  // namespace turnout::test
