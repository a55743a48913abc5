// The C functions of this family, each with the order of checks that its clients rely on.
#include "bindings/mluop/call.h"
#include "core/draft.h"
#include "moe_dispatch/signature.h"
#include "runtime/caller.h"
#include "turnout/moe_dispatch.h"

namespace turnout::families::moe_dispatch {

using namespace core;
using namespace bindings;
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

// If another tensor is empty the gradient is zero, so only the pointer of the gradient is checked first.
constexpr StepSpec kBackwardDataSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::shapes},
    {Check::dtypes},
    {Check::scalars},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::large, ErrorCode::not_supported},
    {Check::pointers, ErrorCode::bad_param, "grad_input"},
    {Check::any_empty},
    {Check::pointers, ErrorCode::bad_param, "gates indices locations dispatch"}};

constexpr StepSpec kBackwardGateSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::dtypes, ErrorCode::bad_param, "indices locations input dispatch grad_gates"},
    {Check::scalars},
    {Check::shapes, ErrorCode::bad_param,
     "indices.0 locations.0 input.0 grad_gates.0 dispatch.0 input.1 dispatch.1"},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::large, ErrorCode::not_supported},
    {Check::pointers, ErrorCode::bad_param, "grad_gates"},
    {Check::any_empty},
    {Check::workspace_null},
    {Check::pointers, ErrorCode::bad_param, "indices locations input dispatch"}};

constexpr StepSpec kQuerySteps[] = {{Check::present}};
constexpr ScratchBytes kNoScratch = {[](const Arguments&, const Positions&) { return std::size_t{0}; }};

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

constexpr const Signature& kMluOpMoeDispatchBackwardData = signature([] {
  return Draft{"mluOpMoeDispatchBackwardData",
               "",
               {scalar("samples", 0), scalar("capacity", 0), scalar("hidden", 0), scalar("num_experts", 0)},
               {in("gates", dtypes(DType::f32), "samples"), in("indices", dtypes(DType::i32), "samples"),
                in("locations", dtypes(DType::i32), "samples"),
                in("dispatch", like("gates"), "num_experts * capacity, hidden"),
                out("grad_input", like("gates"), "samples, hidden")},
               {},
               {},
               kBackwardDataSteps};
});

constexpr const Signature& kMluOpMoeDispatchBackwardGate = signature([] {
  return Draft{"mluOpMoeDispatchBackwardGate",
               "",
               {scalar("samples", 0), scalar("capacity", 0), scalar("hidden", 0), scalar("num_experts", 0)},
               {in("indices", dtypes(DType::i32), "samples"), in("locations", dtypes(DType::i32), "samples"),
                in("input", dtypes(DType::f32), "samples, hidden"),
                in("dispatch", like("input"), "num_experts * capacity, hidden"),
                out("grad_gates", like("input"), "samples")},
               {},
               {},
               kBackwardGateSteps};
});

constexpr const Signature& kMluOpGetMoeDispatchBackwardGateWorkspaceSize = signature([] {
  return Draft{"mluOpGetMoeDispatchBackwardGateWorkspaceSize",
               "samples hidden",
               {},
               {in("input", kAnyDType, "samples, hidden")},
               {},
               {},
               kQuerySteps,
               kNoScratch};
});

namespace {
constexpr Renames kForwardNames(kMoeDispatchForward, kMluOpMoeDispatchForward, "fill=");
constexpr Renames kBackwardDataNames(kMoeDispatchBackwardData, kMluOpMoeDispatchBackwardData, "");
constexpr Renames kBackwardGateNames(kMoeDispatchBackwardGate, kMluOpMoeDispatchBackwardGate, "");
}  // namespace

}  // namespace turnout::families::moe_dispatch

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
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
              {samples, capacity, hidden, num_experts}, [&](const Caller& caller, const turnout::Tensor* t) {
                moe_dispatch_forward(t[0], t[1], t[2], t[3], t[4],
                                     {.capacity = capacity, .num_experts = num_experts}, caller);
              });
}

mluOpStatus_t mluOpMoeDispatchBackwardData(mluOpHandle_t handle, const mluOpTensorDescriptor_t gates_desc,
                                           const void* gates, const mluOpTensorDescriptor_t indices_desc,
                                           const void* indices, const mluOpTensorDescriptor_t locations_desc,
                                           const void* locations, const mluOpTensorDescriptor_t dispatch_desc,
                                           const void* dispatch, const int samples, const int capacity,
                                           const int hidden, const int num_experts,
                                           const mluOpTensorDescriptor_t grad_input_desc, void* grad_input) {
  bool ran = false;
  const mluOpStatus_t status =
      call(handle, kMluOpMoeDispatchBackwardData, kBackwardDataNames,
           {{gates_desc, gates},
            {indices_desc, indices},
            {locations_desc, locations},
            {dispatch_desc, dispatch},
            {grad_input_desc, grad_input}},
           {samples, capacity, hidden, num_experts}, [&](const Caller& caller, const turnout::Tensor* t) {
             ran = true;
             moe_dispatch_backward_data(t[0], t[1], t[2], t[3], t[4],
                                        {.capacity = capacity, .num_experts = num_experts}, caller);
           });
  if (status == MLUOP_STATUS_SUCCESS && !ran) fill_result({grad_input_desc, grad_input}, 0);
  return status;
}

mluOpStatus_t mluOpGetMoeDispatchBackwardGateWorkspaceSize(mluOpHandle_t handle,
                                                           const mluOpTensorDescriptor_t input_desc,
                                                           size_t* workspace_size) {
  return query(handle, kMluOpGetMoeDispatchBackwardGateWorkspaceSize, {input_desc}, {}, workspace_size);
}

mluOpStatus_t mluOpMoeDispatchBackwardGate(mluOpHandle_t handle, const mluOpTensorDescriptor_t indices_desc,
                                           const void* indices, const mluOpTensorDescriptor_t locations_desc,
                                           const void* locations, const mluOpTensorDescriptor_t input_desc,
                                           const void* input, const mluOpTensorDescriptor_t dispatch_desc,
                                           const void* dispatch, const int samples, const int capacity,
                                           const int hidden, const int num_experts, void* workspace,
                                           const size_t workspace_size,
                                           const mluOpTensorDescriptor_t grad_gates_desc, void* grad_gates) {
  bool ran = false;
  const mluOpStatus_t status =
      call(handle, kMluOpMoeDispatchBackwardGate, kBackwardGateNames,
           {{indices_desc, indices},
            {locations_desc, locations},
            {input_desc, input},
            {dispatch_desc, dispatch},
            {grad_gates_desc, grad_gates}},
           {samples, capacity, hidden, num_experts},
           [&](const Caller& caller, const turnout::Tensor* t) {
             ran = true;
             moe_dispatch_backward_gate(t[0], t[1], t[2], t[3], t[4],
                                        {.capacity = capacity, .num_experts = num_experts}, caller);
           },
           {workspace, workspace_size});
  if (status == MLUOP_STATUS_SUCCESS && !ran) fill_result({grad_gates_desc, grad_gates}, 0);
  return status;
}
