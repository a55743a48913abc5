// The C interface except for the generated negative calls: enum values, handle, descriptors, last error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "bindings/mluop/call.h"
#include "turnout/mluop/mlu_op.h"

namespace turnout::test {
namespace {

constexpr auto kOk = MLUOP_STATUS_SUCCESS;
constexpr auto kBad = MLUOP_STATUS_BAD_PARAM;

std::string last_error() { return turnoutLastError(); }

// Enum values are part of the binary interface: clients are compiled against them.
TEST(CTypes, EnumValues) {
  static_assert(MLUOP_MAJOR == 1 && MLUOP_MINOR == 11 && MLUOP_PATCHLEVEL == 1 && MLUOP_VERSION == 2101);
  static_assert(MLUOP_DIM_MAX == 8 && sizeof(mluOpStatus_t) == 4 && sizeof(mluOpDataType_t) == 4);
  const int statuses[] = {
      MLUOP_STATUS_SUCCESS,          MLUOP_STATUS_NOT_INITIALIZED, MLUOP_STATUS_ALLOC_FAILED,
      MLUOP_STATUS_BAD_PARAM,        MLUOP_STATUS_INTERNAL_ERROR,  MLUOP_STATUS_ARCH_MISMATCH,
      MLUOP_STATUS_EXECUTION_FAILED, MLUOP_STATUS_NOT_SUPPORTED,   MLUOP_STATUS_NUMERICAL_OVERFLOW};
  for (int i = 0; i < 9; ++i) EXPECT_EQ(statuses[i], i);
  const int layouts[] = {MLUOP_LAYOUT_NCHW,  MLUOP_LAYOUT_NHWC,  MLUOP_LAYOUT_HWCN, MLUOP_LAYOUT_NDHWC,
                         MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_NCDHW, MLUOP_LAYOUT_TNC,  MLUOP_LAYOUT_NTC,
                         MLUOP_LAYOUT_NC,    MLUOP_LAYOUT_NLC,   MLUOP_LAYOUT_NCL};
  for (int i = 0; i < 11; ++i) EXPECT_EQ(layouts[i], i);
  static_assert(MLUOP_REDUCE_DSUM == 0 && MLUOP_REDUCE_DMEAN == 1 && MLUOP_REDUCE_DMAX == 2);
  static_assert(MLUOP_REDUCEMODE_MAX == MLUOP_REDUCE_DMAX);
  static_assert(MLUOP_POINTER_MODE_HOST == 0 && MLUOP_POINTER_MODE_DEVICE == 1);
  static_assert(MLUOP_ATOMICS_NOT_ALLOWED == 1 && MLUOP_ATOMICS_ALLOWED == 2);
  static_assert(MLUOP_ROUND_HALF_TO_EVEN == 0 && MLUOP_ROUND_HALF_UP == 1 && MLUOP_ROUND_HALF_OFF_ZERO == 2);
  static_assert(MLUOP_NOT_PROPAGATE_NAN == 0 && MLUOP_PROPAGATE_NAN == 1);
  static_assert(MLUOP_COMPUTATION_FAST == 0 && MLUOP_COMPUTATION_HIGH_PRECISION == 1 &&
                MLUOP_COMPUTATION_ULTRAHIGH_PRECISION == 2);
  static_assert(std::is_same_v<mluopStatus_t, mluOpStatus_t>);
}

TEST(CTypes, DataTypes) {
  struct Row {
    int value;
    std::size_t bytes;
    DType dtype;
    const char* name;
  };
  const Row rows[] = {{1, 2, DType::f16, "DTYPE_HALF"},
                      {2, 4, DType::f32, "DTYPE_FLOAT"},
                      {3, 1, DType::i8, "DTYPE_INT8"},
                      {4, 2, DType::i16, "DTYPE_INT16"},
                      {5, 4, core::kForeign, "DTYPE_INT31"},
                      {6, 4, DType::i32, "DTYPE_INT32"},
                      {7, 1, DType::u8, "DTYPE_UINT8"},
                      {8, 1, DType::boolean, "DTYPE_BOOL"},
                      {9, 8, DType::i64, "DTYPE_INT64"},
                      {11, 4, DType::u32, "DTYPE_UINT32"},
                      {12, 8, DType::u64, "DTYPE_UINT64"},
                      {13, 2, DType::u16, "DTYPE_UINT16"},
                      {14, 8, DType::f64, "DTYPE_DOUBLE"},
                      {15, 4, core::kForeign, "DTYPE_COMPLEX_HALF"},
                      {16, 8, core::kForeign, "DTYPE_COMPLEX_FLOAT"},
                      {17, 2, DType::bf16, "DTYPE_BFLOAT16"},
                      {100, 1, DType::f8_e4m3fn, "DTYPE_FLOAT8_E4M3FN"},
                      {101, 1, DType::f8_e5m2, "DTYPE_FLOAT8_E5M2"},
                      {102, 1, DType::f8_e8m0, "DTYPE_FLOAT8_E8M0"}};
  for (const Row& row : rows) {
    const auto dtype = static_cast<mluOpDataType_t>(row.value);
    std::size_t size = 0;
    EXPECT_EQ(mluOpGetSizeOfDataType(dtype, &size), kOk);
    EXPECT_EQ(size, row.bytes) << row.name;
    EXPECT_STREQ(mluOpGetNameOfDataType(dtype), row.name);
    EXPECT_EQ(bindings::dtype_of_c(dtype), row.dtype) << row.name;
    EXPECT_TRUE(row.dtype == core::kForeign || size_of(row.dtype) == static_cast<std::int64_t>(row.bytes));
  }
  for (int value : {-1, 0, 10, 18, 99, 103, 1000}) {
    std::size_t size = 77;
    EXPECT_EQ(mluOpGetSizeOfDataType(static_cast<mluOpDataType_t>(value), &size), kBad) << value;
    EXPECT_EQ(size, 77u);
    EXPECT_STREQ(mluOpGetNameOfDataType(static_cast<mluOpDataType_t>(value)), "DTYPE_INVALID");
    EXPECT_EQ(bindings::dtype_of_c(static_cast<mluOpDataType_t>(value)), core::kForeign);
  }
  EXPECT_EQ(mluOpGetSizeOfDataType(MLUOP_DTYPE_FLOAT, nullptr), kBad);
}

TEST(CTypes, Names) {
  EXPECT_STREQ(mluOpGetErrorString(kOk), "MLUOP_STATUS_SUCCESS");
  EXPECT_STREQ(mluOpGetErrorString(MLUOP_STATUS_ARCH_MISMATCH), "MLUOP_STATUS_ARCH_MISMATCH");
  EXPECT_STREQ(mluOpGetErrorString(MLUOP_STATUS_NUMERICAL_OVERFLOW), "MLUOP_STATUS_NUMERICAL_OVERFLOW");
  for (int value : {-1, 9, 1000})
    EXPECT_STREQ(mluOpGetErrorString(static_cast<mluOpStatus_t>(value)), "MLUOP_STATUS_UNKNOWN");
  EXPECT_STREQ(mluOpGetNameOfTensorLayout(MLUOP_LAYOUT_NCHW), "LAYOUT_NCHW");
  EXPECT_STREQ(mluOpGetNameOfTensorLayout(MLUOP_LAYOUT_NCDHW), "LAYOUT_NCDHW");
  EXPECT_STREQ(mluOpGetNameOfTensorLayout(MLUOP_LAYOUT_NCL), "LAYOUT_NCL");
  for (int value : {-1, 11})
    EXPECT_STREQ(mluOpGetNameOfTensorLayout(static_cast<mluOpTensorLayout_t>(value)), "LAYOUT_ARRAY");
  int major = 0, minor = 0, patch = 0;
  mluOpGetLibVersion(&major, &minor, &patch);
  EXPECT_EQ(major * 10000 + minor * 100 + patch, 11101);
  mluOpGetLibVersion(nullptr, nullptr, nullptr);
}

class CHandle : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }
  mluOpHandle_t handle = nullptr;
};

