// Tensor descriptors of the C interface that a test need not destroy.
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
  // Row-major without strides.
  Descriptor(mluOpDataType_t dtype, const std::vector<std::int64_t>& shape,
             const std::vector<std::int64_t>& stride = {}) {
    const int rank = static_cast<int>(shape.size());
    EXPECT_EQ(mluOpCreateTensorDescriptor(&desc_), kOk);
    EXPECT_EQ(stride.empty()
                  ? mluOpSetTensorDescriptor_v2(desc_, MLUOP_LAYOUT_ARRAY, dtype, rank, shape.data())
                  : mluOpSetTensorDescriptorEx_v2(desc_, MLUOP_LAYOUT_ARRAY, dtype, rank, shape.data(),
                                                  stride.data()),
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

}  // namespace turnout::test
