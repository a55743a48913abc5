// The order of checks of the index pairs and of their descriptor, written out by hand. Unlike the generated
// negative tests, these do not rely on the signatures.
#include <gtest/gtest.h>

#include "c_stairs.h"
#include "sparse_conv/c_descriptor.h"

namespace turnout::test {
namespace {

constexpr std::int64_t kHugeRows = std::int64_t{1} << 29;  // of four elements

// The operator, or the query of its workspace.
template <bool kIsQuery>
struct PairsCall {
  bool has_handle = false, has_convolution = false, has_size = false, is_empty = true;
  bool has_workspace = false, is_apart = false, is_in_range = false;
  std::size_t workspace_size = 10;
  std::int64_t rows = 1000001, out_rows = 1000000001;
  Convolution convolution{.pad = {0, 1, 0},
                          .stride = {1, 2, 2},
                          .dilation = {1, 3, 1},
                          .input = {4, 4, 4},
                          .filter = {17, 17, 17},
                          .output = {1000, 1000, 1000},
                          .sub_m = 1};
  // Values that Set would reject.
  std::int64_t pad = -1, stride = 0, dilation = 0;
  std::vector<Part> parts = {{.wrong_extent = {kNegative, 1}},
                             {.wrong_extent = {1, 1, 1}},
                             {.wrong_extent = {kNegative, 1}},
                             {.wrong_extent = {1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static std::int32_t indices[16], pairs[216], out[80], num[27];
    static char workspace[1 << 16];
    const ConvolutionDescriptor made(convolution);
    const mluOpSparseConvolutionDescriptor_t desc = made.when(has_convolution);
    IndicePairsParams& params = static_cast<mluOpSparseConvolutionDescriptor_t>(made)->params;
    params.padding[1] = pad;
    params.stride[2] = stride;
    params.dilation[0] = dilation;
    indices[11] = is_in_range ? 100 : 101;
    std::int64_t volume = 1;
    for (int extent : convolution.filter) volume *= extent;
    Given g(parts.size());
    g.add(parts[0], {rows, 4}, MLUOP_DTYPE_INT32, indices);
    g.add(parts[1], {volume, 2, rows}, MLUOP_DTYPE_INT32, pairs);
    g.add(parts[2], {out_rows, 4}, MLUOP_DTYPE_INT32, is_apart ? out : indices);
    g.add(parts[3], {volume}, MLUOP_DTYPE_INT32, num);
    const mluOpHandle_t given = has_handle ? handle : nullptr;
    if (!kIsQuery)
      return mluOpGetIndicePairs(given, desc, g.desc[0], g.data[0], has_workspace ? workspace : nullptr,
                                 workspace_size, g.desc[1], g.data[1], g.desc[2], g.data[2], g.desc[3],
                                 g.data[3]);
    const Descriptor none(MLUOP_DTYPE_FLOAT, {0, -1, 0});
    std::size_t size = 0;
    return mluOpGetIndicePairsWorkspaceSize(given, desc, g.desc[0], g.desc[1],
                                            is_empty && g.desc[2] != nullptr ? none : g.desc[2], g.desc[3],
                                            has_size ? &size : nullptr);
  }
};

// Table 3.3.1, rows 3 .. 12.
template <class Call>
void expect_order_of_descriptors(Stairs<Call>& stairs, const EachTensor<Call>& each, std::int64_t rows_next) {
  each.ranks();
  each.extent(0, 1);
  each.extent(2, 1);
  each.extent(1, 1);
  each.extent(0, 0);
  each.extent(1, 0);
  each.extent(1, 2);
  each.extent(2, 0);
  each.extent(3, 0);
  stairs.bad("indices.shape[0] is 1000001, expected at most 64 = batch_size * volume(input_space)",
             [](Call& c) {
               c.convolution.input = {101, 101, 101};
             });
  stairs.bad("pad[1] is -1, expected 0 or more", [](Call& c) { c.pad = 1; });
  stairs.bad("stride[2] is 0, expected 1 or more", [](Call& c) { c.stride = 2; });
  stairs.bad("dilation[0] is 0, expected 1 or more", [](Call& c) { c.dilation = 1; });
  stairs.bad("dilation[1] is 3 and stride[1] is 2, expected 1 for one of them",
             [](Call& c) { c.convolution.stride[1] = 1; });
  stairs.bad("volume(filter_space) is 4913, expected at most 4096", [](Call& c) {
    c.convolution.filter = {3, 3, 3};
  });
  stairs.bad(
      "out_indices.shape[0] is 1000000001, expected at most 1000000000 = batch_size * volume(output_space)",
      [](Call& c) { c.out_rows = kHugeRows; });
  each.strided();
  stairs.bad("indices.shape[0] is 1000001, expected at most 1000000", [=](Call& c) { c.rows = rows_next; });
  stairs.unsupported("out_indices has 2147483648 elements", [](Call& c) { c.out_rows = 3; });
  each.dtypes();
  stairs.bad("output_space[0] is 1000, expected 101 with sub_m", [](Call& c) {
    c.convolution.output = {101, 101, 101};
  });
  stairs.bad("stride[2] is 2, expected 1 with sub_m", [](Call& c) { c.stride = 1; });
  stairs.bad("dilation[1] is 3, expected 1 with sub_m", [](Call& c) { c.convolution.dilation[1] = 1; });
}

const std::vector<std::string> kTensors = {"indices", "indice_pairs", "out_indices", "indice_num"};

TEST(CIndicePairsOrder, IsTheContract) {
  using Call = PairsCall<false>;
  Stairs<Call> stairs("mluOpGetIndicePairs");
  const EachTensor<Call> each{stairs, kTensors};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  stairs.bad("sparse_conv_desc is NULL", [](Call& c) { c.has_convolution = true; });
  for (std::size_t i = 0; i < kTensors.size(); ++i) each.missing(i);
  expect_order_of_descriptors(stairs, each, 0);
  stairs.succeeds([](Call& c) { c.rows = 4; });  // empty
  each.data();
  stairs.bad("workspace is NULL", [](Call& c) { c.has_workspace = true; });
  stairs.bad("workspace_size is 10 bytes, expected ", [](Call& c) { c.workspace_size = 1 << 16; });
  stairs.bad("out_indices overlaps indices", [](Call& c) { c.is_apart = true; });
  stairs.bad("indices[2, 3] is 101, expected 0 .. 100", [](Call& c) { c.is_in_range = true; });
  stairs.bad("out_indices.shape[0] is 3, expected ", [](Call& c) { c.out_rows = 20; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CIndicePairsOrder, OfTheQueryIsTheContract) {
  using Call = PairsCall<true>;
  Stairs<Call> stairs("mluOpGetIndicePairsWorkspaceSize");
  const EachTensor<Call> each{stairs, kTensors};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  stairs.bad("sparse_conv_desc is NULL", [](Call& c) { c.has_convolution = true; });
  stairs.bad("workspace_size is NULL", [](Call& c) { c.has_size = true; });
  for (std::size_t i = 0; i < kTensors.size(); ++i) each.missing(i);
  stairs.succeeds([](Call& c) { c.is_empty = false; });
  expect_order_of_descriptors(stairs, each, 4);
  stairs.succeeds();
  stairs.climb();
}

struct SetCall {
  bool has_desc = false;
  Convolution convolution{
      .dims = 4, .batch = 0, .pad = {}, .stride = {}, .dilation = {}, .transpose = 1, .inverse = 1};
  mluOpStatus_t run(mluOpHandle_t) const {
    const ConvolutionDescriptor made;
    return convolution.set(made.when(has_desc));
  }
};

TEST(CSparseConvolutionDescriptorOrder, IsTheContract) {
  using Call = SetCall;
  Stairs<Call> stairs("mluOpSetSparseConvolutionDescriptor");
  stairs.bad("desc is NULL", [](Call& c) { c.has_desc = true; });
  const std::pair<const char*, std::vector<int> Convolution::*> vectors[] = {
      {"pad", &Convolution::pad},
      {"stride", &Convolution::stride},
      {"dilation", &Convolution::dilation},
      {"input_space", &Convolution::input},
      {"filter_space", &Convolution::filter},
      {"output_space", &Convolution::output}};
  for (const auto& [name, member] : vectors)
    stairs.bad(std::string(name) + " is NULL", [member = member](Call& c) {
      c.convolution.*member = {-1, -1, -1};
    });
  stairs.bad("dimNb is 4, expected 5", [](Call& c) { c.convolution.dims = 5; });
  stairs.bad("batch_size is 0, expected 1 or more", [](Call& c) { c.convolution.batch = 1; });
  stairs.bad("transpose is 1, expected 0", [](Call& c) { c.convolution.transpose = 0; });
  stairs.bad("inverse is 1, expected 0", [](Call& c) { c.convolution.inverse = 0; });
  for (std::size_t d = 0; d < 3; ++d) {
    for (const auto& [name, member] : vectors) {
      const int least = member == &Convolution::pad ? 0 : 1;
      stairs.bad(std::string(name) + "[" + std::to_string(d) + "] is -1, expected " + std::to_string(least),
                 [=, member = member](Call& c) { (c.convolution.*member)[d] = least; });
    }
  }
  stairs.succeeds();
  stairs.climb();
}

}  // namespace
}  // namespace turnout::test
