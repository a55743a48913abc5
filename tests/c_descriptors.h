// RAII wrappers of the C interface's descriptors.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "turnout/mluop/mlu_op.h"

namespace turnout::test {

inline constexpr auto kOk = MLUOP_STATUS_SUCCESS;
inline constexpr auto kBad = MLUOP_STATUS_BAD_PARAM;
inline constexpr auto kUnsupported = MLUOP_STATUS_NOT_SUPPORTED;

class Descriptor {
 public:
  // Row-major if no strides are given.
  Descriptor(mluOpDataType_t dtype, const std::vector<std::int64_t>& shape,
             const std::vector<std::int64_t>& stride = {}, mluOpTensorLayout_t layout = MLUOP_LAYOUT_ARRAY) {
    const int rank = static_cast<int>(shape.size());
    EXPECT_EQ(mluOpCreateTensorDescriptor(&desc_), kOk);
    EXPECT_EQ(stride.empty()
                  ? mluOpSetTensorDescriptor_v2(desc_, layout, dtype, rank, shape.data())
                  : mluOpSetTensorDescriptorEx_v2(desc_, layout, dtype, rank, shape.data(), stride.data()),
              kOk);
  }
  ~Descriptor() { mluOpDestroyTensorDescriptor(desc_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator mluOpTensorDescriptor_t() const { return desc_; }
  mluOpTensorDescriptor_t when(bool given) const { return given ? desc_ : nullptr; }

 private:
  mluOpTensorDescriptor_t desc_ = nullptr;
};

// The values of a sparse-convolution descriptor.
struct Convolution {
  int dims = 5, batch = 1;
  std::vector<int> pad{0, 0, 0}, stride{1, 1, 1}, dilation{1, 1, 1}, input{}, filter{}, output{};
  int sub_m = 0, transpose = 0, inverse = 0;
  // An empty vector is passed as NULL.
  mluOpStatus_t set(mluOpSparseConvolutionDescriptor_t desc) const {
    const auto given = [](const std::vector<int>& v) { return v.empty() ? nullptr : v.data(); };
    return mluOpSetSparseConvolutionDescriptor(desc, dims, batch, given(pad), given(stride), given(dilation),
                                               given(input), given(filter), given(output), sub_m, transpose,
                                               inverse);
  }
};

class ConvolutionDescriptor {
 public:
  ConvolutionDescriptor() { EXPECT_EQ(mluOpCreateSparseConvolutionDescriptor(&desc_), kOk); }
  explicit ConvolutionDescriptor(const Convolution& convolution) : ConvolutionDescriptor() {
    EXPECT_EQ(convolution.set(desc_), kOk) << turnoutLastError();
  }
  ~ConvolutionDescriptor() { EXPECT_EQ(mluOpDestroySparseConvolutionDescriptor(desc_), kOk); }
  ConvolutionDescriptor(const ConvolutionDescriptor&) = delete;
  ConvolutionDescriptor& operator=(const ConvolutionDescriptor&) = delete;
  operator mluOpSparseConvolutionDescriptor_t() const { return desc_; }
  mluOpSparseConvolutionDescriptor_t when(bool given) const { return given ? desc_ : nullptr; }
  int num_act_out() const {
    int count = -1;
    EXPECT_EQ(mluOpGetSparseConvolutionNumActOut(desc_, &count), kOk);
    return count;
  }

 private:
  mluOpSparseConvolutionDescriptor_t desc_ = nullptr;
};

}  // namespace turnout::test
