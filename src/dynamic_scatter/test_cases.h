// Patterns of points, and calls on guarded memory compared with the definition.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "dynamic_scatter/scatter_case.h"
#include "guarded.h"
#include "isas.h"

namespace turnout::test {

enum class Pattern {
  random,
  few_voxels,
  one_voxel,
  all_different,
  sorted,
  some_invalid,
  all_invalid,
  far_apart,      // too far to be packed into 64 bits, with 64-bit coordinates or in 4 dimensions
  half_far_apart  // one dimension of them
};
inline constexpr Pattern kPatterns[] = {Pattern::random,        Pattern::few_voxels, Pattern::one_voxel,
                                        Pattern::all_different, Pattern::sorted,     Pattern::some_invalid,
                                        Pattern::all_invalid,   Pattern::far_apart,  Pattern::half_far_apart};

// One of 40 values, for many ties, with both zeros, infinities and NaN.
template <class T>
T feature(std::uint64_t r) {
  using Lane = LaneOf<T>;
  constexpr Lane kInfinity = std::numeric_limits<Lane>::infinity();
  const Lane special[] = {0, -Lane(0), kInfinity, -kInfinity, std::numeric_limits<Lane>::quiet_NaN()};
  r %= 40;
  return rounded<T>(r < 5 ? special[r] : static_cast<Lane>(r) / 8 - 3);
}

template <class T, class Index>
ScatterCase<T, Index> make_case(Pattern pattern, std::int64_t points, std::int64_t channels,
                                std::int64_t dims, unsigned seed) {
  constexpr std::int64_t kLast = std::numeric_limits<Index>::max(),
                         kFirst = std::numeric_limits<Index>::min();
  ScatterCase<T, Index> c{points, channels, dims};
  std::mt19937_64 random(seed);
  const std::uint64_t cells = pattern == Pattern::few_voxels ? 2 : pattern == Pattern::one_voxel ? 1 : 9;
  for (std::int64_t x = 0; x < points; ++x) {
    for (std::int64_t d = 0; d < dims; ++d) {
      auto value = static_cast<std::int64_t>(random() % cells);
      const bool is_last = d == dims - 1;
      if (pattern == Pattern::all_different && is_last) value = x * 7919 % 100003;
      if (pattern == Pattern::sorted) value = d == 0 ? x / 3 : 0;
      if (pattern == Pattern::some_invalid && random() % 4 == 0) value = random() % 2 == 0 ? -1 : kFirst;
      if (pattern == Pattern::all_invalid && is_last) value = -1 - value;
      if (pattern == Pattern::far_apart || (pattern == Pattern::half_far_apart && is_last))
        value = random() % 2 == 0 ? value : kLast - value % 3;
      c.coors.push_back(static_cast<Index>(value));
    }
    for (std::int64_t j = 0; j < channels; ++j) c.feats.push_back(feature<T>(random()));
  }
  return c;
}

template <class T>
void expect_same(Guarded<T>& actual, const std::vector<T>& expected, const char* what) {
  ASSERT_EQ(actual.size(), static_cast<std::int64_t>(expected.size())) << what;
  EXPECT_EQ(first_difference(actual.data(), expected), -1) << what;
}

// How a case is called: results begin `offset` elements after a cache line, with `spare` additional rows.
struct How {
  std::vector<Isa> isas = supported_isas();
  std::vector<int> threads = {1, 2, 3};
  std::int64_t offset = 1, spare = 2;
};

// Arguments of backward in addition to the results of forward: gradients of every kind, and voxel_feats with
// some values that no point has.
template <class T>
struct Given {
  std::vector<T> grad, voxel_feats;

  explicit Given(const std::vector<T>& reduced) : voxel_feats(reduced) {
    std::mt19937_64 random(7);
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      grad.push_back(feature<T>(random()));
      if (i % 5 == 4) voxel_feats[i] = rounded<T>(77);
    }
  }
};

