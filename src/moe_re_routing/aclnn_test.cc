// Tests of the aclnn functions: statuses, limits, messages and the lifetime of an executor.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "last_log_line.h"
#include "turnout/aclnn/aclnn_moe_re_routing.h"

namespace {

constexpr std::int64_t kRows = 7, kRanks = 2, kExperts = 3;

aclTensor* make(std::vector<std::int64_t> dims, aclDataType type, void* data) {
  return aclCreateTensor(dims.data(), dims.size(), type, nullptr, 0, ACL_FORMAT_ND, dims.data(), dims.size(),
                         data);
}

// The example of the family's README. Each test changes one thing in it.
struct Example {
  std::vector<std::int64_t> token_dims{kRows, 2}, scale_dims{kRows}, idx_dims{kRows}, num_dims{kExperts};
  aclDataType token_type = ACL_INT8, permuted_type = ACL_INT8, count_type = ACL_INT32, num_type = ACL_INT32,
              scale_type = ACL_FLOAT, idx_type_of_tensor = ACL_INT32;
  std::int64_t num_type_attribute = 1, idx_type = 0;
  std::vector<std::int32_t> counts{1, 2, 1, 2, 1, 0};
  std::vector<std::int64_t> long_counts{1, 2, 1, 2, 1, 0};
  std::vector<std::uint16_t> tokens, permuted;
  std::vector<float> scales, permuted_scales;
  std::vector<std::int32_t> idx, nums;
  std::vector<std::int64_t> long_nums;
  int missing = -1;      // the argument that is NULL
  int no_data = -1;      // the argument whose data is NULL
  int overlapping = -1;  // the output that overlaps tokens

  Example() {
    tokens.resize(kRows * 2 * 8);
    auto* bytes = reinterpret_cast<std::int8_t*>(tokens.data());
    for (int i = 0; i < kRows * 2; ++i) bytes[i] = static_cast<std::int8_t>(i / 2);
    permuted.assign(tokens.size(), 0x7777);
    for (int i = 0; i < kRows; ++i) scales.push_back(static_cast<float>(i) / 2);
    permuted_scales.assign(kRows, -1);
    idx.assign(kRows, -1);
    nums.assign(kExperts, -1);
    long_nums.assign(kExperts, -1);
  }

  aclnnStatus prepare(std::uint64_t* size, aclOpExecutor** executor) {
    const bool wide = count_type == ACL_INT64;
    void* data[7] = {tokens.data(),
                     wide ? static_cast<void*>(long_counts.data()) : counts.data(),
                     scales.data(),
                     permuted.data(),
                     permuted_scales.data(),
                     idx.data(),
                     num_type == ACL_INT64 ? static_cast<void*>(long_nums.data()) : nums.data()};
    if (no_data >= 0) data[no_data] = nullptr;
    if (overlapping >= 0) data[overlapping] = data[0];
    aclTensor* t[7] = {make(token_dims, token_type, data[0]), make({kRanks, kExperts}, count_type, data[1]),
                       make(scale_dims, scale_type, data[2]), make(token_dims, permuted_type, data[3]),
                       make(scale_dims, scale_type, data[4]), make(idx_dims, idx_type_of_tensor, data[5]),
                       make(num_dims, num_type, data[6])};
    if (missing >= 0) {
      aclDestroyTensor(t[missing]);
      t[missing] = nullptr;
    }
    const aclnnStatus status = aclnnMoeReRoutingGetWorkspaceSize(
        t[0], t[1], t[2], num_type_attribute, idx_type, t[3], t[4], t[5], t[6], size, executor);
    const std::string message = aclGetRecentErrMsg();
    for (aclTensor* one : t)
      if (one != nullptr) aclDestroyTensor(one);
    last_message = message;
    return status;
  }

