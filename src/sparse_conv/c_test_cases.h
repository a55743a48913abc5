// One call of mluOpGetIndicePairs with its arguments, and the definition to compare with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "c_descriptors.h"
#include "sparse_conv/reference.h"

namespace turnout::test {

using Ints = std::vector<std::int32_t>;
using Bytes = std::vector<char>;
inline constexpr std::int32_t kPaint = 77;

inline std::int64_t volume_of(const std::vector<int>& extents) {
  std::int64_t volume = 1;
  for (int extent : extents) volume *= extent;
  return volume;
}

// A call with painted results and a workspace of the queried size.
struct Pairs {
  mluOpHandle_t handle;
  Convolution convolution;
  std::int64_t rows, room, offsets;
  Ints indices, pairs, out, num;
  ConvolutionDescriptor desc;
  Descriptor indices_desc, pairs_desc, out_desc, num_desc;
  std::size_t required = 0;
  Bytes workspace;

  Pairs(mluOpHandle_t handle_, const Convolution& c, Ints sites, std::int64_t room_)
      : handle(handle_),
        convolution(c),
        rows(static_cast<std::int64_t>(sites.size()) / 4),
        room(room_),
        offsets(volume_of(c.filter)),
        indices(std::move(sites)),
        pairs(static_cast<std::size_t>(offsets * 2 * rows), kPaint),
        out(static_cast<std::size_t>(room * 4), kPaint),
        num(static_cast<std::size_t>(offsets), kPaint),
        desc(c),
        indices_desc(MLUOP_DTYPE_INT32, {rows, 4}),
        pairs_desc(MLUOP_DTYPE_INT32, {offsets, 2, rows}),
        out_desc(MLUOP_DTYPE_INT32, {room, 4}),
        num_desc(MLUOP_DTYPE_INT32, {offsets}) {
    EXPECT_EQ(mluOpGetIndicePairsWorkspaceSize(handle, desc, indices_desc, pairs_desc, out_desc, num_desc,
                                               &required),
              kOk)
        << turnoutLastError();
    workspace.resize(required);
  }

  mluOpStatus_t run() { return run(workspace.data(), workspace.size()); }
  mluOpStatus_t run(void* memory, std::size_t size) {
    return mluOpGetIndicePairs(handle, desc, indices_desc, indices.data(), memory, size, pairs_desc,
                               pairs.data(), out_desc, out.data(), num_desc, num.data());
  }

  void expect_untouched() const {
    for (const Ints* result : {&pairs, &out, &num}) EXPECT_EQ(*result, Ints(result->size(), kPaint));
  }

  void expect_equal_to_definition() {
    const auto dims = [](const std::vector<int>& v) { return Dims{v[0], v[1], v[2]}; };
    std::vector<reference::Site> sites;
    for (std::size_t i = 0; i < indices.size(); i += 4)
      sites.emplace_back(indices.data() + i, indices.data() + i + 4);
    const reference::Pairs want = reference::indice_pairs(
        sites, {.batch_size = convolution.batch,
                .spatial_shape = dims(convolution.input),
                .kernel_size = dims(convolution.filter),
                .stride = dims(convolution.stride),
                .padding = dims(convolution.pad),
                .dilation = dims(convolution.dilation),
                .output_shape = dims(convolution.output),
                .mode = convolution.sub_m ? ConvMode::submanifold : ConvMode::sparse});
    expect_equal_to(want);
  }
  void expect_equal_to(const reference::Pairs& want) {
    Ints want_pairs(pairs.size(), -1), want_out(out.size(), -1), want_num;
    for (std::size_t k = 0; k < want.in.size(); ++k) {
      want_num.push_back(static_cast<std::int32_t>(want.in[k].size()));
      const auto at = want_pairs.begin() + static_cast<std::int64_t>(k) * 2 * rows;
      std::copy(want.in[k].begin(), want.in[k].end(), at);
      std::copy(want.out[k].begin(), want.out[k].end(), at + rows);
    }
    auto to = want_out.begin();
    for (const reference::Site& site : want.outputs)
      for (std::int64_t value : site) *to++ = static_cast<std::int32_t>(value);
    ASSERT_EQ(run(), kOk) << turnoutLastError();
    EXPECT_EQ(pairs, want_pairs);
    EXPECT_EQ(out, want_out);
    EXPECT_EQ(num, want_num);
    EXPECT_EQ(desc.num_act_out(), static_cast<int>(want.outputs.size()));
  }
};

}  // namespace turnout::test
