// RoI pooling through the C interface: examples that can be checked by hand, the C++ operators and the
// definitions, half tensors, and memory that must not change.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "c_descriptors.h"
#include "last_log_line.h"
#include "roi_pooling/reference.h"
#include "simd/half.h"
#include "turnout/roi_pooling.h"

namespace turnout::test {
namespace {

using Floats = std::vector<float>;
using Halves = std::vector<f16>;
using Ints = std::vector<std::int32_t>;
constexpr std::int32_t kUnwritten = 77;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
enum { kMax, kAvg };

Halves halves(const Floats& values) {
  Halves made;
  for (float value : values) made.push_back(core::from_float<f16>(value));
  return made;
}
Floats floats(const Halves& values) {
  Floats made;
  for (f16 value : values) made.push_back(core::to_float(value));
  return made;
}
Floats rounded(const Floats& values) { return floats(halves(values)); }

template <class T>
Descriptor described(const std::vector<std::int64_t>& shape) {
  return Descriptor(std::is_same_v<T, f16>     ? MLUOP_DTYPE_HALF
                    : std::is_same_v<T, float> ? MLUOP_DTYPE_FLOAT
                                               : MLUOP_DTYPE_INT32,
                    shape);
}

struct Sizes {
  int boxes = 1, points = 1, channels = 1, entries = 4, x = 1, y = 1, z = 1;
  std::int64_t cells() const { return std::int64_t{1} * boxes * x * y * z; }
};
template <class T>
struct Scene {
  Sizes n;
  std::vector<T> rois, points, features;
};
template <class T>
struct Pooled {
  std::vector<T> features;
  Ints argmax, lists;

