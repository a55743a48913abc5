// Tests edge cases of legal calls, unusual environments, and several indexes at once.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "control_register.h"
#include "dynamic_scatter/test_cases.h"

namespace turnout::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Points with the coordinates given, one row after the other.
template <class T, class Index>
ScatterCase<T, Index> case_of(std::int64_t channels, std::int64_t dims, const std::vector<Index>& coors) {
  ScatterCase<T, Index> c{static_cast<std::int64_t>(coors.size()) / dims, channels, dims};
  c.coors = coors;
  for (std::int64_t i = 0; i < c.points * channels; ++i)
    c.feats.push_back(feature<T>(static_cast<std::uint64_t>(i * 13)));
  return c;
}

TEST(DynamicScatterCalls, OnePointOneChannel) {
  for (std::int64_t dims = 1; dims <= 4; ++dims) {
    for (const std::int32_t value : {0, 5, -1, 2147483647, -2147483647 - 1})
      compare(case_of<float>(1, dims, sized<std::int32_t>(dims, value)), std::to_string(value),
              {.threads = {1}});
  }
}

TEST(DynamicScatterCalls, OneVoxelOfEqualPoints) {
  ScatterCase<float, std::int32_t> c{100, 9, 2};
  c.coors = sized<std::int32_t>(200, 3);
  c.feats = sized<float>(900, 2.5f);
  compare(c, "equal");
  std::vector<float> grad_feats(900, kOld);
  Context context({.threads = 1});
  c.backward<std::int32_t>(context, std::vector<float>(9, 4), std::vector<float>(9, 2.5f),
                           std::vector<std::int32_t>(100, 0), {100}, Reduce::max, grad_feats.data());
  for (std::size_t i = 0; i < 900; ++i) ASSERT_EQ(grad_feats[i], i < 9 ? 4 : 0) << i;
}

template <class Index>
void compare_far_coordinates() {
  constexpr Index kMax = std::numeric_limits<Index>::max(), kMin = std::numeric_limits<Index>::min();
  for (std::int64_t dims = 1; dims <= 4; ++dims) {
    std::vector<Index> all_last = sized<Index>(3 * dims, kMax), ends, only_last;
    for (Index row = 0; row < 64; ++row)
      for (std::int64_t d = 0; d < dims; ++d) {
        ends.push_back((row >> d & 1) != 0 ? kMax - row % 2 : row % 3);
        only_last.push_back(d < dims - 1 ? kMax : row % 4 == 0 ? kMin : row % 4 == 1 ? Index{-1} : row % 4);
      }
    compare(case_of<float>(2, dims, all_last), "all last", {.threads = {1}});
    compare(case_of<float>(2, dims, ends), "both ends", {.threads = {1}});
    compare(case_of<float>(2, dims, only_last), "only the last is negative", {.threads = {1}});
  }
}

TEST(DynamicScatterCalls, CoordinatesUpToTheEnds) {
  compare_far_coordinates<std::int32_t>();
  compare_far_coordinates<std::int64_t>();
}

TEST(DynamicScatterCalls, NoVoxelAtAll) {
  compare(make_case<float, std::int32_t>(Pattern::all_invalid, 50, 6, 3, 1), "all invalid", {.spare = 0});
  compare(make_case<float, std::int32_t>(Pattern::all_invalid, 50, 6, 3, 1), "all invalid", {.spare = 50});
  // Without rows for voxels, the gradients of points in no voxel are zeros, for any reduction.
  const std::vector<std::int32_t> map(20, -1);
  for (const Reduce reduce_type : kReductions) {
    std::vector<float> feats(60), grad_feats(60, kOld);
    const ConstTensor f = view(feats.data(), {20, 3}), none(nullptr, DType::f32, {0, 3}),
                      count(nullptr, DType::i32, {0});
    dynamic_scatter_backward(none, f, none, view(map.data(), {20}), count, nullptr,
                             view(grad_feats.data(), {20, 3}), reduce_type);
    EXPECT_EQ(grad_feats, std::vector<float>(60));
  }
}

