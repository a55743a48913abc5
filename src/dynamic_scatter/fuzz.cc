// Differential fuzzer over coordinates, features, maps, counts, points and grids. A legal call must equal the
// definition on every instruction set, in one step and through an index; an illegal one must write nothing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "dynamic_scatter/index_case.h"
#include "dynamic_scatter/scatter_case.h"
#include "fuzz.h"
#include "isas.h"

namespace turnout::test {
namespace {

template <class T>
bool same(const std::vector<T>& actual, const std::vector<T>& expected) {
  return actual.size() == expected.size() && first_difference(actual.data(), expected) < 0;
}

// Returns whether the call throws Error.
template <class F>
bool is_refused(const F& call) {
  try {
    call();
  } catch (const Error&) {
    return true;
  }
  return false;
}

// Arbitrary bits, or one of a few values, so that there are ties.
template <class T>
T any_float(FuzzInput& in, bool wild) {
  if (wild) return in.value<T>();
  return rounded<T>(static_cast<LaneOf<T>>(in.between(0, 15)) / 4 - 2);
}

template <class T, class Index, class Map>
void reductions(FuzzInput& in) {
  ScatterCase<T, Index> c{in.between(0, 60), in.between(0, 40), in.between(1, 4)};
  const bool wild = in.one_in(4), wild_feats = in.one_in(4);
  for (std::int64_t i = 0; i < c.points * c.dims; ++i)
    c.coors.push_back(wild ? in.value<Index>() : static_cast<Index>(in.between(-1, 5)));
  for (std::int64_t i = 0; i < c.points * c.channels; ++i) c.feats.push_back(any_float<T>(in, wild_feats));
  const auto all = c.voxels();
  const auto found = static_cast<std::int64_t>(all.size());
  const std::int64_t room = found + in.between(-1, 2);
  for (const Reduce reduce_type : kReductions) {
    const auto expected =
        c.template expected_forward<Map>(all, reduce_type, std::max<std::int64_t>(room, found));
    const auto& reduced = expected.voxel_feats;
    const auto grads = c.expected_backward(reduced, reduced, expected.map, expected.count, reduce_type);
    for (const Isa isa : supported_isas()) {
      Context context({.threads = 2, .isa = isa});
      if (room >= 0) {
        auto voxel_feats = sized<T>(room * c.channels), none = voxel_feats;
        auto voxel_coors = sized<Index>(room * c.dims, kOld);
        auto map = sized<Map>(c.points, kOld), count = sized<Map>(room, kOld);
        std::int64_t voxels = 0;
        const bool refused = is_refused([&] {
          voxels = c.template forward<Map>(
              context, reduce_type, room, {voxel_feats.data(), voxel_coors.data(), map.data(), count.data()});
        });
        require(refused == (room < found));
        if (refused) {
          require(same(voxel_feats, none) && same(voxel_coors, sized<Index>(room * c.dims, kOld)) &&
                  same(map, sized<Map>(c.points, kOld)) && same(count, sized<Map>(room, kOld)));
        } else {
          require(voxels == found && same(voxel_feats, reduced) && same(voxel_coors, expected.voxel_coors) &&
                  same(map, expected.map) && same(count, expected.count));
        }
      }
      std::vector<T> grad_feats(c.feats.size());
      c.backward(context, reduced, reduced, expected.map, expected.count, reduce_type, grad_feats.data());
      require(same(grad_feats, grads));

      const VoxelIndex index(c.coors_view(), context);
      require(index.voxels() == found && index.points() == c.points);
      auto voxel_feats = reduced;
      std::fill_n(voxel_feats.begin(), found * c.channels, T{});
      auto voxel_coors = sized<Index>(found * c.dims);
      auto map = sized<Map>(c.points), count = sized<Map>(found);
      index.write(view(voxel_coors.data(), {found, c.dims}), view(map.data(), {c.points}),
                  view(count.data(), {found}));
      require(same(map, expected.map) && std::equal(count.begin(), count.end(), expected.count.begin()) &&
              std::equal(voxel_coors.begin(), voxel_coors.end(), expected.voxel_coors.begin()));
      const ConstTensor feats = c.feats_view(), wanted = view(reduced.data(), {found, c.channels});
      index.reduce(feats, view(voxel_feats.data(), {found, c.channels}), reduce_type);
      require(same(voxel_feats, reduced));
      std::fill(grad_feats.begin(), grad_feats.end(), T{});
      index.reduce_backward(wanted, feats, wanted, view(grad_feats.data(), {c.points, c.channels}),
                            reduce_type);
      require(same(grad_feats, grads));
    }
  }
}

// An arbitrary map, with arbitrary counts and number of voxels: the call must throw or be right.
template <class T, class Map>
void wild_backward(FuzzInput& in) {
  ScatterCase<T, std::int32_t> c{in.between(0, 60), in.between(0, 20), 1};
  const std::int64_t room = in.between(0, 20);
  const bool has_num = in.flag();
  const bool wild = in.one_in(4), bad_num = in.one_in(8), bad_counts = in.one_in(3);
  const std::int64_t voxels = !has_num ? room : bad_num ? in.value<Map>() : in.between(0, room);
  const bool legal_num = voxels >= 0 && voxels <= room;
  const Map num = static_cast<Map>(voxels);
  std::vector<Map> map, count;
  bool legal_map = true, legal_count = true;
  for (std::int64_t i = 0; i < room; ++i)
    count.push_back(bad_counts && in.one_in(4) ? static_cast<Map>(in.between(-2, 0)) : in.value<Map>());
  for (Map& n : count)
    if (!bad_counts && n < 1) n = 1;
  for (std::int64_t x = 0; x < c.points; ++x) {
    map.push_back(wild && in.one_in(16)
                      ? in.value<Map>()
                      : static_cast<Map>(in.between(-1, std::max<std::int64_t>(legal_num ? voxels : room, 0) -
                                                            (in.one_in(64) ? 0 : 1))));
    legal_map &= map.back() >= -1 && map.back() < voxels;
  }
  for (std::int64_t i = 0; i < c.points * c.channels; ++i) c.feats.push_back(any_float<T>(in, false));
  std::vector<T> grad, voxel_feats;
  for (std::int64_t i = 0; i < room * c.channels; ++i) {
    grad.push_back(in.value<T>());
    voxel_feats.push_back(any_float<T>(in, false));
  }
  if (legal_num && legal_map)
    for (const Map v : map) legal_count &= v < 0 || count.data()[v] >= 1;
  const ConstTensor f = c.feats_view(), w = view(voxel_feats.data(), {room, c.channels}),
                    n = view(count.data(), {room}), number = view(&num, {1});
  for (const Reduce reduce_type : kReductions) {
    const bool legal =
        c.feats.empty() || (legal_num && legal_map && (reduce_type != Reduce::mean || legal_count));
    std::vector<T> expected(c.feats.size(), rounded<T>(kOld));
    if (legal && !c.feats.empty()) expected = c.expected_backward(grad, voxel_feats, map, count, reduce_type);
    for (const Isa isa : supported_isas()) {
      Context context({.threads = 2, .isa = isa});
      std::vector<T> grad_feats(c.feats.size(), rounded<T>(kOld));
      const bool refused = is_refused([&] {
        dynamic_scatter_backward(view(grad.data(), {room, c.channels}),
                                 reduce_type == Reduce::max ? f : nullptr,
                                 reduce_type == Reduce::max ? w : nullptr, view(map.data(), {c.points}),
                                 reduce_type == Reduce::mean ? n : nullptr, has_num ? number : nullptr,
                                 view(grad_feats.data(), {c.points, c.channels}), reduce_type, context);
      });
      require(refused == !legal);
      require(same(grad_feats, expected));
    }
  }
}

template <class T, class Index, class Side>
void voxels(FuzzInput& in) {
  using Real = LaneOf<T>;
  const std::int64_t rows = in.between(0, 60), features = in.between(3, 6), room = in.between(0, 9),
                     max_points = in.between(0, 5);
  const bool wild_grid = in.one_in(4), wild_points = in.one_in(4), with_map = in.flag();
  Side size[3], range[6];
  for (int j = 0; j < 3; ++j) {
    size[j] = wild_grid ? in.value<Side>() : static_cast<Side>(in.between(1, 30)) / 10;
    range[j] = wild_grid ? in.value<Side>() : static_cast<Side>(in.between(-30, 30)) / 10;
    range[3 + j] = wild_grid ? in.value<Side>() : range[j] + static_cast<Side>(in.between(0, 80)) / 10;
  }
  reference::Grid<Real> grid;
  for (int j = 0; j < 3; ++j) grid.voxel_size[j] = static_cast<Real>(size[j]);
  for (int j = 0; j < 6; ++j) grid.point_cloud_range[j] = static_cast<Real>(range[j]);
  std::vector<T> points;
  std::vector<std::vector<Real>> lanes;
  std::vector<Index> expected;
  for (std::int64_t i = 0; i < rows; ++i) {
    lanes.emplace_back();
    for (std::int64_t f = 0; f < features; ++f) {
      points.push_back(wild_points ? in.value<T>()
                                   : rounded<T>(static_cast<Real>(in.between(-40, 120)) / 10));
      lanes.back().push_back(core::to_float(points.back()));
    }
    if (!grid.is_legal()) continue;  // coordinates need not be numbers then
    for (const std::int64_t c : grid.coordinates(lanes.back().data()))
      expected.push_back(static_cast<Index>(c));
  }
  std::vector<reference::HardVoxel> hard;
  if (grid.is_legal())
    hard = reference::voxelize_hard(lanes, grid, static_cast<std::size_t>(max_points),
                                    static_cast<std::size_t>(room));
  const ConstTensor p = view(points.data(), {rows, features});
  const double sizes[3] = {size[0], size[1], size[2]};
  const double ranges[6] = {range[0], range[1], range[2], range[3], range[4], range[5]};
  // A grid that is illegal for any points is rejected even without points.
  const bool is_grid =
      std::all_of(std::begin(sizes), std::end(sizes), [](double v) { return v > 0 && std::isfinite(v); }) &&
      std::none_of(std::begin(ranges), std::end(ranges), [](double v) { return std::isnan(v); });
  for (const Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    auto coors = sized<Index>(rows * 3, kOld);
    const bool refused = is_refused([&] {
      voxelize(p, view(coors.data(), {rows, 3}), sizes, ranges, context);
    });
    require(refused == (!is_grid || (rows > 0 && !grid.is_legal())));
    require(same(coors, refused ? sized<Index>(rows * 3, kOld) : expected));

    const std::int64_t voxel_size = max_points * features;
    auto stored = sized<T>(room * voxel_size, rounded<T>(kOld));
    auto hard_coors = sized<Index>(room * 3, kOld), num = sized<Index>(room, kOld);
    auto map = sized<Index>(rows, kOld);
    const Tensor map_view = view(map.data(), {rows});
    std::int64_t used = 0;
    const bool hard_refused = is_refused([&] {
      used = voxelize_hard(p, view(stored.data(), {room, max_points, features}),
                           view(hard_coors.data(), {room, 3}), view(num.data(), {room}),
                           with_map ? map_view : nullptr, sizes, ranges, context);
    });
    require(hard_refused == (!is_grid || ((room > 0 || (with_map && rows > 0)) && !grid.is_legal())));
    if (hard_refused) {
      require(same(stored, sized<T>(room * voxel_size, rounded<T>(kOld))) &&
              same(num, sized<Index>(room, kOld)) && same(map, sized<Index>(rows, kOld)) &&
              same(hard_coors, sized<Index>(room * 3, kOld)));
      continue;
    }
    auto expected_stored = sized<T>(room * voxel_size);
    auto expected_coors = sized<Index>(room * 3), expected_num = sized<Index>(room);
    auto expected_map = sized<Index>(rows, with_map ? -1 : kOld);
    for (std::size_t v = 0; v < hard.size(); ++v) {
      const auto at = static_cast<std::int64_t>(v);
      for (const std::int64_t x : hard[v].all_points)
        if (with_map) expected_map.data()[x] = static_cast<Index>(v);
      for (std::size_t k = 0; k < hard[v].points.size(); ++k)
        std::copy_n(points.data() + hard[v].points[k] * features, features,
                    expected_stored.data() + at * voxel_size + static_cast<std::int64_t>(k) * features);
      for (std::int64_t d = 0; d < 3; ++d)
        expected_coors.data()[at * 3 + d] = static_cast<Index>(hard[v].coors.data()[d]);
      expected_num[v] = static_cast<Index>(hard[v].points.size());
    }
    require(used == static_cast<std::int64_t>(hard.size()) && same(stored, expected_stored) &&
            same(hard_coors, expected_coors) && same(num, expected_num) && same(map, expected_map));
  }
}

// Reduction by an index, which may name groups that do not exist.
template <class T, class Index>
void scattered(FuzzInput& in) {
  IndexCase<T, Index> c{in.between(0, 60), in.between(0, 20), in.between(0, 40)};
  const bool wild = in.one_in(4);
  bool legal = true;
  for (std::int64_t i = 0; i < c.rows; ++i) {
    c.index.push_back(wild && in.one_in(16)
                          ? in.value<Index>()
                          : static_cast<Index>(in.between(0, std::max<std::int64_t>(c.groups - 1, 0))));
    legal &= c.index.back() >= 0 && c.index.back() < c.groups;
    for (std::int64_t j = 0; j < c.channels; ++j) c.src.push_back(any_float<T>(in, false));
  }
  if (in.flag()) std::sort(c.index.begin(), c.index.end());
  const std::int64_t elements = c.groups * c.channels;
  const auto untouched = sized<T>(elements, rounded<T>(kOld));
  const bool is_minimum = in.flag();
  const auto scatter_extreme = is_minimum ? &scatter_min : &scatter_max;
  using Extremes = typename IndexCase<T, Index>::Extremes;
  const Extremes extremes = !legal ? Extremes{} : is_minimum ? c.expected_minima() : c.expected_maxima();
  const std::vector<Index> arg_expected(extremes.arg.begin(), extremes.arg.end());
  for (const Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    auto out = untouched;
    auto arg = sized<Index>(elements, kOld);
    const Tensor to = view(out.data(), {c.groups, c.channels});
    const Tensor to_arg = view(arg.data(), {c.groups, c.channels});
    const auto check = [&](const auto& run, const auto& expected) {
      std::fill(out.begin(), out.end(), rounded<T>(kOld));
      require(is_refused(run) == (elements > 0 && !legal));
      require(same(out, legal ? expected() : untouched));
    };
    check([&] { scatter_sum(c.src_view(), c.index_view(), to, context); },
          [&] { return c.expected(Reduce::sum); });
    check([&] { scatter_mean(c.src_view(), c.index_view(), to, context); },
          [&] { return c.expected(Reduce::mean); });
    check([&] { scatter_extreme(c.src_view(), c.index_view(), to, to_arg, context); },
          [&] { return extremes.out; });
    require(same(arg, legal ? arg_expected : sized<Index>(elements, kOld)));
    check([&] { scatter_extreme(c.src_view(), c.index_view(), to, nullptr, context); },
          [&] { return extremes.out; });
    // Arbitrary gradients and arbitrary rows of maxima.
    auto grad_src = sized<T>(c.rows * c.channels, rounded<T>(kOld));
    const auto kept = grad_src;
    const Tensor grads = view(grad_src.data(), {c.rows, c.channels});
    const std::vector<std::int64_t> given(arg.begin(), arg.end());
    for (const Reduce reduce_type : kReductions) {
      std::fill(grad_src.begin(), grad_src.end(), rounded<T>(kOld));
      const bool refused = is_refused([&] {
        if (reduce_type == Reduce::sum) scatter_sum_backward(to, c.index_view(), grads, context);
        if (reduce_type == Reduce::mean) scatter_mean_backward(to, c.index_view(), grads, context);
        if (reduce_type == Reduce::max) scatter_max_backward(to, c.index_view(), to_arg, grads, context);
      });
      require(refused == (!kept.empty() && !legal));
      require(same(grad_src, legal ? c.expected_backward(out, given, reduce_type) : kept));
    }
  }
}

template <class T, class Index, class Other>
void run(FuzzInput& in) {
  switch (in.between(0, 4)) {
    case 4:
      scattered<T, Index>(in);
      break;
    case 0:
      wild_backward<T, Index>(in);
      break;
    case 1:
      if (in.flag()) {
        voxels<T, Index, float>(in);
      } else {
        voxels<T, Index, double>(in);
      }
      break;
    default:
      reductions<T, Index, Other>(in);
  }
}

template <class T>
void run_with_indices(FuzzInput& in) {
  if (in.flag()) {
    run<T, std::int32_t, std::int64_t>(in);
  } else {
    run<T, std::int64_t, std::int32_t>(in);
  }
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::test::FuzzInput in(data, size);
  switch (in.between(0, 3)) {
    case 0:
      turnout::test::run_with_indices<double>(in);
      break;
    case 1:
      turnout::test::run_with_indices<turnout::f16>(in);
      break;
    case 2:
      turnout::test::run_with_indices<turnout::bf16>(in);
      break;
    default:
      turnout::test::run_with_indices<float>(in);
  }
  return 0;
}
