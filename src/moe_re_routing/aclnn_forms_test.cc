// Tests the arguments that CANN accepts: types of tokens, ranks of scales, strided inputs, both index types,
// and the weights of MoeReRoutingV2. The reference moves the same bytes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "moe_re_routing/reference.h"
#include "turnout/aclnn/aclnn_moe_re_routing.h"

namespace {

using Bytes = std::vector<char>;
using Dims = std::vector<std::int64_t>;
constexpr std::int64_t kRows = 7, kRanks = 2, kExperts = 3, kHidden = 6;
constexpr std::int32_t kCounts[kRanks * kExperts] = {1, 2, 1, 2, 1, 0};

std::int64_t bits_of(aclDataType type) {
  if (type == ACL_FLOAT || type == ACL_INT32) return 32;
  if (type == ACL_FLOAT4_E2M1 || type == ACL_FLOAT4_E1M2) return 4;
  return type == ACL_FLOAT16 || type == ACL_BF16 ? 16 : 8;
}

// A view and the memory layout of its elements.
struct View {
  aclDataType type = ACL_INT8;
  Dims dims, stride;  // no strides: row-major
  std::int64_t offset = 0;
  char* data = nullptr;

  std::int64_t elements() const {
    return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
  }
  aclTensor* make() const {
    aclTensor* tensor =
        aclCreateTensor(dims.data(), dims.size(), type, stride.empty() ? nullptr : stride.data(), offset,
                        ACL_FORMAT_ND, nullptr, 0, data);
    EXPECT_NE(tensor, nullptr) << aclGetRecentErrMsg();
    return tensor;
  }
};

Bytes numbered(std::int64_t bytes, int first) {
  Bytes values(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(first + static_cast<int>(i));
  return values;
}

// The arguments of a call. A view without dims stands for NULL. Outputs own their memory.
struct Example {
  View tokens, counts, scales, weights;
  Dims permuted_stride;
  aclDataType permuted_type = ACL_DT_UNDEFINED;  // that of tokens
  std::int64_t idx_type = 0;
  bool v2 = false, has_permuted_weights = false;
  Dims permuted_weight_dims;  // those of weights
  Bytes permuted, permuted_scales, permuted_weights;
  std::vector<std::int32_t> idx, nums;
  std::uint64_t missing_bytes = 0;  // of the workspace
  std::uint64_t workspace_size = 0;
  std::string message;

  aclnnStatus run() {
    const auto bytes_of = [](const View& v) {
      return v.dims.empty() ? 0 : static_cast<std::size_t>(v.elements() * bits_of(v.type) / 8);
    };
    permuted.assign(bytes_of(tokens), 0x55);
    permuted_scales.assign(bytes_of(scales), 0x55);
    permuted_weights.assign(bytes_of(weights), 0x55);
    idx.assign(static_cast<std::size_t>(tokens.dims[0]), -1);
    nums.assign(kExperts, -1);
    const aclDataType out_type = permuted_type == ACL_DT_UNDEFINED ? tokens.type : permuted_type;
    const Dims weight_dims = permuted_weight_dims.empty() ? weights.dims : permuted_weight_dims;
    const View views[] = {
        tokens,
        counts,
        scales,
        weights,
        {out_type, tokens.dims, permuted_stride, 0, permuted.data()},
        {scales.type, scales.dims, {}, 0, permuted_scales.data()},
        {ACL_INT32, {tokens.dims[0]}, {}, 0, reinterpret_cast<char*>(idx.data())},
        {ACL_INT32, {kExperts}, {}, 0, reinterpret_cast<char*>(nums.data())},
        {ACL_FLOAT, has_permuted_weights ? weight_dims : Dims(), {}, 0, permuted_weights.data()}};
    std::vector<aclTensor*> t;
    for (const View& view : views) t.push_back(view.dims.empty() ? nullptr : view.make());
    aclOpExecutor* executor = nullptr;
    aclnnStatus status =
        v2 ? aclnnMoeReRoutingV2GetWorkspaceSize(t[0], t[1], t[2], t[3], 1, idx_type, t[4], t[5], t[6], t[7],
                                                 t[8], &workspace_size, &executor)
           : aclnnMoeReRoutingGetWorkspaceSize(t[0], t[1], t[2], 1, idx_type, t[4], t[5], t[6], t[7],
                                               &workspace_size, &executor);
    message = aclGetRecentErrMsg();
    for (aclTensor* one : t)
      if (one != nullptr) aclDestroyTensor(one);
    if (status != ACLNN_SUCCESS) return status;
    const std::uint64_t size = workspace_size - missing_bytes;
    Bytes workspace(size);  // exact size, so that the sanitizer finds accesses beyond it
    status = v2 ? aclnnMoeReRoutingV2(workspace.data(), size, executor, nullptr)
                : aclnnMoeReRouting(workspace.data(), size, executor, nullptr);
    message = aclGetRecentErrMsg();
    return status;
  }

  // Runs the call and compares with the reference. packed_* are the inputs in row-major order.
  void expect_result(const Bytes& packed_tokens, const Bytes& packed_scales, const Bytes& packed_weights) {
    ASSERT_EQ(run(), ACLNN_SUCCESS) << message;
    const turnout::MoeReRoutingParams params{turnout::ExpertTokenNum::count,
                                             static_cast<turnout::TokenIdx>(idx_type)};
    const auto expect = [&](const Bytes& rows, const Bytes& actual) {
      if (rows.empty()) return;  // the argument is NULL
      Bytes expected(rows.size());
      std::vector<std::int32_t> expected_idx(kRows), expected_nums(kExperts);
      const auto row_bytes = static_cast<std::int64_t>(rows.size()) / kRows;
      turnout::reference::moe_re_routing(rows.data(), row_bytes, kCounts, kRanks, kExperts, nullptr, 0,
                                         expected.data(), nullptr, expected_idx.data(), expected_nums.data(),
                                         params);
      EXPECT_EQ(actual, expected);
      EXPECT_EQ(idx, expected_idx);
      EXPECT_EQ(nums, expected_nums);
    };
    expect(packed_tokens, permuted);
    expect(packed_scales, permuted_scales);
    expect(packed_weights, permuted_weights);
  }
};

std::vector<std::int32_t> counts_memory(kCounts, kCounts + kRanks * kExperts);
const View kCountsView = {
    ACL_INT32, {kRanks, kExperts}, {}, 0, reinterpret_cast<char*>(counts_memory.data())};

TEST(AclnnMoeReRoutingForms, move_every_type_of_tokens_and_scales) {
  const Dims scale_forms[] = {{}, {kRows}, {kRows, 1}, {kRows, 3}, {kRows, 4, 2}};
  for (const aclDataType type : {ACL_FLOAT16, ACL_BF16, ACL_INT8, ACL_FLOAT8_E4M3FN, ACL_FLOAT8_E5M2,
                                 ACL_HIFLOAT8, ACL_FLOAT4_E2M1, ACL_FLOAT4_E1M2}) {
    for (const Dims& scale_dims : scale_forms) {
      for (const aclDataType scale_type : {ACL_FLOAT, ACL_FLOAT8_E8M0}) {
        for (int variant = 0; variant < 6; ++variant) {
          Example example;
          Bytes tokens = numbered(kRows * kHidden * bits_of(type) / 8, 1), scales, weights;
          example.tokens = {type, {kRows, kHidden}, {}, 0, tokens.data()};
          example.counts = kCountsView;
          if (!scale_dims.empty()) {
            const std::int64_t elements = View{scale_type, scale_dims, {}, 0, nullptr}.elements();
            scales = numbered(elements * bits_of(scale_type) / 8, 50);
            example.scales = {scale_type, scale_dims, {}, 0, scales.data()};
          }
          example.idx_type = variant % 2;
          example.v2 = variant >= 2;
          if (variant >= 4) {
            weights = numbered(kRows * 4, 100);
            example.weights = {ACL_FLOAT, {kRows, 1}, {}, 0, weights.data()};
            example.has_permuted_weights = true;
          }
          SCOPED_TRACE(testing::Message() << "type " << type << ", scales " << scale_dims.size()
                                          << " of type " << scale_type << ", variant " << variant);
          example.expect_result(tokens, scales, weights);
        }
      }
    }
  }
}

// A view of `type` in memory with gaps, and its elements in row-major order.
struct Strided {
  Bytes memory, packed;
  View view;

  Strided(aclDataType type, Dims dims, Dims stride, std::int64_t offset) {
    std::int64_t end = offset + 1;
    for (std::size_t d = 0; d < dims.size(); ++d) end += (dims[d] - 1) * stride[d];
    const std::int64_t size = bits_of(type) / 8;
    memory = numbered(end * size, 3);
    view = {type, std::move(dims), std::move(stride), offset, nullptr};
    view.data = memory.data();
    for (std::int64_t i = 0; i < view.elements(); ++i) {
      std::int64_t at = view.offset;
      for (std::size_t d = view.dims.size(), rest = static_cast<std::size_t>(i); d-- > 0;) {
        at += static_cast<std::int64_t>(rest % static_cast<std::size_t>(view.dims[d])) * view.stride[d];
        rest /= static_cast<std::size_t>(view.dims[d]);
      }
      packed.insert(packed.end(), memory.begin() + at * size, memory.begin() + (at + 1) * size);
    }
  }
};

TEST(AclnnMoeReRoutingForms, take_strided_inputs) {
  struct Case {
    aclDataType type;
    Dims token_stride;
    Dims scale_dims, scale_stride;
    std::int64_t offset;
  };
  const Case cases[] = {
      {ACL_INT8, {kHidden + 3, 1}, {kRows}, {2}, 2},                 // columns of a wider matrix
      {ACL_BF16, {kHidden + 3, 1}, {kRows, 2}, {5, 1}, 1},           //
      {ACL_FLOAT16, {1, kRows}, {kRows, 3}, {1, kRows}, 0},          // transposed
      {ACL_FLOAT8_E5M2, {0, 1}, {kRows}, {0}, 0},                    // one row for all
      {ACL_HIFLOAT8, {2 * kHidden, 2}, {kRows, 2, 2}, {9, 2, 1}, 3}  // every second element
  };
  for (const Case& one : cases) {
    for (int variant = 0; variant < 4; ++variant) {
      SCOPED_TRACE(testing::Message() << "type " << one.type << ", variant " << variant);
      Strided tokens(one.type, {kRows, kHidden}, one.token_stride, one.offset);
      Strided scales(ACL_FLOAT, one.scale_dims, one.scale_stride, one.offset);
      Strided weights(ACL_FLOAT, {kRows, 1}, {3, 1}, 1);
      // The counts as columns: [experts, ranks] in memory.
      std::int32_t columns[kExperts][kRanks];
      for (int r = 0; r < kRanks; ++r)
        for (int e = 0; e < kExperts; ++e) columns[e][r] = kCounts[r * kExperts + e];
      Example example;
      example.tokens = tokens.view;
      example.scales = scales.view;
      example.counts = {ACL_INT32, {kRanks, kExperts}, {1, kRanks}, 0, reinterpret_cast<char*>(columns)};
      example.idx_type = variant % 2;
      example.v2 = variant >= 2;
      if (example.v2) {
        example.weights = weights.view;
        example.has_permuted_weights = true;
      }
      example.expect_result(tokens.packed, scales.packed, example.v2 ? weights.packed : Bytes());
      // A workspace without room for the copies is rejected before anything is written.
      example.missing_bytes = 1;
      EXPECT_EQ(example.run(), ACLNN_ERR_PARAM_INVALID);
      EXPECT_NE(example.message.find("workspace_size is "), std::string::npos) << example.message;
      EXPECT_EQ(example.permuted, Bytes(example.permuted.size(), 0x55));
      EXPECT_EQ(example.nums, std::vector<std::int32_t>(kExperts, -1));
    }
  }
}

// Rows of FLOAT4 may begin at any byte.
TEST(AclnnMoeReRoutingForms, take_strided_float4) {
  Bytes memory = numbered(kRows * 5 + 1, 7), packed;
  for (int r = 0; r < kRows; ++r)
    packed.insert(packed.end(), memory.begin() + r * 5 + 1, memory.begin() + r * 5 + 1 + kHidden / 2);
  Example example;
  example.tokens = {ACL_FLOAT4_E2M1, {kRows, kHidden}, {10, 1}, 2, memory.data()};
  example.counts = kCountsView;
  example.expect_result(packed, {}, {});
}

TEST(AclnnMoeReRoutingForms, name_what_they_refuse) {
  Bytes tokens = numbered(kRows * kHidden * 2, 1), scales = numbered(kRows * 16, 50),
        weights = numbered(kRows * 8, 100);
  Example good;
  good.tokens = {ACL_HIFLOAT8, {kRows, kHidden}, {}, 0, tokens.data()};
  good.counts = kCountsView;
  good.v2 = true;
  const auto refused = [](Example example, aclnnStatus status, const std::string& message) {
    EXPECT_EQ(example.run(), status);
    EXPECT_EQ(example.message, "aclnnMoeReRoutingV2GetWorkspaceSize: " + message);
  };
  Example bad = good;
  bad.permuted_type = ACL_INT8;
  refused(bad, ACLNN_ERR_PARAM_INVALID, "permuteTokens has aclDataType 2, expected 34, that of tokens");
  bad = good;
  bad.tokens.type = ACL_INT8;
  bad.permuted_type = ACL_HIFLOAT8;
  refused(bad, ACLNN_ERR_PARAM_INVALID, "permuteTokens has dtype unknown, expected that of tokens");
  bad = good;
  bad.permuted_stride = {kHidden - 1, 1};
  refused(bad, ACLNN_ERR_PARAM_INVALID,
          "permuteTokens is strided, expected contiguous row-major memory for shape [7, 6]");
  bad = good;
  bad.scales = {ACL_FLOAT, {kRows, 2, 2}, {4, 1, 2}, 0, scales.data()};
  refused(bad, ACLNN_ERR_PARAM_INVALID,
          "perTokenScalesOptional has 3 dimensions, expected [rows, scale_width?]");
  bad = good;
  bad.weights = {ACL_FLOAT, {kRows, 1}, {}, 0, weights.data()};
  refused(bad, ACLNN_ERR_PARAM_NULLPTR, "permuteTopkWeightOptional is NULL");
  bad.has_permuted_weights = true;
  bad.weights.dims = {kRows, 2};
  refused(bad, ACLNN_ERR_PARAM_INVALID, "expertTopkWeightOptional.shape[1] is 2, expected 1");
  bad.weights.dims = {kRows};
  refused(bad, ACLNN_ERR_PARAM_INVALID, "expertTopkWeightOptional has 1 dimensions, expected [rows, 1]");
  bad.weights = {ACL_FLOAT16, {kRows, 1}, {}, 0, weights.data()};
  refused(bad, ACLNN_ERR_PARAM_INVALID, "expertTopkWeightOptional has dtype f16, expected f32");

  // Without weights, their output must be NULL or empty.
  bad = good;
  bad.has_permuted_weights = true;
  bad.permuted_weight_dims = {kRows, 1};
  refused(bad, ACLNN_ERR_PARAM_INVALID,
          "permuteTopkWeightOptional is given, expected NULL without expertTopkWeightOptional");
  bad.permuted_weight_dims = {0, 1};
  EXPECT_EQ(bad.run(), ACLNN_SUCCESS) << bad.message;
}

}  // namespace
