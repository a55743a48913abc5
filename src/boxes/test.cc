// Examples of overlaps, suppression and points in boxes that can be checked by hand, and random calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "boxes/box_case.h"
#include "boxes/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr float kPi = 3.14159265f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Box7 = std::vector<float>;
Box7 car(float x, float y, float heading, float dx = 4, float dy = 2) {
  return {x, y, 0, dx, dy, 1.5f, heading};
}

float iou_bev(Box7 a, Box7 b) {
  float all = -1, aligned = -2;
  boxes_iou_bev(view(a.data(), {1, 7}), view(b.data(), {1, 7}), view(&all, {1, 1}));
  boxes_iou_bev_aligned(view(a.data(), {1, 7}), view(b.data(), {1, 7}), view(&aligned, {1}));
  EXPECT_EQ(all, aligned);
  return all;
}
float overlap_bev(Box7 a, Box7 b) {
  float overlap = -1;
  boxes_overlap_bev(view(a.data(), {1, 7}), view(b.data(), {1, 7}), view(&overlap, {1, 1}));
  return overlap;
}
float iou_rotated(std::vector<float> a, std::vector<float> b, IouMode mode = IouMode::iou) {
  float all = -1, aligned = -2;
  box_iou_rotated(view(a.data(), {1, 5}), view(b.data(), {1, 5}), view(&all, {1, 1}), mode);
  box_iou_rotated_aligned(view(a.data(), {1, 5}), view(b.data(), {1, 5}), view(&aligned, {1}), mode);
  EXPECT_TRUE(all == aligned || (std::isnan(all) && std::isnan(aligned)));
  return all;
}

// The values that another implementation of the same formulas gave.
TEST(BoxesIouBev, WorkedValues) {
  EXPECT_NEAR(iou_bev(car(0, 0, 0.3f), car(0, 0, 0.3f)), 1, 1e-5);
  EXPECT_NEAR(iou_bev(car(0, 0, 0.3f), car(0, 0, 0.3f + kPi)), 1, 1e-5);
  EXPECT_NEAR(iou_bev(car(0, 0, 0), car(1, 0, 0)), 0.6, 1e-6);
  EXPECT_NEAR(iou_bev(car(0, 0, 0), car(0, 0, kPi / 2)), 1.0 / 3, 1e-6);
  EXPECT_NEAR(iou_bev(car(0, 0, 0, 2, 2), car(0, 0, kPi / 4, 2, 2)), std::sqrt(0.5), 1e-6);
}

// Corners up to 1 cm outside count as inside: an IoU may exceed 1, and boxes apart share something.
TEST(BoxesIouBev, MarginOfOneCentimetre) {
  EXPECT_NEAR(iou_bev(car(0, 0, 0, 0.8f, 0.6f), car(0.005f, 0, 0, 0.8f, 0.6f)), 1.01258, 1e-5);
  EXPECT_NEAR(overlap_bev(car(0, 0, 0, 0.8f, 0.6f), car(0.005f, 0, 0, 0.8f, 0.6f)), 0.483, 1e-5);
  EXPECT_NEAR(iou_bev(car(0, 0, 0), car(0, 0, 0.001f)), 1.00125, 1e-5);
  EXPECT_NEAR(iou_bev(car(0, 0, 0), car(4.005f, 0, 0)), 0.000625, 1e-6);
  EXPECT_NEAR(iou_bev(car(0, 0, 0), car(0, 2.005f, 0)), 0.001252, 1e-6);
  EXPECT_EQ(iou_bev(car(0, 0, 0), car(4.02f, 0, 0)), 0);
  EXPECT_EQ(iou_bev(car(0, 0, 0), car(0, 2.02f, 0)), 0);
}

// dx and w are along the heading, which is counter-clockwise.
TEST(BoxesIouBev, Heading) {
  EXPECT_GT(overlap_bev(car(0, 0, kPi / 4, 4, 1), car(1, 1, 0, 0.5f, 0.5f)), 0.2f);
  EXPECT_EQ(overlap_bev(car(0, 0, kPi / 4, 4, 1), car(1, -1, 0, 0.5f, 0.5f)), 0);
  EXPECT_GT(iou_rotated({0, 0, 4, 1, kPi / 4}, {1, 1, 0.5f, 0.5f, 0}), 0.05f);
  EXPECT_EQ(iou_rotated({0, 0, 4, 1, kPi / 4}, {1, -1, 0.5f, 0.5f, 0}), 0);
}