TEST(DynamicScatterCalls, NoPointsAndNoChannels) {
  for (const Reduce reduce_type : kReductions) {
    // Without points, additional rows are still filled.
    std::vector<float> voxel_feats(6, kOld);
    std::vector<std::int32_t> voxel_coors(6, kOld), count(2, kOld), map(4, kOld);
    EXPECT_EQ(dynamic_scatter_forward(ConstTensor(nullptr, DType::f32, {0, 3}),
                                      ConstTensor(nullptr, DType::i32, {0, 3}),
                                      view(voxel_feats.data(), {2, 3}), view(voxel_coors.data(), {2, 3}),
                                      Tensor(nullptr, DType::i32, {0}), view(count.data(), {2}), reduce_type),
              0);
    EXPECT_EQ(voxel_feats, std::vector<float>(6, reduce_type == Reduce::max ? -kInfinity : 0.0f));
    EXPECT_EQ(voxel_coors, std::vector<std::int32_t>(6, kOld));
    EXPECT_EQ(count, std::vector<std::int32_t>(2, kOld));
    // Without channels, voxels are still found.
    const std::vector<std::int32_t> coors = {5, -1, 2, 5};
    EXPECT_EQ(dynamic_scatter_forward(ConstTensor(nullptr, DType::f32, {4, 0}), view(coors.data(), {4, 1}),
                                      Tensor(nullptr, DType::f32, {2, 0}), view(voxel_coors.data(), {2, 1}),
                                      view(map.data(), {4}), view(count.data(), {2}), reduce_type),
              2);
    EXPECT_EQ(map, (std::vector<std::int32_t>{1, -1, 0, 1}));
    EXPECT_EQ(count, (std::vector<std::int32_t>{1, 2}));
    // Without any elements, nothing is read.
    const ConstTensor no_points(nullptr, DType::f32, {0, 3}), rows(nullptr, DType::f32, {2, 3}),
        counts(nullptr, DType::i32, {2});
    EXPECT_NO_THROW(dynamic_scatter_backward(rows, no_points, rows, ConstTensor(nullptr, DType::i32, {0}),
                                             counts, nullptr, Tensor(nullptr, DType::f32, {0, 3}),
                                             reduce_type));
  }
}

// Rows after the last voxel may hold anything, including values that would be rejected.
TEST(DynamicScatterCalls, RowsBehindTheLastVoxelAreNotLookedAt) {
  const auto c = make_case<float, std::int32_t>(Pattern::some_invalid, 300, 7, 2, 3);
  const auto all = c.voxels();
  const auto found = static_cast<std::int64_t>(all.size()), room = c.points;
  ASSERT_LT(found, room);
  for (const Reduce reduce_type : kReductions) {
    const auto reduced = c.expected_forward<std::int64_t>(all, reduce_type, room);
    auto grad = sized<float>(room * 7, kNan), voxel_feats = reduced.voxel_feats;
    std::fill(voxel_feats.begin() + found * 7, voxel_feats.end(), kNan);
    for (std::int64_t i = 0; i < found * 7; ++i) grad.data()[i] = static_cast<float>(i % 17);
    auto count = sized<std::int32_t>(room, -5);
    std::copy_n(reduced.count.begin(), found, count.begin());
    const ConstTensor f = c.feats_view(), w = view(voxel_feats.data(), {room, 7}),
                      n = view(count.data(), {room}), number = view(&found, {1});
    std::vector<float> grad_feats(c.feats.size(), kOld);
    // The map, the counts and voxel_num may have different dtypes.
    dynamic_scatter_backward(view(grad.data(), {room, 7}), f, w, view(reduced.map.data(), {c.points}), n,
                             number, view(grad_feats.data(), {c.points, 7}), reduce_type);
    EXPECT_EQ(first_difference(grad_feats.data(), c.expected_backward(grad, voxel_feats, reduced.map,
                                                                      reduced.count, reduce_type)),
              -1);
  }
}

