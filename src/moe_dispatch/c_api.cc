// The C functions of this family, each with the order of checks that its clients rely on.
#include "core/draft.h"
#include "doors/c/call.h"
#include "moe_dispatch/moe_dispatch.h"
#include "moe_dispatch/signature.h"

namespace turnout::families::moe_dispatch {

using namespace core;
using namespace doors;
namespace {

constexpr StepSpec kForwardSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::dtypes, ErrorCode::bad_param, "indices locations input dispatch gates"},
    {Check::scalars},
    {Check::shapes, ErrorCode::bad_param,
     "gates.0 indices.0 locations.0 input.0 dispatch.0 input.1 dispatch.1"},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::large, ErrorCode::not_supported},
    {Check::any_empty},
    {Check::rules},
    {Check::pointers, ErrorCode::bad_param, "indices locations input dispatch gates"}};

}  // namespace

constexpr const Signature& kMluOpMoeDispatchForward = signature([] {
  return Draft{
      "mluOpMoeDispatchForward",
      "",
      {scalar("samples", 0), scalar("capacity", 0), scalar("hidden", 0), scalar("num_experts", 0)},
      {in("gates", like("input"), "samples"), in("indices", dtypes(DType::i32), "samples"),
       in("locations", dtypes(DType::i32), "samples"), in("input", dtypes(DType::f32), "samples, hidden"),
       may_overlap("input", inout("dispatch", like("input"), "num_experts * capacity, hidden"))},
      {at_most("samples", "num_experts * capacity")},
      {},
      kForwardSteps};
});

namespace {
constexpr Renames kForwardNames(kMoeDispatchForward, kMluOpMoeDispatchForward, "fill=");
}

}  // namespace turnout::families::moe_dispatch

using namespace turnout::core;
using namespace turnout::doors;
using namespace turnout::families::moe_dispatch;

mluOpStatus_t mluOpMoeDispatchForward(mluOpHandle_t handle, const mluOpTensorDescriptor_t gates_desc,
                                      const void* gates, const mluOpTensorDescriptor_t indices_desc,
                                      const void* indices, const mluOpTensorDescriptor_t locations_desc,
                                      const void* locations, const mluOpTensorDescriptor_t input_desc,
                                      const void* input, const int samples, const int capacity,
                                      const int hidden, const int num_experts,
                                      const mluOpTensorDescriptor_t dispatch_desc, void* dispatch) {
  return call(handle, kMluOpMoeDispatchForward, kForwardNames,
              {{gates_desc, gates},
               {indices_desc, indices},
               {locations_desc, locations},
               {input_desc, input},
               {dispatch_desc, dispatch}},
              {samples, capacity, hidden, num_experts}, [&](const Frame& frame, const turnout::Tensor* t) {
                moe_dispatch_forward(frame, t[0], t[1], t[2], t[3], t[4],
                                     {.capacity = capacity, .num_experts = num_experts});
              });
}
