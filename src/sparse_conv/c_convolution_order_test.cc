// The order of checks of the convolutions, written out by hand. Unlike the generated negative tests, these do
// not rely on the signatures.
#include <gtest/gtest.h>

#include "c_stairs.h"

namespace turnout::test {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 30;
constexpr std::int64_t kWrongLayout = MLUOP_LAYOUT_NTC;

// The arguments that all three functions have. Tensors are in the order of the arguments, the result last.
struct ConvolutionFaults {
  bool has_handle = false, has_counts = false, has_size = false, has_workspace = false;
  bool is_in_range = false, is_apart = false;
  std::size_t workspace_size = 10;
  std::int64_t rows = 1000001, out_rows = 5, channels = 3, out_channels = kHuge, inverse = 2, sub_m = 2;
  std::int64_t layout = kWrongLayout, num_act_out = -1, count = 99;
  std::vector<Part> parts;

  static constexpr std::int64_t kOffsets = 3;
  static constexpr bool kSizeIsLast = false;  // a query checks workspace_size for NULL first
  mutable std::vector<float> features = std::vector<float>(64), filters = std::vector<float>(64),
                             output_grad = std::vector<float>(64), filters_grad = std::vector<float>(64);
  mutable std::vector<std::int32_t> pairs = std::vector<std::int32_t>(64);
  mutable std::vector<std::int64_t> counts = std::vector<std::int64_t>(kOffsets);
  mutable std::vector<char> workspace = std::vector<char>(1 << 16);

  // Fills the tensors; returns the indice_num to pass.
  const std::int64_t* fill() const {
    counts[2] = count;
    pairs[2 * 2 * 4 + 1] = is_in_range ? 0 : 77;
    return has_counts ? counts.data() : nullptr;
  }
  void* memory() const { return has_workspace ? workspace.data() : nullptr; }
  void add(Given& g, std::size_t i, Shape shape, void* data,
           mluOpDataType_t dtype = MLUOP_DTYPE_FLOAT) const {
    g.add(parts[i], std::move(shape), dtype, data);
  }
  void set_layout(const Given& g, std::size_t filters_at) const {
    mluOpTensorDescriptor_t desc = g.desc[filters_at];
    if (desc == nullptr) return;
    mluOpDataType_t dtype;
    int rank;
    std::int64_t shape[8], stride[8];
    mluOpTensorLayout_t before;
    EXPECT_EQ(mluOpGetTensorDescriptorEx_v2(desc, &before, &dtype, &rank, shape, stride), kOk);
    EXPECT_EQ(mluOpSetTensorDescriptorEx_v2(desc, static_cast<mluOpTensorLayout_t>(layout), dtype, rank,
                                            shape, stride),
              kOk);
  }
};

template <bool kIsQuery>
struct ForwardCall : ConvolutionFaults {
  static constexpr bool kSizeIsLast = true;

  ForwardCall() {
    parts = {{.wrong_extent = {1, 1}},
             {.wrong_extent = {0, 0, 0, 0, 0}},  // the others are compared with this one
             {.wrong_extent = {1, 1, kNegative}},
             {.wrong_extent = {1, 1}}};
  }
  mluOpStatus_t run(mluOpHandle_t given) const {
    const std::int64_t* counted = fill();
    mluOpHandle_t handle = has_handle ? given : nullptr;
    Given g(parts.size());
    add(g, 0, {rows, channels}, features.data());
    add(g, 1, {1, 1, kOffsets, channels, out_channels}, filters.data());
    add(g, 2, {kOffsets, 2, rows}, pairs.data(), MLUOP_DTYPE_INT32);
    add(g, 3, {out_rows, out_channels}, is_apart ? output_grad.data() : features.data());
    set_layout(g, 1);
    if (!kIsQuery)
      return mluOpIndiceConvolutionForward(handle, g.desc[0], g.data[0], g.desc[1], g.data[1], g.desc[2],
                                           g.data[2], counted, num_act_out, inverse, sub_m, memory(),
                                           workspace_size, g.desc[3], g.data[3]);
    std::size_t size = 0;
    return mluOpGetIndiceConvolutionForwardWorkspaceSize(handle, g.desc[0], g.desc[1], g.desc[2], g.desc[3],
                                                         counted, num_act_out, inverse, sub_m,
                                                         has_size ? &size : nullptr);
  }
};

template <bool kIsQuery>
struct DataCall : ConvolutionFaults {
  bool has_one_dtype = false;

