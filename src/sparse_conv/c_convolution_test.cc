// Tests convolutions along pairs through the C interface: results in every layout, statuses, the workspace
// protocol, and what an empty call writes.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "bindings/mluop/call.h"
#include "c_workspace.h"
#include "core/padding.h"
#include "isas.h"
#include "sparse_conv/c_convolution_case.h"

namespace turnout::test {
namespace {

constexpr mluOpTensorLayout_t kThree[] = {MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_NDHWC, MLUOP_LAYOUT_NCDHW};

class CConvolution : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }
  ConvolutionCall call(const Kernel& kernel, std::int64_t rows, std::int64_t out_rows, bool half = false) {
    return {handle, kernel, some_pairs(kernel.offsets(), rows, out_rows), out_rows, half};
  }
  // The message of the last call, without the function's name.
  static std::string message() {
    const std::string said = turnoutLastError();
    const std::size_t colon = said.find(": ");
    return colon == std::string::npos ? said : said.substr(colon + 2);
  }
  mluOpHandle_t handle = nullptr;
};

// One channel, sites 0 and 1 on a line with a kernel of three, as in the example of the pairs.
TEST_F(CConvolution, WorkedExample) {
  ConvolutionCall c(handle, {.kw = 3, .in = 1, .out = 1},
                    GivenPairs({.outputs = {}, .in = {{0, 1}, {0, 1}, {1}}, .out = {{1, 2}, {0, 1}, {0}}}, 2),
                    3);
  const auto put = [](Floats& floats, std::vector<float> values) { floats.lanes = std::move(values); };
  const float filters[] = {100, 10, 1};
  put(c.features, {2, 3});
  put(c.output_grad, {5, 7, 9});
  std::memcpy(c.filter_memory.data(), filters, sizeof(filters));
  const auto floats = [](const Bytes& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  ASSERT_EQ(c.forward(), kOk) << turnoutLastError();
  EXPECT_EQ(floats(c.features_out), (std::vector<float>{23, 230, 300}));
  ASSERT_EQ(c.backward_data(), kOk) << turnoutLastError();
  EXPECT_EQ(floats(c.input_grad), (std::vector<float>{750, 975}));
  ASSERT_EQ(c.backward_filter(), kOk) << turnoutLastError();
  EXPECT_EQ(floats(c.filters_grad), (std::vector<float>{41, 31, 15}));
  EXPECT_STREQ(turnoutLastError(), "");
}

TEST_F(CConvolution, EqualsTheDefinitionInEveryLayout) {
  for (bool half : {false, true}) {
    for (mluOpTensorLayout_t layout : kThree)
      call({layout, 2, 3, 2, 5, 7}, 40, 30, half).expect_equal_to_definition(true);
    for (mluOpTensorLayout_t layout :
         {MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_HWCN, MLUOP_LAYOUT_NHWC, MLUOP_LAYOUT_NCHW})
      call({layout, 0, 3, 3, 4, 6}, 20, 25, half).expect_equal_to_definition(false);
  }
  call({MLUOP_LAYOUT_NDHWC, 3, 3, 3, 33, 20}, 300, 250).expect_equal_to_definition(true);
}

TEST_F(CConvolution, SubmanifoldIsOnlyChecked) {
  ConvolutionCall c = call({}, 9, 9);
  c.sub_m = 1;
  c.expect_equal_to_definition(true);
}

TEST_F(CConvolution, PairsOutOfRangeAreBadAndNothingIsWritten) {
  for (int side : {0, 1}) {
    for (std::int32_t wrong : {-1, side == 0 ? 12 : 10, INT32_MIN, INT32_MAX}) {
      ConvolutionCall c = call({}, 12, 10);
      c.pairs.entries[static_cast<std::size_t>((2 * 1 + side) * 12 + 4)] = wrong;
      const std::string names =
          "indice_pairs[1][" + std::to_string(side) + "][4] is " + std::to_string(wrong) + ", expected 0 .. ";
      EXPECT_EQ(c.forward(), kBad);
      EXPECT_EQ(message().substr(0, names.size()), names) << turnoutLastError();
      EXPECT_EQ(c.backward_data(), kBad);
      EXPECT_EQ(message().substr(0, names.size()), names) << turnoutLastError();
      EXPECT_EQ(c.backward_filter(), kBad);
      EXPECT_EQ(message().substr(0, names.size()), names) << turnoutLastError();
      c.expect_untouched();
    }
  }
}

TEST_F(CConvolution, WhatIsBeyondTheCountsIsNotRead) {
  ConvolutionCall c = call({}, 12, 10);
  for (std::size_t k = 0; k < 3; ++k)
    for (std::int64_t j = c.pairs.counts[k]; j < 12; ++j)
      c.pairs.entries[k * 24 + static_cast<std::size_t>(j)] = 99;
  c.expect_equal_to_definition(true);
}

// A message names the position of a wrong extent in the given layout.
TEST_F(CConvolution, ShapesAreNamedAsTheLayoutHasThem) {
  const struct {
    mluOpTensorLayout_t layout;
    int in, out;
  } cases[] = {{MLUOP_LAYOUT_ARRAY, 3, 4}, {MLUOP_LAYOUT_NDHWC, 4, 0}, {MLUOP_LAYOUT_NCDHW, 1, 0}};
  for (const auto& one : cases) {
    for (int dim : {one.in, one.out}) {
      ConvolutionCall c = call({one.layout, 1, 1, 3, 3, 2}, 5, 4);
      std::vector<std::int64_t> shape = c.kernel.shape();
      shape[static_cast<std::size_t>(dim)] += 7;
      ASSERT_EQ(mluOpSetTensorDescriptor_v2(c.filters_desc, one.layout, MLUOP_DTYPE_FLOAT, 5, shape.data()),
                kOk);
      std::size_t size = 9;
      EXPECT_EQ(c.query_forward(&size), kBad);
      const std::string name = dim == one.in ? "features.shape[1]" : "features_out.shape[1]";
      const std::string other = "filters.shape[" + std::to_string(dim) + "]";
      EXPECT_TRUE(message().find(name) == 0 || message().find(other) == 0) << turnoutLastError();
      EXPECT_EQ(size, 9u);
    }
  }
}

TEST_F(CConvolution, LayoutsAndDimensions) {
  for (int layout = 0; layout < 12; ++layout) {
    for (std::int64_t kd : {0, 1}) {
      ConvolutionCall c = call({static_cast<mluOpTensorLayout_t>(layout), kd, 1, 3, 3, 3}, 6, 6);
      const bool is_one_of_three = layout >= MLUOP_LAYOUT_NDHWC && layout <= MLUOP_LAYOUT_NCDHW;
      EXPECT_EQ(c.forward(), is_one_of_three && kd > 0 ? kOk : kUnsupported) << layout;
      const bool has_five = kd > 0 && is_one_of_three;
      const bool has_four = kd == 0 && (layout < MLUOP_LAYOUT_NDHWC || layout == MLUOP_LAYOUT_ARRAY);
      EXPECT_EQ(c.backward_data(), has_five || has_four ? kOk : kBad) << layout;
      EXPECT_EQ(c.backward_filter(), kOk) << layout;
    }
  }
}

TEST_F(CConvolution, Inverse) {
  ConvolutionCall c = call({}, 6, 6);
  for (std::int64_t inverse : {-1, 1, 2}) {
    c.inverse = inverse;
    EXPECT_EQ(c.forward(), inverse == 1 ? kUnsupported : kBad);
    EXPECT_EQ(c.backward_data(), inverse == 1 ? kUnsupported : kBad);
    EXPECT_EQ(c.backward_filter(), kBad);
  }
  c.expect_untouched();
}

TEST_F(CConvolution, CountsAreWithinTheRows) {
  for (std::int64_t wrong : {std::int64_t{-1}, std::int64_t{13}, INT64_MIN, INT64_MAX}) {
    ConvolutionCall c = call({}, 12, 20);
    c.pairs.counts[2] = wrong;
    const std::string names = "indice_num[2] is " + std::to_string(wrong) + ", expected 0 .. 12";
    EXPECT_EQ(c.forward(), kBad);
    EXPECT_EQ(message().substr(0, names.size()), names);
    EXPECT_EQ(c.backward_data(), kBad);
    const std::string negative = "indice_num[2] is " + std::to_string(wrong) + ", expected 0 or more";
    EXPECT_EQ(message().substr(0, names.size()), wrong < 0 ? negative.substr(0, names.size()) : names);
    EXPECT_EQ(c.backward_filter(), kBad);
    EXPECT_EQ(message().substr(0, names.size()), names);
    c.expect_untouched();
  }
  // The gradient of the features also checks the rows of the other side.
  ConvolutionCall c = call({}, 12, 5);
  c.pairs.counts = {0, 6, 0};
  std::fill(c.pairs.entries.begin(), c.pairs.entries.end(), 0);
  EXPECT_EQ(c.forward(), kOk) << turnoutLastError();
  EXPECT_EQ(c.backward_data(), kBad);
  EXPECT_EQ(message(), "indice_num[1] is 6, expected 0 .. 5, the rows of output_grad");
  EXPECT_EQ(c.backward_filter(), kOk) << turnoutLastError();
}

TEST_F(CConvolution, SubmanifoldOfTheGradient) {
  ConvolutionCall centre = call({}, 9, 9);
  centre.sub_m = 1;
  centre.pairs.counts = {4, 3, 0};
  std::fill(centre.pairs.entries.begin(), centre.pairs.entries.end(), 0);
  EXPECT_EQ(centre.backward_data(), kBad);
  EXPECT_EQ(message(),
            "indice_num[0] is 4 with sub_m, expected at most that of the centre, indice_num[1] = 3");
  EXPECT_EQ(centre.forward(), kOk) << turnoutLastError();
  ConvolutionCall even = call({.kw = 4}, 9, 9);
  even.sub_m = 1;
  EXPECT_EQ(even.backward_data(), kBad);
  EXPECT_EQ(message(), "kd * kh * kw is 4 with sub_m, expected an odd number");
  ConvolutionCall rows = call({}, 9, 8);
  rows.sub_m = 1;
  EXPECT_EQ(rows.backward_data(), kBad);
  EXPECT_EQ(message(), "output_grad.shape[0] is 8 with sub_m, expected 9, the rows of input_grad");
  for (std::int64_t sub_m : {-1, 2}) {
    rows.sub_m = sub_m;
    EXPECT_EQ(rows.backward_data(), kBad);
    EXPECT_EQ(rows.forward(), kBad);
    EXPECT_EQ(rows.backward_filter(), kOk) << turnoutLastError();
  }
}

// If the inputs have no elements, the result is 0, no workspace is needed, and queries return 0. The gradient
// of filters does not read counts then.
TEST_F(CConvolution, WithoutElementsTheResultsAreZero) {
  const auto expect_zero = [](const Bytes& result) { EXPECT_EQ(result, Bytes(result.size(), 0)); };
  for (int which = 0; which < 3; ++which) {
    const std::int64_t rows = which == 0 ? 0 : 6, out_rows = which == 1 ? 0 : 5, in = which == 2 ? 0 : 3;
    ConvolutionCall c(handle, {.in = in},
                      GivenPairs({.outputs = {}, .in = {{}, {}, {}}, .out = {{}, {}, {}}}, rows), out_rows);
    std::size_t size = 9;
    EXPECT_EQ(c.query_forward(&size), kOk) << turnoutLastError();
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(c.forward(nullptr, 10), kOk) << turnoutLastError();
    expect_zero(c.features_out);
    size = 9;
    EXPECT_EQ(c.query_data(&size), kOk) << turnoutLastError();
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(c.backward_data(nullptr, 64), kOk) << turnoutLastError();
    expect_zero(c.input_grad);
    c.pairs.counts = {7, 8, 9};
    size = 9;
    EXPECT_EQ(c.query_filter(&size), kOk) << turnoutLastError();
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(c.backward_filter(nullptr, 1), kOk) << turnoutLastError();
    expect_zero(c.filters_grad);
  }
}

TEST_F(CConvolution, TheWorkspaceIsUsedAndNothingAroundIt) {
  for (std::size_t offset : kWorkspaceOffsets) {
    ConvolutionCall c = call({.kd = 3, .in = 8, .out = 12}, 60, 50);
    const auto run = [&](ConvolutionCall::Query query, ConvolutionCall::Run operate) {
      std::size_t size = 0;
      ASSERT_EQ((c.*query)(&size), kOk) << turnoutLastError();
      ASSERT_GT(size, 0u);
      PaintedWorkspace workspace(size, offset);
      EXPECT_EQ((c.*operate)(workspace.begin(), size - 1), kBad);
      EXPECT_EQ(message(), "workspace_size is " + std::to_string(size - 1) + " bytes, expected " +
                               std::to_string(size) + " or more");
      EXPECT_EQ((c.*operate)(nullptr, size), kBad);
      EXPECT_EQ((c.*operate)(c.pairs.counts.data(), size), kBad);
      // It may also overlap arrays after the counts, so which one is named depends on the heap.
      EXPECT_EQ(message().rfind("workspace overlaps ", 0), 0u) << turnoutLastError();
      ASSERT_EQ((c.*operate)(workspace.begin(), size), kOk) << turnoutLastError();
      workspace.expect_used_and_nothing_around_it();
    };
    run(&ConvolutionCall::query_forward, &ConvolutionCall::forward);
    run(&ConvolutionCall::query_data, &ConvolutionCall::backward_data);
    run(&ConvolutionCall::query_filter, &ConvolutionCall::backward_filter);
    c.expect_equal_to_definition(true);
  }
}

TEST_F(CConvolution, NumActOutIsTheRowsOfTheResult) {
  ConvolutionCall c = call({}, 6, 5);
  for (std::int64_t wrong : {-1, 0, 4, 6}) {
    c.num_act_out = wrong;
    EXPECT_EQ(c.forward(), kBad) << wrong;
    EXPECT_NE(message().find("num_act_out"), std::string::npos) << turnoutLastError();
  }
  c.expect_untouched();
}

// The plan depends on the instruction set, so the query must use that of the handle, like the call.
TEST(CConvolutionWorkspace, IsThatOfTheInstructionSetOfTheHandle) {
  for (const Isa isa : supported_isas()) {
    mluOpContext handle({.threads = 2, .isa = isa});
    std::int64_t used = -1;
    handle.context.set_observer([](const CallRecord& record,
                                   void* user) { *static_cast<std::int64_t*>(user) = record.scratch_bytes; },
                                &used);
    const Kernel kernel{MLUOP_LAYOUT_ARRAY, 1, 1, 3, 33, 20};
    ConvolutionCall c(&handle, kernel, some_pairs(kernel.offsets(), 300, 250), 250);
    const auto expect_all_used = [&](mluOpStatus_t status) {
      EXPECT_EQ(status, kOk) << turnoutLastError();
      EXPECT_EQ(static_cast<std::size_t>(used) + core::kScratchAlignment - 1, c.workspace.size())
          << name_of(isa);
    };
    expect_all_used(c.forward());
    expect_all_used(c.backward_data());
    expect_all_used(c.backward_filter());
  }
}

}  // namespace
}  // namespace turnout::test
