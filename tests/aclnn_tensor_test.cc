// Tests of aclCreateTensor: which views it accepts, and its messages.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "turnout/aclnn/acl_meta.h"

namespace {

TEST(AclCreateTensor, rejects_invalid_tensors) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  std::int8_t data[6] = {};
  const std::int64_t dims[2] = {2, 3}, negative[2] = {2, -3}, stride[2] = {3, 1}, far[2] = {4, 1},
                     huge[2] = {kHuge, 1}, storage[2] = {2, 3};
  const auto create = [&](const std::int64_t* view, std::uint64_t rank, const std::int64_t* strides,
                          std::int64_t offset, const std::int64_t* extent) {
    return aclCreateTensor(view, rank, ACL_INT8, strides, offset, ACL_FORMAT_ND, extent, 2, data);
  };
  aclTensor* good = create(dims, 2, stride, 0, storage);
  EXPECT_NE(good, nullptr);
  EXPECT_STREQ(aclGetRecentErrMsg(), "");
  aclDestroyTensor(good);
  EXPECT_EQ(create(nullptr, 2, stride, 0, storage), nullptr);
  EXPECT_EQ(create(dims, 9, stride, 0, storage), nullptr);
  EXPECT_EQ(create(negative, 2, stride, 0, storage), nullptr);
  EXPECT_EQ(create(dims, 2, negative, 0, storage), nullptr);
  EXPECT_EQ(create(dims, 2, stride, -1, storage), nullptr);
  EXPECT_EQ(create(dims, 2, stride, 1, storage), nullptr);
  EXPECT_EQ(create(dims, 2, far, 0, storage), nullptr);
  EXPECT_STREQ(
      aclGetRecentErrMsg(),
      "aclCreateTensor: the view ends at element 7, expected at most 6, the product of storage_dims");
  EXPECT_EQ(create(dims, 2, huge, 0, storage), nullptr);
  EXPECT_EQ(create(dims, 2, stride, 0, nullptr), nullptr);
}

// A tensor without dimensions needs no arrays of them, the storage may be omitted, and at most eight
// dimensions are allowed.
TEST(AclCreateTensor, accepts_zero_to_eight_dimensions) {
  std::int8_t data[6] = {};
  const std::int64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, dims[2] = {2, 3};
  for (aclTensor* tensor : {
           aclCreateTensor(nullptr, 0, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, data),
           aclCreateTensor(ones, 8, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, ones, 1, data),
           aclCreateTensor(dims, 2, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, data),
       }) {
    EXPECT_NE(tensor, nullptr) << aclGetRecentErrMsg();
    aclDestroyTensor(tensor);
  }
}

// An offset in bytes must not wrap, whatever the storage claims to be.
TEST(AclCreateTensor, rejects_offsets_beyond_the_address_space) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  double data[6] = {};
  const std::int64_t dims[1] = {1}, none[1] = {0}, storage[1] = {kHuge};
  const auto create = [&](const std::int64_t* view, std::int64_t offset, std::uint64_t storage_rank) {
    return aclCreateTensor(view, 1, ACL_DOUBLE, nullptr, offset, ACL_FORMAT_ND, storage, storage_rank, data);
  };
  for (const std::int64_t offset : {kHuge, kHuge - 1, kHuge / 2, kHuge / 8, kHuge / 8 + 1}) {
    EXPECT_EQ(create(dims, offset, 0), nullptr) << offset;
    EXPECT_EQ(create(dims, offset, 1), nullptr) << offset;
  }
  EXPECT_EQ(create(none, kHuge, 0), nullptr);  // even a pointer there would be invalid
  const std::string message = aclGetRecentErrMsg();
  EXPECT_EQ(message.find("aclCreateTensor: the view ends at element 9223372036854775807, expected at most "),
            0u)
      << message;
  aclTensor* good = create(dims, 5, 0);
  EXPECT_NE(good, nullptr) << aclGetRecentErrMsg();
  aclDestroyTensor(good);
}

// Two elements of FLOAT4 share a byte, so a view must not begin or end in the middle of one.
TEST(AclCreateTensor, rejects_halves_of_float4_bytes) {
  std::int8_t data[64] = {};
  const auto create = [&](std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                          std::int64_t column_stride, std::int64_t offset) -> std::string {
    const std::int64_t dims[2] = {rows, columns}, stride[2] = {row_stride, column_stride}, storage[1] = {128};
    aclTensor* tensor =
        aclCreateTensor(dims, 2, ACL_FLOAT4_E2M1, stride, offset, ACL_FORMAT_ND, storage, 1, data);
    const std::string message = aclGetRecentErrMsg();
    EXPECT_EQ(tensor == nullptr, !message.empty());
    if (tensor != nullptr) aclDestroyTensor(tensor);
    return message;
  };
  const std::string why = ", because two elements of FLOAT4 share a byte";
  EXPECT_EQ(create(4, 6, 8, 1, 2), "");
  EXPECT_EQ(create(1, 6, 7, 1, 2), "");  // the stride of a single row is not used
  EXPECT_EQ(create(4, 0, 7, 1, 0), "aclCreateTensor: stride[0] is 7, expected an even number" + why);
  EXPECT_EQ(create(4, 5, 8, 1, 0), "aclCreateTensor: view_dims[1] is 5, expected an even number" + why);
  EXPECT_EQ(create(4, 6, 8, 2, 0), "aclCreateTensor: stride[1] is 2, expected 1" + why);
  EXPECT_EQ(create(4, 6, 8, 1, 1), "aclCreateTensor: offset is 1, expected an even number" + why);
  EXPECT_EQ(create(16, 8, 8, 1, 0), "");
  EXPECT_EQ(create(16, 8, 8, 1, 2),
            "aclCreateTensor: the view ends at element 130, expected at most 128, the product of "
            "storage_dims");
  aclTensor* scalar =
      aclCreateTensor(nullptr, 0, ACL_FLOAT4_E1M2, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, data);
  EXPECT_EQ(scalar, nullptr);
  EXPECT_EQ(aclGetRecentErrMsg(), "aclCreateTensor: view_dims_num is 0, expected 1 or more" + why);
}

}  // namespace