TEST(BoxesIouBev, UnusualNumbers) {
  for (int k : {0, 1, 3, 4, 6}) {
    Box7 one = car(0, 0, 0.3f);
    one[static_cast<std::size_t>(k)] = kNan;
    EXPECT_EQ(iou_bev(one, car(0, 0, 0.3f)), 0);
    EXPECT_EQ(iou_bev(car(0, 0, 0.3f), one), 0);
  }
  Box7 without_z = car(0, 0, 0.3f);  // z and dz are not read
  without_z[2] = without_z[5] = kNan;
  EXPECT_EQ(iou_bev(without_z, car(0, 0, 0.3f)), iou_bev(car(0, 0, 0.3f), car(0, 0, 0.3f)));
  EXPECT_EQ(overlap_bev(car(0, 0, 0, 0, 0), car(0, 0, 0, 0, 0)), 0);
  EXPECT_EQ(overlap_bev(car(0, 0, 0, 4, 0), car(0, 0, 0)), 0);
}

TEST(BoxesIou3d, Heights) {
  const auto iou3d = [](Box7 a, Box7 b) {
    float all = -1, aligned = -2;
    boxes_iou3d(view(a.data(), {1, 7}), view(b.data(), {1, 7}), view(&all, {1, 1}));
    boxes_iou3d_aligned(view(a.data(), {1, 7}), view(b.data(), {1, 7}), view(&aligned, {1}));
    EXPECT_EQ(all, aligned);
    return all;
  };
  Box7 higher = car(0, 0, 0);
  higher[2] = 0.5f;
  EXPECT_NEAR(iou3d(car(0, 0, 0), higher), 0.5, 1e-6);  // 8 m2 and 1 m of height of 2 m together
  higher[2] = 1.5f;
  EXPECT_EQ(iou3d(car(0, 0, 0), higher), 0);
  Box7 tall = car(0, 0, 0), tall_too = car(50, 0, 0);
  tall[5] = tall_too[5] = kInf;
  EXPECT_EQ(iou3d(tall, tall_too), 0);
  for (int k : {2, 5}) {
    Box7 one = car(0, 0, 0);
    one[static_cast<std::size_t>(k)] = kNan;
    EXPECT_EQ(iou3d(one, car(0, 0, 0)), 0);
    EXPECT_EQ(iou3d(car(0, 0, 0), one), 0);
  }
}

TEST(BoxIouRotated, WorkedValues) {
  EXPECT_NEAR(iou_rotated({1, 2, 4, 2, 0.3f}, {1, 2, 4, 2, 0.3f}), 1, 1e-6);
  EXPECT_NEAR(iou_rotated({0, 0, 0.8f, 0.6f, 0}, {0.005f, 0, 0.8f, 0.6f, 0}), 0.987578, 1e-5);
  EXPECT_EQ(iou_rotated({0, 0, 4, 2, 0}, {4, 0, 4, 2, 0}), 0);
  EXPECT_NEAR(iou_rotated({0, 0, 2, 2, 0}, {0, 0, 2, 2, kPi / 4}), std::sqrt(0.5), 1e-6);
  // All cross products are below the tolerance of the sort: the result is wrong, and is kept.
  EXPECT_NEAR(iou_rotated({0, 0, 0.001f, 0.001f, 0}, {0.0005f, 0, 0.001f, 0.001f, 0}), 0.142857, 1e-5);
  EXPECT_EQ(iou_rotated({0.5f, 0, 1, 2, 0}, {0, 0, 2, 2, 0}, IouMode::iof), 1);
  EXPECT_EQ(iou_rotated({0.5f, 0, 1, 2, 0}, {0, 0, 2, 2, 0}), 0.5f);
  EXPECT_EQ(iou_rotated({0, 0, 0, 2, 0}, {0, 0, 2, 2, 0}), 0);
  EXPECT_EQ(iou_rotated({kNan, 0, 2, 2, 0}, {0, 0, 2, 2, 0}), 0);
  EXPECT_TRUE(std::isnan(iou_rotated({0, 0, 2, kNan, 0}, {0, 0, 2, 2, 0})));
}

// The midpoint of the centres is a sum in float: in double it would change last bits.
TEST(BoxIouRotated, ShiftIsASumOfFloats) {
  const float a[] = {1e7f, 3, 4, 2, 0.3f}, b[] = {1e7f + 1, 4, 4, 2, 0.4f};
  EXPECT_EQ(iou_rotated({a, a + 5}, {b, b + 5}), reference::box_iou_rotated(a, b, IouMode::iou));
}

