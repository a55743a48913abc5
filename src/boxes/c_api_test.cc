// Boxes through the C interface: results are those of the C++ operators, and memory that must not change.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "c_descriptors.h"
#include "turnout/boxes.h"

namespace turnout::test {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;
constexpr std::int32_t kUnwritten = 77;

class CBoxes : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  // x, y, w, h, angle, and for more columns the label.
  Floats rotated(std::int64_t count, std::int64_t columns) {
    std::uniform_real_distribution<float> place(0, 12), side(1, 5), angle(-4, 4);
    Floats boxes;
    for (std::int64_t i = 0; i < count; ++i) {
      for (int k = 0; k < 2; ++k) boxes.push_back(place(random));
      for (int k = 0; k < 2; ++k) boxes.push_back(side(random));
      boxes.push_back(angle(random));
      for (std::int64_t k = 5; k < columns; ++k) boxes.push_back(static_cast<float>(i % 3));
    }
    return boxes;
  }
  mluOpStatus_t nms(float threshold, const Floats& boxes, const Floats& scores, Ints& output,
                    std::int32_t* result_num) {
    const auto count = static_cast<std::int64_t>(scores.size());
    const std::int64_t columns = count == 0 ? 5 : static_cast<std::int64_t>(boxes.size()) / count;
    const Descriptor boxes_desc(MLUOP_DTYPE_FLOAT, {count, columns}), scores_desc(MLUOP_DTYPE_FLOAT, {count}),
        output_desc(MLUOP_DTYPE_INT32, {count});
    std::size_t size = 1;
    EXPECT_EQ(mluOpGetNmsRotatedWorkspaceSize(handle, boxes_desc, &size), kOk);
    return mluOpNmsRotated(handle, threshold, boxes_desc, boxes.data(), scores_desc, scores.data(), nullptr,
                           size, output_desc, output.data(), result_num);
  }

  mluOpHandle_t handle = nullptr;
  std::minstd_rand random{1};
};

TEST_F(CBoxes, PointsInBoxesWritesTheFirstBoxOrMinusOne) {
  // The second batch element has the boxes in the other order.
  const Floats points = {0, 0, 0, 3, 0, 0, 0, 0, 1.01f, 0, 0, 0, 3, 0, 0, 0, 0, 1};
  const Floats near = {0, 0, 0, 2, 2, 2, 0}, wide = {1, 0, 0, 10, 2, 2, 0};
  Floats boxes = near;
  for (const Floats* one : {&wide, &wide, &near}) boxes.insert(boxes.end(), one->begin(), one->end());
  Ints indices(6, kUnwritten);
  const Descriptor points_desc(MLUOP_DTYPE_FLOAT, {2, 3, 3}), boxes_desc(MLUOP_DTYPE_FLOAT, {2, 2, 7}),
      indices_desc(MLUOP_DTYPE_INT32, {2, 3});
  ASSERT_EQ(mluOpPointsInBoxes(handle, points_desc, points.data(), boxes_desc, boxes.data(), indices_desc,
                               indices.data()),
            kOk)
      << turnoutLastError();
  EXPECT_EQ(indices, (Ints{0, 1, -1, 0, 0, 0}));
}

TEST_F(CBoxes, PointsInBoxesIsTheOperator) {
  constexpr std::int64_t kBatch = 2, kPoints = 500, kBoxes = 30;
  std::uniform_real_distribution<float> uniform(-5, 5);
  Floats points(kBatch * kPoints * 3), boxes(kBatch * kBoxes * 7);
  for (float& value : points) value = uniform(random);
  for (float& value : boxes) value = uniform(random);
  Ints got(kBatch * kPoints, kUnwritten), expected = got;
  points_in_boxes(view(points.data(), {kBatch, kPoints, 3}), view(boxes.data(), {kBatch, kBoxes, 7}),
                  view(expected.data(), {kBatch, kPoints}));
  const Descriptor points_desc(MLUOP_DTYPE_FLOAT, {kBatch, kPoints, 3}),
      boxes_desc(MLUOP_DTYPE_FLOAT, {kBatch, kBoxes, 7}), indices_desc(MLUOP_DTYPE_INT32, {kBatch, kPoints});
  ASSERT_EQ(mluOpPointsInBoxes(handle, points_desc, points.data(), boxes_desc, boxes.data(), indices_desc,
                               got.data()),
            kOk);
  EXPECT_EQ(got, expected);
}

TEST_F(CBoxes, PointsWithoutBoxesStayAsGiven) {
  const Floats points(6);
  Ints indices(2, kUnwritten);
  const Descriptor points_desc(MLUOP_DTYPE_FLOAT, {1, 2, 3}), boxes_desc(MLUOP_DTYPE_FLOAT, {1, 0, 7}),
      indices_desc(MLUOP_DTYPE_INT32, {1, 2});
  EXPECT_EQ(mluOpPointsInBoxes(handle, points_desc, points.data(), boxes_desc, nullptr, indices_desc,
                               indices.data()),
            kOk);
  EXPECT_EQ(indices, Ints(2, kUnwritten));
}

TEST_F(CBoxes, BoxIouRotatedOfTwoSquares) {
  const Floats a = {0, 0, 2, 2, 0}, b = {1, 0, 2, 4, 0, 9, 9, 1, 1, 0};
  Floats ious(2, -1);
  const Descriptor a_desc(MLUOP_DTYPE_FLOAT, {1, 5}), b_desc(MLUOP_DTYPE_FLOAT, {2, 5}),
      ious_desc(MLUOP_DTYPE_FLOAT, {1, 2});
  ASSERT_EQ(mluOpBoxIouRotated(handle, 0, false, a_desc, a.data(), b_desc, b.data(), ious_desc, ious.data()),
            kOk);
  EXPECT_FLOAT_EQ(ious[0], 0.2f);  // 2 of 4 + 8 - 2
  EXPECT_EQ(ious[1], 0.0f);
  ASSERT_EQ(mluOpBoxIouRotated(handle, 1, false, a_desc, a.data(), b_desc, b.data(), ious_desc, ious.data()),
            kOk);
  EXPECT_FLOAT_EQ(ious[0], 0.5f);  // 2 of 4
}

