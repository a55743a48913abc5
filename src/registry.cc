// One entry per operator.
#include "registry.h"

#include "dynamic_scatter/example.h"
#include "dynamic_scatter/signature.h"
#include "moe_dispatch/signature.h"
#include "moe_re_routing/example.h"
#include "moe_re_routing/signature.h"
#include "mutual_information/signature.h"
#include "sparse_conv/signature.h"
#include "turnout/dynamic_scatter.h"
#include "turnout/moe_dispatch.h"
#include "turnout/moe_re_routing.h"
#include "turnout/mutual_information.h"
#include "turnout/sparse_conv.h"

namespace turnout::core {

using namespace families::dynamic_scatter;
using namespace families::moe_dispatch;
using namespace families::moe_re_routing;
using namespace families::mutual_information;
using namespace families::sparse_conv;
namespace {

// The enum of a scalar; a value that its type cannot hold becomes one that the checks refuse.
template <class Enum>
Enum to_enum(const ScalarValue& scalar) {
  return static_cast<Enum>(scalar.value < 0 || scalar.value > 255 ? 255 : scalar.value);
}

Dims to_dims(const ScalarValue& scalar) { return {scalar.values, static_cast<int>(scalar.value)}; }

bool given(const Tensor& t) { return t.rank >= 0; }

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kMoeDispatchForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_dispatch_forward(context, t[0], t[1], t[2], t[3], t[4],
                              {s[0].value, s[1].value, to_enum<Fill>(s[2])});
       },
       "capacity=3 num_experts=2 fill=1 choices=2 samples=5 hidden=7"},
      {&kMoeReRouting,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor scales = t[2];
         moe_re_routing(context, t[0], t[1], given(t[2]) ? &scales : nullptr, t[3],
                        given(t[4]) ? &t[4] : nullptr, t[5], t[6],
                        {to_enum<ExpertTokenNum>(s[0]), to_enum<TokenIdx>(s[1])});
       },
       "expert_token_num_type=1 idx_type=0 rows=5 hidden=3 ranks=2 experts=3 scale_width=2",
       [](const Tensor* t) { fill_counts(t[0], t[1]); }},
      {&kMoeReRoutingInverse,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_re_routing_inverse(context, t[0], t[1], t[2], to_enum<TokenIdx>(s[0]));
       },
       "idx_type=0 rows=5 hidden=3", [](const Tensor* t) { fill_identity(t[1]); }},
      {&kGetIndicePairs,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         get_indice_pairs(context, t[0], t[1], t[2], t[3],
                          {.batch_size = s[0].value,
                           .spatial_shape = to_dims(s[1]),
                           .kernel_size = to_dims(s[2]),
                           .stride = to_dims(s[3]),
                           .padding = to_dims(s[4]),
                           .dilation = to_dims(s[5]),
                           .output_shape = to_dims(s[6]),
                           .mode = to_enum<ConvMode>(s[7])});
       },
       "batch_size=2 spatial_shape=4 kernel_size=3 stride=1 padding=1 dilation=1 output_shape=4 mode=0 "
       "rows=5 "
       "dims=3 out_rows=9"},
      {&kMutualInformationForward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         const ConstTensor boundary = t[2];
         mutual_information_forward(context, t[0], t[1], given(t[2]) ? &boundary : nullptr, t[3], t[4]);
       },
       "batch=2 symbols=3 columns=6 frames=5"},
      {&kMutualInformationBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor boundary = t[2];
         mutual_information_backward(context, t[0], t[1], given(t[2]) ? &boundary : nullptr, t[3], t[4], t[5],
                                     t[6], s[0].value != 0);
       },
       "overwrite_ans_grad=1 batch=2 symbols=3 columns=6 frames=5"},
      {&kMutualInformationForwardBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         const ConstTensor boundary = t[2];
         mutual_information_forward_backward(context, t[0], t[1], given(t[2]) ? &boundary : nullptr, t[3],
                                             t[4], t[5]);
       },
       "batch=2 symbols=3 columns=6 frames=5"},
      {&kVoxelize,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         voxelize(context, t[0], t[1], t[2], t[3]);
       },
       "rows=5 features=4", [](const Tensor* t) { fill_grid(t[1], t[2]); }},
      {&kVoxelizeHard,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         voxelize_hard(context, t[0], t[1], t[2], t[3], t[4], t[5]);
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
  };
  return kOperators;
}

}  // namespace turnout::core