  explicit Pooled(const Sizes& n)
      : features(static_cast<std::size_t>(n.cells() * n.channels), T{kUnwritten}),
        argmax(features.size(), kUnwritten),
        lists(static_cast<std::size_t>(n.cells() * n.entries), kUnwritten) {}
};

// A box of 4 x 2 x 2 whose bottom is at 0, in 2 x 1 x 1 cells: two points in the left half, one in the right.
Scene<float> two_halves(const Floats& features) {
  return {{.points = 5, .x = 2},
          {0, 0, 0, 4, 2, 2, 0},
          {-1, 0, 0, -1.5f, 0.5f, 2, 1, 0, 1, 3, 0, 1, 1, 0, -0.5f},
          features};
}

class CRoiPooling : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  template <class T>
  mluOpStatus_t pool(int method, const Scene<T>& scene, Pooled<T>& to, bool has_argmax = true,
                     decltype(&mluOpRoiAwarePool3dForward) function = mluOpRoiAwarePool3dForward) {
    const Sizes& n = scene.n;
    const Descriptor rois = described<T>({n.boxes, 7}), points = described<T>({n.points, 3}),
                     features = described<T>({n.points, n.channels}),
                     argmax = described<std::int32_t>({n.boxes, n.x, n.y, n.z, n.channels}),
                     lists = described<std::int32_t>({n.boxes, n.x, n.y, n.z, n.entries}),
                     pooled = described<T>({n.boxes, n.x, n.y, n.z, n.channels});
    std::size_t size = 1;
    EXPECT_EQ(mluOpGetRoiAwarePool3dForwardWorkspaceSize(handle, rois, points, features, &size), kOk);
    return function(handle, method, n.boxes, n.points, n.channels, rois, scene.rois.data(), points,
                    scene.points.data(), features, scene.features.data(), nullptr, size, n.entries, n.x, n.y,
                    n.z, argmax.when(has_argmax), to.argmax.data(), lists, to.lists.data(), pooled,
                    to.features.data());
  }
  template <class T>
  mluOpStatus_t gradient(int method, const Sizes& n, const Pooled<T>& from, const std::vector<T>& grad_out,
                         std::vector<T>& grad_in,
                         decltype(&mluOpRoiAwarePool3dBackward) function = mluOpRoiAwarePool3dBackward) {
    const Descriptor lists = described<std::int32_t>({n.boxes, n.x, n.y, n.z, n.entries}),
                     argmax = described<std::int32_t>({n.boxes, n.x, n.y, n.z, n.channels}),
                     out = described<T>({n.boxes, n.x, n.y, n.z, n.channels}),
                     in = described<T>({n.points, n.channels});
    return function(handle, method, n.boxes, n.x, n.y, n.z, n.channels, n.entries, lists, from.lists.data(),
                    argmax, from.argmax.data(), out, grad_out.data(), in, grad_in.data());
  }
  Scene<float> random_scene(const Sizes& n) {
    std::uniform_real_distribution<float> uniform(-5, 5), extent(2, 8);
    Scene<float> scene{n, {}, {}, {}};
    for (int i = 0; i < 7 * n.boxes; ++i)
      scene.rois.push_back(i % 7 >= 3 && i % 7 < 6 ? extent(random) : uniform(random));
    for (int i = 0; i < 3 * n.points; ++i) scene.points.push_back(uniform(random));
    for (int i = 0; i < n.channels * n.points; ++i) scene.features.push_back(uniform(random));
    for (Floats* one : {&scene.rois, &scene.points, &scene.features}) *one = rounded(*one);
    return scene;
  }
  template <class T>
  mluOpStatus_t sample(const std::vector<T>& points, const std::vector<T>& features,
                       const std::vector<T>& boxes, int batch, int samples, std::vector<T>& pooled,
                       Ints& empty) {
    const int count = static_cast<int>(points.size()) / 3 / batch,
              box_count = static_cast<int>(boxes.size()) / 7 / batch,
              channels = count == 0 ? 1 : static_cast<int>(features.size()) / count / batch;
    const Descriptor points_desc = described<T>({batch, count, 3}),
                     features_desc = described<T>({batch, count, channels}),
                     boxes_desc = described<T>({batch, box_count, 7}),
                     pooled_desc = described<T>({batch, box_count, samples, channels + 3}),
                     empty_desc = described<std::int32_t>({batch, box_count});
    std::size_t size = 1;
    const mluOpStatus_t status =
        mluOpGetRoiPointPool3dWorkspaceSize(handle, batch, count, box_count, channels, samples, points_desc,
                                            features_desc, boxes_desc, pooled_desc, empty_desc, &size);
    const mluOpStatus_t its_status =
        mluOpRoiPointPool3d(handle, batch, count, box_count, channels, samples, points_desc, points.data(),
                            features_desc, features.data(), boxes_desc, boxes.data(), nullptr,
                            status == kOk ? size : 0, pooled_desc, pooled.data(), empty_desc, empty.data());
    EXPECT_EQ(status, its_status) << turnoutLastError();
    return its_status;
  }

