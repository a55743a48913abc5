// One call of each C convolution with its arguments, and the definition to compare with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "c_descriptors.h"
#include "simd/half.h"
#include "sparse_conv/reference.h"

namespace turnout::test {

using Counts = std::vector<std::int64_t>;
using Bytes = std::vector<char>;
inline constexpr char kPaintedByte = 0x77;

// Pairs [offsets, 2, rows] and their counts.
struct GivenPairs {
  std::int64_t rows;
  reference::Pairs lists;
  std::vector<std::int32_t> entries;
  Counts counts;

  GivenPairs(reference::Pairs pairs, std::int64_t rows_) : rows(rows_), lists(std::move(pairs)) {
    entries.assign(lists.in.size() * 2 * static_cast<std::size_t>(rows), -1);
    for (std::size_t k = 0; k < lists.in.size(); ++k) {
      const auto at = entries.begin() + static_cast<std::int64_t>(k) * 2 * rows;
      std::copy(lists.in[k].begin(), lists.in[k].end(), at);
      std::copy(lists.out[k].begin(), lists.out[k].end(), at + rows);
      counts.push_back(static_cast<std::int64_t>(lists.in[k].size()));
    }
    counts.shrink_to_fit();  // so that the address sanitizer detects reads past its end
  }
};

// Some rows occur twice in one offset, some never.
inline GivenPairs some_pairs(std::int64_t offsets, std::int64_t rows, std::int64_t out_rows) {
  std::minstd_rand random(5);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int32_t>((random() >> 5) % static_cast<unsigned>(n));
  };
  reference::Pairs pairs;
  for (std::int64_t k = 0; k < offsets; ++k) {
    pairs.in.emplace_back();
    pairs.out.emplace_back();
    const std::int64_t most =
        k == offsets / 2 ? std::min(rows, out_rows) : std::min(rows, out_rows) * (k % 3) / 3;
    for (std::int64_t j = 0; j < most; ++j) {
      pairs.in.back().push_back(below(rows));
      pairs.out.back().push_back(below(out_rows));
    }
  }
  return {std::move(pairs), rows};
}

// Values of one dtype, and the same values in f32.
struct Floats {
  bool is_half;
  std::vector<float> lanes;
  std::vector<f16> halves;

  Floats(std::int64_t count, bool half, unsigned seed)
      : is_half(half), lanes(static_cast<std::size_t>(count)), halves(half ? lanes.size() : 0) {
    std::minstd_rand random(seed);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      lanes[i] = static_cast<float>((random() >> 8) % 2001) / 512 - 2;
      if (half) halves[i] = core::from_float<f16>(lanes[i]);
      if (half) lanes[i] = core::to_float(halves[i]);
    }
  }
  void* data() { return is_half ? static_cast<void*>(halves.data()) : lanes.data(); }
  std::size_t bytes() const { return lanes.size() * (is_half ? sizeof(f16) : sizeof(float)); }
  reference::Rows<float> rows(std::int64_t columns) const {
    reference::Rows<float> rows(lanes.size() / static_cast<std::size_t>(columns),
                                static_cast<std::size_t>(columns));
    rows.values = lanes;
    return rows;
  }
};

// Filters with kd * kh * kw offsets; kd = 0 means four dimensions.
struct Kernel {
  mluOpTensorLayout_t layout = MLUOP_LAYOUT_ARRAY;
  std::int64_t kd = 1, kh = 1, kw = 3, in = 3, out = 2;