  DataCall() {
    count = -1;
    parts = {{.wrong_extent = {0, 1}},
             {.wrong_extent = {0, 0, 0, 0, 0}},
             {.wrong_extent = {1, 1, kNegative}},
             {.wrong_extent = {1, 1}}};
  }
  mluOpStatus_t run(mluOpHandle_t given) const {
    const std::int64_t* counted = fill();
    mluOpHandle_t handle = has_handle ? given : nullptr;
    Given g(parts.size());
    add(g, 0, {out_rows, out_channels}, output_grad.data());
    add(g, 1, {1, 1, kOffsets, channels, out_channels}, filters.data(),
        has_one_dtype ? MLUOP_DTYPE_FLOAT : MLUOP_DTYPE_HALF);
    add(g, 2, {kOffsets, 2, rows}, pairs.data(), MLUOP_DTYPE_INT32);
    add(g, 3, {rows, channels}, is_apart ? features.data() : output_grad.data());
    set_layout(g, 1);
    if (!kIsQuery)
      return mluOpIndiceConvolutionBackwardData(handle, g.desc[0], g.data[0], g.desc[1], g.data[1], g.desc[2],
                                                g.data[2], counted, inverse, sub_m, memory(), workspace_size,
                                                g.desc[3], g.data[3]);
    std::size_t size = 0;
    return mluOpGetIndiceConvolutionBackwardDataWorkspaceSize(
        handle, g.desc[0], g.desc[1], g.desc[2], g.desc[3], counted, inverse, has_size ? &size : nullptr);
  }
};

template <bool kIsQuery>
struct FilterCall : ConvolutionFaults {
  FilterCall() {
    parts = {{.wrong_extent = {0, 1}},
             {.wrong_extent = {0, 1}},
             {.wrong_extent = {1, 1, 1}},
             {.wrong_extent = {0, 0, 0, 0, 0}}};
  }
  mluOpStatus_t run(mluOpHandle_t given) const {
    const std::int64_t* counted = fill();
    mluOpHandle_t handle = has_handle ? given : nullptr;
    Given g(parts.size());
    add(g, 0, {rows, channels}, features.data());
    add(g, 1, {out_rows, out_channels}, output_grad.data());
    add(g, 2, {kOffsets, 2, rows}, pairs.data(), MLUOP_DTYPE_INT32);
    add(g, 3, {1, 1, kOffsets, channels, out_channels}, is_apart ? filters.data() : features.data());
    if (!kIsQuery)
      return mluOpIndiceConvolutionBackwardFilter(handle, g.desc[0], g.data[0], g.desc[1], g.data[1],
                                                  g.desc[2], g.data[2], counted, inverse, sub_m, memory(),
                                                  workspace_size, g.desc[3], g.data[3]);
    std::size_t size = 0;
    return mluOpGetIndiceConvolutionBackwardFilterWorkspaceSize(handle, g.desc[0], g.desc[1], g.desc[2],
                                                                g.desc[3], counted, inverse, sub_m,
                                                                has_size ? &size : nullptr);
  }
};

// NULL pointers, in the order of the arguments; indice_num precedes the result.
template <bool kIsQuery, class Call>
void expect_missing(Stairs<Call>& stairs, const EachTensor<Call>& each) {
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  if (kIsQuery && !Call::kSizeIsLast)
    stairs.bad("workspace_size is NULL", [](Call& c) { c.has_size = true; });
  for (std::size_t i : {0, 1, 2}) each.missing(i);
  stairs.bad("indice_num is missing", [](Call& c) { c.has_counts = true; });
  each.missing(3);
}

// Without rows a call succeeds before it checks data; then data pointers, workspace and contents are checked.
template <bool kIsQuery, class Call>
void expect_data(Stairs<Call>& stairs, const EachTensor<Call>& each, const std::string& overlap,
                 const std::string& pair) {
  if (!kIsQuery) {
    each.data();
    stairs.bad("workspace is NULL", [](Call& c) { c.has_workspace = true; });
    stairs.bad("workspace_size is 10 bytes, expected ", [](Call& c) { c.workspace_size = 1 << 16; });
    stairs.bad(overlap, [](Call& c) { c.is_apart = true; });
    stairs.bad(pair, [](Call& c) { c.is_in_range = true; });
  } else if (Call::kSizeIsLast) {
    stairs.bad("workspace_size is NULL", [](Call& c) { c.has_size = true; });
  }
  stairs.succeeds();
  stairs.climb();
}

template <bool kIsQuery>
void expect_forward_order(const std::string& function) {
  using Call = ForwardCall<kIsQuery>;
  Stairs<Call> stairs(function);
  const EachTensor<Call> each{stairs, {"features", "filters", "indice_pairs", "features_out"}};
  expect_missing<kIsQuery>(stairs, each);
  each.dtypes();
  stairs.bad("inverse is 2, expected 0 .. 1", [](Call& c) { c.inverse = 1; });
  stairs.bad("sub_m is 2, expected 0 .. 1", [](Call& c) { c.sub_m = 1; });
  stairs.unsupported("inverse is 1, expected 0", [](Call& c) { c.inverse = 0; });
  stairs.unsupported("filters_layout is 7, expected one of 3 .. 5 (NDHWC ARRAY NCDHW)",
                     [](Call& c) { c.layout = MLUOP_LAYOUT_ARRAY; });
  stairs.bad("features has 3 dim", [](Call& c) { c.parts[0].right_rank = true; });
  stairs.bad("indice_pairs has 4 dim", [](Call& c) { c.parts[2].right_rank = true; });
  stairs.bad("features_out has 3 dim", [](Call& c) { c.parts[3].right_rank = true; });
  each.extent(2, 2);
  stairs.unsupported("indice_pairs.shape[2] is 1000001, expected at most 1000000",
                     [](Call& c) { c.rows = 4; });
  stairs.unsupported("filters has 6 dim", [](Call& c) { c.parts[1].right_rank = true; });
  each.strided();
  stairs.unsupported("filters has 9663676416 elements", [](Call& c) { c.out_channels = 2; });
  stairs.bad("num_act_out is -1, expected 0 or more", [](Call& c) { c.num_act_out = 5; });
  each.extent(0, 0);
  each.extent(0, 1);
  each.extent(2, 0);
  each.extent(2, 1);
  each.extent(3, 0);
  each.extent(3, 1);
  stairs.bad("indice_num[2] is 99, expected 0 .. 4, the rows of features",
             [](Call& c) { c.count = c.rows = 0; });
  stairs.succeeds([](Call& c) { c.rows = 4, c.count = 2; });
  expect_data<kIsQuery>(stairs, each, "features_out overlaps features",
                        "indice_pairs[2][0][1] is 77, expected 0 .. 3, the rows of features");
}

TEST(CConvolutionOrder, OfForwardIsTheContract) {
  expect_forward_order<false>("mluOpIndiceConvolutionForward");
  expect_forward_order<true>("mluOpGetIndiceConvolutionForwardWorkspaceSize");
}

template <bool kIsQuery>
void expect_data_order(const std::string& function) {
  using Call = DataCall<kIsQuery>;
  Stairs<Call> stairs(function);
  const EachTensor<Call> each{stairs, {"output_grad", "filters", "indice_pairs", "input_grad"}};
  expect_missing<kIsQuery>(stairs, each);
  each.ranks();
  each.extent(2, 1);
  each.extent(2, 2);
  stairs.unsupported("indice_pairs.shape[2] is 1000001, expected at most 1000000",
                     [](Call& c) { c.rows = 4; });
  each.dtypes();
  stairs.bad("filters_layout is 7, expected one of 0 .. 5", [](Call& c) { c.layout = MLUOP_LAYOUT_ARRAY; });
  each.strided();
  stairs.bad("inverse is 2, expected 0 .. 1", [](Call& c) { c.inverse = 1; });
  if (!kIsQuery) stairs.bad("sub_m is 2, expected 0 .. 1", [](Call& c) { c.sub_m = 1; });
  stairs.bad("indice_num[2] is -1, expected 0 or more", [](Call& c) { c.count = 99; });
  stairs.unsupported("inverse is 1, expected 0",
                     [](Call& c) { c.inverse = 0, c.layout = MLUOP_LAYOUT_HWCN; });
  stairs.bad("filters has 5 dimensions, expected 4 with filters_layout HWCN",
             [](Call& c) { c.layout = MLUOP_LAYOUT_ARRAY; });
  each.extent(0, 1);
  each.extent(2, 0);
  each.extent(3, 0);
  each.extent(3, 1);
  stairs.bad("indice_num[2] is 99, expected 0 .. 4, the rows of input_grad", [](Call& c) { c.count = 2; });
  if (!kIsQuery)
    stairs.bad("output_grad.shape[0] is 5 with sub_m, expected 4", [](Call& c) { c.out_rows = 4; });
  if (!kIsQuery)
    stairs.bad("indice_num[2] is 2 with sub_m, expected at most that of the centre, indice_num[1] = 0",
               [](Call& c) { c.sub_m = 0; });
  stairs.bad("filters.dtype is f16, expected f32, that of output_grad",
             [](Call& c) { c.has_one_dtype = true; });
  stairs.unsupported("output_grad has ", [](Call& c) { c.out_channels = 2, c.rows = c.count = 0; });
  stairs.succeeds([](Call& c) { c.rows = 4, c.count = 2; });
  expect_data<kIsQuery>(stairs, each, "input_grad overlaps output_grad",
                        "indice_pairs[2][0][1] is 77, expected 0 .. 3, the rows of input_grad");
}

TEST(CConvolutionOrder, OfBackwardDataIsTheContract) {
  expect_data_order<false>("mluOpIndiceConvolutionBackwardData");
  expect_data_order<true>("mluOpGetIndiceConvolutionBackwardDataWorkspaceSize");
}

template <bool kIsQuery>
void expect_filter_order(const std::string& function) {
  using Call = FilterCall<kIsQuery>;
  Stairs<Call> stairs(function);
  const EachTensor<Call> each{stairs, {"features", "output_grad", "indice_pairs", "filters_grad"}};
  expect_missing<kIsQuery>(stairs, each);
  stairs.bad("inverse is 2, expected 0", [](Call& c) { c.inverse = 1; });
  stairs.bad("inverse is 1, expected 0", [](Call& c) { c.inverse = 0; });
  each.strided();
  each.dtypes();
  stairs.unsupported("output_grad has ", [](Call& c) { c.out_channels = 2; });
  each.ranks();
  each.extent(0, 1);
  each.extent(1, 1);
  each.extent(2, 0);
  each.extent(2, 1);
  each.extent(2, 2);
  stairs.bad("features.shape[0] is 1000001, expected at most 1000000", [](Call& c) { c.rows = 0; });
  stairs.succeeds([](Call& c) { c.rows = 4; });
  stairs.bad("indice_num[2] is 99, expected 0 .. 4, the rows of features", [](Call& c) { c.count = 2; });
  expect_data<kIsQuery>(stairs, each, "filters_grad overlaps features",
                        "indice_pairs[2][0][1] is 77, expected 0 .. 3, the rows of features");
}

TEST(CConvolutionOrder, OfBackwardFilterIsTheContract) {
  expect_filter_order<false>("mluOpIndiceConvolutionBackwardFilter");
  expect_filter_order<true>("mluOpGetIndiceConvolutionBackwardFilterWorkspaceSize");
}

}  // namespace
}  // namespace turnout::test