  mluOpHandle_t handle = nullptr;
  std::minstd_rand random{1};
};

TEST_F(CRoiPooling, MaximaOfTwoCells) {
  const Scene<float> scene = two_halves({1, 3, 5, 9, 9});
  Pooled<float> to(scene.n);
  ASSERT_EQ(pool(kMax, scene, to), kOk) << turnoutLastError();
  EXPECT_EQ(to.features, (Floats{3, 5}));
  EXPECT_EQ(to.argmax, (Ints{1, 2}));
  EXPECT_EQ(to.lists, (Ints{2, 0, 1, 0, 1, 2, 0, 0}));
  Floats grad(5, kUnwritten);
  ASSERT_EQ(gradient(kMax, scene.n, to, {1, 10}, grad), kOk) << turnoutLastError();
  EXPECT_EQ(grad, (Floats{0, 1, 10, 0, 0}));
}

TEST_F(CRoiPooling, MeansOfTwoCells) {
  const Scene<float> scene = two_halves({1, 3, 5, 9, 9});
  Pooled<float> to(scene.n);
  ASSERT_EQ(pool(kAvg, scene, to), kOk) << turnoutLastError();
  EXPECT_EQ(to.features, (Floats{2, 5}));
  EXPECT_EQ(to.argmax, (Ints{0, 0}));
  EXPECT_EQ(to.lists, (Ints{2, 0, 1, 0, 1, 2, 0, 0}));
  Floats grad(5, kUnwritten);
  ASSERT_EQ(gradient(kAvg, scene.n, to, {1, 10}, grad), kOk) << turnoutLastError();
  EXPECT_EQ(grad, (Floats{0.5f, 0.5f, 10, 0, 0}));
}

TEST_F(CRoiPooling, ArgmaxIsNotNeededForMeans) {
  const Scene<float> scene = two_halves({1, 3, 5, 9, 9});
  Pooled<float> to(scene.n);
  ASSERT_EQ(pool(kAvg, scene, to, /*has_argmax=*/false), kOk) << turnoutLastError();
  EXPECT_EQ(to.features, (Floats{2, 5}));
  EXPECT_EQ(to.argmax, Ints(2, kUnwritten));
  EXPECT_EQ(pool(kMax, scene, to, /*has_argmax=*/false), kBad);
  EXPECT_STREQ(turnoutLastError(), "mluOpRoiAwarePool3dForward: argmax is missing");
}

// Its shape and dtype are not checked, and all of its elements are set.
TEST_F(CRoiPooling, ArgmaxOfMeansMayHaveAnyShape) {
  const Scene<float> scene = two_halves({1, 3, 5, 9, 9});
  Pooled<float> to(scene.n);
  const Descriptor rois = described<float>({1, 7}), points = described<float>({5, 3}),
                   features = described<float>({5, 1}), lists = described<std::int32_t>({1, 2, 1, 1, 4}),
                   pooled = described<float>({1, 2, 1, 1, 1});
  const auto run = [&](const Descriptor& argmax, void* data) {
    return mluOpRoiAwarePool3dForward(handle, kAvg, 1, 5, 1, rois, scene.rois.data(), points,
                                      scene.points.data(), features, scene.features.data(), nullptr, 0, 4, 2,
                                      1, 1, argmax, data, lists, to.lists.data(), pooled, to.features.data());
  };
  std::vector<std::int16_t> argmax(7, kUnwritten);
  ASSERT_EQ(run(Descriptor(MLUOP_DTYPE_INT16, {2, 3}), argmax.data()), kOk) << turnoutLastError();
  EXPECT_EQ(argmax, (std::vector<std::int16_t>{0, 0, 0, 0, 0, 0, kUnwritten}));
  ASSERT_EQ(run(Descriptor(MLUOP_DTYPE_INT16, {2, -3}), argmax.data()), kOk) << turnoutLastError();
  ASSERT_EQ(run(Descriptor(MLUOP_DTYPE_INT16, {2, 3}), nullptr), kOk) << turnoutLastError();
  EXPECT_EQ(run(Descriptor(MLUOP_DTYPE_INT16, {2, 3}, {6, 2}), argmax.data()), kUnsupported);
  EXPECT_EQ(run(Descriptor(MLUOP_DTYPE_FLOAT, {1}), to.features.data()), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpRoiAwarePool3dForward: argmax overlaps pooled_features in memory, expected separate "
               "buffers");
}

TEST_F(CRoiPooling, NumbersThatNeverAreTheLargest) {
  const Scene<float> scene = two_halves({kNan, -3, -kInf, 9, 9});
  Pooled<float> to(scene.n);
  ASSERT_EQ(pool(kMax, scene, to), kOk) << turnoutLastError();
  EXPECT_EQ(to.features, (Floats{-3, 0}));
  EXPECT_EQ(to.argmax, (Ints{1, -1}));
  Floats grad(5, kUnwritten);
  ASSERT_EQ(gradient(kMax, scene.n, to, {1, 10}, grad), kOk);
  EXPECT_EQ(grad, (Floats{0, 1, 0, 0, 0}));
}

// A list has room for one point less than its length.
TEST_F(CRoiPooling, ShortLists) {
  Scene<float> scene = two_halves({1, 3, 5, 9, 9});
  for (int method : {kMax, kAvg}) {
    scene.n.entries = 2;
    Pooled<float> one(scene.n);
    ASSERT_EQ(pool(method, scene, one), kOk) << turnoutLastError();
    EXPECT_EQ(one.features, (Floats{1, 5}));
    EXPECT_EQ(one.lists, (Ints{1, 0, 1, 2}));
    scene.n.entries = 1;
    Pooled<float> none(scene.n);
    ASSERT_EQ(pool(method, scene, none), kOk) << turnoutLastError();
    EXPECT_EQ(none.features, (Floats{0, 0}));
    EXPECT_EQ(none.lists, (Ints{0, 0}));
    EXPECT_EQ(none.argmax, Ints(2, method == kMax ? -1 : 0));
    Floats grad(5, kUnwritten);
    ASSERT_EQ(gradient(method, scene.n, none, {1, 10}, grad), kOk) << turnoutLastError();
    EXPECT_EQ(grad, Floats(5, 0));
  }
}

TEST_F(CRoiPooling, ResultsAreThoseOfTheOperators) {
  for (const Sizes& n :
       {Sizes{.boxes = 6, .points = 400, .channels = 5, .entries = 9, .x = 3, .y = 2, .z = 4},
        Sizes{.boxes = 40, .points = 3000, .channels = 150, .entries = 17, .x = 4, .y = 4, .z = 3}})
    for (int method : {kMax, kAvg}) {
      const Scene<float> scene = random_scene(n);
      const auto pool_method = static_cast<PoolMethod>(method);
      const std::int64_t out_size[] = {n.x, n.y, n.z}, cells = n.cells() / n.boxes;
      const ConstTensor rois = view(scene.rois.data(), {n.boxes, 7}),
                        points = view(scene.points.data(), {n.points, 3}),
                        features = view(scene.features.data(), {n.points, n.channels});
      Pooled<float> to(n), expected(n);
      roiaware_pool3d(rois, points, features, view(expected.features.data(), {n.boxes, cells, n.channels}),
                      out_size, n.entries - 1, pool_method, BoxZ::bottom, 0);
      std::int64_t listed = 0;
      definition::for_roi_cells(rois, points, out_size, n.entries - 1, BoxZ::bottom, 0,
                                [&](std::int64_t cell, const std::vector<std::int64_t>& list) {
                                  const auto its_list = static_cast<std::size_t>(cell * n.entries);
                                  std::fill_n(expected.lists.begin() + cell * n.entries, n.entries, 0);
                                  expected.lists[its_list] = static_cast<std::int32_t>(list.size());
                                  for (std::size_t i = 0; i < list.size(); ++i)
                                    expected.lists[its_list + 1 + i] = static_cast<std::int32_t>(list[i]);
                                  for (std::int64_t c = 0; c < n.channels; ++c)
                                    expected.argmax[static_cast<std::size_t>(cell * n.channels + c)] =
                                        method == kAvg ? 0
                                                       : static_cast<std::int32_t>(definition::first_maximum(
                                                             scene.features.data(), n.channels, c, list));
                                  listed += static_cast<std::int64_t>(list.size());
                                });
      ASSERT_GT(listed, n.boxes);
      ASSERT_EQ(pool(method, scene, to), kOk) << turnoutLastError();
      EXPECT_EQ(to.features, expected.features);
      EXPECT_EQ(to.lists, expected.lists);
      EXPECT_EQ(to.argmax, expected.argmax);

      Floats grad_out;
      for (std::size_t i = 0; i < to.features.size(); ++i)
        grad_out.push_back(static_cast<float>(static_cast<int>(random() % 65) - 32) / 8);
      Floats expected_grad(scene.features.size()), grad(scene.features.size(), kUnwritten);
      roiaware_pool3d_backward(view(grad_out.data(), {n.boxes, cells, n.channels}), rois, points, features,
                               view(expected_grad.data(), {n.points, n.channels}), out_size, n.entries - 1,
                               pool_method, BoxZ::bottom, 0);
      ASSERT_EQ(gradient(method, n, to, grad_out, grad), kOk) << turnoutLastError();
      EXPECT_EQ(grad, expected_grad);

      const Scene<f16> small{n, halves(scene.rois), halves(scene.points), halves(scene.features)};
      Pooled<f16> of_halves(n);
      ASSERT_EQ(pool(method, small, of_halves), kOk) << turnoutLastError();
      EXPECT_EQ(floats(of_halves.features), rounded(expected.features));
      EXPECT_EQ(of_halves.lists, expected.lists);
      EXPECT_EQ(of_halves.argmax, expected.argmax);
      Halves grad_of_halves(grad.size());
      ASSERT_EQ(gradient(method, n, of_halves, halves(grad_out), grad_of_halves), kOk) << turnoutLastError();
      EXPECT_EQ(floats(grad_of_halves), rounded(expected_grad));
    }
}

TEST_F(CRoiPooling, GradientsRefusePointsThatDoNotExist) {
  const Sizes n{.points = 3, .channels = 2, .x = 2};
  Pooled<float> from(n);
  Floats grad(6, kUnwritten);
  const Floats grad_out(4, 1);
  from.argmax = {0, -1, 2, 3};
  EXPECT_EQ(gradient(kMax, n, from, grad_out, grad), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpRoiAwarePool3dBackward: argmax[0, 1, 0, 0, 1] is 3, expected -1 .. 2");
  from.argmax = {0, -2, 2, 3};
  EXPECT_EQ(gradient(kMax, n, from, grad_out, grad), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpRoiAwarePool3dBackward: argmax[0, 0, 0, 0, 1] is -2, expected -1 .. 2");
  from.lists = {0, 99, 99, 99, 2, 2, -1, 99};
  EXPECT_EQ(gradient(kAvg, n, from, grad_out, grad), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpRoiAwarePool3dBackward: pts_idx_of_voxels[0, 1, 0, 0, 2] is -1, expected 0 .. 2");
  for (std::int32_t count : {4, -1}) {
    from.lists[4] = count;
    EXPECT_EQ(gradient(kAvg, n, from, grad_out, grad), kBad);
    EXPECT_EQ(turnoutLastError(), "mluOpRoiAwarePool3dBackward: pts_idx_of_voxels[0, 1, 0, 0, 0] is " +
                                      std::to_string(count) + ", expected 0 .. 3");
  }
  EXPECT_EQ(grad, Floats(6, kUnwritten));
  from.lists = {0, 99, 99, 99, 2, 2, 0, 99};  // what follows the points of a list is not read
  ASSERT_EQ(gradient(kAvg, n, from, grad_out, grad), kOk) << turnoutLastError();
  EXPECT_EQ(grad, (Floats{0.5f, 0.5f, 0, 0, 0.5f, 0.5f}));
}

TEST_F(CRoiPooling, DeprecatedSpellingsForwardAndAreLoggedOnce) {
  const Scene<float> scene = two_halves({1, 3, 5, 9, 9});
  Pooled<float> to(scene.n);
  Floats grad(5, kUnwritten);
  std::size_t size = 7;
  const Descriptor features = described<float>({5, 1});
  for (int extra : {1, 0}) {
    const auto log_of = [&](const auto& call) {
      const LastLogLine line;
      EXPECT_EQ(call(), kOk) << turnoutLastError();
      return line.count();
    };
    EXPECT_EQ(log_of([&] { return pool(kMax, scene, to, true, mluOpRoiawarePool3dForward); }), 1 + extra);
    EXPECT_EQ(log_of([&] {
                return gradient(kMax, scene.n, to, {1, 10}, grad, mluOpRoiawarePool3dBackward);
              }),
              1 + extra);
    EXPECT_EQ(log_of([&] {
                return mluOpGetRoiawarePool3dForwardWorkspaceSize(handle, nullptr, nullptr, features, &size);
              }),
              extra);
  }
  EXPECT_EQ(to.features, (Floats{3, 5}));
  EXPECT_EQ(grad, (Floats{0, 1, 10, 0, 0}));
  EXPECT_EQ(size, 0u);
}

TEST_F(CRoiPooling, SamplesRepeatPointsAndMarkEmptyBoxes) {
  const Floats points = {9, 9, 9, 0.5f, 0, 0, -0.5f, 0, 2, 0, 0, -0.5f}, features = {1, 2, 3, 4};
  const Floats boxes = {0, 0, 0, 2, 2, 2, 0, 50, 0, 0, 2, 2, 2, 0};  // z is the bottom
  Floats pooled(2 * 5 * 4, kUnwritten);
  Ints empty(2, kUnwritten);
  ASSERT_EQ(sample(points, features, boxes, 1, 5, pooled, empty), kOk) << turnoutLastError();
  Floats expected;
  for (int s = 0; s < 5; ++s)
    for (const float v : {s % 2 == 0 ? 0.5f : -0.5f, 0.f, s % 2 == 0 ? 0.f : 2.f, s % 2 == 0 ? 2.f : 3.f})
      expected.push_back(v);
  expected.resize(40, 0.f);
  EXPECT_EQ(pooled, expected);
  EXPECT_EQ(empty, (Ints{0, 1}));
}

TEST_F(CRoiPooling, SamplesAreThoseOfTheOperator) {
  constexpr int kBatch = 2, kPoints = 300, kBoxes = 9, kSamples = 12, kChannels = 6;
  const Scene<float> scene =
      random_scene({.boxes = kBatch * kBoxes, .points = kBatch * kPoints, .channels = kChannels});
  Floats expected(kBatch * kBoxes * kSamples * (kChannels + 3)), pooled(expected.size(), kUnwritten);
  Ints expected_empty(kBatch * kBoxes), empty(kBatch * kBoxes, kUnwritten);
  roipoint_pool3d(view(scene.points.data(), {kBatch, kPoints, 3}),
                  view(scene.features.data(), {kBatch, kPoints, kChannels}),
                  view(scene.rois.data(), {kBatch, kBoxes, 7}),
                  view(expected.data(), {kBatch, kBoxes, kSamples, kChannels + 3}),
                  view(expected_empty.data(), {kBatch, kBoxes}), BoxZ::bottom, 0);
  ASSERT_EQ(sample(scene.points, scene.features, scene.rois, kBatch, kSamples, pooled, empty), kOk)
      << turnoutLastError();
  EXPECT_EQ(pooled, expected);
  EXPECT_EQ(empty, expected_empty);
  Halves of_halves(expected.size());
  empty.assign(empty.size(), kUnwritten);
  ASSERT_EQ(sample(halves(scene.points), halves(scene.features), halves(scene.rois), kBatch, kSamples,
                   of_halves, empty),
            kOk)
      << turnoutLastError();
  EXPECT_EQ(floats(of_halves), expected);
  EXPECT_EQ(empty, expected_empty);
}

TEST_F(CRoiPooling, SamplesRefuseEveryEmptyTensor) {
  Floats pooled(8, kUnwritten);
  Ints empty(1, kUnwritten);
  const Floats point(3), feature(1), box(7), none;
  EXPECT_EQ(sample(none, none, box, 1, 2, pooled, empty), kBad);
  EXPECT_EQ(sample(point, none, box, 1, 2, pooled, empty), kBad);
  EXPECT_EQ(sample(point, feature, none, 1, 2, pooled, empty), kBad);
  EXPECT_EQ(sample(point, feature, box, 1, 0, pooled, empty), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpRoiPointPool3d: pooled_features has shape [1, 1, 0, 4], expected at least one element");
  EXPECT_EQ(pooled, Floats(8, kUnwritten));
  EXPECT_EQ(empty, Ints(1, kUnwritten));
}

}  // namespace
}  // namespace turnout::test
