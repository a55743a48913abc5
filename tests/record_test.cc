// Recording of calls, from C++ and from C. test_record.py reads such files with NumPy and replays them.
#include "runtime/record.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "c_descriptors.h"
#include "small_dispatch.h"

namespace turnout::test {
namespace {

class Record : public testing::Test {
 protected:
  void TearDown() override {
    mluOpSetGenCaseMode(0);
    mluOpSetGenCaseDirectory("");
    unsetenv("TURNOUT_RECORD");
    core::record_in(nullptr);
    std::filesystem::remove_all(folder);
  }

  // The contents of the files, in the order of the calls.
  std::vector<std::string> files() const {
    std::vector<std::string> contents;
    if (!std::filesystem::exists(folder)) return contents;
    std::vector<std::filesystem::path> paths;
    for (const auto& one : std::filesystem::directory_iterator(folder)) paths.push_back(one.path());
    std::sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) {
      return a.stem().extension().string() < b.stem().extension().string();
    });
    for (const auto& path : paths) {
      std::ifstream file(path, std::ios::binary);
      contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return contents;
  }
  static bool has(const std::string& file, const std::string& name) {
    return file.find(name + ".npy") != std::string::npos;
  }
  static bool has_bytes(const std::string& file, const void* data, std::size_t size) {
    return file.find(std::string(static_cast<const char*>(data), size)) != std::string::npos;
  }

  const std::string folder = testing::TempDir() + "turnout_record_" + std::to_string(getpid());
  Context context;
  Dispatch dispatch;
};

TEST_F(Record, NothingUnlessAsked) {
  EXPECT_EQ(core::recorded(), core::Recorded::none);
  dispatch(context);
  EXPECT_TRUE(files().empty());
}

TEST_F(Record, ACallHasItsArgumentsBeforeAndAfter) {
  core::record_in(folder.c_str());
  dispatch(context);
  dispatch(context, Fill::keep);
  const auto written = files();
  ASSERT_EQ(written.size(), 2u);
  for (const char* name : {"call.op", "call.version", "call.isa", "in.gates", "in.indices", "in.locations",
                           "in.input", "in.dispatch", "out.dispatch", "scalar.capacity", "scalar.fill"})
    EXPECT_TRUE(has(written[0], name)) << name;
  for (const char* name : {"call.error", "call.function", "stride.input"})
    EXPECT_FALSE(has(written[0], name)) << name;
  EXPECT_TRUE(has_bytes(written[0], dispatch.input, sizeof(dispatch.input)));
  EXPECT_TRUE(has_bytes(written[0], dispatch.dispatch, sizeof(dispatch.dispatch)));
  EXPECT_EQ(written[0].substr(0, 4), "PK\x03\x04");
}

// A strided array is recorded as a contiguous one, beside its strides.
TEST_F(Record, StridedArrays) {
  core::record_in(folder.c_str());
  const float features[2] = {3, 5},
              filters[4] = {10, -1, 20, -1};  // the second half of each pair is no element
  const std::int32_t pairs[1][2][2] = {{{0, 1}, {1, 0}}}, counts[1] = {2};
  float out[4] = {};
  ConstTensor strided = view(filters, {1, 1, 2});
  strided.stride[0] = 4;
  strided.stride[1] = 4;
  strided.stride[2] = 2;
  indice_convolution_forward(context, view(features, {2, 1}), strided, view(&pairs[0][0][0], {1, 2, 2}),
                             view(counts, {1}), nullptr, view(out, {2, 2}));
  EXPECT_EQ(out[0], 50);
  EXPECT_EQ(out[3], 60);
  const auto written = files();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_TRUE(has(written[0], "stride.filters"));
  const float packed[2] = {10, 20};
  EXPECT_TRUE(has_bytes(written[0], packed, sizeof(packed)));
  EXPECT_FALSE(has_bytes(written[0], filters, sizeof(filters)));
}

TEST_F(Record, OnlyFailures) {
  setenv("TURNOUT_RECORD", ("on_error:" + folder).c_str(), 1);
  core::record_in(nullptr);
  dispatch(context);
  EXPECT_TRUE(files().empty());
  EXPECT_THROW(moe_dispatch_forward(context, view(dispatch.gates, {2}), view(dispatch.indices, {2}),
                                    view(dispatch.locations, {1}), view(dispatch.input, {2, 3}),
                                    view(dispatch.dispatch, {2, 3}), {.capacity = 1, .num_experts = 2}),
               Error);
  const auto written = files();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_TRUE(has(written[0], "call.error"));
  EXPECT_NE(written[0].find("moe_dispatch_forward: locations.shape[0] is 1"), std::string::npos);
}

// Memory that a refused call never had is described, not read.
TEST_F(Record, MemoryThatCannotBeReadIsDescribed) {
  core::record_in(folder.c_str());
  void* const hidden = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hidden, MAP_FAILED);
  EXPECT_THROW(
      moe_dispatch_forward(context, view(static_cast<float*>(hidden), {3}), view(dispatch.indices, {2}),
                           view(dispatch.locations, {2}), view(dispatch.input, {2, 3}),
                           view(dispatch.dispatch, {2, 3}), {.capacity = 1, .num_experts = 2}),
      Error);
  munmap(hidden, 4096);
  const auto written = files();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_TRUE(has(written[0], "shape.gates.f32"));
  EXPECT_FALSE(has(written[0], "in.gates"));
  EXPECT_TRUE(has(written[0], "in.input"));
}

