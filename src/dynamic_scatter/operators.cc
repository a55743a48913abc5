// The operators of this family.
#include "dynamic_scatter/example.h"
#include "dynamic_scatter/signature.h"
#include "registry.h"
#include "turnout/dynamic_scatter.h"

namespace turnout::families::dynamic_scatter {

std::span<const Operator> operators() {
  static constexpr auto kFillGrid = [](const Tensor* t) { fill_grid(t[1], t[2]); };
  static constexpr auto kFillMap = [](const Tensor* t) { fill_map(t[0], t[3], t[5]); };
  static constexpr Operator kOperators[] = {
      op<&voxelize>(kVoxelize, "rows=5 features=4", {.prepare = kFillGrid}),
      op<&voxelize_hard>(kVoxelizeHard, "rows=5 features=4 max_voxels=3 max_points=2",
                         {.prepare = kFillGrid}),
      op<&dynamic_scatter_forward>(kDynamicScatterForward,
                                   "reduce_type=2 points=5 channels=7 dims=3 voxels=4"),
      op<&dynamic_scatter_backward>(kDynamicScatterBackward, "reduce_type=0 voxels=4 channels=7 points=5",
                                    {.prepare = kFillMap}),
      op<&scatter_sum>(kScatterSum, "rows=5 channels=7 groups=4"),
      op<&scatter_mean>(kScatterMean, "rows=5 channels=7 groups=4"),
      op<&scatter_max>(kScatterMax, "rows=5 channels=7 groups=4"),
      op<&scatter_sum_backward>(kScatterSumBackward, "groups=4 channels=7 rows=5"),
      op<&scatter_mean_backward>(kScatterMeanBackward, "groups=4 channels=7 rows=5"),
      op<&scatter_max_backward>(kScatterMaxBackward, "groups=4 channels=7 rows=5"),
  };
  return kOperators;
}

}  // namespace turnout::families::dynamic_scatter
