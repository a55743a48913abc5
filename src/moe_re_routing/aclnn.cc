// MoeReRouting as CANN's users call it: in two phases, with CANN's limits.
#include "turnout/aclnn/aclnn_moe_re_routing.h"

#include "core/draft.h"
#include "doors/aclnn/executor.h"
#include "moe_re_routing/moe_re_routing.h"
#include "moe_re_routing/signature.h"

namespace turnout::families::moe_re_routing {

using namespace core;
using namespace doors::aclnn;
namespace {

// Required arguments that are NULL are found before these steps. Empty inputs are not skipped: without tokens
// the counts are still written.
constexpr StepSpec kQuerySteps[] = {{Check::ranks}, {Check::dtypes},     {Check::scalars},  {Check::shapes},
                                    {Check::rules}, {Check::contiguous}, {Check::pointers}, {Check::overlap}};
constexpr StepSpec kRunSteps[] = {{Check::ranks},    {Check::dtypes},  {Check::scalars},
                                  {Check::shapes},   {Check::rules},   {Check::contiguous},
                                  {Check::pointers}, {Check::overlap}, {Check::workspace}};

consteval Draft re_routing(std::string_view op, std::span<const StepSpec> steps) {
  return {op,
          "rows hidden ranks experts",
          {choice("expertTokenNumType", "count", 1), choice("idxType", "gather")},
          {in("tokens", dtypes(DType::f16, DType::bf16, DType::i8), "rows, hidden"),
           in("expertTokenNumPerRank", kIndices, "ranks, experts"),
           optional(in("perTokenScalesOptional", dtypes(DType::f32), "rows")),
           out("permuteTokens", like("tokens"), "rows, hidden"),
           required_with("perTokenScalesOptional", out("permutePerTokenScales", dtypes(DType::f32), "rows")),
           out("permuteTokenIdx", dtypes(DType::i32), "rows"),
           out("expertTokenNum", like("expertTokenNumPerRank"), "experts")},
          {at_most("1", "hidden"), at_most("hidden", "16383"), at_most("1", "ranks"), at_most("1", "experts"),
           at_most("rows", "2147483647")},
          {},
          steps,
          {&re_routing_scratch, "tokens expertTokenNumPerRank perTokenScalesOptional"}};
}

constexpr const Signature& kQuery =
    signature([] { return re_routing("aclnnMoeReRoutingGetWorkspaceSize", kQuerySteps); });
constexpr const Signature& kRun = signature([] { return re_routing("aclnnMoeReRouting", kRunSteps); });

constexpr Renames kNames(kMoeReRouting, kRun,
                         "expert_token_num_type=expertTokenNumType idx_type=idxType "
                         "expert_token_num_per_rank=expertTokenNumPerRank "
                         "per_token_scales=perTokenScalesOptional permute_tokens=permuteTokens "
                         "permute_per_token_scales=permutePerTokenScales permute_token_idx=permuteTokenIdx "
                         "expert_token_num=expertTokenNum");

constexpr Operation kOperation = {
    kQuery, kRun, kNames, [](const Frame& frame, const Tensor* const* t, const std::int64_t* scalars) {
      const ConstTensor scales = t[2] == nullptr ? ConstTensor() : ConstTensor(*t[2]);
      moe_re_routing(frame, *t[0], *t[1], t[2] == nullptr ? nullptr : &scales, *t[3], t[4], *t[5], *t[6],
                     {static_cast<ExpertTokenNum>(scalars[0]), static_cast<TokenIdx>(scalars[1])});
    }};

}  // namespace
}  // namespace turnout::families::moe_re_routing

using namespace turnout::doors::aclnn;
using namespace turnout::families::moe_re_routing;

aclnnStatus aclnnMoeReRoutingGetWorkspaceSize(
    const aclTensor* tokens, const aclTensor* expertTokenNumPerRank, const aclTensor* perTokenScalesOptional,
    int64_t expertTokenNumType, int64_t idxType, const aclTensor* permuteTokens,
    const aclTensor* permutePerTokenScales, const aclTensor* permuteTokenIdx, const aclTensor* expertTokenNum,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare(kOperation,
                 {tokens, expertTokenNumPerRank, perTokenScalesOptional, permuteTokens, permutePerTokenScales,
                  permuteTokenIdx, expertTokenNum},
                 {expertTokenNumType, idxType}, workspaceSize, executor);
}

aclnnStatus aclnnMoeReRouting(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream) {
  return execute(kOperation, {workspace, workspaceSize}, executor);
}