std::vector<std::int64_t> kept(const char* op, std::vector<float> boxes, std::vector<float> scores,
                               double threshold, std::int64_t room = -1, std::int64_t offset = 0) {
  const std::string_view name(op);
  const std::int64_t numbers = name == "nms" ? 4 : name == "nms_rotated" ? 5 : 7;
  const auto count = static_cast<std::int64_t>(boxes.size()) / numbers;
  std::vector<std::int64_t> keep(static_cast<std::size_t>(room < 0 ? count : room), -7);
  const ConstTensor in = view(boxes.data(), {count, numbers});
  const ConstTensor by = scores.empty() ? ConstTensor(nullptr) : ConstTensor(view(scores.data(), {count}));
  const Tensor to = view(keep.data(), {static_cast<std::int64_t>(keep.size())});
  const std::int64_t found = name == "nms"            ? nms(in, by, to, threshold, offset)
                             : name == "nms_rotated"  ? nms_rotated(in, by, to, threshold)
                             : name == "nms3d_normal" ? nms3d_normal(in, by, to, threshold)
                                                      : nms3d(in, by, to, threshold);
  for (auto i = static_cast<std::size_t>(found); i < keep.size(); ++i) EXPECT_EQ(keep[i], -7);
  keep.resize(static_cast<std::size_t>(found));
  return keep;
}
using Kept = std::vector<std::int64_t>;

std::vector<float> cars(const std::vector<Box7>& boxes) {
  std::vector<float> all;
  for (const Box7& box : boxes) all.insert(all.end(), box.begin(), box.end());
  return all;
}

TEST(Nms3d, OrderOfVisits) {
  const auto boxes = cars({car(0, 0, 0), car(0.1f, 0, 0), car(9, 0, 0), car(9.1f, 0, 0), car(20, 0, 0)});
  EXPECT_EQ(kept("nms3d", boxes, {}, 0.5), (Kept{0, 2, 4}));
  EXPECT_EQ(kept("nms3d", boxes, {1, 2, 3, 4, 5}, 0.5), (Kept{4, 3, 1}));
  EXPECT_EQ(kept("nms3d", boxes, {1, 1, 1, 1, 1}, 0.5), (Kept{0, 2, 4}));
  EXPECT_EQ(kept("nms3d", boxes, {0.0f, -0.0f, 1, kNan, -kInf}, 0.5), (Kept{3, 0, 4}));
  EXPECT_EQ(kept("nms3d", boxes, {1, 2, kNan, kNan, kInf}, 0.5), (Kept{2, 4, 1}));
  EXPECT_EQ(kept("nms3d", boxes, {1, 2, 3, 4, 5}, 0.5, 2), (Kept{4, 3}));
  EXPECT_EQ(kept("nms3d", boxes, {1, 2, 3, 4, 5}, 0.5, 0), (Kept{}));
  EXPECT_EQ(kept("nms3d", boxes, {1, 2, 3, 4, 5}, 0.5, 9), (Kept{4, 3, 1}));
  EXPECT_EQ(kept("nms3d", {}, {}, 0.5, 3), (Kept{}));
}

// A box that is suppressed suppresses nothing.
TEST(Nms3d, SuppressedBoxesDoNotSuppress) {
  const auto boxes = cars({car(0, 0, 0), car(1.5f, 0, 0), car(3, 0, 0)});  // neighbours: IoU 0.4545
  EXPECT_EQ(kept("nms3d", boxes, {}, 0.4), (Kept{0, 2}));
  EXPECT_EQ(kept("nms3d", boxes, {1, 3, 2}, 0.4), (Kept{1}));
}

// Suppressed is what exceeds the threshold, which is rounded to float first.
TEST(Nms, ThresholdIsExceeded) {
  const std::vector<float> halves{0, 0, 2, 1, 0, 0, 1, 1};  // IoU 1/2
  EXPECT_EQ(kept("nms", halves, {}, 0.5), (Kept{0, 1}));
  EXPECT_EQ(kept("nms", halves, {}, 0.4999), (Kept{0}));
  EXPECT_EQ(kept("nms", halves, {}, 0.5 - 1e-10), (Kept{0, 1}));
  const std::vector<float> rotated{0, 0, 2, 1, 0, 0.5f, 0, 1, 1, 0};
  EXPECT_EQ(kept("nms_rotated", rotated, {}, 0.5), (Kept{0, 1}));
  EXPECT_EQ(kept("nms_rotated", rotated, {}, 0.4999), (Kept{0}));
}