  std::int64_t offsets() const { return std::max<std::int64_t>(kd, 1) * kh * kw; }
  std::vector<std::int64_t> shape() const {
    std::vector<std::int64_t> kernel{kh, kw};
    if (kd > 0) kernel.insert(kernel.begin(), kd);
    if (is_first()) kernel.insert(kernel.end(), {in, out});
    if (is_channels_last()) kernel.insert(kernel.begin(), out), kernel.push_back(in);
    if (!is_first() && !is_channels_last()) kernel.insert(kernel.begin(), {out, in});
    return kernel;
  }
  bool is_first() const { return layout == MLUOP_LAYOUT_ARRAY || layout == MLUOP_LAYOUT_HWCN; }
  bool is_channels_last() const { return layout == MLUOP_LAYOUT_NHWC || layout == MLUOP_LAYOUT_NDHWC; }
  // [offsets, in, out] in the order of the layout.
  template <class T>
  std::vector<T> in_layout(const std::vector<T>& values) const {
    std::vector<T> moved(values.size());
    for (std::int64_t k = 0; k < offsets(); ++k)
      for (std::int64_t i = 0; i < in; ++i)
        for (std::int64_t o = 0; o < out; ++o) {
          const std::int64_t from = (k * in + i) * out + o;
          const std::int64_t to = is_first()           ? from
                                  : is_channels_last() ? (o * offsets() + k) * in + i
                                                       : (o * in + i) * offsets() + k;
          moved[static_cast<std::size_t>(to)] = values[static_cast<std::size_t>(from)];
        }
    return moved;
  }
};

// All tensors of the three functions, in one dtype.
struct ConvolutionCall {
  mluOpHandle_t handle;
  Kernel kernel;
  std::int64_t out_rows;
  GivenPairs pairs;
  std::int64_t num_act_out, inverse = 0, sub_m = 0;
  Floats features, filters, output_grad;
  Bytes features_out, input_grad, filters_grad;  // painted
  Bytes filter_memory;
  Descriptor features_desc, filters_desc, pairs_desc, features_out_desc, filters_grad_desc;
  Bytes workspace;

  ConvolutionCall(mluOpHandle_t handle_, const Kernel& kernel_, GivenPairs pairs_, std::int64_t out_rows_,
                  bool half = false)
      : handle(handle_),
        kernel(kernel_),
        out_rows(out_rows_),
        pairs(std::move(pairs_)),
        num_act_out(out_rows),
        features(pairs.rows * kernel.in, half, 1),
        filters(kernel.offsets() * kernel.in * kernel.out, half, 2),
        output_grad(out_rows * kernel.out, half, 3),
        features_out(output_grad.bytes(), kPaintedByte),
        input_grad(features.bytes(), kPaintedByte),
        filters_grad(filters.bytes(), kPaintedByte),
        filter_memory(filters.bytes()),
        features_desc(dtype(), {pairs.rows, kernel.in}),
        filters_desc(dtype(), kernel.shape(), {}, kernel.layout),
        pairs_desc(MLUOP_DTYPE_INT32, {kernel.offsets(), 2, pairs.rows}),
        features_out_desc(dtype(), {out_rows, kernel.out}),
        filters_grad_desc(dtype(), kernel_first().shape()) {
    if (half) {
      const auto moved = kernel.in_layout(filters.halves);
      if (!moved.empty()) std::memcpy(filter_memory.data(), moved.data(), filter_memory.size());
    } else {
      const auto moved = kernel.in_layout(filters.lanes);
      if (!moved.empty()) std::memcpy(filter_memory.data(), moved.data(), filter_memory.size());
    }
  }
  mluOpDataType_t dtype() const { return features.is_half ? MLUOP_DTYPE_HALF : MLUOP_DTYPE_FLOAT; }
  Kernel kernel_first() const {
    Kernel same = kernel;
    same.layout = MLUOP_LAYOUT_ARRAY;
    return same;
  }