TEST_F(CHandle, KeepsItsSettings) {
  cnrtQueue_t queue = reinterpret_cast<cnrtQueue_t>(this);
  EXPECT_EQ(mluOpGetQueue(handle, &queue), kOk);
  EXPECT_EQ(queue, nullptr);
  EXPECT_EQ(mluOpSetQueue(handle, reinterpret_cast<cnrtQueue_t>(this)), kOk);
  EXPECT_EQ(mluOpGetQueue(handle, &queue), kOk);
  EXPECT_EQ(queue, reinterpret_cast<cnrtQueue_t>(this));
  EXPECT_EQ(mluOpSetQueue(handle, nullptr), kOk);
  EXPECT_EQ(mluOpGetQueue(handle, &queue), kOk);
  EXPECT_EQ(queue, nullptr);

  mluOpQuantizeRoundMode_t round = MLUOP_ROUND_HALF_UP;
  EXPECT_EQ(mluOpGetQuantizeRoundMode(handle, &round), kOk);
  EXPECT_EQ(round, MLUOP_ROUND_HALF_TO_EVEN);
  EXPECT_EQ(mluOpSetQuantizeRoundMode(handle, MLUOP_ROUND_HALF_OFF_ZERO), kOk);
  EXPECT_EQ(mluOpGetQuantizeRoundMode(handle, &round), kOk);
  EXPECT_EQ(round, MLUOP_ROUND_HALF_OFF_ZERO);
  for (int value : {-1, 3}) {
    EXPECT_EQ(mluOpSetQuantizeRoundMode(handle, static_cast<mluOpQuantizeRoundMode_t>(value)), kBad);
    EXPECT_EQ(last_error(),
              "mluOpSetQuantizeRoundMode: round_mode is " + std::to_string(value) + ", expected 0 .. 2");
  }
  EXPECT_EQ(mluOpGetQuantizeRoundMode(handle, &round), kOk);
  EXPECT_EQ(round, MLUOP_ROUND_HALF_OFF_ZERO);

  mluOpAtomicsMode_t atomics = MLUOP_ATOMICS_ALLOWED;
  EXPECT_EQ(mluOpGetAtomicsMode(handle, &atomics), kOk);
  EXPECT_EQ(atomics, MLUOP_ATOMICS_NOT_ALLOWED);
  EXPECT_EQ(mluOpSetAtomicsMode(handle, MLUOP_ATOMICS_ALLOWED), kOk);
  EXPECT_EQ(mluOpGetAtomicsMode(handle, &atomics), kOk);
  EXPECT_EQ(atomics, MLUOP_ATOMICS_ALLOWED);

  EXPECT_EQ(mluOpUpdateContextInformation(handle), kOk);
}

