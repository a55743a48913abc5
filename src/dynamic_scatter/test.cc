// dynamic_scatter against its definition: shapes x dtypes x ISA x threads x patterns, bit for bit.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "dynamic_scatter/scatter_case.h"
#include "isas.h"

namespace turnout::test {
namespace {

enum class Pattern {
  random,
  few_voxels,
  one_voxel,
  all_different,
  sorted,
  some_invalid,
  all_invalid,
  far_apart
};
constexpr Pattern kPatterns[] = {Pattern::random,        Pattern::few_voxels, Pattern::one_voxel,
                                 Pattern::all_different, Pattern::sorted,     Pattern::some_invalid,
                                 Pattern::all_invalid,   Pattern::far_apart};

template <class T, class Index>
ScatterCase<T, Index> make_case(Pattern pattern, std::int64_t points, std::int64_t channels,
                                std::int64_t dims, unsigned seed) {
  ScatterCase<T, Index> c{points, channels, dims};
  std::mt19937_64 random(seed);
  const std::int64_t cells = pattern == Pattern::few_voxels ? 2 : pattern == Pattern::one_voxel ? 1 : 9;
  for (std::int64_t x = 0; x < points; ++x) {
    for (std::int64_t d = 0; d < dims; ++d) {
      auto value = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(cells));
      if (pattern == Pattern::all_different && d == dims - 1) value = x * 7919 % 100003;
      if (pattern == Pattern::sorted) value = d == 0 ? x / 3 : 0;
      if (pattern == Pattern::some_invalid && random() % 4 == 0)
        value = random() % 2 == 0 ? -1 : std::numeric_limits<Index>::min();
      if (pattern == Pattern::all_invalid && d == dims - 1) value = -1 - value;
      if (pattern == Pattern::far_apart)
        value = random() % 2 == 0 ? value : std::numeric_limits<Index>::max() - value % 3;
      c.coors.push_back(static_cast<Index>(value));
    }
    for (std::int64_t j = 0; j < channels; ++j) {  // many ties, and what is not a number
      const auto r = random() % 40;
      const LaneOf<T> special[] = {0, -LaneOf<T>(0), std::numeric_limits<LaneOf<T>>::infinity(),
                                   -std::numeric_limits<LaneOf<T>>::infinity(),
                                   std::numeric_limits<LaneOf<T>>::quiet_NaN()};
      c.feats.push_back(rounded<T>(r < 5 ? special[r] : static_cast<LaneOf<T>>(r) / 8 - 3));
    }
  }
  return c;
}

// NaN has many bits; which of them a sum carries is nobody's business.
template <class T>
void expect_same(const std::vector<T>& actual, const std::vector<T>& expected, const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size()) << where;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if constexpr (!std::is_integral_v<T>) {
      const auto a = core::to_float(actual[i]), b = core::to_float(expected[i]);
      if (a != a && b != b) continue;
    }
    ASSERT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(T)), 0) << where << ", element " << i;
  }
}

template <class T, class Index>
void check(const ScatterCase<T, Index>& c, const std::string& name) {
  const auto found = static_cast<std::int64_t>(c.voxels().size());
  std::mt19937_64 random(7);
  for (const Reduce reduce_type : kReductions) {
    const std::int64_t room = found + 2;
    const auto expected = c.expected_forward(reduce_type, room);
    std::vector<T> grad;
    for (std::size_t i = 0; i < expected.voxel_feats.size(); ++i)
      grad.push_back(rounded<T>(static_cast<LaneOf<T>>(random() % 64) / 4 - 8));
    auto voxel_feats = expected.voxel_feats;  // some that no point has
    for (std::size_t i = 0; i < voxel_feats.size(); i += 5) voxel_feats[i] = rounded<T>(77);
    auto count = expected.count;
    const auto expected_grad = c.expected_backward(grad, voxel_feats, expected.map, count, reduce_type);
    for (const Isa isa : supported_isas()) {
      for (const int threads : {1, 2, 3}) {
        const std::string where = name + ", reduce " + std::to_string(static_cast<int>(reduce_type)) + ", " +
                                  name_of(isa) + ", threads " + std::to_string(threads);
        Context context({.threads = threads, .isa = isa});
        const auto r = c.forward(context, reduce_type, room);
        ASSERT_EQ(r.voxels, found) << where;
        expect_same(r.voxel_feats, expected.voxel_feats, where + ": voxel_feats");
        expect_same(r.voxel_coors, expected.voxel_coors, where + ": voxel_coors");
        expect_same(r.map, expected.map, where + ": point2voxel_map");
        expect_same(r.count, expected.count, where + ": voxel_points_count");
        expect_same(c.backward(context, grad, voxel_feats, expected.map, count, reduce_type), expected_grad,
                    where + ": grad_feats");
      }
    }
  }
}

template <class T, class Index>
void check_shapes() {
  for (const std::int64_t points : {0, 1, 7, 40, 333}) {
    for (const std::int64_t channels : {0, 1, 3, 4, 17, 64}) {
      for (const std::int64_t dims : {1, 3, 4}) {
        for (const Pattern pattern : kPatterns) {
          if (pattern != Pattern::random && (points < 40 || channels == 17)) continue;
          check(make_case<T, Index>(pattern, points, channels, dims, 3),
                std::to_string(points) + " x " + std::to_string(channels) + ", dims " + std::to_string(dims) +
                    ", pattern " + std::to_string(static_cast<int>(pattern)));
        }
      }
    }
  }
}

TEST(DynamicScatter, F32) { check_shapes<float, std::int32_t>(); }
TEST(DynamicScatter, F64) { check_shapes<double, std::int64_t>(); }
TEST(DynamicScatter, F16) { check_shapes<f16, std::int32_t>(); }
TEST(DynamicScatter, BF16) { check_shapes<bf16, std::int64_t>(); }

TEST(DynamicScatter, LargeEnoughForThreadsAndStreams) {
  check(make_case<float, std::int32_t>(Pattern::some_invalid, 40'000, 24, 4, 5), "large");
  check(make_case<float, std::int32_t>(Pattern::all_different, 70'000, 11, 1, 5), "all different");
  check(make_case<bf16, std::int32_t>(Pattern::far_apart, 40'000, 48, 3, 5), "far apart");
}

}  // namespace
}  // namespace turnout::test
