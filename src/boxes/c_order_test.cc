// The order of checks of this family's C functions, written out by hand. The generated negative tests trust
// the signatures; these tests do not.
#include <gtest/gtest.h>

#include "c_stairs.h"

namespace turnout::test {
namespace {

constexpr std::int64_t k2To31 = std::int64_t{1} << 31;

// The tensors are points, boxes and points_indices.
struct PointsInBoxesCall {
  bool has_handle = false, is_apart = false;
  std::int64_t batch = 2, points = 3, boxes = 4;
  std::vector<Part> parts = {{.wrong_extent = {kNegative, kNegative, 1}},
                             {.wrong_extent = {1, kNegative, 1}},
                             {.wrong_extent = {1, 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float xyz[64], box[64];
    static std::int32_t indices[64];
    Given g(parts.size());
    g.add(parts[0], {batch, points, 3}, MLUOP_DTYPE_FLOAT, is_apart ? static_cast<void*>(xyz) : indices);
    g.add(parts[1], {batch, boxes, 7}, MLUOP_DTYPE_FLOAT, box);
    g.add(parts[2], {batch, points}, MLUOP_DTYPE_INT32, indices);
    return mluOpPointsInBoxes(has_handle ? handle : nullptr, g.desc[0], g.data[0], g.desc[1], g.data[1],
                              g.desc[2], g.data[2]);
  }
};

TEST(CBoxesOrder, OfPointsInBoxesIsTheContract) {
  using Call = PointsInBoxesCall;
  Stairs<Call> stairs("mluOpPointsInBoxes");
  const EachTensor<Call> each{stairs, {"points", "boxes", "points_indices"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 2}) each.missing(i);
  each.ranks();
  each.dtypes();
  each.layouts();
  for (std::size_t i : {0, 1, 2}) each.extent(i, 0);
  each.extent(0, 1);
  each.extent(2, 1);
  each.extent(0, 2);
  each.extent(1, 2);
  each.extent(1, 1);
  each.strided();
  stairs.bad("points.data is null", [](Call& c) { c.points = c.boxes = k2To31 / 6 + 1; });
  stairs.unsupported("points has 2147483652 elements", [](Call& c) { c.points = 0; });
  stairs.unsupported("boxes has 5010795188 elements", [](Call& c) { c.boxes = 4; });
  stairs.succeeds([](Call& c) { c.points = 3, c.boxes = 0; });
  stairs.succeeds([](Call& c) { c.batch = 0, c.boxes = 4; });
  stairs.succeeds([](Call& c) { c.batch = 2; });
  each.data();
  stairs.bad("points_indices overlaps points", [](Call& c) { c.is_apart = true; });
  stairs.succeeds();
  stairs.climb();
}

// The tensors are bbox1, bbox2 and ious.
template <bool kAligned>
struct BoxIouCall {
  bool has_handle = false, is_apart = false;
  int mode = 2;
  std::int64_t count1 = 3, count2 = kAligned ? 3 : 2, columns1 = 4, columns2 = 6;
  std::vector<Part> parts = {{.wrong_extent = {kNegative, kNegative}},
                             {.wrong_extent = {kNegative, kNegative}},
                             {.wrong_extent = kAligned ? Shape{1} : Shape{1, 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float a[64], b[64], ious[64];
    Given g(parts.size());
    g.add(parts[0], {count1, columns1}, MLUOP_DTYPE_FLOAT, a);
    g.add(parts[1], {count2, columns2}, MLUOP_DTYPE_FLOAT, is_apart ? b : ious);
    g.add(parts[2], kAligned ? Shape{count1} : Shape{count1, count2}, MLUOP_DTYPE_FLOAT, ious);
    return mluOpBoxIouRotated(has_handle ? handle : nullptr, mode, kAligned, g.desc[0], g.data[0], g.desc[1],
                              g.data[1], g.desc[2], g.data[2]);
  }
};

template <bool kAligned>
void expect_order_of_box_iou() {
  using Call = BoxIouCall<kAligned>;
  Stairs<Call> stairs("mluOpBoxIouRotated");
  const EachTensor<Call> each{stairs, {"bbox1", "bbox2", "ious"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 2}) each.missing(i);
  each.dtypes();
  stairs.bad("mode is 2, expected one of 0 .. 1", [](Call& c) { c.mode = 1; });
  each.ranks();
  each.extents();
  stairs.bad("bbox1.shape[1] is 4, expected 5", [](Call& c) { c.columns1 = 5; });
  stairs.bad("bbox2.shape[1] is 6, expected 5", [](Call& c) { c.columns2 = 5; });
  each.strided();
  stairs.bad("bbox1.data is null", [](Call& c) {
    c.columns1 = 7;  // not checked without boxes
    c.count1 = 0, c.count2 = kAligned ? 0 : k2To31;
  });
  stairs.succeeds(
      [](Call& c) { c.columns1 = 5, c.count1 = k2To31 / 5 + 1, c.count2 = kAligned ? c.count1 : 1; });
  stairs.unsupported("bbox1 has 2147483650 elements", [](Call& c) {
    c.count1 = kAligned ? 3 : 1;
    c.count2 = kAligned ? 3 : k2To31 / 5 + 1;
  });
  if (!kAligned) {
    stairs.unsupported("bbox2 has 2147483650 elements", [](Call& c) { c.count1 = c.count2 = 1 << 16; });
    stairs.unsupported("ious has 4294967296 elements", [](Call& c) { c.count1 = 3, c.count2 = 2; });
  }
  each.data();
  stairs.bad("ious overlaps bbox2", [](Call& c) { c.is_apart = true; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CBoxesOrder, OfBoxIouRotatedIsTheContract) { expect_order_of_box_iou<false>(); }
TEST(CBoxesOrder, OfAlignedBoxIouRotatedIsTheContract) { expect_order_of_box_iou<true>(); }

// The tensors are boxes, scores and output.
struct NmsRotatedCall {
  bool has_handle = false, has_result = false, has_workspace = false, is_apart = false;
  std::int64_t count = 3, columns = 4;
  // A tensor with a negative extent is not strided, so boxes has none.
  std::vector<Part> parts = {{.wrong_extent = {0, 0}}, {.wrong_extent = {1}}, {.wrong_extent = {1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float boxes[64], scores[64];
    static std::int32_t output[64], result[1];
    static char workspace[10];
    Given g(parts.size());
    g.add(parts[0], {count, columns}, MLUOP_DTYPE_FLOAT, boxes);
    g.add(parts[1], {count}, MLUOP_DTYPE_FLOAT, scores);
    g.add(parts[2], {count}, MLUOP_DTYPE_INT32, output);
    std::int32_t* const to = is_apart ? result : output;
    return mluOpNmsRotated(has_handle ? handle : nullptr, 0.5f, g.desc[0], g.data[0], g.desc[1], g.data[1],
                           has_workspace ? workspace : nullptr, sizeof(workspace), g.desc[2], g.data[2],
                           has_result ? to : nullptr);
  }
};

TEST(CBoxesOrder, OfNmsRotatedIsTheContract) {
  using Call = NmsRotatedCall;
  Stairs<Call> stairs("mluOpNmsRotated");
  const EachTensor<Call> each{stairs, {"boxes", "scores", "output"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 2}) each.missing(i);
  each.dtypes();
  each.ranks();
  each.strided();
  each.extent(1, 0);
  each.extent(2, 0);
  stairs.bad("boxes.shape[1] is 4, expected 5 or more", [](Call& c) { c.columns = 7; });
  stairs.bad("boxes.shape[1] is 7, expected at most 6",
             [](Call& c) { c.columns = 6, c.count = k2To31 / 6 + 1; });
  stairs.unsupported("boxes has 2147483652 elements", [](Call& c) { c.count = 0; });
  stairs.succeeds([](Call& c) { c.count = 3; });
  each.data();
  stairs.bad("result_num is NULL", [](Call& c) { c.has_result = true; });
  stairs.bad("workspace is NULL and workspace_size is 10", [](Call& c) { c.has_workspace = true; });
  stairs.bad("output overlaps result_num", [](Call& c) { c.is_apart = true; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CBoxesOrder, OfTheQueryIsTheContract) {
  mluOpHandle_t handle = nullptr;
  ASSERT_EQ(mluOpCreate(&handle), kOk);
  const Descriptor line(MLUOP_DTYPE_FLOAT, {4}), boxes(MLUOP_DTYPE_FLOAT, {4, 5}),
      deep(MLUOP_DTYPE_HALF, {4, 5, 6});
  std::size_t size = 7;
  EXPECT_EQ(mluOpGetNmsRotatedWorkspaceSize(nullptr, nullptr, nullptr), kBad);
  EXPECT_STREQ(turnoutLastError(), "mluOpGetNmsRotatedWorkspaceSize: handle is NULL");
  EXPECT_EQ(mluOpGetNmsRotatedWorkspaceSize(handle, boxes, nullptr), kBad);
  EXPECT_EQ(mluOpGetNmsRotatedWorkspaceSize(handle, nullptr, &size), kBad);
  EXPECT_EQ(mluOpGetNmsRotatedWorkspaceSize(handle, line, &size), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpGetNmsRotatedWorkspaceSize: boxes has 1 dimensions, expected 2 or more");
  EXPECT_EQ(size, 7u);
  for (const Descriptor* one : {&boxes, &deep}) {
    EXPECT_EQ(mluOpGetNmsRotatedWorkspaceSize(handle, *one, &size), kOk) << turnoutLastError();
    EXPECT_EQ(size, 0u);
  }
  EXPECT_EQ(mluOpDestroy(handle), kOk);
}

}  // namespace
}  // namespace turnout::test