TEST_F(CBoxes, BoxIouRotatedIsTheOperator) {
  constexpr std::int64_t kA = 40, kB = 50;
  const Floats a = rotated(kA, 5), b = rotated(kB, 5);
  const Descriptor a_desc(MLUOP_DTYPE_FLOAT, {kA, 5}), b_desc(MLUOP_DTYPE_FLOAT, {kB, 5}),
      head_desc(MLUOP_DTYPE_FLOAT, {kA, 5}), all_desc(MLUOP_DTYPE_FLOAT, {kA, kB}),
      aligned_desc(MLUOP_DTYPE_FLOAT, {kA});
  for (int mode : {0, 1}) {
    Floats all(kA * kB, -1), aligned(kA, -1), expected_all = all, expected_aligned = aligned;
    box_iou_rotated(view(a.data(), {kA, 5}), view(b.data(), {kB, 5}), view(expected_all.data(), {kA, kB}),
                    static_cast<IouMode>(mode));
    box_iou_rotated_aligned(view(a.data(), {kA, 5}), view(b.data(), {kA, 5}),
                            view(expected_aligned.data(), {kA}), static_cast<IouMode>(mode));
    ASSERT_EQ(
        mluOpBoxIouRotated(handle, mode, false, a_desc, a.data(), b_desc, b.data(), all_desc, all.data()),
        kOk);
    ASSERT_EQ(mluOpBoxIouRotated(handle, mode, true, a_desc, a.data(), head_desc, b.data(), aligned_desc,
                                 aligned.data()),
              kOk);
    EXPECT_EQ(all, expected_all);
    EXPECT_EQ(aligned, expected_aligned);
    for (std::size_t i = 0; i < aligned.size(); ++i) EXPECT_EQ(aligned[i], all[i * kB + i]) << i;
  }
}

TEST_F(CBoxes, NmsRotatedIsTheOperatorAndIgnoresLabels) {
  constexpr std::int64_t kCount = 300;
  std::uniform_real_distribution<float> uniform(0, 1);
  Floats scores(kCount);
  for (float& score : scores) score = uniform(random);
  const Floats labelled = rotated(kCount, 6);
  Floats boxes;
  for (std::size_t i = 0; i < labelled.size(); ++i)
    if (i % 6 != 5) boxes.push_back(labelled[i]);
  std::vector<std::int64_t> keep(kCount);
  const std::int64_t kept = nms_rotated(view(boxes.data(), {kCount, 5}), view(scores.data(), {kCount}),
                                        view(keep.data(), {kCount}), 0.3);
  ASSERT_GT(kept, 10);
  ASSERT_LT(kept, kCount);
  Ints expected(keep.begin(), keep.begin() + kept);
  expected.resize(kCount, kUnwritten);
  for (const Floats& given : {boxes, labelled}) {
    Ints output(kCount, kUnwritten);
    std::int32_t result_num = kUnwritten;
    ASSERT_EQ(nms(0.3f, given, scores, output, &result_num), kOk) << turnoutLastError();
    EXPECT_EQ(result_num, kept);
    EXPECT_EQ(output, expected);
  }
}

TEST_F(CBoxes, NmsRotatedComparesStrictly) {
  const Floats boxes = {0, 0, 2, 2, 0, 1, 0, 2, 4, 0, 0, 0, 2, 2, 0};
  const auto kept = [&](float threshold) {
    Ints output(3, kUnwritten);
    std::int32_t result_num = 0;
    EXPECT_EQ(nms(threshold, boxes, {0.5f, 0.9f, 0.5f}, output, &result_num), kOk) << turnoutLastError();
    output.resize(static_cast<std::size_t>(result_num));
    return output;
  };
  EXPECT_EQ(kept(0.1f), (Ints{1}));
  EXPECT_EQ(kept(0.5f), (Ints{1, 0}));
  EXPECT_EQ(kept(1), (Ints{1, 0, 2}));  // the IoU of equal boxes is 1
  EXPECT_EQ(kept(std::numeric_limits<float>::quiet_NaN()), (Ints{1, 0, 2}));
}

TEST_F(CBoxes, NmsRotatedOrdersScoresThatAreNotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Floats boxes = {0, 0, 1, 1, 0, 5, 0, 1, 1, 0, 10, 0, 1, 1, 0, 15, 0, 1, 1, 0};
  Ints output(4, kUnwritten);
  std::int32_t result_num = 0;
  ASSERT_EQ(nms(0.5f, boxes, {-kInf, 1, kInf, std::numeric_limits<float>::quiet_NaN()}, output, &result_num),
            kOk);
  EXPECT_EQ(result_num, 4);
  EXPECT_EQ(output, (Ints{3, 2, 1, 0}));
}

TEST_F(CBoxes, NmsRotatedWithoutBoxesDoesNotWriteTheirNumber) {
  Ints output;
  std::int32_t result_num = kUnwritten;
  EXPECT_EQ(nms(0.5f, {}, {}, output, &result_num), kOk) << turnoutLastError();
  EXPECT_EQ(result_num, kUnwritten);
  EXPECT_EQ(nms(0.5f, {}, {}, output, nullptr), kOk) << turnoutLastError();
}

}  // namespace
}  // namespace turnout::test