// Inputs that do not begin on a cache line.
TEST(DynamicScatterCalls, InputsOffALine) {
  const auto c = make_case<bf16, std::int32_t>(Pattern::random, 200, 37, 3, 4);
  std::vector<bf16> feats(c.feats.size() + 1);
  std::vector<std::int32_t> coors(c.coors.size() + 1);
  std::copy(c.feats.begin(), c.feats.end(), feats.begin() + 1);
  std::copy(c.coors.begin(), c.coors.end(), coors.begin() + 1);
  for (const Isa isa : supported_isas()) {
    Context context({.threads = 1, .isa = isa});
    const VoxelIndex one(c.coors_view(), context),
        other(view(static_cast<const std::int32_t*>(coors.data() + 1), {200, 3}), context);
    ASSERT_EQ(one.voxels(), other.voxels());
    auto a = sized<bf16>(one.voxels() * 37), b = a;
    one.reduce(c.feats_view(), view(a.data(), {one.voxels(), 37}), Reduce::sum);
    other.reduce(view(static_cast<const bf16*>(feats.data() + 1), {200, 37}),
                 view(b.data(), {one.voxels(), 37}), Reduce::sum);
    EXPECT_EQ(first_difference(a.data(), b), -1);
  }
}

// The bytes of all results of one call of every operator. Only the calls compute floating-point values here.
std::vector<unsigned char> results_of_everything(const ScatterCase<float, std::int32_t>& c,
                                                 std::int64_t found) {
  std::vector<unsigned char> results;
  const auto keep = [&](const auto& values) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
    results.insert(results.end(), bytes, bytes + values.size() * sizeof(values[0]));
  };
  Context context({.threads = 1});
  for (const Reduce reduce_type : kReductions) {
    auto voxel_feats = sized<float>(found * 9);
    auto voxel_coors = sized<std::int32_t>(found * 2), map = sized<std::int32_t>(200),
         count = sized<std::int32_t>(found);
    c.forward<std::int32_t>(context, reduce_type, found,
                            {voxel_feats.data(), voxel_coors.data(), map.data(), count.data()});
    keep(voxel_feats);
    std::fill(count.begin(), count.end(), 16777217);  // not representable as a float
    std::vector<float> grad_feats(c.feats.size());
    c.backward(context, voxel_feats, voxel_feats, map, count, reduce_type, grad_feats.data());
    keep(grad_feats);
    VoxelIndex index(c.coors_view(), context);
    index.reduce(c.feats_view(), view(voxel_feats.data(), {found, 9}), reduce_type);
    keep(voxel_feats);
  }
  // The range has 1.4999999 voxels, which is 1; rounded upwards it would be 2.
  const double size[3] = {2.5, 1, 1}, range[6] = {0, 0, 0, 3.7499998f, 4, 4};
  const std::vector<float> points = {2.6f, 1, 1, 1e-40f, 1, 1, -1e-40f, 1, 1, kNan, 1, 1, 0.1f, 0.2f, 0.3f};
  std::vector<std::int32_t> coors(15), hard_coors(15), num(5);
  voxelize(view(points.data(), {5, 3}), view(coors.data(), {5, 3}), size, range, context);
  keep(coors);
  std::vector<float> voxels(15);
  voxelize_hard(view(points.data(), {5, 3}), view(voxels.data(), {5, 1, 3}), view(hard_coors.data(), {5, 3}),
                view(num.data(), {5}), nullptr, size, range, context);
  keep(hard_coors);
  keep(voxels);
  constexpr double kNoSize[3] = {std::numeric_limits<double>::quiet_NaN(), 1, 1};
  EXPECT_THROW(voxelize(view(points.data(), {5, 3}), view(coors.data(), {5, 3}), kNoSize, range, context),
               Error);
  return results;
}