TEST_F(CHandle, NullIsBad) {
  cnrtQueue_t queue;
  mluOpQuantizeRoundMode_t round;
  mluOpAtomicsMode_t atomics;
  EXPECT_EQ(mluOpCreate(nullptr), kBad);
  EXPECT_EQ(last_error(), "mluOpCreate: handle is NULL");
  EXPECT_EQ(mluOpDestroy(nullptr), kBad);
  EXPECT_EQ(mluOpUpdateContextInformation(nullptr), kBad);
  EXPECT_EQ(mluOpSetQueue(nullptr, nullptr), kBad);
  EXPECT_EQ(mluOpGetQueue(nullptr, &queue), kBad);
  EXPECT_EQ(mluOpGetQueue(handle, nullptr), kBad);
  EXPECT_EQ(last_error(), "mluOpGetQueue: queue is NULL");
  EXPECT_EQ(mluOpSetQuantizeRoundMode(nullptr, MLUOP_ROUND_HALF_UP), kBad);
  EXPECT_EQ(last_error(), "mluOpSetQuantizeRoundMode: handle is NULL");
  EXPECT_EQ(mluOpGetQuantizeRoundMode(nullptr, &round), kBad);
  EXPECT_EQ(mluOpGetQuantizeRoundMode(handle, nullptr), kBad);
  EXPECT_EQ(mluOpSetAtomicsMode(nullptr, MLUOP_ATOMICS_ALLOWED), kBad);
  EXPECT_EQ(mluOpGetAtomicsMode(nullptr, &atomics), kBad);
  EXPECT_EQ(mluOpGetAtomicsMode(handle, nullptr), kBad);
}

