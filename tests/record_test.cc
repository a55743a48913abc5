// Tests recording of calls, from C++ and from C. test_record.py reads the folders and replays the calls.
#include "runtime/record.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
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

  // The folders, in the order of the calls.
  std::vector<std::filesystem::path> calls() const {
    std::vector<std::filesystem::path> paths;
    if (!std::filesystem::exists(folder)) return paths;
    for (const auto& one : std::filesystem::directory_iterator(folder)) paths.push_back(one.path());
    std::sort(paths.begin(), paths.end(),
              [](const auto& a, const auto& b) { return a.extension().string() < b.extension().string(); });
    return paths;
  }
  static std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static bool has(const std::filesystem::path& call, const std::string& array) {
    return std::filesystem::exists(call / (array + ".npy"));
  }
  // Whether call.json has this text.
  static bool says(const std::filesystem::path& call, const std::string& text) {
    return content(call / "call.json").find(text) != std::string::npos;
  }
  template <class T>
  static bool ends_with(const std::filesystem::path& call, const std::string& array, const T& elements) {
    const std::string bytes(reinterpret_cast<const char*>(&elements), sizeof(elements));
    const std::string file = content(call / (array + ".npy"));
    return file.substr(0, 6) == "\x93NUMPY" && file.size() % 64 == sizeof(elements) % 64 &&
           file.ends_with(bytes);
  }

  const std::string folder = testing::TempDir() + "turnout_record_" + std::to_string(getpid());
  Context context;
  Dispatch dispatch;
};

TEST_F(Record, NothingByDefault) {
  EXPECT_EQ(core::recorded(), core::Recorded::none);
  dispatch(context);
  EXPECT_TRUE(calls().empty());
}

TEST_F(Record, ACallHasItsArgumentsBeforeAndAfter) {
  core::record_in(folder.c_str());
  dispatch(context);
  dispatch(context, Fill::keep);
  const auto written = calls();
  ASSERT_EQ(written.size(), 2u);
  for (const char* name :
       {"in.gates", "in.indices", "in.locations", "in.input", "in.dispatch", "out.dispatch"})
    EXPECT_TRUE(has(written[0], name)) << name;
  EXPECT_FALSE(has(written[0], "out.input"));
  for (const char* text :
       {R"("op": "moe_dispatch_forward")", R"("function": "moe_dispatch_forward")", R"("capacity": 1)",
        R"({"name": "input", "dtype": "f32", "rank": 2, "shape": [2, 3]})"})
    EXPECT_TRUE(says(written[0], text)) << content(written[0] / "call.json");
  EXPECT_FALSE(says(written[0], "error"));
  EXPECT_TRUE(ends_with(written[0], "in.input", dispatch.input));
  EXPECT_TRUE(ends_with(written[0], "out.dispatch", dispatch.dispatch));
}

// A strided array is recorded as a contiguous one, together with its strides.
TEST_F(Record, StridedArrays) {
  core::record_in(folder.c_str());
  const float features[2] = {3, 5}, filters[4] = {10, -1, 20, -1};  // the second half of each pair is a gap
  const std::int32_t pairs[1][2][2] = {{{0, 1}, {1, 0}}}, counts[1] = {2};
  float out[4] = {};
  ConstTensor strided = view(filters, {1, 1, 2});
  strided.stride[0] = 4;
  strided.stride[1] = 4;
  strided.stride[2] = 2;
  indice_convolution_forward(view(features, {2, 1}), strided, view(&pairs[0][0][0], {1, 2, 2}),
                             view(counts, {1}), nullptr, nullptr, view(out, {2, 2}), {}, context);
  EXPECT_EQ(out[0], 50);
  EXPECT_EQ(out[3], 60);
  const auto written = calls();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_TRUE(says(written[0], R"("shape": [1, 1, 2], "strides": [4, 4, 2])"))
      << content(written[0] / "call.json");
  const float packed[2] = {10, 20};
  EXPECT_TRUE(ends_with(written[0], "in.filters", packed));
}

