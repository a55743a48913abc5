// Tests that writes stay inside the outputs if coordinates, maps and counts change during a call.
#include <gtest/gtest.h>

#include <vector>

#include "guarded.h"
#include "racing.h"
#include "sanitizer.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

constexpr std::chrono::milliseconds kTime{200};
constexpr std::int64_t kPoints = 82'001;  // enough for several threads
const std::vector<std::int64_t> kPlaces = {0, 20'000, kPoints - 1};

template <class Index>
struct Gradient {
  static constexpr std::int64_t kVoxels = 4000, kChannels = 16;
  Guarded<float> grad_voxel_feats{kVoxels * kChannels}, voxel_feats{kVoxels * kChannels};
  Guarded<float> feats{kPoints * kChannels}, grad_feats{kPoints * kChannels};
  Guarded<Index> map{kPoints}, counts{kVoxels}, voxel_num{1};

  Gradient() {
    for (std::int64_t x = 0; x < kPoints; ++x) map[x] = static_cast<Index>(x * 7 % (kVoxels + 1) - 1);
    for (std::int64_t v = 0; v < kVoxels; ++v) counts[v] = 8;
    voxel_num[0] = kVoxels;
  }
  void call(Context& context, Reduce reduce_type) {
    const ConstTensor f = view(feats.data(), {kPoints, kChannels});
    const ConstTensor vf = view(voxel_feats.data(), {kVoxels, kChannels});
    const ConstTensor c = view(counts.data(), {kVoxels}), n = view(voxel_num.data(), {1});
    dynamic_scatter_backward(view(grad_voxel_feats.data(), {kVoxels, kChannels}), f, vf,
                             view(map.data(), {kPoints}), c, n, view(grad_feats.data(), {kPoints, kChannels}),
                             reduce_type, context);
  }
};

template <class Index>
void flip_maps() {
  for (const Reduce reduce_type : {Reduce::sum, Reduce::mean, Reduce::max}) {
    Gradient<Index> gradient;
    const auto call = [&](Context& context) { gradient.call(context, reduce_type); };
    flip_in_each_loop<Index>(gradient.map.data(), kPlaces, call);
    flip_in_each_loop<Index>(gradient.counts.data(), {0}, call);
    flip_in_each_loop<Index>(gradient.voxel_num.data(), {0}, call);
  }
}

TEST(DynamicScatterRaces, AMapThatChangesBetweenCheckAndUse) {
  if (kThreadSanitizer) GTEST_SKIP() << "the values change between loops, on one thread";
  expect_survives([] {
    flip_maps<std::int32_t>();
    flip_maps<std::int64_t>();
  });
}

template <class Index>
void race_map() {
  for (const Reduce reduce_type : {Reduce::mean, Reduce::max}) {
    Gradient<Index> gradient;
    Context context({.threads = 1});
    const Flipper<Index> of_map(gradient.map.data(), kPoints), of_num(gradient.voxel_num.data(), 1);
    call_for(kTime, [&] { gradient.call(context, reduce_type); });
  }
}

TEST(DynamicScatterRaces, AMapThatChangesAtAnyTime) {
  if (kThreadSanitizer) GTEST_SKIP() << "the race is the caller's";
  expect_survives([] {
    race_map<std::int32_t>();
    race_map<std::int64_t>();
  });
}

// A space of `extent` cells in each direction, which determines how points are grouped.
template <class Index>
struct Cloud {
  static constexpr std::int64_t kDims = 4;
  Guarded<Index> coors{kPoints * kDims}, voxel_coors{kPoints * kDims}, map{kPoints}, counts{kPoints};
  Guarded<float> feats{kPoints}, voxel_feats{kPoints};

  explicit Cloud(Index extent) {
    std::mt19937_64 random(1);
    for (std::int64_t i = 0; i < coors.size(); ++i)
      coors[i] = static_cast<Index>(random() % static_cast<std::uint64_t>(extent));
    for (std::int64_t x = 7; x < kPoints; x += 100) coors[x * kDims] = -1;
  }
  void call(Context& context) {
    dynamic_scatter_forward(view(feats.data(), {kPoints, 1}), view(coors.data(), {kPoints, kDims}),
                            view(voxel_feats.data(), {kPoints, 1}),
                            view(voxel_coors.data(), {kPoints, kDims}), view(map.data(), {kPoints}),
                            view(counts.data(), {kPoints}), Reduce::max, context);
  }
};

template <class Index>
void flip_coordinates(Index extent) {
  Cloud<Index> cloud(extent);
  flip_in_each_loop<Index>(
      cloud.coors.data(), {1, kPoints * 2 + 1, kPoints * 4 - 1},
      [&](Context& context) { cloud.call(context); }, /*most=*/3);
}

TEST(DynamicScatterRaces, CoordinatesThatChangeBetweenLoops) {
  if (kThreadSanitizer) GTEST_SKIP() << "the values change between loops, on one thread";
  expect_survives([] {
    flip_coordinates<std::int32_t>(20);  // ranked cells
    flip_coordinates<std::int64_t>(20);
    flip_coordinates<std::int32_t>(1000);  // sorted cells
    flip_coordinates<std::int64_t>(1000);
    flip_coordinates<std::int32_t>(std::numeric_limits<std::int32_t>::max());  // sorted rows
    flip_coordinates<std::int64_t>(std::numeric_limits<std::int64_t>::max());
  });
}

template <class Index>
void race_coordinates(Index extent) {
  Cloud<Index> cloud(extent);
  Context context({.threads = 1});
  const Flipper<Index> flipper(cloud.coors.data(), cloud.coors.size());
  call_for(kTime, [&] { cloud.call(context); });
}

TEST(DynamicScatterRaces, CoordinatesThatChangeAtAnyTime) {
  if (kThreadSanitizer) GTEST_SKIP() << "the race is the caller's";
  expect_survives([] {
    race_coordinates<std::int32_t>(20);
    race_coordinates<std::int32_t>(1000);
    race_coordinates<std::int32_t>(std::numeric_limits<std::int32_t>::max());
  });
}

}  // namespace
}  // namespace turnout::test
