// The C functions of this family, each with its order of checks.
#include "bindings/mluop/call.h"
#include "core/draft.h"
#include "moe_re_routing/signature.h"
#include "turnout/moe_re_routing.h"

namespace turnout::families::moe_re_routing {

using namespace core;
using namespace bindings;
namespace {

constexpr StepSpec kQuerySteps[] = {{Check::present},
                                    {Check::ranks},
                                    {Check::dtypes},
                                    {Check::shapes},
                                    {Check::rules},
                                    {Check::contiguous, ErrorCode::not_supported},
                                    {Check::large, ErrorCode::not_supported}};

// Empty inputs are not skipped: without tokens the counts are still written.
constexpr StepSpec kReRoutingSteps[] = {{Check::present},
                                        {Check::ranks},
                                        {Check::dtypes},
                                        {Check::scalars},
                                        {Check::shapes},
                                        {Check::rules},
                                        {Check::contiguous, ErrorCode::not_supported},
                                        {Check::large, ErrorCode::not_supported},
                                        {Check::workspace},
                                        {Check::pointers}};

constexpr StepSpec kInverseSteps[] = {{Check::present},
                                      {Check::ranks},
                                      {Check::dtypes},
                                      {Check::scalars},
                                      {Check::shapes},
                                      {Check::rules},
                                      {Check::contiguous, ErrorCode::not_supported},
                                      {Check::large, ErrorCode::not_supported},
                                      {Check::any_empty},
                                      {Check::pointers}};

constexpr ScratchBytes kScratch = {&re_routing_scratch, "tokens counts scales"};

}  // namespace

constexpr const Signature& kMluOpGetMoeReRoutingWorkspaceSize = signature([] {
  return Draft{"mluOpGetMoeReRoutingWorkspaceSize",
               "rows hidden ranks experts scale_width",
               {},
               {in("tokens", kAnyDType, "rows, hidden"), in("counts", kIndices, "ranks, experts"),
                optional(in("scales", kAnyDType, "rows, scale_width?"))},
               {at_most("1", "hidden"), at_most("1", "ranks"), at_most("1", "experts")},
               {},
               kQuerySteps,
               kScratch};
});

constexpr const Signature& kMluOpMoeReRouting = signature([] {
  return Draft{"mluOpMoeReRouting",
               "rows hidden ranks experts scale_width",
               {choice("expert_token_num_type", "cumsum count"), choice("idx_type", "gather scatter")},
               {in("tokens", kAnyDType, "rows, hidden"), in("counts", kIndices, "ranks, experts"),
                optional(in("scales", kAnyDType, "rows, scale_width?")),
                out("permute_tokens", like("tokens"), "rows, hidden"),
                required_with("scales", out("permute_scales", like("scales"), "rows, scale_width?")),
                out("idx", dtypes(DType::i32), "rows"), out("expert_token_num", like("counts"), "experts")},
               {at_most("1", "hidden"), at_most("1", "ranks"), at_most("1", "experts")},
               {},
               kReRoutingSteps,
               kScratch};
});

constexpr const Signature& kMluOpMoeReRoutingInverse = signature([] {
  return Draft{"mluOpMoeReRoutingInverse",
               "rows hidden",
               {choice("idx_type", "gather scatter")},
               {in("permute_tokens", kAnyDType, "rows, hidden"), in("idx", dtypes(DType::i32), "rows"),
                out("tokens", like("permute_tokens"), "rows, hidden")},
               {at_most("1", "hidden")},
               {},
               kInverseSteps};
});

namespace {
constexpr Renames kReRoutingNames(kMoeReRouting, kMluOpMoeReRouting,
                                  "expert_token_num_per_rank=counts per_token_scales=scales "
                                  "permute_per_token_scales=permute_scales permute_token_idx=idx");
constexpr Renames kInverseNames(kMoeReRoutingInverse, kMluOpMoeReRoutingInverse, "permute_token_idx=idx");
}  // namespace

}  // namespace turnout::families::moe_re_routing

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::moe_re_routing;

mluOpStatus_t mluOpGetMoeReRoutingWorkspaceSize(mluOpHandle_t handle,
                                                const mluOpTensorDescriptor_t tokens_desc,
                                                const mluOpTensorDescriptor_t counts_desc,
                                                const mluOpTensorDescriptor_t scales_desc,
                                                size_t* workspace_size) {
  return query(handle, kMluOpGetMoeReRoutingWorkspaceSize, {tokens_desc, counts_desc, scales_desc}, {},
               workspace_size);
}

mluOpStatus_t mluOpMoeReRouting(mluOpHandle_t handle, const mluOpTensorDescriptor_t tokens_desc,
                                const void* tokens, const mluOpTensorDescriptor_t counts_desc,
                                const void* counts, const mluOpTensorDescriptor_t scales_desc,
                                const void* scales, const int64_t expert_token_num_type,
                                const int64_t idx_type, void* workspace, size_t workspace_size,
                                const mluOpTensorDescriptor_t permute_tokens_desc, void* permute_tokens,
                                const mluOpTensorDescriptor_t permute_scales_desc, void* permute_scales,
                                const mluOpTensorDescriptor_t idx_desc, void* idx,
                                const mluOpTensorDescriptor_t expert_token_num_desc, void* expert_token_num) {
  return call(handle, kMluOpMoeReRouting, kReRoutingNames,
              {{tokens_desc, tokens},
               {counts_desc, counts},
               {scales_desc, scales},
               {permute_tokens_desc, permute_tokens},
               {permute_scales_desc, permute_scales},
               {idx_desc, idx},
               {expert_token_num_desc, expert_token_num}},
              {expert_token_num_type, idx_type},
              [&](const Caller& caller, const turnout::Tensor* t) {
                turnout::moe_re_routing(t[0], t[1], t[2], t[3], t[4], t[5], t[6],
                                        {static_cast<turnout::ExpertTokenNum>(expert_token_num_type),
                                         static_cast<turnout::TokenIdx>(idx_type)},
                                        caller);
              },
              {workspace, workspace_size});
}

mluOpStatus_t mluOpMoeReRoutingInverse(mluOpHandle_t handle,
                                       const mluOpTensorDescriptor_t permute_tokens_desc,
                                       const void* permute_tokens, const mluOpTensorDescriptor_t idx_desc,
                                       const void* idx, const int64_t idx_type,
                                       const mluOpTensorDescriptor_t tokens_desc, void* tokens) {
  return call(handle, kMluOpMoeReRoutingInverse, kInverseNames,
              {{permute_tokens_desc, permute_tokens}, {idx_desc, idx}, {tokens_desc, tokens}}, {idx_type},
              [&](const Caller& caller, const turnout::Tensor* t) {
                moe_re_routing_inverse(t[0], t[1], t[2], static_cast<turnout::TokenIdx>(idx_type), caller);
              });
}
