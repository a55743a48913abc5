// The scales that the design document names: two layers of a LiDAR network, and sites for them.
#pragma once

#include <algorithm>
#include <random>

#include "sparse_conv/test_cases.h"

namespace turnout::test {

struct NamedScale {
  IndicePairsParams params;
  std::int64_t rows;
};

inline NamedScale submanifold_scale() {
  return {{.batch_size = 4,
           .spatial_shape = {41, 1440, 1440},
           .kernel_size = {3, 3, 3},
           .padding = {1, 1, 1},
           .mode = ConvMode::submanifold},
          248'636};
}

inline NamedScale sparse_scale() {
  return {{.batch_size = 4,
           .spatial_shape = {11, 360, 360},
           .kernel_size = {3, 3, 3},
           .stride = {2, 2, 2},
           .padding = {0, 1, 1}},
          149'100};
}

// Shuffled sites in clusters of nine, so that most have neighbours, and the first and the last cell.
inline Sites clustered_sites(const IndicePairsParams& p, std::int64_t rows, unsigned seed) {
  IndicePairsParams coarse = p;
  for (int d = 0; d < 3; ++d) coarse.spatial_shape[d] = (p.spatial_shape[d] - 2) / 3;
  std::mt19937 random(seed);
  Sites sites;
  for (const auto& corner : make_sites(Pattern::sorted, coarse, rows / 9 + 1, seed))
    for (std::int64_t i = 0; i < 9; ++i)
      sites.push_back(
          {corner[0], 3 * corner[1] + (i + corner[3]) % 3, 3 * corner[2] + i / 3, 3 * corner[3] + i % 3});
  sites.resize(static_cast<std::size_t>(rows) - 2);
  sites.push_back({0, 0, 0, 0});
  sites.push_back({p.batch_size - 1, p.spatial_shape[0] - 1, p.spatial_shape[1] - 1, p.spatial_shape[2] - 1});
  std::shuffle(sites.begin(), sites.end(), random);
  return sites;
}

}  // namespace turnout::test