// Results do not depend on the rounding mode, flushing and traps of the caller's thread.
TEST(DynamicScatterCalls, TheControlRegisterChangesNothing) {
  auto c = make_case<float, std::int32_t>(Pattern::random, 200, 9, 2, 11);
  for (std::size_t i = 0; i < c.feats.size(); ++i)  // sums are inexact, some of them subnormal
    c.feats[i] = static_cast<float>(i % 7 + 1) * (i % 9 < 3 ? 1e-40f : 0.1f);
  const auto found = static_cast<std::int64_t>(c.voxels().size());
  const auto expected = results_of_everything(c, found);
  constexpr unsigned kTowardsZero = kUp | kDown;
  for (const unsigned change : {kUp, kDown, kTowardsZero, kFlush, kFlush | kUp, kTraps}) {
    const unsigned before = control_register();
    set_control_register(kDefaultControl ^ change);
    const unsigned odd = control_register();
    const auto results = results_of_everything(c, found);
    const unsigned after = control_register();
    set_control_register(before);
    EXPECT_EQ(after, odd);
    EXPECT_EQ(first_difference(results.data(), expected), -1) << "control register " << odd;
  }
}

// The number of threads may change while a call runs, without effect on that call.
TEST(DynamicScatterCalls, ThreadsMayChange) {
  const auto c = make_case<float, std::int32_t>(Pattern::random, 90'000, 9, 3, 5);
  const auto found = static_cast<std::int64_t>(c.voxels().size());
  Context context({.threads = 2});
  const auto run = [&] {
    auto voxel_feats = sized<float>(found * 9), grad_feats = sized<float>(c.points * 9);
    auto voxel_coors = sized<std::int32_t>(found * 3), map = sized<std::int32_t>(c.points),
         count = sized<std::int32_t>(found);
    c.forward<std::int32_t>(context, Reduce::max, found,
                            {voxel_feats.data(), voxel_coors.data(), map.data(), count.data()});
    c.backward(context, voxel_feats, voxel_feats, map, count, Reduce::max, grad_feats.data());
    grad_feats.insert(grad_feats.end(), voxel_feats.begin(), voxel_feats.end());
    return grad_feats;
  };
  const auto first = run();
  std::atomic<bool> done{false};
  std::thread changing([&] {
    while (!done)
      for (const int threads : {1, 7, 2, 24}) context.set_threads(threads);
  });
  for (int i = 0; i < 10; ++i) EXPECT_EQ(first_difference(run().data(), first), -1);
  done = true;
  changing.join();
}

// -- indexes -----------------------------------------------------------------------------------------------

TEST(VoxelIndexCalls, SeveralThreadsUseOne) {
  const auto c = make_case<float, std::int32_t>(Pattern::some_invalid, 20'000, 30, 3, 6);
  const auto all = c.voxels();
  const auto found = static_cast<std::int64_t>(all.size());
  Context context({.threads = 2});
  const VoxelIndex index(c.coors_view(), context);
  std::vector<std::thread> users;
  std::atomic<int> wrong{0};
  for (int user = 0; user < 3; ++user) {
    users.emplace_back([&, user] {
      const Reduce reduce_type = kReductions[user];
      const auto expected = c.expected_forward(all, reduce_type, found);
      const auto grads = c.expected_backward(expected.voxel_feats, expected.voxel_feats, expected.map,
                                             expected.count, reduce_type);
      const ConstTensor feats = c.feats_view(), rows = view(expected.voxel_feats.data(), {found, 30});
      for (int repeat = 0; repeat < 3; ++repeat) {
        auto voxel_feats = sized<float>(found * 30), grad_feats = sized<float>(c.points * 30);
        auto voxel_coors = sized<std::int32_t>(found * 3), map = sized<std::int32_t>(c.points),
             count = sized<std::int32_t>(found);
        index.reduce(feats, view(voxel_feats.data(), {found, 30}), reduce_type);
        index.write(view(voxel_coors.data(), {found, 3}), view(map.data(), {c.points}),
                    view(count.data(), {found}));
        index.reduce_backward(rows, feats, rows, view(grad_feats.data(), {c.points, 30}), reduce_type);
        wrong += first_difference(voxel_feats.data(), expected.voxel_feats) >= 0 ||
                 voxel_coors != expected.voxel_coors || map != expected.map || count != expected.count ||
                 first_difference(grad_feats.data(), grads) >= 0;
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(wrong, 0);
}

// Several indexes of one context coexist with other calls and are destroyed in any order.
TEST(VoxelIndexCalls, IndexesAreIndependent) {
  Context context({.threads = 2});
  std::vector<ScatterCase<float, std::int64_t>> cases;
  std::vector<std::unique_ptr<VoxelIndex>> indexes;
  for (unsigned seed = 0; seed < 8; ++seed)
    cases.push_back(make_case<float, std::int64_t>(Pattern::random, 100 + 20 * seed, 5, 3, seed));
  for (const auto& c : cases) indexes.push_back(std::make_unique<VoxelIndex>(c.coors_view(), context));
  for (const std::size_t i : {3u, 0u, 7u, 1u}) {
    const auto& c = cases[i];
    const auto all = c.voxels();
    const auto found = static_cast<std::int64_t>(all.size());
    const auto expected = c.expected_forward(all, Reduce::max, found);
    auto voxel_feats = sized<float>(found * 5);
    auto map = sized<std::int32_t>(c.points), count = sized<std::int32_t>(found);
    auto voxel_coors = sized<std::int64_t>(found * 3);
    indexes[i]->reduce(c.feats_view(), view(voxel_feats.data(), {found, 5}));
    EXPECT_EQ(first_difference(voxel_feats.data(), expected.voxel_feats), -1);
    c.forward<std::int32_t>(context, Reduce::sum, found,
                            {voxel_feats.data(), voxel_coors.data(), map.data(), count.data()});
    std::fill(map.begin(), map.end(), kOld);
    indexes[i]->write(view(voxel_coors.data(), {found, 3}), view(map.data(), {c.points}),
                      view(count.data(), {found}));
    EXPECT_EQ(map, expected.map);
    EXPECT_EQ(voxel_coors, expected.voxel_coors);
    indexes[i].reset();
    context.trim();  // keeps the memory of the other indexes
  }
}

// Only write() reads coordinates again; reductions do not need them.
TEST(VoxelIndexCalls, CoordinatesMayGoBeforeReductions) {
  const auto c = make_case<float, std::int32_t>(Pattern::random, 500, 5, 3, 9);
  Context context({.threads = 1});
  auto coors = std::make_unique<std::vector<std::int32_t>>(c.coors);
  const VoxelIndex index(view(static_cast<const std::int32_t*>(coors->data()), {500, 3}), context);
  coors.reset();
  const auto found = index.voxels();
  const auto expected = c.expected_forward(c.voxels(), Reduce::mean, found);
  auto voxel_feats = sized<float>(found * 5);
  index.reduce(c.feats_view(), view(voxel_feats.data(), {found, 5}), Reduce::mean);
  EXPECT_EQ(first_difference(voxel_feats.data(), expected.voxel_feats), -1);
}

TEST(VoxelIndexCalls, NoPointsNoVoxels) {
  const VoxelIndex empty(ConstTensor(nullptr, DType::i32, {0, 3}));
  EXPECT_EQ(empty.points(), 0);
  EXPECT_EQ(empty.voxels(), 0);
  EXPECT_NO_THROW(empty.write(Tensor(nullptr, DType::i32, {0, 3}), Tensor(nullptr, DType::i32, {0}),
                              Tensor(nullptr, DType::i32, {0})));
  EXPECT_NO_THROW(
      empty.reduce(ConstTensor(nullptr, DType::f32, {0, 4}), Tensor(nullptr, DType::f32, {0, 4})));
}

}  // namespace
}  // namespace turnout::test