TEST_F(Record, OnlyFailures) {
  setenv("TURNOUT_RECORD", ("on_error:" + folder).c_str(), 1);
  core::record_in(nullptr);
  dispatch(context);
  EXPECT_TRUE(calls().empty());
  EXPECT_THROW(
      moe_dispatch_forward(view(dispatch.gates, {2}), view(dispatch.indices, {2}),
                           view(dispatch.locations, {1}), view(dispatch.input, {2, 3}),
                           view(dispatch.dispatch, {2, 3}), {.capacity = 1, .num_experts = 2}, context),
      Error);
  const auto written = calls();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_TRUE(says(written[0], R"("error": "moe_dispatch_forward: locations.shape[0] is 1)"));
}

// Two pages, of which the second cannot be read.
class HalfReadable {
 public:
  HalfReadable()
      : begin_(static_cast<std::byte*>(
            mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    EXPECT_EQ(mprotect(begin_ + kPage, kPage, PROT_NONE), 0);
  }
  ~HalfReadable() { munmap(begin_, 2 * kPage); }
  HalfReadable(const HalfReadable&) = delete;
  HalfReadable& operator=(const HalfReadable&) = delete;
  float* last_readable() const { return reinterpret_cast<float*>(begin_ + kPage) - 1; }

 private:
  static constexpr std::size_t kPage = 1 << 16;  // a multiple of any page size
  std::byte* const begin_;
};

// The call is rejected for its shapes. Unreadable memory is described, contiguous or not.
TEST_F(Record, MemoryThatCannotBeRead) {
  core::record_in(folder.c_str());
  const HalfReadable memory;
  ConstTensor gates = view(static_cast<const float*>(memory.last_readable()), {3});
  for (const std::int64_t stride : {1, 2, -3, 0}) {
    gates.stride[0] = stride;
    EXPECT_THROW(moe_dispatch_forward(gates, view(dispatch.indices, {2}), view(dispatch.locations, {2}),
                                      view(dispatch.input, {2, 3}), view(dispatch.dispatch, {2, 3}),
                                      {.capacity = 1, .num_experts = 2}, context),
                 Error);
  }
  const auto written = calls();
  ASSERT_EQ(written.size(), 4u);
  for (const auto& call : written) {
    EXPECT_TRUE(says(call, R"({"name": "gates", "dtype": "f32", "rank": 1, "shape": [3])"));
    EXPECT_TRUE(has(call, "in.input"));
  }
  EXPECT_FALSE(has(written[0], "in.gates"));
  EXPECT_FALSE(has(written[1], "in.gates"));
  EXPECT_TRUE(has(written[2], "in.gates"));  // reads backwards
  EXPECT_TRUE(has(written[3], "in.gates"));
}

// A tensor has kMaxRank extents, whatever its rank.
TEST_F(Record, MoreDimensionsThanATensorHas) {
  core::record_in(folder.c_str());
  std::vector<std::int64_t> shape(20, 1);
  shape[7] = 2;
  const ConstTensor gates(dispatch.gates, DType::f32, shape.data(), 20);
  for (const int rank : {20, 1 << 30, -5}) {
    ConstTensor odd = gates;
    odd.rank = rank;
    EXPECT_THROW(moe_dispatch_forward(odd, view(dispatch.indices, {2}), view(dispatch.locations, {2}),
                                      view(dispatch.input, {2, 3}), view(dispatch.dispatch, {2, 3}),
                                      {.capacity = 1, .num_experts = 2}, context),
                 Error);
  }
  const auto written = calls();
  ASSERT_EQ(written.size(), 3u);
  EXPECT_TRUE(says(written[0], R"("rank": 20, "shape": [1, 1, 1, 1, 1, 1, 1, 2]})"));
  EXPECT_TRUE(says(written[1], R"("rank": 1073741824, "shape": [1, 1, 1, 1, 1, 1, 1, 2]})"));
  EXPECT_TRUE(says(written[2], R"("rank": -5, "shape": []})"));
  for (const auto& call : written) EXPECT_FALSE(has(call, "in.gates"));
}

// Another process may have had the same id.
TEST_F(Record, AFolderThatExistsIsLeftAlone) {
  core::record_in(folder.c_str());
  dispatch(context);
  const std::filesystem::path first = calls().at(0);
  const std::string number = first.extension().string();
  char next[16];
  std::snprintf(next, sizeof(next), ".%06d", std::stoi(number.substr(1)) + 1);
  const std::filesystem::path taken = std::filesystem::path(first).replace_extension(next);
  std::filesystem::create_directory(taken);
  dispatch(context);
  EXPECT_EQ(calls().size(), 3u);
  EXPECT_TRUE(std::filesystem::is_empty(taken));
}

TEST_F(Record, AnUnwritableDirectoryDoesNotAffectCalls) {
  core::record_in("/proc/none");
  EXPECT_NO_THROW(dispatch(context));
  EXPECT_EQ(dispatch.dispatch[0], 12);
  setenv("TURNOUT_RECORD", "/proc/none", 1);
  try {
    Context().threads();
    FAIL() << "a bad TURNOUT_RECORD was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "TURNOUT_RECORD is '/proc/none', expected a writable directory, or on_error: followed by "
                 "one");
  }
}

// MLU-OPS' functions for generated cases.
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
  EXPECT_TRUE(calls().empty());
  mluOpSetGenCaseMode(2);
  EXPECT_EQ(forward(3), kOk);
  EXPECT_EQ(forward(4), kBad);
  mluOpSetGenCaseMode(0);
  EXPECT_EQ(forward(3), kOk);
  const auto written = calls();
  ASSERT_EQ(written.size(), 2u);
  EXPECT_TRUE(says(written[0], R"("function": "mluOpMoeDispatchForward")"));
  EXPECT_TRUE(has(written[0], "out.dispatch"));
  EXPECT_TRUE(says(written[1], R"("error": "mluOpMoeDispatchForward: )"));
  EXPECT_TRUE(says(written[1], R"("hidden": 4)"));
  EXPECT_EQ(mluOpDestroy(handle), kOk);
}

}  // namespace
}  // namespace turnout::test