  // Runs both phases; returns the status of the first that fails.
  aclnnStatus run() {
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    if (const aclnnStatus status = prepare(&size, &executor); status != ACLNN_SUCCESS) {
      EXPECT_EQ(executor, nullptr);
      EXPECT_EQ(size, 0u);
      return status;
    }
    std::vector<std::uint64_t> workspace(size / 8 + 1);
    const aclnnStatus status = aclnnMoeReRouting(workspace.data(), size, executor, nullptr);
    last_message = aclGetRecentErrMsg();
    return status;
  }

  void expect_untouched() const {
    for (const std::uint16_t value : permuted) EXPECT_EQ(value, 0x7777);
    for (const float value : permuted_scales) EXPECT_EQ(value, -1);
    for (const std::int32_t value : idx) EXPECT_EQ(value, -1);
    for (const std::int32_t value : nums) EXPECT_EQ(value, -1);
  }

  std::string last_message;
};

constexpr int kExpectedIdx[kRows] = {0, 4, 5, 1, 2, 6, 3};

TEST(AclnnMoeReRouting, gives_the_worked_example) {
  Example example;
  const turnout::test::LastLogLine line;
  ASSERT_EQ(example.run(), ACLNN_SUCCESS) << example.last_message;
  EXPECT_EQ(example.last_message, "");
  EXPECT_EQ(line.count(), 1);  // both phases write one line
  EXPECT_NE(line.value("algorithm"), "") << line.text();
  const auto* bytes = reinterpret_cast<const std::int8_t*>(example.permuted.data());
  for (int i = 0; i < kRows; ++i) {
    EXPECT_EQ(example.idx[i], kExpectedIdx[i]);
    EXPECT_EQ(bytes[2 * i], kExpectedIdx[i]);
    EXPECT_EQ(example.permuted_scales[i], static_cast<float>(kExpectedIdx[i]) / 2);
  }
  EXPECT_EQ(example.nums, (std::vector<std::int32_t>{3, 3, 1}));
}

TEST(AclnnMoeReRouting, takes_16_bit_tokens_and_64_bit_counts) {
  for (const aclDataType type : {ACL_FLOAT16, ACL_BF16}) {
    Example example;
    example.token_type = example.permuted_type = type;
    example.count_type = example.num_type = ACL_INT64;
    for (int i = 0; i < kRows * 2; ++i) example.tokens[i] = static_cast<std::uint16_t>(100 + i / 2);
    ASSERT_EQ(example.run(), ACLNN_SUCCESS) << example.last_message;
    for (int i = 0; i < kRows; ++i) EXPECT_EQ(example.permuted[2 * i], 100 + kExpectedIdx[i]);
    EXPECT_EQ(example.long_nums, (std::vector<std::int64_t>{3, 3, 1}));
  }
}

TEST(AclnnMoeReRouting, runs_without_scales) {
  Example example;
  example.missing = 2;  // permutePerTokenScales is given and not written
  ASSERT_EQ(example.run(), ACLNN_SUCCESS) << example.last_message;
  for (const float value : example.permuted_scales) EXPECT_EQ(value, -1);
}

TEST(AclnnMoeReRouting, null_arguments_are_161001) {
  const char* names[] = {"tokens",        "expertTokenNumPerRank", "",
                         "permuteTokens", "permutePerTokenScales", "permuteTokenIdx",
                         "expertTokenNum"};
  for (int i = 0; i < 7; ++i) {
    if (i == 2) continue;
    Example example;
    example.missing = i;
    EXPECT_EQ(example.run(), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_EQ(example.last_message,
              std::string("aclnnMoeReRoutingGetWorkspaceSize: ") + names[i] + " is NULL");
    Example without_data;
    without_data.no_data = i;
    EXPECT_EQ(without_data.run(), ACLNN_ERR_PARAM_NULLPTR);
    EXPECT_NE(without_data.last_message.find(names[i]), std::string::npos);
  }
  Example example;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(example.prepare(nullptr, &executor), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(example.prepare(&size, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(aclnnMoeReRouting(nullptr, 0, nullptr, nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyTensor(nullptr), ACLNN_ERR_PARAM_NULLPTR);
  EXPECT_EQ(aclDestroyAclOpExecutor(nullptr), ACLNN_ERR_PARAM_NULLPTR);
}

// Each fault changes the example; the message must name the argument.
TEST(AclnnMoeReRouting, other_faults_are_161002) {
  struct Fault {
    const char* name;
    void (*change)(Example& example);
  };
  const Fault faults[] = {
      {"tokens", [](Example& e) { e.token_type = ACL_FLOAT; }},
      {"tokens", [](Example& e) { e.token_type = ACL_INT4; }},
      {"permuteTokens", [](Example& e) { e.permuted_type = ACL_UINT8; }},
      {"perTokenScalesOptional", [](Example& e) { e.scale_type = ACL_FLOAT16; }},
      {"perTokenScalesOptional", [](Example& e) { e.scale_dims = {kRows - 1}; }},
      {"permuteTokenIdx", [](Example& e) { e.idx_type_of_tensor = ACL_INT64; }},
      {"permuteTokenIdx", [](Example& e) { e.idx_dims = {kRows - 1}; }},
      {"expertTokenNum", [](Example& e) { e.num_dims = {kExperts - 1}; }},
      {"expertTokenNum", [](Example& e) { e.num_type = ACL_INT64; }},
      {"expertTokenNumType", [](Example& e) { e.num_type_attribute = 0; }},
      {"expertTokenNumType", [](Example& e) { e.num_type_attribute = 2; }},
      {"idxType", [](Example& e) { e.idx_type = 2; }},
      {"tokens", [](Example& e) { e.token_dims = {kRows}; }},
      {"tokens.shape[1]",
       [](Example& e) {
         e.token_dims = {kRows, 0};
       }},
      {"permuteTokens", [](Example& e) { e.overlapping = 3; }},
      {"expertTokenNumPerRank", [](Example& e) { e.counts[0] = -1; }},
      {"expertTokenNumPerRank", [](Example& e) { e.counts[5] = 1; }},
  };
  for (const Fault& fault : faults) {
    Example example;
    fault.change(example);
    EXPECT_EQ(example.run(), ACLNN_ERR_PARAM_INVALID) << fault.name;
    EXPECT_NE(example.last_message.find(fault.name), std::string::npos) << example.last_message;
    EXPECT_EQ(example.last_message.find("aclnnMoeReRouting"), 0u) << example.last_message;
    example.expect_untouched();
  }
}

TEST(AclnnMoeReRouting, names_any_dtype_that_it_refuses) {
  const std::pair<aclDataType, const char*> others[] = {
      {ACL_FLOAT, "f32"},
      {ACL_FLOAT16, "f16"},
      {ACL_BF16, "bf16"},
      {ACL_DOUBLE, "f64"},
      {ACL_INT8, "i8"},
      {ACL_UINT8, "u8"},
      {ACL_INT16, "i16"},
      {ACL_UINT16, "u16"},
      {ACL_UINT32, "u32"},
      {ACL_INT64, "i64"},
      {ACL_UINT64, "u64"},
      {ACL_BOOL, "bool"},
      {ACL_FLOAT8_E4M3FN, "f8_e4m3fn"},
      {ACL_FLOAT8_E5M2, "f8_e5m2"},
      {ACL_FLOAT8_E8M0, "f8_e8m0"},
  };
  for (const auto& [type, name] : others) {
    Example example;
    example.idx_type_of_tensor = type;
    EXPECT_EQ(example.run(), ACLNN_ERR_PARAM_INVALID) << name;
    EXPECT_NE(example.last_message.find(std::string("permuteTokenIdx has dtype ") + name + ","),
              std::string::npos)
        << example.last_message;
    example.expect_untouched();
  }
}

// CANN's document says 0 < H < 16384; its checks for the Ascend 950 have no upper limit.
TEST(AclnnMoeReRouting, hidden_may_have_any_length) {
  for (const std::int64_t hidden : {std::int64_t{16383}, std::int64_t{16384}, std::int64_t{20001}}) {
    std::vector<std::int8_t> tokens(static_cast<std::size_t>(hidden), 5), permuted(tokens.size());
    std::int32_t count = 1, idx = -1, num = -1;
    aclTensor* t[] = {make({1, hidden}, ACL_INT8, tokens.data()), make({1, 1}, ACL_INT32, &count),
                      make({1, hidden}, ACL_INT8, permuted.data()), make({1}, ACL_INT32, &idx),
                      make({1}, ACL_INT32, &num)};
    std::uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const aclnnStatus status = aclnnMoeReRoutingGetWorkspaceSize(t[0], t[1], nullptr, 1, 0, t[2], nullptr,
                                                                 t[3], t[4], &size, &executor);
    for (aclTensor* one : t) aclDestroyTensor(one);
    ASSERT_EQ(status, ACLNN_SUCCESS) << aclGetRecentErrMsg();
    std::vector<std::uint64_t> workspace(size / 8 + 1);
    EXPECT_EQ(aclnnMoeReRouting(workspace.data(), size, executor, nullptr), ACLNN_SUCCESS);
    EXPECT_EQ(permuted, tokens);
  }
}

TEST(AclnnMoeReRouting, without_tokens_counts_are_zero) {
  Example example;
  example.token_dims = {0, 2};
  example.scale_dims = example.idx_dims = {0};
  example.counts.assign(6, 0);
  ASSERT_EQ(example.run(), ACLNN_SUCCESS) << example.last_message;
  EXPECT_EQ(example.nums, (std::vector<std::int32_t>{0, 0, 0}));
}

TEST(AclnnMoeReRouting, an_executor_runs_once) {
  Example example;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(example.prepare(&size, &executor), ACLNN_SUCCESS);
  std::vector<std::uint64_t> workspace(size / 8 + 1);
  EXPECT_EQ(aclnnMoeReRouting(workspace.data(), size, executor, nullptr), ACLNN_SUCCESS);
  EXPECT_EQ(aclnnMoeReRouting(workspace.data(), size, executor, nullptr), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), ACLNN_ERR_PARAM_INVALID);
  ASSERT_EQ(example.prepare(&size, &executor), ACLNN_SUCCESS);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), ACLNN_SUCCESS);
  EXPECT_EQ(aclnnMoeReRouting(workspace.data(), size, executor, nullptr), ACLNN_ERR_PARAM_INVALID);
}

TEST(AclnnMoeReRouting, a_small_workspace_is_refused) {
  Example example;
  std::uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(example.prepare(&size, &executor), ACLNN_SUCCESS);
  ASSERT_GT(size, 0u);
  std::vector<std::uint64_t> workspace(size / 8 + 1);
  EXPECT_EQ(aclnnMoeReRouting(workspace.data(), size - 1, executor, nullptr), ACLNN_ERR_PARAM_INVALID);
  EXPECT_EQ(std::string(aclGetRecentErrMsg()).find("aclnnMoeReRouting: "), 0u) << aclGetRecentErrMsg();
  example.expect_untouched();
  ASSERT_EQ(example.prepare(&size, &executor), ACLNN_SUCCESS);
  EXPECT_EQ(aclnnMoeReRouting(nullptr, size, executor, nullptr), ACLNN_ERR_PARAM_INVALID);
  example.expect_untouched();
}

TEST(AclnnMoeReRouting, threads_have_errors_of_their_own) {
  EXPECT_EQ(aclDestroyTensor(nullptr), ACLNN_ERR_PARAM_NULLPTR);
  std::thread([] { EXPECT_STREQ(aclGetRecentErrMsg(), ""); }).join();
  EXPECT_STREQ(aclGetRecentErrMsg(), "aclDestroyTensor: tensor is NULL");
}

}  // namespace
