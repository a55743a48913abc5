// Groups points into pillars: finds the pillar of each point and the highest point of each pillar, and
// computes the gradient of the points.
#include <turnout/turnout.h>

#include <cstdio>
#include <vector>

int main() {
  const std::size_t points = 4;
  const std::vector<float> cloud = {0.2f, 0.2f, 1.5f,   // x, y, z in metres
                                    0.7f, 0.4f, 2.5f,   //
                                    3.1f, 0.1f, 0.5f,   //
                                    9.0f, 0.0f, 1.0f};  // outside the range
  const double voxel_size[] = {1, 1, 4}, range[] = {0, 0, 0, 4, 4, 4};
  try {
    std::vector<std::int32_t> coors(points * 3);
    turnout::voxelize(turnout::view(cloud, {points, 3}), turnout::view(coors, {points, 3}), voxel_size,
                      range);

    const turnout::VoxelIndex index(turnout::view(coors, {points, 3}));
    const auto pillars = static_cast<std::size_t>(index.voxels());
    std::vector<std::int32_t> pillar_coors(pillars * 3), pillar_of(points), count(pillars);
    index.write(turnout::view(pillar_coors, {pillars, 3}), turnout::view(pillar_of), turnout::view(count));
    std::vector<float> highest(pillars * 3);
    const turnout::ConstTensor feats = turnout::view(cloud, {points, 3});
    index.reduce(feats, turnout::view(highest, {pillars, 3}), turnout::Reduce::max);

    const std::vector<float> grad(pillars * 3, 1.f);
    std::vector<float> grad_cloud(points * 3);
    const turnout::ConstTensor reduced = turnout::view(highest, {pillars, 3});
    index.reduce_backward(turnout::view(grad, {pillars, 3}), feats, reduced,
                          turnout::view(grad_cloud, {points, 3}), turnout::Reduce::max);

    for (std::size_t v = 0; v < pillars; ++v)
      std::printf("pillar (%d, %d): count %d, height %g\n", pillar_coors[3 * v + 2], pillar_coors[3 * v + 1],
                  count[v], highest[3 * v + 2]);
    for (std::size_t i = 0; i < points; ++i)
      std::printf("point %zu: pillar %d, gradient of z %g\n", i, pillar_of[i], grad_cloud[3 * i + 2]);
    const bool right = pillars == 2 && highest[2] == 2.5f && pillar_of[3] == -1 && grad_cloud[5] == 1 &&
                       grad_cloud[2] == 0 && grad_cloud[11] == 0;
    return right ? 0 : 1;
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

// Output:
//   pillar (0, 0): count 2, height 2.5
//   pillar (3, 0): count 1, height 0.5
//   point 0: pillar 0, gradient of z 0
//   point 1: pillar 0, gradient of z 1
//   point 2: pillar 1, gradient of z 1
//   point 3: pillar -1, gradient of z 0
