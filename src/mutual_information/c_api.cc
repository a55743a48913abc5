// The C functions of this family, each with its order of checks.
#include "bindings/mluop/call.h"
#include "core/draft.h"
#include "mutual_information/plan.h"
#include "mutual_information/signature.h"
#include "runtime/caller.h"
#include "turnout/mutual_information.h"

namespace turnout::families::mutual_information {

using namespace core;
using namespace bindings;
namespace {

constexpr StepSpec kQuerySteps[] = {{Check::present}};

// The operators themselves check the elements of the boundary.
constexpr StepSpec kForwardSteps[] = {{Check::present},
                                      {Check::ranks},
                                      {Check::shapes, ErrorCode::bad_param, "px.0 py.0 p.0 ans.0"},
                                      {Check::shapes, ErrorCode::bad_param, "px.1 py.2"},  // defines S and T
                                      {Check::shapes, ErrorCode::not_supported, "px.2"},
                                      {Check::shapes, ErrorCode::bad_param, "py.1 opt_boundary p"},
                                      {Check::contiguous, ErrorCode::not_supported},
                                      {Check::dtypes, ErrorCode::not_supported},
                                      {Check::large, ErrorCode::not_supported},
                                      {Check::outputs_empty},
                                      {Check::workspace_null},
                                      {Check::workspace},
                                      {Check::pointers, ErrorCode::bad_param, "px py p ans"},
                                      {Check::pointers, ErrorCode::bad_param, "opt_boundary"}};

constexpr StepSpec kBackwardSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::shapes, ErrorCode::bad_param, "px.0 py.0 p.0 ans_grad.0 px_grad.0 py_grad.0"},
    {Check::shapes, ErrorCode::bad_param, "px.1 py.2"},
    {Check::shapes, ErrorCode::not_supported, "px.2"},
    {Check::shapes, ErrorCode::bad_param, "py.1 opt_boundary p px_grad py_grad"},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::dtypes, ErrorCode::not_supported},
    {Check::large, ErrorCode::not_supported},
    {Check::outputs_empty, ErrorCode::bad_param, "px_grad py_grad"},
    {Check::workspace_null},
    {Check::workspace},
    {Check::pointers, ErrorCode::bad_param, "px px_grad py py_grad p ans_grad"},
    {Check::pointers, ErrorCode::bad_param, "opt_boundary"}};

// Depends only on p, which queries do not compare with other tensors. Returns 0 for a p that no call accepts.
std::size_t scratch_bytes(const Arguments& arguments, const Positions& at) {
  const Slot& p = arguments.slot(at[0]);
  if (p.rank != 3 || p.elements() == 0 || p.elements() >= kLargeElements) return 0;
  return LatticePlan(p.shape[0], p.shape[1] - 1, p.shape[2] - 1, arguments.threads()).scratch_bytes();
}
constexpr ScratchBytes kScratch = {&scratch_bytes, "p"};

constexpr DTypes kFloat = dtypes(DType::f32);
constexpr std::string_view kPxDims = "batch, symbols, frames + 1";
constexpr std::string_view kPyDims = "batch, symbols + 1, frames";
constexpr std::string_view kPDims = "batch, symbols + 1, frames + 1";
constexpr ArgumentSpec kOptBoundary = optional(in("opt_boundary", dtypes(DType::i64), "batch, 4"));

consteval Draft forward_c(std::string_view op, std::span<const StepSpec> steps) {
  return {op,
          "batch symbols frames",
          {},
          {in("px", kFloat, kPxDims), in("py", kFloat, kPyDims), kOptBoundary, inout("p", kFloat, kPDims),
           out("ans", kFloat, "batch")},
          {},
          {},
          steps,
          kScratch};
}

}  // namespace

constexpr const Signature& kMluOpGetMutualInformationForwardWorkspaceSize =
    signature([] { return forward_c("mluOpGetMutualInformationForwardWorkspaceSize", kQuerySteps); });
constexpr const Signature& kMluOpMutualInformationForward =
    signature([] { return forward_c("mluOpMutualInformationForward", kForwardSteps); });

constexpr const Signature& kMluOpGetMutualInformationBackwardWorkspaceSize = signature([] {
  return Draft{"mluOpGetMutualInformationBackwardWorkspaceSize",
               "batch symbols frames",
               {flag("overwrite_ans_grad")},
               {in("px", kFloat, kPxDims), in("py", kFloat, kPyDims), kOptBoundary, in("p", kFloat, kPDims),
                in("ans_grad", kFloat, "batch")},
               {},
               {},
               kQuerySteps,
               kScratch};
});