TEST(Nms, Offset) {
  const std::vector<float> boxes{0, 0, 1, 1, 1, 1, 2, 2};  // with an offset of 1: 4 and 4 pixels, 1 shared
  EXPECT_EQ(kept("nms", boxes, {}, 0.1), (Kept{0, 1}));
  EXPECT_EQ(kept("nms", boxes, {}, 0.1, -1, 1), (Kept{0}));
  EXPECT_EQ(kept("nms", boxes, {}, 0.15, -1, 1), (Kept{0, 1}));  // 1/7
}

TEST(Nms, NegativeThresholdKeepsTheFirst) {
  const auto boxes = cars({car(0, 0, 0), car(50, 0, 0), car(99, 0, 0)});
  for (const char* op : {"nms3d", "nms3d_normal"}) EXPECT_EQ(kept(op, boxes, {}, -0.1), (Kept{0}));
  EXPECT_EQ(kept("nms_rotated", {0, 0, 1, 1, 0, 50, 0, 1, 1, 0}, {}, -0.1), (Kept{0}));
  EXPECT_EQ(kept("nms", {0, 0, 1, 1, 5, 5, 6, 6}, {}, -0.1), (Kept{0}));
}

// NaN boxes neither suppress nor are suppressed; 0/0 keeps.
TEST(Nms, NanBoxesStay) {
  Box7 nan = car(0, 0, 0);
  nan[0] = kNan;
  for (const char* op : {"nms3d", "nms3d_normal"})
    EXPECT_EQ(kept(op, cars({nan, car(0, 0, 0), nan, car(0, 0, 0)}), {}, 0.1), (Kept{0, 1, 2}));
  EXPECT_EQ(kept("nms_rotated", {kNan, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, kNan, 0}, {}, 0.1),
            (Kept{0, 1, 2}));
  EXPECT_EQ(kept("nms", {kNan, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}, {}, 0.1), (Kept{0, 1}));
  EXPECT_EQ(kept("nms", {0, 0, 0, 0, 0, 0, 0, 0}, {}, 0.1), (Kept{0, 1}));
}

TEST(Nms3dNormal, IgnoresTheHeading) {
  const auto boxes = cars({car(0, 0, 0), car(0, 0, kPi / 2)});
  EXPECT_EQ(kept("nms3d", boxes, {}, 0.5), (Kept{0, 1}));
  EXPECT_EQ(kept("nms3d_normal", boxes, {}, 0.5), (Kept{0}));
}

std::vector<std::int32_t> boxes_of_points(const std::vector<float>& points, const std::vector<float>& boxes,
                                          BoxZ z, double margin) {
  const auto m = static_cast<std::int64_t>(points.size()) / 3,
             n = static_cast<std::int64_t>(boxes.size()) / 7;
  std::vector<std::int32_t> first(static_cast<std::size_t>(m), -7), all(static_cast<std::size_t>(m * n), -7);
  points_in_boxes(view(points.data(), {m, 3}), view(boxes.data(), {n, 7}), view(first.data(), {m}), z,
                  margin);
  points_in_boxes_all(view(points.data(), {m, 3}), view(boxes.data(), {n, 7}), view(all.data(), {m, n}), z,
                      margin);
  for (std::int64_t i = 0; i < m; ++i) {
    std::int32_t expected = -1;
    for (std::int64_t j = n - 1; j >= 0; --j)
      if (all[static_cast<std::size_t>(i * n + j)] == 1) expected = static_cast<std::int32_t>(j);
    EXPECT_EQ(first[static_cast<std::size_t>(i)], expected);
  }
  return first;
}
// Few points are compared with the boxes as they are, more with those of a grid.
std::vector<std::int32_t> first_boxes(std::vector<float> points, const std::vector<float>& boxes,
                                      BoxZ z = BoxZ::center, double margin = 1e-5) {
  const auto first = boxes_of_points(points, boxes, z, margin);
  for (const std::size_t count : {std::size_t{8}, std::size_t{200}}) {
    while (points.size() < 3 * count) points.insert(points.end(), points.begin(), points.begin() + 3);
    auto again = boxes_of_points(points, boxes, z, margin);
    again.resize(first.size());
    EXPECT_EQ(again, first) << count << " points";
  }
  return first;
}
using First = std::vector<std::int32_t>;

