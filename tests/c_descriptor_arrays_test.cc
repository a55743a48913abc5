// Groups of descriptors, tensor sets, and the quantization values of a descriptor.
#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <vector>

#include "c_descriptors.h"

namespace turnout::test {
namespace {

std::string last_error() { return turnoutLastError(); }

TEST(CQuantization, IsStored) {
  mluOpTensorDescriptor_t desc = nullptr;
  ASSERT_EQ(mluOpCreateTensorDescriptor(&desc), kOk);
  const auto expect = [&](int position, float scale, int offset) {
    int p = 77, o = 77;
    float s = 77;
    EXPECT_EQ(mluOpGetTensorDescriptorPosition(desc, &p), kOk);
    EXPECT_EQ(p, position);
    p = 77;
    EXPECT_EQ(mluOpGetTensorDescriptorPositionAndScale(desc, &p, &s), kOk);
    EXPECT_EQ(p, position);
    EXPECT_EQ(s, scale);
    p = 77, s = 77;
    EXPECT_EQ(mluOpGetTensorDescriptorPositionScaleAndOffset(desc, &p, &s, &o), kOk);
    EXPECT_EQ(p, position);
    EXPECT_EQ(s, scale);
    EXPECT_EQ(o, offset);
  };
  expect(0, 1, 0);
  EXPECT_EQ(mluOpSetTensorDescriptorPositionScaleAndOffset(desc, 1, 2, 3), kOk);
  expect(1, 2, 3);
  EXPECT_EQ(mluOpSetTensorDescriptorPositionAndScale(desc, -4, 0.5f), kOk);
  expect(-4, 0.5f, 3);
  EXPECT_EQ(mluOpSetTensorDescriptorPosition(desc, 5), kOk);
  expect(5, 0.5f, 3);
  EXPECT_EQ(mluOpResetTensorDescriptor(desc), kOk);
  expect(0, 1, 0);
  EXPECT_EQ(mluOpDestroyTensorDescriptor(desc), kOk);
}

TEST(CQuantization, NullIsBad) {
  const Descriptor desc(MLUOP_DTYPE_FLOAT, {2});
  int p = 77, o = 77;
  float s = 77;
  EXPECT_EQ(mluOpSetTensorDescriptorPosition(nullptr, 1), kBad);
  EXPECT_EQ(mluOpSetTensorDescriptorPositionAndScale(nullptr, 1, 1), kBad);
  EXPECT_EQ(mluOpSetTensorDescriptorPositionScaleAndOffset(nullptr, 1, 1, 1), kBad);
  EXPECT_EQ(last_error(), "mluOpSetTensorDescriptorPositionScaleAndOffset: desc is NULL");
  EXPECT_EQ(mluOpGetTensorDescriptorPosition(nullptr, &p), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorPosition(desc, nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorPositionAndScale(nullptr, &p, &s), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorPositionAndScale(desc, nullptr, &s), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorPositionAndScale(desc, &p, nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorPositionScaleAndOffset(nullptr, &p, &s, &o), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorPositionScaleAndOffset(desc, nullptr, &s, &o), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorPositionScaleAndOffset(desc, &p, nullptr, &o), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorPositionScaleAndOffset(desc, &p, &s, nullptr), kBad);
  EXPECT_EQ(last_error(), "mluOpGetTensorDescriptorPositionScaleAndOffset: offset is NULL");
  EXPECT_EQ(p, 77);
  EXPECT_EQ(s, 77);
  EXPECT_EQ(o, 77);
}

TEST(CGroup, IsCreatedSetAndDestroyed) {
  mluOpTensorDescriptor_t a = nullptr, b = nullptr, c = nullptr;
  mluOpTensorDescriptor_t* group[] = {&a, &b, &c};
  ASSERT_EQ(mluOpCreateGroupTensorDescriptors(group, 3), kOk);
  const mluOpTensorLayout_t layouts[] = {MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_NHWC, MLUOP_LAYOUT_NC};
  mluOpDataType_t dtypes[] = {MLUOP_DTYPE_FLOAT, MLUOP_DTYPE_HALF, MLUOP_DTYPE_INT8};
  const int ranks[] = {1, 3, 2}, sizes[] = {7, 2, 3, 4, 5, 6};
  EXPECT_EQ(mluOpSetGroupTensorDescriptors(group, layouts, dtypes, ranks, sizes, 3), kOk);
  EXPECT_EQ(mluOpGetTensorElementNum(a), 7u);
  EXPECT_EQ(mluOpGetTensorElementNum(b), 24u);
  EXPECT_EQ(mluOpGetTensorElementNum(c), 30u);
  mluOpTensorLayout_t layout = MLUOP_LAYOUT_ARRAY;
  mluOpDataType_t dtype = MLUOP_DTYPE_INVALID;
  EXPECT_EQ(mluOpGetTensorDescriptor(c, &layout, &dtype, nullptr, nullptr), kOk);
  EXPECT_EQ(layout, MLUOP_LAYOUT_NC);
  EXPECT_EQ(dtype, MLUOP_DTYPE_INT8);

  // As in MLU-OPS, a rejected one does not affect the others.
  dtypes[1] = static_cast<mluOpDataType_t>(-1);
  const int other_sizes[] = {8, 2, 3, 5, 5, 7};
  EXPECT_EQ(mluOpSetGroupTensorDescriptors(group, layouts, dtypes, ranks, other_sizes, 3), kOk);
  EXPECT_EQ(last_error(), "");
  EXPECT_EQ(mluOpGetTensorElementNum(a), 8u);
  EXPECT_EQ(mluOpGetTensorElementNum(b), 24u);
  EXPECT_EQ(mluOpGetTensorElementNum(c), 35u);
  EXPECT_EQ(mluOpDestroyGroupTensorDescriptors(group, 3), kOk);
}

TEST(CGroup, BadArgumentsDoNothing) {
  mluOpTensorDescriptor_t a = nullptr;
  mluOpTensorDescriptor_t* group[] = {&a, nullptr};
  const mluOpTensorLayout_t layouts[] = {MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_ARRAY};
  const mluOpDataType_t dtypes[] = {MLUOP_DTYPE_FLOAT, MLUOP_DTYPE_FLOAT};
  const int ranks[] = {1, 1}, sizes[] = {7, 7};
  EXPECT_EQ(mluOpCreateGroupTensorDescriptors(nullptr, 1), kBad);
  EXPECT_EQ(mluOpCreateGroupTensorDescriptors(group, 0), kBad);
  EXPECT_EQ(last_error(), "mluOpCreateGroupTensorDescriptors: desc_num is 0, expected 1 or more");
  EXPECT_EQ(mluOpCreateGroupTensorDescriptors(group, -1), kBad);
  EXPECT_EQ(mluOpCreateGroupTensorDescriptors(group, 2), kBad);
  EXPECT_EQ(last_error(), "mluOpCreateGroupTensorDescriptors: group_desc[1] is NULL");
  EXPECT_EQ(a, nullptr);
  EXPECT_EQ(mluOpDestroyGroupTensorDescriptors(group, 1), kBad);
  EXPECT_EQ(last_error(), "mluOpDestroyGroupTensorDescriptors: *group_desc[0] is NULL");

  ASSERT_EQ(mluOpCreateGroupTensorDescriptors(group, 1), kOk);
  const auto set = [&](mluOpTensorDescriptor_t** g, const mluOpTensorLayout_t* l, const mluOpDataType_t* d,
                       const int* r, const int* s, int count, const std::string& what) {
    EXPECT_EQ(mluOpSetGroupTensorDescriptors(g, l, d, r, s, count), kBad);
    EXPECT_EQ(last_error(), "mluOpSetGroupTensorDescriptors: " + what);
  };
  set(nullptr, nullptr, dtypes, ranks, sizes, 1, "group_desc is NULL");
  set(group, nullptr, nullptr, ranks, sizes, 1, "group_layout is NULL");
  set(group, layouts, nullptr, nullptr, sizes, 1, "group_dtype is NULL");
  set(group, layouts, dtypes, nullptr, nullptr, 1, "group_dimNb is NULL");
  set(group, layouts, dtypes, ranks, nullptr, 0, "group_dimSize is NULL");
  set(group, layouts, dtypes, ranks, sizes, 0, "desc_num is 0, expected 1 or more");
  set(group, layouts, dtypes, ranks, sizes, 2, "group_desc[1] is NULL");
  EXPECT_EQ(mluOpGetTensorElementNum(a), 0u);
  EXPECT_EQ(mluOpDestroyGroupTensorDescriptors(nullptr, 1), kBad);
  EXPECT_EQ(mluOpDestroyGroupTensorDescriptors(group, 0), kBad);
  EXPECT_EQ(mluOpDestroyGroupTensorDescriptors(group, 2), kBad);
  EXPECT_EQ(mluOpDestroyGroupTensorDescriptors(group, 1), kOk);
}

class CTensorSet : public testing::Test {
 protected:
  void SetUp() override {
    const int shape[] = {2, 3};
    ASSERT_EQ(mluOpCreateTensorSetDescriptor(&set, 2, shape), kOk);
  }
  void TearDown() override { EXPECT_EQ(mluOpDestroyTensorSetDescriptor(set), kOk); }
  mluOpStatus_t init(int rank, const std::vector<int>& index, std::vector<int> shape,
                     mluOpDataType_t dtype = MLUOP_DTYPE_FLOAT) {
    return mluOpInitTensorSetMemberDescriptor(set, rank, index.data(), MLUOP_LAYOUT_ARRAY, dtype,
                                              static_cast<int>(shape.size()), shape.data());
  }
  mluOpTensorSetDescriptor_t set = nullptr;
};

TEST_F(CTensorSet, MembersAreContiguous) {
  int rank = 0, shape[2] = {};
  EXPECT_EQ(mluOpGetTensorSetDescriptor(set, &rank, shape), kOk);
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[1], 3);
  int bytes = 77;
  EXPECT_EQ(mluOpGetTensorSetDescriptorSize(set, &bytes), kOk);
  EXPECT_EQ(bytes, 0);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(init(2, {i / 3, i % 3}, {i + 1}, i % 2 ? MLUOP_DTYPE_HALF : MLUOP_DTYPE_FLOAT), kOk);
  EXPECT_EQ(mluOpGetTensorSetDescriptorSize(set, &bytes), kOk);
  EXPECT_EQ(bytes, 4 * (1 + 3 + 5) + 2 * (2 + 4 + 6));

  const int index[] = {1, 1};
  char data[64];
  mluOpTensorDescriptor_t member = nullptr;
  void* at = nullptr;
  EXPECT_EQ(mluOpGetTensorAndDataFromTensorSet(set, 2, index, data, &member, &at), kOk);
  EXPECT_EQ(mluOpGetTensorElementNum(member), 5u);
  EXPECT_EQ(at, data + 4 * (1 + 3) + 2 * (2 + 4));
  EXPECT_EQ(mluOpGetTensorAndDataFromTensorSet(set, 2, index, nullptr, &member, &at), kOk);

  EXPECT_EQ(mluOpInitTensorSetMemberDescriptorPositionAndScale(set, 2, index, 3, 0.25f), kOk);
  int position = 0;
  float scale = 0;
  EXPECT_EQ(mluOpGetTensorDescriptorPositionAndScale(member, &position, &scale), kOk);
  EXPECT_EQ(position, 3);
  EXPECT_EQ(scale, 0.25f);
}

TEST_F(CTensorSet, WrongMembersAreBad) {
  EXPECT_EQ(init(1, {0, 0}, {2}), kBad);
  EXPECT_EQ(last_error(), "mluOpInitTensorSetMemberDescriptor: setDimNb is 1, expected 2");
  EXPECT_EQ(init(2, {0, 3}, {2}), kBad);
  EXPECT_EQ(last_error(), "mluOpInitTensorSetMemberDescriptor: tensorIndex[1] is 3, expected 0 .. 2");
  EXPECT_EQ(init(2, {-1, 0}, {2}), kBad);
  EXPECT_EQ(init(2, {0, 0}, {2}, static_cast<mluOpDataType_t>(-1)), kBad);
  EXPECT_EQ(init(2, {0, 0}, {}), kBad);
  const int index[] = {0, 0}, beyond[] = {2, 0};
  EXPECT_EQ(mluOpInitTensorSetMemberDescriptorPositionAndScale(set, 3, index, 1, 1), kBad);
  EXPECT_EQ(mluOpInitTensorSetMemberDescriptorPositionAndScale(set, 2, beyond, 1, 1), kBad);
  mluOpTensorDescriptor_t member = nullptr;
  void* at = nullptr;
  EXPECT_EQ(mluOpGetTensorAndDataFromTensorSet(set, 1, index, nullptr, &member, &at), kBad);
  EXPECT_EQ(mluOpGetTensorAndDataFromTensorSet(set, 2, beyond, nullptr, &member, &at), kBad);
  EXPECT_EQ(member, nullptr);
  EXPECT_EQ(at, nullptr);
  int bytes = 0;
  EXPECT_EQ(mluOpGetTensorSetDescriptorSize(set, &bytes), kOk);
  EXPECT_EQ(bytes, 0);
}

TEST_F(CTensorSet, NullIsBad) {
  const int index[] = {0, 0};
  int rank = 77, shape[2] = {}, bytes = 77;
  mluOpTensorDescriptor_t member = nullptr;
  void* at = nullptr;
  EXPECT_EQ(mluOpCreateTensorSetDescriptor(nullptr, 2, index), kBad);
  EXPECT_EQ(mluOpDestroyTensorSetDescriptor(nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorSetDescriptor(nullptr, &rank, shape), kBad);
  EXPECT_EQ(mluOpGetTensorSetDescriptor(set, nullptr, shape), kBad);
  EXPECT_EQ(mluOpGetTensorSetDescriptor(set, &rank, nullptr), kBad);
  EXPECT_EQ(rank, 77);
  EXPECT_EQ(
      mluOpInitTensorSetMemberDescriptor(nullptr, 2, index, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 2, index),
      kBad);
  EXPECT_EQ(
      mluOpInitTensorSetMemberDescriptor(set, 2, nullptr, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 2, index),
      kBad);
  EXPECT_EQ(mluOpInitTensorSetMemberDescriptorPositionAndScale(nullptr, 2, index, 1, 1), kBad);
  EXPECT_EQ(mluOpGetTensorSetDescriptorSize(nullptr, &bytes), kBad);
  EXPECT_EQ(mluOpGetTensorSetDescriptorSize(set, nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorAndDataFromTensorSet(nullptr, 2, index, nullptr, &member, &at), kBad);
  EXPECT_EQ(mluOpGetTensorAndDataFromTensorSet(set, 2, index, nullptr, nullptr, &at), kBad);
  EXPECT_EQ(mluOpGetTensorAndDataFromTensorSet(set, 2, index, nullptr, &member, nullptr), kBad);
  EXPECT_EQ(last_error(), "mluOpGetTensorAndDataFromTensorSet: dataAddrInDevice is NULL");
}

TEST(CTensorSetSizes, AreChecked) {
  mluOpTensorSetDescriptor_t set = nullptr;
  const int negative[] = {2, -1}, huge[] = {INT_MAX, 2}, empty[] = {0, INT_MAX};
  EXPECT_EQ(mluOpCreateTensorSetDescriptor(&set, -1, empty), kBad);
  EXPECT_EQ(mluOpCreateTensorSetDescriptor(&set, 2, nullptr), kBad);
  EXPECT_EQ(mluOpCreateTensorSetDescriptor(&set, 2, negative), kBad);
  EXPECT_EQ(last_error(), "mluOpCreateTensorSetDescriptor: setDimSize[1] is -1, expected 0 or more");
  EXPECT_EQ(mluOpCreateTensorSetDescriptor(&set, 2, huge), kBad);
  EXPECT_EQ(last_error(),
            "mluOpCreateTensorSetDescriptor: setDimSize[1] is 2, expected fewer than 2^31 members");
  EXPECT_EQ(set, nullptr);
  EXPECT_EQ(mluOpCreateTensorSetDescriptor(&set, 2, empty), kOk);
  EXPECT_EQ(mluOpDestroyTensorSetDescriptor(set), kOk);
  // A set without dimensions has one member.
  ASSERT_EQ(mluOpCreateTensorSetDescriptor(&set, 0, nullptr), kOk);
  mluOpTensorDescriptor_t member = nullptr;
  void* at = nullptr;
  EXPECT_EQ(mluOpGetTensorAndDataFromTensorSet(set, 0, nullptr, &set, &member, &at), kOk);
  EXPECT_EQ(at, &set);
  EXPECT_EQ(mluOpDestroyTensorSetDescriptor(set), kOk);
}

}  // namespace
}  // namespace turnout::test