TEST_F(Record, ADirectoryThatCannotBeWrittenChangesNoCall) {
  core::record_in("/proc/none");
  EXPECT_NO_THROW(dispatch(context));
  EXPECT_EQ(dispatch.dispatch[0], 12);
  setenv("TURNOUT_RECORD", "/proc/none", 1);
  try {
    Context().threads();
    FAIL() << "a bad TURNOUT_RECORD was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "TURNOUT_RECORD is '/proc/none', expected a directory that can be written, or on_error: and "
                 "one");
  }
}

// The functions of MLU-OPS for generated cases.
TEST_F(Record, CallsFromC) {
  mluOpHandle_t handle = nullptr;
  ASSERT_EQ(mluOpCreate(&handle), kOk);
  const Descriptor token(MLUOP_DTYPE_FLOAT, {2}), route(MLUOP_DTYPE_INT32, {2}),
      tokens(MLUOP_DTYPE_FLOAT, {2, 3});
  const auto forward = [&](int hidden) {
    return mluOpMoeDispatchForward(handle, token, dispatch.gates, route, dispatch.indices, route,
                                   dispatch.locations, tokens, dispatch.input, 2, 1, hidden, 2, tokens,
                                   dispatch.dispatch);
  };
  EXPECT_EQ(mluOpSetGenCaseDirectory(folder.c_str()), kOk);
  EXPECT_EQ(forward(3), kOk);
  EXPECT_TRUE(files().empty());
  mluOpSetGenCaseMode(2);
  EXPECT_EQ(forward(3), kOk);
  EXPECT_EQ(forward(4), kBad);
  mluOpSetGenCaseMode(0);
  EXPECT_EQ(forward(3), kOk);
  const auto written = files();
  ASSERT_EQ(written.size(), 2u);
  EXPECT_TRUE(has(written[0], "call.function"));
  EXPECT_NE(written[0].find("mluOpMoeDispatchForward"), std::string::npos);
  EXPECT_TRUE(has(written[0], "out.dispatch"));
  EXPECT_TRUE(has(written[1], "call.error"));
  EXPECT_TRUE(has(written[1], "scalar.hidden"));
  EXPECT_EQ(mluOpDestroy(handle), kOk);
}

}  // namespace
}  // namespace turnout::test