constexpr const Signature& kMluOpMutualInformationBackward = signature([] {
  return Draft{
      "mluOpMutualInformationBackward",
      "batch symbols frames",
      {flag("overwrite_ans_grad")},
      {in("px", kFloat, kPxDims), in("py", kFloat, kPyDims), kOptBoundary, in("p", kFloat, kPDims),
       inout("ans_grad", kFloat, "batch"), out("px_grad", kFloat, kPxDims), out("py_grad", kFloat, kPyDims)},
      {},
      {},
      kBackwardSteps,
      kScratch};
});

namespace {
constexpr Renames kForwardNames(kMutualInformationForward, kMluOpMutualInformationForward,
                                "boundary=opt_boundary outside=");
constexpr Renames kBackwardNames(kMutualInformationBackward, kMluOpMutualInformationBackward,
                                 "boundary=opt_boundary");
}  // namespace

}  // namespace turnout::families::mutual_information

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::mutual_information;

mluOpStatus_t mluOpGetMutualInformationForwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t px_desc, const mluOpTensorDescriptor_t py_desc,
    const mluOpTensorDescriptor_t opt_boundary_desc, const mluOpTensorDescriptor_t p_desc,
    const mluOpTensorDescriptor_t ans_desc, size_t* workspace_size) {
  return query(handle, kMluOpGetMutualInformationForwardWorkspaceSize,
               {px_desc, py_desc, opt_boundary_desc, p_desc, ans_desc}, {}, workspace_size);
}

mluOpStatus_t mluOpMutualInformationForward(mluOpHandle_t handle, const mluOpTensorDescriptor_t px_desc,
                                            const void* px, const mluOpTensorDescriptor_t py_desc,
                                            const void* py, const mluOpTensorDescriptor_t opt_boundary_desc,
                                            const void* opt_boundary, const mluOpTensorDescriptor_t p_desc,
                                            void* p, void* workspace, const size_t workspace_size,
                                            const mluOpTensorDescriptor_t ans_desc, void* ans) {
  return call(handle, kMluOpMutualInformationForward, kForwardNames,
              {{px_desc, px}, {py_desc, py}, {opt_boundary_desc, opt_boundary}, {p_desc, p}, {ans_desc, ans}},
              {},
              [&](const Caller& caller, const turnout::Tensor* t) {
                mutual_information_forward(t[0], t[1], t[2], t[3], t[4], turnout::Outside::keep, caller);
              },
              {workspace, workspace_size});
}

mluOpStatus_t mluOpGetMutualInformationBackwardWorkspaceSize(
    mluOpHandle_t handle, const mluOpTensorDescriptor_t px_desc, const mluOpTensorDescriptor_t py_desc,
    const mluOpTensorDescriptor_t opt_boundary_desc, const mluOpTensorDescriptor_t p_desc,
    const mluOpTensorDescriptor_t ans_grad_desc, const bool overwrite_ans_grad, size_t* workspace_size) {
  return query(handle, kMluOpGetMutualInformationBackwardWorkspaceSize,
               {px_desc, py_desc, opt_boundary_desc, p_desc, ans_grad_desc}, {overwrite_ans_grad},
               workspace_size);
}

mluOpStatus_t mluOpMutualInformationBackward(mluOpHandle_t handle, const mluOpTensorDescriptor_t px_desc,
                                             const void* px, const mluOpTensorDescriptor_t py_desc,
                                             const void* py, const mluOpTensorDescriptor_t opt_boundary_desc,
                                             const void* opt_boundary, const mluOpTensorDescriptor_t p_desc,
                                             const void* p, const mluOpTensorDescriptor_t ans_grad_desc,
                                             void* ans_grad, const bool overwrite_ans_grad, void* workspace,
                                             const size_t workspace_size,
                                             const mluOpTensorDescriptor_t px_grad_desc, void* px_grad,
                                             const mluOpTensorDescriptor_t py_grad_desc, void* py_grad) {
  return call(handle, kMluOpMutualInformationBackward, kBackwardNames,
              {{px_desc, px},
               {py_desc, py},
               {opt_boundary_desc, opt_boundary},
               {p_desc, p},
               {ans_grad_desc, ans_grad},
               {px_grad_desc, px_grad},
               {py_grad_desc, py_grad}},
              {overwrite_ans_grad},
              [&](const Caller& caller, const turnout::Tensor* t) {
                mutual_information_backward(t[0], t[1], t[2], t[3], t[4], t[5], t[6], overwrite_ans_grad,
                                            caller);
              },
              {workspace, workspace_size});
}
