// Descriptors of the C interface: what Set accepts, what Get returns, and how NULL is rejected.
#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <vector>

#include "c_descriptors.h"

namespace turnout::test {
namespace {

constexpr auto kArray = MLUOP_LAYOUT_ARRAY;
constexpr auto kFloat = MLUOP_DTYPE_FLOAT;

class CDescriptor : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreateTensorDescriptor(&desc), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroyTensorDescriptor(desc), kOk); }

  struct Content {
    mluOpTensorLayout_t layout;
    mluOpDataType_t dtype;
    std::vector<std::int64_t> shape, stride;
    bool operator==(const Content&) const = default;
  };
  Content content() const {
    Content c{};
    int rank = -1;
    EXPECT_EQ(mluOpGetTensorDescriptor_v2(desc, nullptr, nullptr, &rank, nullptr), kOk);
    c.shape.resize(static_cast<std::size_t>(rank) + 1);  // one more, so that data() is not null for a scalar
    c.stride.resize(c.shape.size());
    EXPECT_EQ(
        mluOpGetTensorDescriptorEx_v2(desc, &c.layout, &c.dtype, &rank, c.shape.data(), c.stride.data()),
        kOk);
    c.shape.pop_back();
    c.stride.pop_back();
    return c;
  }

  mluOpTensorDescriptor_t desc = nullptr;
};

TEST_F(CDescriptor, Defaults) {
  const auto expect_defaults = [&] {
    EXPECT_EQ(content(), (Content{kArray, kFloat, {}, {}}));
    EXPECT_EQ(mluOpGetTensorElementNum(desc), 0u);
    mluOpPointerMode_t mode = MLUOP_POINTER_MODE_HOST;
    EXPECT_EQ(mluOpGetTensorDescriptorPointerMode(desc, &mode), kOk);
    EXPECT_EQ(mode, MLUOP_POINTER_MODE_DEVICE);
    mluOpDataType_t onchip = kFloat;
    EXPECT_EQ(mluOpGetTensorDescriptorOnchipDataType(desc, &onchip), kOk);
    EXPECT_EQ(onchip, MLUOP_DTYPE_INVALID);
  };
  expect_defaults();
  const int shape[] = {2, 3};
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_NHWC, MLUOP_DTYPE_INT8, 2, shape), kOk);
  EXPECT_EQ(mluOpSetTensorDescriptorPointerMode(desc, MLUOP_POINTER_MODE_HOST), kOk);
  EXPECT_EQ(mluOpSetTensorDescriptorOnchipDataType(desc, MLUOP_DTYPE_HALF), kOk);
  EXPECT_EQ(mluOpResetTensorDescriptor(desc), kOk);
  expect_defaults();
}

TEST_F(CDescriptor, SetInfersRowMajorStrides) {
  const int narrow[] = {2, 3, 5};
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_NLC, MLUOP_DTYPE_HALF, 3, narrow), kOk);
  EXPECT_EQ(content(), (Content{MLUOP_LAYOUT_NLC, MLUOP_DTYPE_HALF, {2, 3, 5}, {15, 5, 1}}));
  EXPECT_EQ(mluOpGetTensorElementNum(desc), 30u);
  const std::int64_t wide[] = {std::int64_t{1} << 33, 2};
  EXPECT_EQ(mluOpSetTensorDescriptor_v2(desc, kArray, kFloat, 2, wide), kOk);
  EXPECT_EQ(content(), (Content{kArray, kFloat, {wide[0], 2}, {2, 1}}));
  EXPECT_EQ(mluOpGetTensorElementNum(desc), std::size_t{1} << 34);
  EXPECT_EQ(mluOpSetTensorDescriptorDim(desc, 1, narrow), kOk);
  EXPECT_EQ(content(), (Content{kArray, kFloat, {2}, {1}}));
  EXPECT_EQ(mluOpSetTensorDescriptorDim_v2(desc, 2, wide), kOk);
  EXPECT_EQ(content(), (Content{kArray, kFloat, {wide[0], 2}, {2, 1}}));
  EXPECT_EQ(mluOpGetTensorElementNum(desc), std::size_t{1} << 34);
}