// Compares all results, in one step and through an index.
template <class T, class Index, class Map = std::int32_t>
void compare(const ScatterCase<T, Index>& c, const std::string& name, const How& how = {}) {
  const auto all = c.voxels();
  const auto found = static_cast<std::int64_t>(all.size()), room = found + how.spare;
  for (const Reduce reduce_type : kReductions) {
    const auto expected = c.template expected_forward<Map>(all, reduce_type, room);
    const Given<T> given(expected.voxel_feats);
    const auto grads =
        c.expected_backward(given.grad, given.voxel_feats, expected.map, expected.count, reduce_type);
    for (const Isa isa : how.isas) {
      for (const int threads : how.threads) {
        SCOPED_TRACE(testing::Message() << name << ", reduce " << static_cast<int>(reduce_type) << ", "
                                        << name_of(isa) << ", threads " << threads);
        Context context({.threads = threads, .isa = isa});
        Guarded<T> voxel_feats(room * c.channels, how.offset), grad_feats(c.points * c.channels, how.offset);
        Guarded<Index> voxel_coors(room * c.dims, how.offset);
        Guarded<Map> map(c.points, how.offset), count(room, how.offset);
        std::fill_n(voxel_feats.data(), voxel_feats.size(), rounded<T>(kOld));
        std::fill_n(grad_feats.data(), grad_feats.size(), rounded<T>(kOld));
        std::fill_n(voxel_coors.data(), voxel_coors.size(), Index{kOld});
        std::fill_n(count.data(), count.size(), Map{kOld});
        const auto expect_forward = [&] {
          expect_same(voxel_feats, expected.voxel_feats, "voxel_feats");
          expect_same(voxel_coors, expected.voxel_coors, "voxel_coors");
          expect_same(map, expected.map, "point2voxel_map");
          expect_same(count, expected.count, "voxel_points_count");
        };
        EXPECT_EQ(c.template forward<Map>(context, reduce_type, room,
                                          {voxel_feats.data(), voxel_coors.data(), map.data(), count.data()}),
                  found);
        expect_forward();
        c.backward(context, given.grad, given.voxel_feats, expected.map, expected.count, reduce_type,
                   grad_feats.data());
        expect_same(grad_feats, grads, "grad_feats");

        const VoxelIndex index(c.coors_view(), context);
        EXPECT_EQ(index.points(), c.points);
        ASSERT_EQ(index.voxels(), found);
        std::fill_n(voxel_feats.data(), found * c.channels, rounded<T>(kOld));
        std::fill_n(voxel_coors.data(), found * c.dims, Index{kOld});
        std::fill_n(map.data(), map.size(), Map{kOld});
        std::fill_n(count.data(), found, Map{kOld});
        std::fill_n(grad_feats.data(), grad_feats.size(), rounded<T>(kOld));
        const ConstTensor feats = c.feats_view(),
                          wanted = view(given.voxel_feats.data(), {found, c.channels});
        index.reduce(feats, view(voxel_feats.data(), {found, c.channels}), reduce_type);
        index.write(view(voxel_coors.data(), {found, c.dims}), view(map.data(), {c.points}),
                    view(count.data(), {found}));
        expect_forward();
        Guarded<Map> first_point(found, how.offset);
        std::vector<Map> first_expected;
        for (const auto& [coors, points] : all) first_expected.push_back(static_cast<Map>(points[0]));
        index.first_points(view(first_point.data(), {found}));
        expect_same(first_point, first_expected, "first_point");
        index.reduce_backward(view(given.grad.data(), {found, c.channels}), feats, wanted,
                              view(grad_feats.data(), {c.points, c.channels}), reduce_type);
        expect_same(grad_feats, grads, "grad_feats of the index");
        if (testing::Test::HasFailure()) return;  // one message, not thousands
      }
    }
  }
}

}  // namespace turnout::test
