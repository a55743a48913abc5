// The C functions of this family, each with its order of checks.
#include "bindings/mluop/call.h"
#include "bindings/mluop/widen.h"
#include "core/draft.h"
#include "grouping/interpolation.h"
#include "grouping/signature.h"
#include "runtime/caller.h"
#include "runtime/context.h"

namespace turnout::families::grouping {

using namespace core;
using namespace bindings;
namespace {

constexpr DTypes kHalfOrFloat = dtypes(DType::f16, DType::f32), kInt = dtypes(DType::i32);

// A batch or channels of 0 leave an output or an input without elements, which is refused.
constexpr StepSpec kForwardSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::layout},
    {Check::dtypes},
    {Check::shapes, ErrorCode::bad_param,
     "features.0 indices.0 weights.0 indices.1 weights.1 indices.2 weights.2 output.0 features.1 output.1 "
     "output.2 features.2"},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::large, ErrorCode::not_supported},
    {Check::not_empty, ErrorCode::bad_param, "indices weights output"},
    {Check::any_empty, ErrorCode::bad_param, "features"},
    {Check::pointers},
    {Check::overlap}};
constexpr StepSpec kBackwardSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::layout},
    {Check::dtypes},
    {Check::shapes, ErrorCode::bad_param,
     "grad_output.0 indices.0 weights.0 indices.1 weights.1 indices.2 weights.2 grad_features.0 "
     "grad_output.1 grad_features.1 grad_output.2 grad_features.2"},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::large, ErrorCode::not_supported},
    {Check::not_empty, ErrorCode::bad_param, "grad_output indices weights"},
    {Check::any_empty, ErrorCode::bad_param, "grad_features"},
    {Check::pointers},
    {Check::overlap}};

}  // namespace

constexpr const Signature& kMluOpThreeInterpolateForward = signature([] {
  return Draft{
      "mluOpThreeInterpolateForward",
      "batch channels rows centers",
      {},
      {in("features", kHalfOrFloat, "batch, channels, rows"), in("indices", kInt, "batch, centers, 3"),
       in("weights", like("features"), "batch, centers, 3"),
       out("output", like("features"), "batch, channels, centers")},
      {},
      {},
      kForwardSteps};
});

constexpr const Signature& kMluOpThreeInterpolateBackward = signature([] {
  return Draft{
      "mluOpThreeInterpolateBackward",
      "batch channels centers rows",
      {},
      {in("grad_output", kHalfOrFloat, "batch, channels, centers"), in("indices", kInt, "batch, centers, 3"),
       in("weights", like("grad_output"), "batch, centers, 3"),
       out("grad_features", like("grad_output"), "batch, channels, rows")},
      {},
      {},
      kBackwardSteps};
});

namespace {
constexpr Renames kForwardNames(kThreeInterpolate, kMluOpThreeInterpolateForward, "out=output");
constexpr Renames kBackwardNames(kThreeInterpolateBackward, kMluOpThreeInterpolateBackward,
                                 "grad_out=grad_output");
}  // namespace

}  // namespace turnout::families::grouping

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::grouping;

mluOpStatus_t mluOpThreeInterpolateForward(mluOpHandle_t handle, const mluOpTensorDescriptor_t features_desc,
                                           const void* features, const mluOpTensorDescriptor_t indices_desc,
                                           const void* indices, const mluOpTensorDescriptor_t weights_desc,
                                           const void* weights, const mluOpTensorDescriptor_t output_desc,
                                           void* output) {
  return call(
      handle, kMluOpThreeInterpolateForward, kForwardNames,
      {{features_desc, features}, {indices_desc, indices}, {weights_desc, weights}, {output_desc, output}},
      {}, [](const Caller& caller, const turnout::Tensor* t) {
        Scratch scratch(caller.context(), widened_bytes({t[2]}));
        const turnout::Tensor weights_of_lane = widened(caller.context(), scratch, t[2]);
        interpolate_points(t[0], t[1], weights_of_lane, Strays::skip, t[3], caller);
      });
}

mluOpStatus_t mluOpThreeInterpolateBackward(mluOpHandle_t handle,
                                            const mluOpTensorDescriptor_t grad_output_desc,
                                            const void* grad_output,
                                            const mluOpTensorDescriptor_t indices_desc, const void* indices,
                                            const mluOpTensorDescriptor_t weights_desc, const void* weights,
                                            const mluOpTensorDescriptor_t grad_features_desc,
                                            void* grad_features) {
  return call(handle, kMluOpThreeInterpolateBackward, kBackwardNames,
              {{grad_output_desc, grad_output},
               {indices_desc, indices},
               {weights_desc, weights},
               {grad_features_desc, grad_features}},
              {}, [](const Caller& caller, const turnout::Tensor* t) {
                Scratch scratch(caller.context(), widened_bytes({t[2]}));
                const turnout::Tensor weights_of_lane = widened(caller.context(), scratch, t[2]);
                interpolate_points_backward(t[0], t[1], weights_of_lane, Strays::skip, t[3], caller);
              });
}
