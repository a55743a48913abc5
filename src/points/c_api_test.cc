// Neighbours of points through the C interface: results are those of the C++ operators, half tensors are
// computed in float and rounded once, and rows that must not change.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "c_descriptors.h"
#include "simd/half.h"
#include "turnout/points.h"

namespace turnout::test {
namespace {

using Floats = std::vector<float>;
using Halves = std::vector<f16>;
using Ints = std::vector<std::int32_t>;
constexpr std::int32_t kUnwritten = 77;
constexpr float kInf = std::numeric_limits<float>::infinity();

Halves halves(const Floats& values) {
  Halves made;
  for (float value : values) made.push_back(core::from_float<f16>(value));
  return made;
}
// The values that halves have.
Floats rounded(const Floats& values) {
  Floats made;
  for (float value : values) made.push_back(core::to_float(core::from_float<f16>(value)));
  return made;
}
std::vector<std::uint16_t> bits(const Halves& values) {
  std::vector<std::uint16_t> made;
  for (f16 value : values) made.push_back(value.bits);
  return made;
}

class CPoints : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  Floats cloud(std::int64_t points) {
    std::uniform_real_distribution<float> uniform(-4, 4);
    Floats xyz(static_cast<std::size_t>(3 * points));
    for (float& value : xyz) value = uniform(random);
    return xyz;
  }
  template <class T>
  static Descriptor described(const std::vector<std::int64_t>& shape) {
    return Descriptor(std::is_same_v<T, f16>     ? MLUOP_DTYPE_HALF
                      : std::is_same_v<T, float> ? MLUOP_DTYPE_FLOAT
                                                 : MLUOP_DTYPE_INT32,
                      shape);
  }
  template <class T>
  mluOpStatus_t query(const std::vector<T>& new_xyz, const std::vector<T>& xyz, float least, float most,
                      std::int64_t batch, int nsample, Ints& idx) {
    const auto queries = static_cast<std::int64_t>(new_xyz.size()) / 3 / batch;
    const Descriptor new_desc = described<T>({batch, queries, 3}),
                     desc = described<T>({batch, static_cast<std::int64_t>(xyz.size()) / 3 / batch, 3}),
                     idx_desc = described<std::int32_t>({batch, queries, nsample});
    return mluOpBallQuery(handle, new_desc, new_xyz.data(), desc, xyz.data(), least, most, nsample, idx_desc,
                          idx.data());
  }
  template <class T>
  mluOpStatus_t nearest(const std::vector<T>& unknown, const std::vector<T>& known, std::int64_t batch,
                        std::vector<T>& dist2, Ints& idx) {
    const std::vector<std::int64_t> shape = {batch, static_cast<std::int64_t>(unknown.size()) / 3 / batch, 3};
    const Descriptor unknown_desc = described<T>(shape), dist2_desc = described<T>(shape),
                     known_desc =
                         described<T>({batch, static_cast<std::int64_t>(known.size()) / 3 / batch, 3}),
                     idx_desc = described<std::int32_t>(shape);
    std::size_t size = 1;
    EXPECT_EQ(mluOpGetThreeNNForwardWorkspaceSize(handle, known_desc, &size), kOk);
    return mluOpThreeNNForward(handle, unknown_desc, unknown.data(), known_desc, known.data(), nullptr, size,
                               dist2_desc, dist2.data(), idx_desc, idx.data());
  }