TEST_F(CHandle, LastErrorBelongsToItsThread) {
  EXPECT_EQ(mluOpDestroy(nullptr), kBad);
  std::thread([] {
    EXPECT_EQ(last_error(), "");
    EXPECT_EQ(mluOpCreate(nullptr), kBad);
    EXPECT_EQ(last_error(), "mluOpCreate: handle is NULL");
  }).join();
  EXPECT_EQ(last_error(), "mluOpDestroy: handle is NULL");
  EXPECT_EQ(mluOpDestroyTensorDescriptor(new mluOpTensorStruct), kOk);  // keeps the last error
  EXPECT_EQ(last_error(), "mluOpDestroy: handle is NULL");
  EXPECT_EQ(mluOpUpdateContextInformation(handle), kOk);
  EXPECT_EQ(last_error(), "");
}

// The client frees the result of a call without a buffer.
TEST(CGenCase, DirectoryIsReturned) {
  const auto allocated = [] {
    std::size_t length = 0;
    mluOpStatus_t status = kBad;
    const char* path = mluOpGetGenCaseDirectory(nullptr, 0, &length, &status);
    EXPECT_EQ(status, kOk);
    const std::string copy = path;
    EXPECT_EQ(length, copy.size());
    std::free(const_cast<char*>(path));
    return copy;
  };
  EXPECT_EQ(allocated(), std::filesystem::current_path().string());
  EXPECT_EQ(mluOpSetGenCaseDirectory("somewhere"), kOk);
  EXPECT_EQ(allocated(), "somewhere");
  EXPECT_EQ(mluOpSetGenCaseDirectory(nullptr), kBad);
  EXPECT_EQ(last_error(), "mluOpSetGenCaseDirectory: path is NULL");
  EXPECT_EQ(allocated(), "somewhere");
  EXPECT_EQ(mluOpSetGenCaseDirectory("of_{pid}_on_{deviceid}"), kOk);
  EXPECT_EQ(allocated(), "of_pid" + std::to_string(getpid()) + "_on_deviceid0");
  EXPECT_EQ(mluOpSetGenCaseDirectory(""), kOk);
  EXPECT_EQ(allocated(), std::filesystem::current_path().string());
}

TEST(CGenCase, DirectoryIsWrittenToABuffer) {
  char buffer[10] = "unchanged";
  std::size_t length = 77;
  mluOpStatus_t status = kOk;
  EXPECT_EQ(mluOpSetGenCaseDirectory("somewhere"), kOk);
  EXPECT_EQ(mluOpGetGenCaseDirectory(buffer, 9, &length, &status), buffer);
  EXPECT_EQ(status, kBad);
  EXPECT_EQ(last_error(), "mluOpGetGenCaseDirectory: bufferSize is 9, expected 10 or more");
  EXPECT_EQ(length, 0u);
  EXPECT_STREQ(buffer, "unchanged");
  EXPECT_EQ(mluOpGetGenCaseDirectory(buffer, sizeof(buffer), &length, &status), buffer);
  EXPECT_EQ(status, kOk);
  EXPECT_EQ(length, 9u);
  EXPECT_STREQ(buffer, "somewhere");
  buffer[0] = 'x';
  EXPECT_STREQ(mluOpGetGenCaseDirectory(buffer, sizeof(buffer), nullptr, nullptr), "somewhere");
  EXPECT_EQ(mluOpSetGenCaseDirectory(""), kOk);
}

}  // namespace
}  // namespace turnout::test
