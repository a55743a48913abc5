// The order of checks of this family's C functions, written out by hand. The generated negative tests trust
// the signatures; these tests do not.
#include <gtest/gtest.h>

#include <limits>

#include "c_stairs.h"

namespace turnout::test {
namespace {

constexpr std::int64_t k2To31 = std::int64_t{1} << 31;

// The tensors are new_xyz, xyz and idx.
struct BallQueryCall {
  bool has_handle = false, is_apart = false;
  float min_radius = -1, max_radius = std::numeric_limits<float>::quiet_NaN();
  int nsample = -1;
  std::int64_t batch = 2, queries = 3, points = 4;
  std::vector<Part> parts = {{.wrong_extent = {kNegative, kNegative, 1}},
                             {.wrong_extent = {1, kNegative, 1}},
                             {.wrong_extent = {1, 1, 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float new_xyz[64], xyz[64];
    static std::int32_t idx[64];
    Given g(parts.size());
    g.add(parts[0], {batch, queries, 3}, MLUOP_DTYPE_FLOAT, new_xyz);
    g.add(parts[1], {batch, points, 3}, MLUOP_DTYPE_FLOAT, is_apart ? static_cast<void*>(xyz) : idx);
    g.add(parts[2], {batch, queries, nsample}, MLUOP_DTYPE_INT32, idx);
    return mluOpBallQuery(has_handle ? handle : nullptr, g.desc[0], g.data[0], g.desc[1], g.data[1],
                          min_radius, max_radius, nsample, g.desc[2], g.data[2]);
  }
};

TEST(CPointsOrder, OfBallQueryIsTheContract) {
  using Call = BallQueryCall;
  Stairs<Call> stairs("mluOpBallQuery");
  const EachTensor<Call> each{stairs, {"new_xyz", "xyz", "idx"}};
  stairs.bad("min_radius is -1", [](Call& c) { c.min_radius = 0; });
  stairs.bad("max_radius is nan", [](Call& c) { c.max_radius = 1; });
  stairs.bad("nsample is -1", [](Call& c) { c.nsample = 2; });
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 2}) each.missing(i);
  each.ranks();
  for (std::size_t i : {0, 1, 2}) each.extent(i, 0);
  each.extent(0, 1);
  each.extent(2, 1);
  for (std::size_t i : {0, 1, 2}) each.extent(i, 2);
  each.extent(1, 1);
  each.strided();
  stairs.bad("new_xyz has dtype", [](Call& c) { c.queries = c.points = k2To31 / 6 + 1; });
  each.dtypes();
  stairs.unsupported("new_xyz has 2147483652 elements", [](Call& c) { c.queries = 2, c.nsample = 1 << 29; });
  stairs.unsupported("idx has 2147483648 elements", [](Call& c) { c.queries = 0, c.nsample = 2; });
  stairs.unsupported("xyz has 2147483652 elements", [](Call& c) { c.points = 0; });
  stairs.bad("new_xyz has shape [2, 0, 3], expected at least one element", [](Call& c) { c.batch = 0; });
  stairs.bad("new_xyz has shape [0, 0, 3]", [](Call& c) { c.batch = 2, c.queries = 3, c.points = 0; });
  stairs.succeeds([](Call& c) { c.points = 4, c.nsample = 0; });
  stairs.succeeds([](Call& c) { c.nsample = 2; });
  each.data();
  stairs.bad("idx overlaps xyz", [](Call& c) { c.is_apart = true; });
  stairs.succeeds();
  stairs.climb();
}

// The tensors are unknown, known, dist2 and idx.
struct ThreeNnCall {
  bool has_handle = false, has_workspace = false, is_apart = false;
  std::int64_t batch = 2, queries = 3, points = 4;
  std::vector<Part> parts = {{.wrong_extent = {kNegative, kNegative, 1}},
                             {.wrong_extent = {1, kNegative, 1}},
                             {.wrong_extent = {1, 1, 1}},
                             {.wrong_extent = {1, 1, 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float unknown[64], known[64], dist2[64];
    static std::int32_t idx[64];
    static char workspace[10];
    Given g(parts.size());
    g.add(parts[0], {batch, queries, 3}, MLUOP_DTYPE_FLOAT, is_apart ? unknown : dist2);
    g.add(parts[1], {batch, points, 3}, MLUOP_DTYPE_FLOAT, known);
    g.add(parts[2], {batch, queries, 3}, MLUOP_DTYPE_FLOAT, dist2);
    g.add(parts[3], {batch, queries, 3}, MLUOP_DTYPE_INT32, idx);
    return mluOpThreeNNForward(has_handle ? handle : nullptr, g.desc[0], g.data[0], g.desc[1], g.data[1],
                               has_workspace ? workspace : nullptr, sizeof(workspace), g.desc[2], g.data[2],
                               g.desc[3], g.data[3]);
  }
};

TEST(CPointsOrder, OfThreeNNForwardIsTheContract) {
  using Call = ThreeNnCall;
  Stairs<Call> stairs("mluOpThreeNNForward");
  const EachTensor<Call> each{stairs, {"unknown", "known", "dist2", "idx"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {1, 0, 2, 3}) each.missing(i);
  each.ranks();
  for (std::size_t i : {0, 1, 2, 3}) each.extent(i, 0);
  for (std::size_t i : {0, 2, 3}) each.extent(i, 1);
  for (std::size_t i : {0, 1, 2, 3}) each.extent(i, 2);
  each.extent(1, 1);
  each.dtypes();
  each.strided();
  stairs.bad("workspace is NULL", [](Call& c) { c.queries = c.points = k2To31 / 6 + 1; });
  stairs.unsupported("unknown has 2147483652 elements", [](Call& c) { c.queries = 3; });
  stairs.unsupported("known has 2147483652 elements", [](Call& c) { c.points = 4, c.queries = 0; });
  stairs.bad("unknown has shape [2, 0, 3], expected at least one element", [](Call& c) { c.batch = 0; });
  stairs.bad("unknown has shape [0, 0, 3]", [](Call& c) { c.batch = 2, c.queries = 3, c.points = 0; });
  stairs.succeeds([](Call& c) { c.points = 4; });
  stairs.bad("workspace is NULL and workspace_size is 10", [](Call& c) { c.has_workspace = true; });
  each.data();
  stairs.bad("dist2 overlaps unknown", [](Call& c) { c.is_apart = true; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CPointsOrder, OfTheQueryIsTheContract) {
  mluOpHandle_t handle = nullptr;
  ASSERT_EQ(mluOpCreate(&handle), kOk);
  const Descriptor line(MLUOP_DTYPE_FLOAT, {2, 4}), known(MLUOP_DTYPE_INT8, {2, 4, 9});
  std::size_t size = 7;
  EXPECT_EQ(mluOpGetThreeNNForwardWorkspaceSize(nullptr, nullptr, nullptr), kBad);
  EXPECT_STREQ(turnoutLastError(), "mluOpGetThreeNNForwardWorkspaceSize: handle is NULL");
  EXPECT_EQ(mluOpGetThreeNNForwardWorkspaceSize(handle, known, nullptr), kBad);
  EXPECT_EQ(mluOpGetThreeNNForwardWorkspaceSize(handle, nullptr, &size), kBad);
  EXPECT_EQ(mluOpGetThreeNNForwardWorkspaceSize(handle, line, &size), kBad);
  EXPECT_EQ(size, 7u);
  EXPECT_EQ(mluOpGetThreeNNForwardWorkspaceSize(handle, known, &size), kOk) << turnoutLastError();
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(mluOpDestroy(handle), kOk);
}

}  // namespace
}  // namespace turnout::test
