// The operators of this family, for what treats all operators alike.
#include "dynamic_scatter/example.h"
#include "dynamic_scatter/signature.h"
#include "registry.h"
#include "turnout/dynamic_scatter.h"

namespace turnout::families::dynamic_scatter {

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kVoxelize,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         voxelize(context, t[0], t[1], t[2], t[3]);
       },
       "rows=5 features=4", [](const Tensor* t) { fill_grid(t[1], t[2]); }},
      {&kVoxelizeHard,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         voxelize_hard(context, t[0], t[1], t[2], t[3], t[4], t[5], given(t[6]) ? &t[6] : nullptr);
       },
       "rows=5 features=4 max_voxels=3 max_points=2", [](const Tensor* t) { fill_grid(t[1], t[2]); }},
      {&kDynamicScatterForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         dynamic_scatter_forward(context, t[0], t[1], t[2], t[3], t[4], t[5], to_enum<Reduce>(s[0]));
       },
       "reduce_type=2 points=5 channels=7 dims=3 voxels=4"},
      {&kDynamicScatterBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor feats = t[1], voxel_feats = t[2], count = t[4], num = t[5];
         dynamic_scatter_backward(context, t[0],
                                  {.point2voxel_map = t[3],
                                   .feats = given(t[1]) ? &feats : nullptr,
                                   .voxel_feats = given(t[2]) ? &voxel_feats : nullptr,
                                   .voxel_points_count = given(t[4]) ? &count : nullptr,
                                   .voxel_num = given(t[5]) ? &num : nullptr},
                                  t[6], to_enum<Reduce>(s[0]));
       },
       "reduce_type=0 voxels=4 channels=7 points=5", [](const Tensor* t) { fill_map(t[0], t[3], t[5]); }},
      {&kScatterSum,
       [](Context& context, const Tensor* t, const ScalarValue*) { scatter_sum(context, t[0], t[1], t[2]); },
       "rows=5 channels=7 groups=4"},
      {&kScatterMean,
       [](Context& context, const Tensor* t, const ScalarValue*) { scatter_mean(context, t[0], t[1], t[2]); },
       "rows=5 channels=7 groups=4"},
      {&kScatterMax,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         scatter_max(context, t[0], t[1], t[2], t[3]);
       },
       "rows=5 channels=7 groups=4"},
      {&kScatterSumBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         scatter_sum_backward(context, t[0], t[1], t[2]);
       },
       "groups=4 channels=7 rows=5"},
      {&kScatterMeanBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         scatter_mean_backward(context, t[0], t[1], t[2]);
       },
       "groups=4 channels=7 rows=5"},
      {&kScatterMaxBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         scatter_max_backward(context, t[0], t[1], t[2], t[3]);
       },
       "groups=4 channels=7 rows=5"},
  };
  return kOperators;
}

}  // namespace turnout::families::dynamic_scatter
