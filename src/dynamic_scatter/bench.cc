// What reductions over voxels take from C++, by the number of points and channels.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "turnout/turnout.h"

namespace {

using namespace turnout;

// Points on a sheet, as many to a voxel as a scan of the scale has.
struct Scene {
  std::int64_t points, channels;
  std::vector<std::int32_t> coors, voxel_coors, map, count;
  std::vector<float> feats, voxel_feats, grad_feats;

  Scene(std::int64_t n, std::int64_t cells, std::int64_t c) : points(n), channels(c) {
    std::mt19937 random(1);
    for (std::int64_t x = 0; x < n; ++x) {
      const auto cell = static_cast<std::int32_t>(random() % static_cast<unsigned>(cells));
      coors.insert(coors.end(), {cell % 37, cell / 37 % 1440, cell * 7 % 1440});
    }
    feats.resize(static_cast<std::size_t>(n * c));
    for (float& f : feats) f = static_cast<float>(random() % 4096);
    voxel_feats.resize(feats.size());
    grad_feats.resize(feats.size());
    voxel_coors.resize(coors.size());
    map.resize(static_cast<std::size_t>(n));
    count.resize(map.size());
  }
  std::int64_t forward(Context& context, Reduce reduce_type) {
    return dynamic_scatter_forward(
        context, view(feats.data(), {points, channels}), view(coors.data(), {points, 3}),
        view(voxel_feats.data(), {points, channels}), view(voxel_coors.data(), {points, 3}),
        view(map.data(), {points}), view(count.data(), {points}), reduce_type);
  }
};

void index(benchmark::State& state) {
  Scene scene(state.range(0), state.range(1), 1);
  Context context({.threads = static_cast<int>(state.range(2))});
  for (auto _ : state) {
    const VoxelIndex voxels(context, view(scene.coors.data(), {scene.points, 3}));
    benchmark::DoNotOptimize(voxels.voxels());
  }
}
BENCHMARK(index)
    ->Args({100, 80, 1})
    ->Args({17176, 30000, 1})
    ->Args({17176, 30000, 2})
    ->Args({200000, 40000, 1})
    ->Args({200000, 40000, 2})
    ->Unit(benchmark::kMicrosecond);

void forward(benchmark::State& state) {
  Scene scene(state.range(0), state.range(1), state.range(2));
  Context context({.threads = static_cast<int>(state.range(3))});
  for (auto _ : state) scene.forward(context, static_cast<Reduce>(state.range(4)));
}
BENCHMARK(forward)
    ->Args({17176, 30000, 128, 1, 2})
    ->Args({17176, 30000, 128, 2, 2})
    ->Args({17563, 30000, 4, 2, 1})
    ->Args({200000, 40000, 64, 1, 2})
    ->Args({200000, 40000, 64, 2, 2})
    ->Args({200000, 40000, 64, 2, 1})
    ->Unit(benchmark::kMicrosecond);

void backward(benchmark::State& state) {
  Scene scene(state.range(0), state.range(1), state.range(2));
  Context context({.threads = static_cast<int>(state.range(3))});
  const auto reduce_type = static_cast<Reduce>(state.range(4));
  const std::int64_t voxels = scene.forward(context, reduce_type);
  const ConstTensor feats = view(scene.feats.data(), {scene.points, scene.channels});
  const ConstTensor voxel_feats = view(scene.voxel_feats.data(), {voxels, scene.channels});
  const ConstTensor count = view(scene.count.data(), {voxels});
  const std::vector<float> grad(scene.voxel_feats);
  for (auto _ : state)
    dynamic_scatter_backward(context, view(grad.data(), {voxels, scene.channels}),
                             {.point2voxel_map = view(scene.map.data(), {scene.points}),
                              .feats = &feats,
                              .voxel_feats = &voxel_feats,
                              .voxel_points_count = &count},
                             view(scene.grad_feats.data(), {scene.points, scene.channels}), reduce_type);
}
BENCHMARK(backward)
    ->Args({17176, 30000, 128, 1, 2})
    ->Args({17176, 30000, 128, 2, 2})
    ->Args({200000, 40000, 64, 1, 2})
    ->Args({200000, 40000, 64, 2, 2})
    ->Args({200000, 40000, 64, 2, 1})
    ->Unit(benchmark::kMicrosecond);

// Rows by a given index: the cells of a scene as groups.
void scatter(benchmark::State& state) {
  const std::int64_t rows = state.range(0), groups = state.range(1), channels = state.range(2);
  Scene scene(rows, groups, channels);
  std::vector<std::int64_t> cells(static_cast<std::size_t>(rows));
  std::mt19937 random(1);
  for (std::int64_t& cell : cells) cell = static_cast<std::int64_t>(random() % static_cast<unsigned>(groups));
  std::vector<float> out(static_cast<std::size_t>(groups * channels));
  std::vector<std::int64_t> argmax(out.size());
  Context context({.threads = static_cast<int>(state.range(3))});
  const ConstTensor src = view(scene.feats.data(), {rows, channels}), at = view(cells.data(), {rows});
  const Tensor to = view(out.data(), {groups, channels});
  const bool is_max = static_cast<Reduce>(state.range(4)) == Reduce::max;
  for (auto _ : state) {
    if (is_max) {
      scatter_max(context, src, at, to, view(argmax.data(), {groups, channels}));
    } else {
      scatter_sum(context, src, at, to);
    }
  }
}
BENCHMARK(scatter)
    ->Args({17176, 13743, 128, 1, 0})
    ->Args({17176, 13743, 128, 1, 2})
    ->Args({200000, 40000, 64, 1, 0})
    ->Args({200000, 40000, 64, 2, 0})
    ->Args({200000, 40000, 64, 1, 2})
    ->Args({200000, 40000, 64, 2, 2})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