TEST_F(CDescriptor, ExKeepsStrides) {
  const int shape[] = {2, 3}, stride[] = {10, 2};
  EXPECT_EQ(mluOpSetTensorDescriptorEx(desc, kArray, kFloat, 2, shape, stride), kOk);
  EXPECT_EQ(content(), (Content{kArray, kFloat, {2, 3}, {10, 2}}));
  EXPECT_EQ(mluOpGetTensorElementNum(desc), 6u);  // depends on sizes, not on strides
  const std::int64_t wide_shape[] = {4, 5}, wide_stride[] = {std::int64_t{1} << 40, -1};
  EXPECT_EQ(mluOpSetTensorDescriptorEx_v2(desc, kArray, kFloat, 2, wide_shape, wide_stride), kOk);
  EXPECT_EQ(content(), (Content{kArray, kFloat, {4, 5}, {std::int64_t{1} << 40, -1}}));
}

TEST_F(CDescriptor, SizesAreNotChecked) {
  const int odd[] = {-1, 0, 7};
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, kArray, kFloat, 3, odd), kOk);
  EXPECT_EQ(content().shape, (std::vector<std::int64_t>{-1, 0, 7}));
  EXPECT_EQ(mluOpGetTensorElementNum(desc), 0u);
  const int large[] = {INT_MAX, INT_MAX};
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, kArray, kFloat, 2, large), kOk);
  EXPECT_EQ(mluOpGetTensorElementNum(desc), std::size_t{INT_MAX} * INT_MAX);
  const int many[] = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, kArray, kFloat, 12, many), kOk);
  EXPECT_EQ(content().shape.size(), 12u);
  EXPECT_EQ(content().stride[0], 64);
  EXPECT_EQ(mluOpGetTensorElementNum(desc), 64u);
  // Layout and dtype have no upper limit.
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, static_cast<mluOpTensorLayout_t>(99),
                                     static_cast<mluOpDataType_t>(99), 1, many),
            kOk);
}

TEST_F(CDescriptor, ScalarsNeedHostPointerMode) {
  const int shape[] = {1};
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, kArray, kFloat, 0, shape), kBad);
  EXPECT_EQ(mluOpSetTensorDescriptorDim(desc, 0, shape), kBad);
  EXPECT_EQ(mluOpSetTensorDescriptorPointerMode(desc, MLUOP_POINTER_MODE_HOST), kOk);
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, kArray, kFloat, 0, shape), kOk);
  EXPECT_EQ(mluOpGetTensorElementNum(desc), 1u);
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, kArray, kFloat, 0, nullptr), kOk);
  EXPECT_EQ(mluOpSetTensorDescriptorEx(desc, kArray, kFloat, 0, nullptr, nullptr), kOk);
  EXPECT_EQ(mluOpSetTensorDescriptorDim_v2(desc, 0, nullptr), kOk);
  EXPECT_EQ(content().shape.size(), 0u);
}