TEST(PointsInBoxes, FewPointsOfARandomScene) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> place(-4, 4), size(0, 3), heading(-4, 4);
  std::vector<float> points, boxes;
  for (int i = 0; i < 300; ++i) points.insert(points.end(), {place(random), place(random), size(random)});
  for (int i = 0; i < 30; ++i) {
    for (int k = 0; k < 3; ++k) boxes.push_back(place(random) / (k == 2 ? 4 : 1));
    for (int k = 0; k < 3; ++k) boxes.push_back(size(random));
    boxes.push_back(heading(random));
  }
  for (const BoxZ z : {BoxZ::center, BoxZ::bottom}) {
    const auto all = boxes_of_points(points, boxes, z, 1e-2);
    EXPECT_GT(std::count(all.begin(), all.end(), -1), 10);
    EXPECT_LT(std::count(all.begin(), all.end(), -1), 290);
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(boxes_of_points({points[3 * i], points[3 * i + 1], points[3 * i + 2]}, boxes, z, 1e-2)[0],
                all[i]);
  }
}

TEST(PointsInBoxes, FirstBox) {
  const std::vector<float> boxes{0, 0, 0, 4, 2, 2, 0, 1, 0, 0, 4, 2, 2, 0};
  EXPECT_EQ(first_boxes({1.5f, 0.5f, 0, 2.5f, 0.5f, 0.9f, 9, 0, 0, 0, 0, 1.1f}, boxes),
            (First{0, 1, -1, -1}));
  EXPECT_EQ(first_boxes({1, 1, 1}, {}), (First{-1}));
}

// dx is along the heading, which is counter-clockwise.
TEST(PointsInBoxes, Heading) {
  const std::vector<float> box{0, 0, 0, 4, 1, 2, kPi / 4};
  EXPECT_EQ(first_boxes({1, 1, 0, 1, -1, 0}, box), (First{0, -1}));
}

TEST(PointsInBoxes, Borders) {
  const std::vector<float> box{0, 0, 0, 2, 2, 2, 0};
  const std::vector<float> points{1, 0, 0, 1.005f, 0, 0, 0, 0, 1, 0, 0, 1.00001f};
  EXPECT_EQ(first_boxes(points, box, BoxZ::center, 0), (First{-1, -1, 0, -1}));  // z is closed, x open
  EXPECT_EQ(first_boxes(points, box, BoxZ::center, 1e-5), (First{0, -1, 0, -1}));
  EXPECT_EQ(first_boxes(points, box, BoxZ::center, 1e-2), (First{0, 0, 0, -1}));
  EXPECT_EQ(first_boxes({0, 0, -0.5f, 0, 0, 2}, box), (First{0, -1}));
  EXPECT_EQ(first_boxes({0, 0, -0.5f, 0, 0, 2}, box, BoxZ::bottom), (First{-1, 0}));
}

// Boxes of padding: a point at the origin is in a box of zeros, unless there is no margin.
TEST(PointsInBoxes, BoxesOfZeros) {
  const std::vector<float> zeros(7, 0);
  EXPECT_EQ(first_boxes({0, 0, 0}, zeros), (First{0}));
  EXPECT_EQ(first_boxes({0, 0, 0}, zeros, BoxZ::bottom, 0), (First{-1}));
}

TEST(PointsInBoxes, NanIsOutside) {
  for (std::size_t k = 0; k < 7; ++k) {
    std::vector<float> box{0, 0, 0, 4, 4, 4, 0.5f};
    EXPECT_EQ(first_boxes({0, 0, 0}, box), (First{0}));
    if (k < 3) {
      std::vector<float> point{0, 0, 0};
      point[k] = kNan;
      EXPECT_EQ(first_boxes(point, box), (First{-1}));
    }
    box[k] = kNan;
    EXPECT_EQ(first_boxes({0, 0, 0}, box), (First{-1}));
  }
  const std::vector<float> large{0, 0, 0, kInf, kInf, kInf, 0};
  EXPECT_EQ(first_boxes({1e30f, 2, 3, kInf, 0, 0}, large), (First{0, -1}));
}

TEST(Boxes, RandomCallsAreLikeTheDefinitions) {
  std::mt19937 random(20261118);
  const Below below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  for (const core::Operator& op : families::boxes::operators())
    for (int i = 0; i < 150; ++i) {
      ASSERT_EQ(compare_with_definition(op.signature->op, below, i < 140 ? 30 : i < 148 ? 300 : 700), "");
    }
}

}  // namespace
}  // namespace turnout::test