  mluOpHandle_t handle = nullptr;
  std::minstd_rand random{1};
};

TEST_F(CPoints, BallQueryLeavesRowsWithoutHits) {
  const Floats xyz = {0, 0, 0, 1, 0, 0, 2, 0, 0, 1, 0, 0}, new_xyz = {0, 0, 0, 50, 0, 0, 2, 0, 0};
  Ints idx(9, kUnwritten);
  ASSERT_EQ(query(new_xyz, xyz, 1, 1.5f, 1, 3, idx), kOk) << turnoutLastError();
  EXPECT_EQ(idx, (Ints{0, 1, 3, kUnwritten, kUnwritten, kUnwritten, 1, 2, 3}));
  ASSERT_EQ(query(new_xyz, xyz, 0, 0.5f, 1, 3, idx), kOk);  // one hit each, repeated
  EXPECT_EQ(idx, (Ints{0, 0, 0, kUnwritten, kUnwritten, kUnwritten, 2, 2, 2}));
}

TEST_F(CPoints, BallQueryFindsPointsAtTheQueryWithAnyRadius) {
  const Floats xyz = {1e-22f, 0, 0, 1, 0, 0, 1e-30f, 0, 0, 2, 0, 0}, new_xyz = {0, 0, 0, 2, 0, 0, 3, 0, 0};
  for (const float most : {0.0f, 1e-30f}) {  // squares of 0
    for (const float least : {0.0f, 1.0f}) {
      Ints idx(6, kUnwritten);
      ASSERT_EQ(query(new_xyz, xyz, least, most, 1, 2, idx), kOk) << turnoutLastError();
      EXPECT_EQ(idx, (Ints{2, 2, 3, 3, kUnwritten, kUnwritten}));
    }
  }
}

TEST_F(CPoints, BallQueryOfABatchIsTheOperator) {
  constexpr std::int64_t kBatch = 2, kQueries = 70, kPoints = 200;
  constexpr int kSamples = 5;
  const Floats xyz = rounded(cloud(kBatch * kPoints)), new_xyz = rounded(cloud(kBatch * kQueries));
  Ints expected(kBatch * kQueries * kSamples), found(kBatch * kQueries);
  ball_query(view(xyz.data(), {kBatch, kPoints, 3}), view(new_xyz.data(), {kBatch, kQueries, 3}),
             view(expected.data(), {kBatch, kQueries, kSamples}), view(found.data(), {kBatch, kQueries}),
             0.9f, 0.3f);
  std::size_t without = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (found[i / kSamples] == 0) expected[i] = kUnwritten, ++without;
  ASSERT_GT(without, 0u);
  ASSERT_LT(without, expected.size());
  Ints idx(expected.size(), kUnwritten);
  ASSERT_EQ(query(new_xyz, xyz, 0.3f, 0.9f, kBatch, kSamples, idx), kOk) << turnoutLastError();
  EXPECT_EQ(idx, expected);
  Ints of_halves(expected.size(), kUnwritten);
  ASSERT_EQ(query(halves(new_xyz), halves(xyz), 0.3f, 0.9f, kBatch, kSamples, of_halves), kOk);
  EXPECT_EQ(of_halves, expected);
}

TEST_F(CPoints, BallQueryRefusesAnEmptyBatchButNotAnEmptyCloud) {
  Ints idx(3, kUnwritten);
  EXPECT_EQ(query<float>({0, 0, 0}, {}, 0, 1, 1, 3, idx), kOk) << turnoutLastError();
  EXPECT_EQ(query<float>({}, {0, 0, 0}, 0, 1, 1, 3, idx), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpBallQuery: new_xyz has shape [1, 0, 3], expected at least one element");
  EXPECT_EQ(idx, Ints(3, kUnwritten));
}

TEST_F(CPoints, ThreeNNOfAFewPoints) {
  Floats dist2(6, -1);
  Ints idx(6, kUnwritten);
  ASSERT_EQ(nearest<float>({0, 0, 0, 3, 0, 0}, {4, 0, 0, 1, 0, 0}, 1, dist2, idx), kOk) << turnoutLastError();
  EXPECT_EQ(dist2, (Floats{1, 16, kInf, 1, 4, kInf}));
  EXPECT_EQ(idx, (Ints{1, 0, 0, 0, 1, 0}));
}

TEST_F(CPoints, ThreeNNOfABatchIsTheOperator) {
  constexpr std::int64_t kBatch = 2, kQueries = 90, kPoints = 130;
  const Floats unknown = rounded(cloud(kBatch * kQueries)), known = rounded(cloud(kBatch * kPoints));
  Floats expected(unknown.size()), dist2(unknown.size(), -1);
  Ints rows(unknown.size()), idx(unknown.size(), kUnwritten);
  three_nn(view(unknown.data(), {kBatch, kQueries, 3}), view(known.data(), {kBatch, kPoints, 3}),
           view(expected.data(), {kBatch, kQueries, 3}), view(rows.data(), {kBatch, kQueries, 3}));
  ASSERT_EQ(nearest(unknown, known, kBatch, dist2, idx), kOk) << turnoutLastError();
  EXPECT_EQ(dist2, expected);
  EXPECT_EQ(idx, rows);
  Halves of_halves(unknown.size());
  Ints rows_of_halves(unknown.size(), kUnwritten);
  ASSERT_EQ(nearest(halves(unknown), halves(known), kBatch, of_halves, rows_of_halves), kOk);
  EXPECT_EQ(bits(of_halves), bits(halves(expected)));
  EXPECT_EQ(rows_of_halves, rows);
}

// Squares that exceed the largest half become infinite only when they are rounded.
TEST_F(CPoints, ThreeNNOfHalvesIsComputedInFloat) {
  Halves dist2(3);
  Ints idx(3, kUnwritten);
  ASSERT_EQ(nearest(halves({0, 0, 0}), halves({600, 0, 0, 400, 0, 0, 500, 0, 0}), 1, dist2, idx), kOk);
  EXPECT_EQ(bits(dist2), bits(halves({kInf, kInf, kInf})));
  EXPECT_EQ(idx, (Ints{1, 2, 0}));
}

TEST_F(CPoints, ThreeNNRefusesNoQueriesButNotAnEmptyCloud) {
  Floats dist2(3, -1), none;
  Ints idx(3, kUnwritten), no_rows;
  EXPECT_EQ(nearest<float>({0, 0, 0}, {}, 1, dist2, idx), kOk) << turnoutLastError();
  EXPECT_EQ(dist2, Floats(3, -1));
  EXPECT_EQ(idx, Ints(3, kUnwritten));
  EXPECT_EQ(nearest<float>({}, {0, 0, 0}, 1, none, no_rows), kBad);
}

// The workspace is not used, so it may be too small, or be memory of a tensor.
TEST_F(CPoints, ThreeNNDoesNotWriteToTheWorkspace) {
  Floats unknown = {0, 0, 0}, dist2(3, -1);
  const Floats known = {1, 0, 0, 2, 0, 0, 3, 0, 0};
  Ints idx(3, kUnwritten);
  std::vector<char> workspace(1 << 12, 'x');
  const Descriptor one(MLUOP_DTYPE_FLOAT, {1, 1, 3}), three(MLUOP_DTYPE_FLOAT, {1, 3, 3}),
      rows(MLUOP_DTYPE_INT32, {1, 1, 3});
  ASSERT_EQ(mluOpThreeNNForward(handle, one, unknown.data(), three, known.data(), workspace.data(),
                                workspace.size(), one, dist2.data(), rows, idx.data()),
            kOk)
      << turnoutLastError();
  EXPECT_EQ(workspace, std::vector<char>(workspace.size(), 'x'));
  EXPECT_EQ(dist2, (Floats{1, 4, 9}));
}

}  // namespace
}  // namespace turnout::test