TEST_F(CDescriptor, BadParametersChangeNothing) {
  const int shape[] = {2, 3}, stride[] = {3, 1};
  const std::int64_t wide[] = {2, 3};
  EXPECT_EQ(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_NC, MLUOP_DTYPE_INT8, 2, shape), kOk);
  const Content before = content();
  const auto bad_layout = static_cast<mluOpTensorLayout_t>(-1);
  const auto bad_dtype = static_cast<mluOpDataType_t>(-1);
  const auto expect_bad = [&](mluOpStatus_t status, const std::string& message) {
    EXPECT_EQ(status, kBad);
    EXPECT_EQ(std::string(turnoutLastError()), message);
    EXPECT_EQ(content(), before);
  };
  expect_bad(mluOpSetTensorDescriptor(nullptr, kArray, kFloat, 2, shape),
             "mluOpSetTensorDescriptor: desc is NULL");
  expect_bad(mluOpSetTensorDescriptor(nullptr, bad_layout, kFloat, 2, shape),
             "mluOpSetTensorDescriptor: desc is NULL");
  expect_bad(mluOpGetTensorDescriptorEx(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
             "mluOpGetTensorDescriptorEx: desc is NULL");
  expect_bad(mluOpSetTensorDescriptor(desc, bad_layout, kFloat, 2, shape),
             "mluOpSetTensorDescriptor: layout is -1, expected 0 or more");
  expect_bad(mluOpSetTensorDescriptor(desc, kArray, bad_dtype, 2, shape),
             "mluOpSetTensorDescriptor: dtype is -1, expected 0 or more");
  expect_bad(mluOpSetTensorDescriptor(desc, kArray, kFloat, -1, shape),
             "mluOpSetTensorDescriptor: dimNb is -1, expected 0 or more");
  expect_bad(mluOpSetTensorDescriptor(desc, kArray, kFloat, 2, nullptr),
             "mluOpSetTensorDescriptor: dimSize is NULL");
  expect_bad(mluOpSetTensorDescriptor_v2(nullptr, kArray, kFloat, 2, wide),
             "mluOpSetTensorDescriptor_v2: desc is NULL");
  expect_bad(mluOpSetTensorDescriptor_v2(desc, kArray, kFloat, 2, nullptr),
             "mluOpSetTensorDescriptor_v2: dimSize is NULL");
  expect_bad(mluOpSetTensorDescriptorEx(desc, kArray, kFloat, 2, shape, nullptr),
             "mluOpSetTensorDescriptorEx: dimStride is NULL");
  expect_bad(mluOpSetTensorDescriptorEx(desc, kArray, kFloat, 2, nullptr, stride),
             "mluOpSetTensorDescriptorEx: dimSize is NULL");
  expect_bad(mluOpSetTensorDescriptorEx_v2(desc, kArray, kFloat, 2, wide, nullptr),
             "mluOpSetTensorDescriptorEx_v2: dimStride is NULL");
  expect_bad(mluOpSetTensorDescriptorDim(nullptr, 2, shape), "mluOpSetTensorDescriptorDim: desc is NULL");
  expect_bad(mluOpSetTensorDescriptorDim(desc, 2, nullptr), "mluOpSetTensorDescriptorDim: dimSize is NULL");
  expect_bad(mluOpSetTensorDescriptorDim(desc, -2, shape),
             "mluOpSetTensorDescriptorDim: dimNb is -2, expected 0 or more");
  expect_bad(mluOpSetTensorDescriptorDim_v2(desc, 2, nullptr),
             "mluOpSetTensorDescriptorDim_v2: dimSize is NULL");
  expect_bad(mluOpSetTensorDescriptorPointerMode(desc, static_cast<mluOpPointerMode_t>(-1)),
             "mluOpSetTensorDescriptorPointerMode: pointer_mode is -1, expected 0 or more");
}

