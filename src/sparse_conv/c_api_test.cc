// Tests index pairs through the C interface: results, the workspace protocol, what an empty call writes, and
// the descriptor that holds the count.
#include <gtest/gtest.h>

#include <climits>
#include <random>
#include <string>

#include "c_workspace.h"
#include "sparse_conv/c_test_cases.h"

namespace turnout::test {
namespace {

class CIndicePairs : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  // Two sites on a line of three cells, with a kernel of three.
  static Convolution line(int sub_m) {
    return {.pad = {0, 0, 1}, .input = {1, 1, 3}, .filter = {1, 1, 3}, .output = {1, 1, 3}, .sub_m = sub_m};
  }
  const Ints two_sites = {0, 0, 0, 0, 0, 0, 0, 1};

  // Some sites are repeated.
  static Ints some_sites(int count, int batch, const std::vector<int>& space) {
    std::minstd_rand random(7);
    const auto below = [&](int limit) {
      return static_cast<std::int32_t>((random() >> 5) % static_cast<unsigned>(limit));
    };
    Ints sites;
    for (int i = 0; i < count; ++i) {
      sites.push_back(below(batch));
      for (int extent : space) sites.push_back(below(extent));
    }
    return sites;
  }

  mluOpHandle_t handle = nullptr;
};

TEST_F(CIndicePairs, WorkedExample) {
  Pairs call(handle, line(0), two_sites, 3);
  ASSERT_EQ(call.run(), kOk) << turnoutLastError();
  EXPECT_STREQ(turnoutLastError(), "");
  EXPECT_EQ(call.pairs, (Ints{0, 1, 1, 2, 0, 1, 0, 1, 1, -1, 0, -1}));
  EXPECT_EQ(call.num, (Ints{2, 2, 1}));
  EXPECT_EQ(call.out, (Ints{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2}));
  EXPECT_EQ(call.desc.num_act_out(), 3);
}

TEST_F(CIndicePairs, WorkedExampleOfTheSubmanifold) {
  for (int sub_m : {1, 2, -1}) {
    Pairs call(handle, line(sub_m), two_sites, 2);
    ASSERT_EQ(call.run(), kOk) << turnoutLastError();
    EXPECT_EQ(call.pairs, (Ints{0, -1, 1, -1, 0, 1, 0, 1, 1, -1, 0, -1}));
    EXPECT_EQ(call.num, (Ints{1, 2, 1}));
    EXPECT_EQ(call.out, two_sites);
    EXPECT_EQ(call.desc.num_act_out(), 2);
  }
}

TEST_F(CIndicePairs, RowsWithoutAnOutputAreMinusOne) {
  Convolution two_lines = line(0);
  two_lines.batch = 2;
  Pairs sparse(handle, two_lines, two_sites, 5);
  ASSERT_EQ(sparse.run(), kOk) << turnoutLastError();
  EXPECT_EQ(sparse.out, (Ints{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(sparse.desc.num_act_out(), 3);
  Pairs submanifold(handle, line(1), two_sites, 3);
  ASSERT_EQ(submanifold.run(), kOk) << turnoutLastError();
  EXPECT_EQ(submanifold.out, (Ints{0, 0, 0, 0, 0, 0, 0, 1, -1, -1, -1, -1}));
  EXPECT_EQ(submanifold.desc.num_act_out(), 2);
}

TEST_F(CIndicePairs, EqualsTheDefinition) {
  const std::vector<int> space = {5, 7, 9};
  for (int sub_m : {0, 1})
    Pairs(
        handle,
        {.batch = 3, .pad = {1, 1, 1}, .input = space, .filter = {3, 3, 3}, .output = space, .sub_m = sub_m},
        some_sites(200, 3, space), 945)
        .expect_equal_to_definition();
  Pairs(handle,
        {.batch = 2,
         .pad = {0, 1, 1},
         .stride = {2, 2, 2},
         .input = space,
         .filter = {3, 3, 3},
         .output = {2, 4, 5}},
        some_sites(150, 2, space), 80)
      .expect_equal_to_definition();
  Pairs(
      handle,
      {.stride = {1, 3, 1}, .dilation = {2, 1, 3}, .input = space, .filter = {2, 1, 4}, .output = {3, 3, 2}},
      some_sites(100, 1, space), 18)
      .expect_equal_to_definition();
  // A padding that moves the centre, and an even kernel.
  Pairs(handle, {.pad = {0, 3, 1}, .input = space, .filter = {2, 2, 3}, .output = space, .sub_m = 1},
        some_sites(100, 1, space), 100)
      .expect_equal_to_definition();
}

TEST_F(CIndicePairs, LargestKernelAndSpaces) {
  Pairs(handle, {.pad = {8, 8, 8}, .input = {4, 4, 4}, .filter = {16, 16, 16}, .output = {5, 5, 5}},
        some_sites(10, 1, {4, 4, 4}), 125)
      .expect_equal_to_definition();
  // Sites in all corners of spaces with more cells than int32 can count.
  const int most = INT_MAX, some = most / 256;
  for (const std::vector<int>& space : {std::vector{1, some, most}, {most, 1, some}, {some, most, 1}}) {
    Ints sites;
    for (int corner = 0; corner < 16; ++corner)
      for (std::size_t c = 0; c < 4; ++c)
        sites.push_back(corner >> c & 1 ? (c == 0 ? 2 : space[c - 1]) - 1 : 0);
    for (int sub_m : {0, 1}) {
      Convolution convolution{.batch = 2, .pad = {1, 1, 1}, .input = space, .filter = {3, 3, 3}};
      convolution.output = space, convolution.sub_m = sub_m;
      Pairs(handle, convolution, sites, 200).expect_equal_to_definition();
    }
  }
  Pairs(handle,
        {.pad = {most, 0, 0},
         .stride = {most, 1, 1},
         .input = {3, 3, 3},
         .filter = {1, 1, 1},
         .output = {most, 3, 3}},
        some_sites(10, 1, {3, 3, 3}), 9)
      .expect_equal_to_definition();
}

TEST_F(CIndicePairs, OutputsWithoutA64BitNumberAreNotSupported) {
  const int most = INT_MAX;
  for (int sub_m : {0, 1}) {
    Pairs call(
        handle,
        {.input = {most, most, most}, .filter = {1, 1, 1}, .output = {most, most, most}, .sub_m = sub_m},
        two_sites, 3);
    EXPECT_EQ(call.run(), kUnsupported);
    call.expect_untouched();
  }
}

TEST_F(CIndicePairs, NoActiveOutputs) {
  // The site is between two strides.
  Pairs call(handle, {.stride = {1, 1, 2}, .input = {1, 1, 3}, .filter = {1, 1, 1}, .output = {1, 1, 2}},
             {0, 0, 0, 1}, 2);
  ASSERT_EQ(call.run(), kOk) << turnoutLastError();
  EXPECT_EQ(call.pairs, (Ints{-1, -1}));
  EXPECT_EQ(call.out, Ints(8, -1));
  EXPECT_EQ(call.num, (Ints{0}));
  EXPECT_EQ(call.desc.num_act_out(), 0);
}

TEST_F(CIndicePairs, TooLittleRoomIsBadBeforeAnythingIsWritten) {
  Pairs call(handle, line(0), two_sites, 2);
  EXPECT_EQ(call.run(), kBad);
  EXPECT_NE(
      std::string(turnoutLastError()).find("out_indices.shape[0] is 2, expected at least 3 = num_act_out"),
      std::string::npos)
      << turnoutLastError();
  call.expect_untouched();
  EXPECT_EQ(call.desc.num_act_out(), 0);
  Pairs submanifold(handle, line(1), two_sites, 1);
  EXPECT_EQ(submanifold.run(), kBad);
  submanifold.expect_untouched();
}

TEST_F(CIndicePairs, AFailingCallKeepsTheCount) {
  Pairs call(handle, line(0), two_sites, 3);
  ASSERT_EQ(call.run(), kOk);
  call.indices[7] = 3;
  EXPECT_EQ(call.run(), kBad);
  EXPECT_EQ(call.desc.num_act_out(), 3);
  EXPECT_EQ(call.convolution.set(call.desc), kOk);
  EXPECT_EQ(call.desc.num_act_out(), 3);
}

TEST_F(CIndicePairs, SitesOutOfRangeAreBad) {
  const std::vector<int> space = {2, 3, 4};
  for (int sub_m : {0, 1}) {
    for (int column = 0; column < 4; ++column) {
      const int limit = column == 0 ? 2 : space[static_cast<std::size_t>(column - 1)];
      for (std::int32_t wrong : {-1, limit, INT32_MIN, INT32_MAX}) {
        Ints sites = some_sites(20, 2, space);
        sites[static_cast<std::size_t>(13 * 4 + column)] = wrong;
        sites[17 * 4] = -5;
        Pairs call(handle,
                   {.batch = 2,
                    .pad = {1, 1, 1},
                    .input = space,
                    .filter = {3, 3, 3},
                    .output = space,
                    .sub_m = sub_m},
                   sites, 48);
        EXPECT_EQ(call.run(), kBad);
        const std::string message = "indices[13, " + std::to_string(column) + "] is " +
                                    std::to_string(wrong) + ", expected 0 .. " + std::to_string(limit - 1);
        EXPECT_NE(std::string(turnoutLastError()).find(message), std::string::npos) << turnoutLastError();
        call.expect_untouched();
      }
    }
  }
}

TEST_F(CIndicePairs, WithoutSitesTheResultsSaySo) {
  Pairs call(handle, line(0), two_sites, 3);
  ASSERT_EQ(call.run(), kOk);
  ASSERT_EQ(call.desc.num_act_out(), 3);
  const Descriptor none(MLUOP_DTYPE_INT32, {0, 4}), no_pairs(MLUOP_DTYPE_INT32, {3, 2, 0});
  std::size_t size = 1;
  EXPECT_EQ(mluOpGetIndicePairsWorkspaceSize(handle, call.desc, none, no_pairs, call.out_desc, call.num_desc,
                                             &size),
            kOk);
  EXPECT_EQ(size, 0u);
  const auto run = [&](void* out, void* num) {
    return mluOpGetIndicePairs(handle, call.desc, none, nullptr, nullptr, 10, no_pairs, nullptr,
                               call.out_desc, out, call.num_desc, num);
  };
  ASSERT_EQ(run(nullptr, call.num.data()), kOk) << turnoutLastError();
  EXPECT_EQ(call.num, Ints(3, 0));
  EXPECT_EQ(call.desc.num_act_out(), 0);
  ASSERT_EQ(run(call.out.data(), nullptr), kOk) << turnoutLastError();
  EXPECT_EQ(call.out, Ints(12, -1));
  EXPECT_EQ(run(nullptr, nullptr), kOk);
}

TEST_F(CIndicePairs, WithoutRoomTheResultsSaySo) {
  for (int sub_m : {0, 1}) {
    Pairs call(handle, line(sub_m), two_sites, 0);
    EXPECT_EQ(call.required, 0u);
    ASSERT_EQ(call.run(nullptr, 0), kOk) << turnoutLastError();
    EXPECT_EQ(call.pairs, Ints(call.pairs.size(), -1));
    EXPECT_EQ(call.num, Ints(3, 0));
    EXPECT_EQ(call.desc.num_act_out(), 0);
  }
}

TEST_F(CIndicePairs, WorkspaceProtocol) {
  Pairs call(handle, line(0), two_sites, 3);
  ASSERT_GT(call.required, 0u);
  EXPECT_EQ(call.run(nullptr, call.required), kBad);
  EXPECT_EQ(call.run(nullptr, 0), kBad);
  EXPECT_EQ(call.run(call.workspace.data(), 0), kBad);
  EXPECT_EQ(call.run(call.workspace.data(), call.required - 1), kBad);
  EXPECT_EQ(turnoutLastError(), "mluOpGetIndicePairs: workspace_size is " +
                                    std::to_string(call.required - 1) + " bytes, expected " +
                                    std::to_string(call.required) + " or more");
  Ints shared(call.required / sizeof(std::int32_t) + 64);
  std::copy(two_sites.begin(), two_sites.end(), shared.begin() + 8);
  EXPECT_EQ(mluOpGetIndicePairs(handle, call.desc, call.indices_desc, shared.data() + 8, shared.data(),
                                call.required, call.pairs_desc, call.pairs.data(), call.out_desc,
                                call.out.data(), call.num_desc, call.num.data()),
            kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpGetIndicePairs: workspace overlaps indices in memory, expected separate buffers");
  call.expect_untouched();
  call.expect_equal_to_definition();
}

// The plan uses only the caller's workspace, at any address.
TEST_F(CIndicePairs, TheWorkspaceIsUsedAndNothingAroundIt) {
  const std::vector<int> space = {5, 7, 9};
  for (int sub_m : {0, 1}) {
    for (std::size_t offset : kWorkspaceOffsets) {
      Pairs call(handle,
                 {.pad = {1, 1, 1}, .input = space, .filter = {3, 3, 3}, .output = space, .sub_m = sub_m},
                 some_sites(90, 1, space), 315);
      PaintedWorkspace workspace(call.required, offset);
      ASSERT_EQ(call.run(workspace.begin(), call.required), kOk) << turnoutLastError();
      workspace.expect_used_and_nothing_around_it();
      call.workspace = workspace.memory();  // larger than required, with the bytes of another call
      call.expect_equal_to_definition();
    }
  }
}

TEST_F(CIndicePairs, OverlapAndAlignment) {
  Pairs call(handle, line(0), two_sites, 2);
  call.convolution.sub_m = 1;
  ASSERT_EQ(call.convolution.set(call.desc), kOk);
  const auto run = [&](void* indices, void* out) {
    return mluOpGetIndicePairs(handle, call.desc, call.indices_desc, indices, call.workspace.data(),
                               call.workspace.size(), call.pairs_desc, call.pairs.data(), call.out_desc, out,
                               call.num_desc, call.num.data());
  };
  EXPECT_EQ(run(call.indices.data(), call.indices.data()), kBad);
  EXPECT_NE(std::string(turnoutLastError()).find("overlaps"), std::string::npos) << turnoutLastError();
  EXPECT_EQ(run(reinterpret_cast<char*>(call.indices.data()) + 1, call.out.data()), kBad);
  EXPECT_EQ(run(call.indices.data(), nullptr), kBad);
  call.expect_untouched();
  EXPECT_EQ(call.indices, two_sites);
}

TEST_F(CIndicePairs, TheQueryAnswersForEmptyTensorsBeforeItLooksAtThem) {
  const Pairs call(handle, line(0), two_sites, 3);
  const auto query = [&](mluOpTensorDescriptor_t out, std::size_t* size) {
    return mluOpGetIndicePairsWorkspaceSize(handle, call.desc, call.indices_desc, call.pairs_desc, out,
                                            call.num_desc, size);
  };
  mluOpTensorDescriptor_t never_set = nullptr;
  ASSERT_EQ(mluOpCreateTensorDescriptor(&never_set), kOk);
  const Descriptor empty(MLUOP_DTYPE_DOUBLE, {7, 0, 1}), negative(MLUOP_DTYPE_INT32, {-3, 4});
  for (mluOpTensorDescriptor_t none : {static_cast<mluOpTensorDescriptor_t>(empty), never_set}) {
    std::size_t size = 9;
    EXPECT_EQ(query(none, &size), kOk) << turnoutLastError();
    EXPECT_EQ(size, 0u);
  }
  std::size_t size = 9;
  EXPECT_EQ(query(negative, &size), kBad);
  EXPECT_EQ(size, 9u);
  EXPECT_EQ(query(empty, nullptr), kBad);
  ASSERT_EQ(mluOpDestroyTensorDescriptor(never_set), kOk);
}

TEST_F(CIndicePairs, Limits) {
  const ConvolutionDescriptor desc(
      {.input = {1000, 1000, 2}, .filter = {3, 3, 3}, .output = {1000, 1000, 1000}});
  const Descriptor num(MLUOP_DTYPE_INT32, {27});
  const auto query = [&](std::int64_t rows, std::int64_t room) {
    const Descriptor indices(MLUOP_DTYPE_INT32, {rows, 4}), pairs(MLUOP_DTYPE_INT32, {27, 2, rows}),
        out(MLUOP_DTYPE_INT32, {room, 4});
    std::size_t size = 0;
    const mluOpStatus_t status =
        mluOpGetIndicePairsWorkspaceSize(handle, desc, indices, pairs, out, num, &size);
    EXPECT_EQ(size > 0, status == kOk) << turnoutLastError();
    return status;
  };
  const std::int64_t too_large = std::int64_t{1} << 29;
  EXPECT_EQ(query(1000000, 1), kOk);
  EXPECT_EQ(query(1000001, 1), kBad);
  EXPECT_EQ(query(1, too_large - 1), kOk);
  EXPECT_EQ(query(1, too_large), kUnsupported);
  EXPECT_EQ(query(1000001, too_large), kBad);
  EXPECT_EQ(query(1, 1000000000), kUnsupported);
  EXPECT_EQ(query(1, 1000000001), kBad);
}

TEST_F(CIndicePairs, OtherSpellings) {
  Pairs call(handle, line(0), two_sites, 3);
  std::size_t size = 0;
  const mluopStatus_t status = mluopGetIndicePairsWorkspaceSize(
      handle, call.desc, call.indices_desc, call.pairs_desc, call.out_desc, call.num_desc, &size);
  EXPECT_EQ(status, kOk);
  EXPECT_EQ(size, call.required);
  EXPECT_EQ(mluopGetIndicePairs(handle, call.desc, call.indices_desc, call.indices.data(),
                                call.workspace.data(), size, call.pairs_desc, call.pairs.data(),
                                call.out_desc, call.out.data(), call.num_desc, call.num.data()),
            kOk);
  EXPECT_EQ(call.num, (Ints{2, 2, 1}));
}

TEST_F(CIndicePairs, ADescriptorThatWasNeverSetIsBad) {
  Pairs call(handle, line(0), two_sites, 3);
  const ConvolutionDescriptor unset;
  EXPECT_EQ(mluOpGetIndicePairs(handle, unset, call.indices_desc, call.indices.data(), call.workspace.data(),
                                call.required, call.pairs_desc, call.pairs.data(), call.out_desc,
                                call.out.data(), call.num_desc, call.num.data()),
            kBad);
  std::size_t size = 0;
  EXPECT_EQ(mluOpGetIndicePairsWorkspaceSize(handle, unset, call.indices_desc, call.pairs_desc, call.out_desc,
                                             call.num_desc, &size),
            kBad);
  const Descriptor none(MLUOP_DTYPE_INT32, {0, 4}), no_pairs(MLUOP_DTYPE_INT32, {0, 2, 0}),
      no_num(MLUOP_DTYPE_INT32, {0});
  EXPECT_EQ(mluOpGetIndicePairs(handle, unset, none, nullptr, nullptr, 0, no_pairs, nullptr, none, nullptr,
                                no_num, nullptr),
            kBad);
  call.expect_untouched();
}

TEST_F(CIndicePairs, ARefusedSetChangesNothing) {
  Pairs call(handle, line(0), two_sites, 3);
  Convolution other = line(1);
  other.batch = 9;
  other.input = {1, 1, 1};
  other.output[2] = 0;
  EXPECT_EQ(other.set(call.desc), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpSetSparseConvolutionDescriptor: output_space[2] is 0, expected 1 or more");
  call.expect_equal_to_definition();
}

}  // namespace
}  // namespace turnout::test