  mluOpStatus_t query_forward(std::size_t* size) const {
    return mluOpGetIndiceConvolutionForwardWorkspaceSize(handle, features_desc, filters_desc, pairs_desc,
                                                         features_out_desc, pairs.counts.data(), num_act_out,
                                                         inverse, sub_m, size);
  }
  mluOpStatus_t query_data(std::size_t* size) const {
    return mluOpGetIndiceConvolutionBackwardDataWorkspaceSize(handle, features_out_desc, filters_desc,
                                                              pairs_desc, features_desc, pairs.counts.data(),
                                                              inverse, size);
  }
  mluOpStatus_t query_filter(std::size_t* size) const {
    return mluOpGetIndiceConvolutionBackwardFilterWorkspaceSize(handle, features_desc, features_out_desc,
                                                                pairs_desc, filters_grad_desc,
                                                                pairs.counts.data(), inverse, sub_m, size);
  }
  mluOpStatus_t forward(void* memory, std::size_t size) {
    return mluOpIndiceConvolutionForward(handle, features_desc, features.data(), filters_desc,
                                         filter_memory.data(), pairs_desc, pairs.entries.data(),
                                         pairs.counts.data(), num_act_out, inverse, sub_m, memory, size,
                                         features_out_desc, features_out.data());
  }
  mluOpStatus_t backward_data(void* memory, std::size_t size) {
    return mluOpIndiceConvolutionBackwardData(handle, features_out_desc, output_grad.data(), filters_desc,
                                              filter_memory.data(), pairs_desc, pairs.entries.data(),
                                              pairs.counts.data(), inverse, sub_m, memory, size,
                                              features_desc, input_grad.data());
  }
  mluOpStatus_t backward_filter(void* memory, std::size_t size) {
    return mluOpIndiceConvolutionBackwardFilter(handle, features_desc, features.data(), features_out_desc,
                                                output_grad.data(), pairs_desc, pairs.entries.data(),
                                                pairs.counts.data(), inverse, sub_m, memory, size,
                                                filters_grad_desc, filters_grad.data());
  }
  // Runs each with the workspace that its query returns.
  using Query = mluOpStatus_t (ConvolutionCall::*)(std::size_t*) const;
  using Run = mluOpStatus_t (ConvolutionCall::*)(void*, std::size_t);
  mluOpStatus_t with_workspace(Query query, Run run) {
    std::size_t size = 0;
    const mluOpStatus_t status = (this->*query)(&size);
    if (status != kOk) return status;
    workspace.assign(size, 1);
    return (this->*run)(workspace.data(), size);
  }
  mluOpStatus_t forward() {
    return with_workspace(&ConvolutionCall::query_forward, &ConvolutionCall::forward);
  }
  mluOpStatus_t backward_data() {
    return with_workspace(&ConvolutionCall::query_data, &ConvolutionCall::backward_data);
  }
  mluOpStatus_t backward_filter() {
    return with_workspace(&ConvolutionCall::query_filter, &ConvolutionCall::backward_filter);
  }

  void expect_untouched() const {
    for (const Bytes* result : {&features_out, &input_grad, &filters_grad})
      EXPECT_EQ(*result, Bytes(result->size(), kPaintedByte));
  }

  // Allows the error of sums in another order; 16-bit results are rounded once.
  void expect_near(const Bytes& result, const reference::Rows<float>& want) const {
    for (std::size_t i = 0; i < want.values.size(); ++i) {
      float actual;
      if (features.is_half) {
        f16 value;
        std::memcpy(&value, result.data() + i * sizeof(value), sizeof(value));
        actual = core::to_float(value);
      } else {
        std::memcpy(&actual, result.data() + i * sizeof(actual), sizeof(actual));
      }
      ASSERT_NEAR(actual, want.values[i],
                  (features.is_half ? 2e-3f : 1e-5f) * std::max(1.0f, std::abs(want.values[i])))
          << "element " << i;
    }
  }
  void expect_equal_to_definition(bool has_forward) {
    if (has_forward) {
      ASSERT_EQ(forward(), kOk) << turnoutLastError();
      expect_near(features_out, reference::indice_convolution_forward<float>(
                                    features.rows(kernel.in), filters.rows(kernel.out), nullptr, pairs.lists,
                                    static_cast<std::size_t>(out_rows)));
    }
    ASSERT_EQ(backward_data(), kOk) << turnoutLastError();
    expect_near(input_grad, reference::indice_convolution_backward_data<float>(
                                output_grad.rows(kernel.out), filters.rows(kernel.out), pairs.lists,
                                static_cast<std::size_t>(pairs.rows), static_cast<std::size_t>(kernel.in)));
    ASSERT_EQ(backward_filter(), kOk) << turnoutLastError();
    expect_near(filters_grad, reference::indice_convolution_backward_filter<float>(
                                  features.rows(kernel.in), output_grad.rows(kernel.out), pairs.lists));
  }
};

}  // namespace turnout::test