TEST_F(CDescriptor, GetTakesOrRequiresEachPointer) {
  const std::int64_t shape[] = {(std::int64_t{1} << 32) + 5, 3};
  EXPECT_EQ(mluOpSetTensorDescriptor_v2(desc, kArray, kFloat, 2, shape), kOk);
  EXPECT_EQ(mluOpGetTensorDescriptor(desc, nullptr, nullptr, nullptr, nullptr), kOk);
  mluOpTensorLayout_t layout = MLUOP_LAYOUT_NCHW;
  mluOpDataType_t dtype = MLUOP_DTYPE_INVALID;
  int rank = 0, sizes[2] = {}, strides[2] = {};
  EXPECT_EQ(mluOpGetTensorDescriptor(desc, &layout, &dtype, &rank, sizes), kOk);
  EXPECT_EQ(layout, kArray);
  EXPECT_EQ(dtype, kFloat);
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(sizes[0], 5);  // truncated without an error
  EXPECT_EQ(sizes[1], 3);
  EXPECT_EQ(mluOpGetTensorDescriptorEx(desc, &layout, &dtype, &rank, sizes, strides), kOk);
  EXPECT_EQ(strides[0], 3);
  EXPECT_EQ(strides[1], 1);
  EXPECT_EQ(mluOpGetTensorDescriptorEx(desc, nullptr, &dtype, &rank, sizes, strides), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorEx(desc, &layout, nullptr, &rank, sizes, strides), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorEx(desc, &layout, &dtype, nullptr, sizes, strides), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorEx(desc, &layout, &dtype, &rank, nullptr, strides), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorEx(desc, &layout, &dtype, &rank, sizes, nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorEx_v2(desc, &layout, &dtype, &rank, nullptr, nullptr), kBad);
}

TEST(CDescriptorNull, IsBad) {
  EXPECT_EQ(mluOpCreateTensorDescriptor(nullptr), kBad);
  EXPECT_EQ(mluOpDestroyTensorDescriptor(nullptr), kBad);
  EXPECT_EQ(mluOpResetTensorDescriptor(nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorElementNum(nullptr), 0u);
  EXPECT_EQ(mluOpGetTensorDescriptor(nullptr, nullptr, nullptr, nullptr, nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptor_v2(nullptr, nullptr, nullptr, nullptr, nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorEx(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorEx_v2(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), kBad);
  EXPECT_EQ(mluOpSetTensorDescriptorPointerMode(nullptr, MLUOP_POINTER_MODE_HOST), kBad);
  mluOpPointerMode_t mode;
  mluOpDataType_t dtype;
  EXPECT_EQ(mluOpGetTensorDescriptorPointerMode(nullptr, &mode), kBad);
  EXPECT_EQ(mluOpSetTensorDescriptorOnchipDataType(nullptr, MLUOP_DTYPE_HALF), kBad);
  EXPECT_EQ(mluOpGetTensorDescriptorOnchipDataType(nullptr, &dtype), kBad);
}

TEST_F(CDescriptor, KeepsModes) {
  mluOpPointerMode_t mode;
  mluOpDataType_t onchip;
  EXPECT_EQ(mluOpSetTensorDescriptorPointerMode(desc, MLUOP_POINTER_MODE_HOST), kOk);
  EXPECT_EQ(mluOpGetTensorDescriptorPointerMode(desc, &mode), kOk);
  EXPECT_EQ(mode, MLUOP_POINTER_MODE_HOST);
  EXPECT_EQ(mluOpGetTensorDescriptorPointerMode(desc, nullptr), kBad);
  EXPECT_EQ(mluOpSetTensorDescriptorOnchipDataType(desc, MLUOP_DTYPE_INT31), kOk);
  EXPECT_EQ(mluOpGetTensorDescriptorOnchipDataType(desc, &onchip), kOk);
  EXPECT_EQ(onchip, MLUOP_DTYPE_INT31);
  EXPECT_EQ(mluOpGetTensorDescriptorOnchipDataType(desc, nullptr), kBad);
}

TEST(CSparseConvolutionDescriptor, NullPointers) {
  int count = 5;
  EXPECT_EQ(mluOpCreateSparseConvolutionDescriptor(nullptr), MLUOP_STATUS_NOT_INITIALIZED);
  EXPECT_STREQ(turnoutLastError(), "mluOpCreateSparseConvolutionDescriptor: desc is NULL");
  EXPECT_EQ(mluOpDestroySparseConvolutionDescriptor(nullptr), MLUOP_STATUS_EXECUTION_FAILED);
  EXPECT_STREQ(turnoutLastError(), "mluOpDestroySparseConvolutionDescriptor: desc is NULL");
  EXPECT_EQ(mluOpGetSparseConvolutionNumActOut(nullptr, &count), MLUOP_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(count, 5);
  const ConvolutionDescriptor desc;
  EXPECT_EQ(mluOpGetSparseConvolutionNumActOut(desc, nullptr), MLUOP_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(desc.num_act_out(), 0);
}

}  // namespace
}  // namespace turnout::test
