// MoeReRouting and MoeReRoutingV2 of the CANN interface, which has two phases.
#include "turnout/aclnn/aclnn_moe_re_routing.h"

#include <string>

#include "bindings/aclnn/executor.h"
#include "bindings/aclnn/status.h"
#include "core/draft.h"
#include "moe_re_routing/moe_re_routing.h"
#include "moe_re_routing/signature.h"

namespace turnout::families::moe_re_routing {

using namespace core;
using namespace bindings::aclnn;
namespace {

// Required arguments are checked for NULL before these steps. Empty inputs are not skipped: without tokens
// the counts are still written. Strided inputs are copied; strided outputs are rejected, as in CANN.
constexpr StepSpec kOutputsContiguous = {
    Check::contiguous, ErrorCode::bad_param,
    "permuteTokens permutePerTokenScales permuteTokenIdx expertTokenNum permuteTopkWeightOptional"};
constexpr StepSpec kQuerySteps[] = {{Check::ranks}, {Check::dtypes},    {Check::scalars},  {Check::shapes},
                                    {Check::rules}, kOutputsContiguous, {Check::pointers}, {Check::overlap}};
constexpr StepSpec kRunSteps[] = {{Check::ranks},    {Check::dtypes},  {Check::scalars},
                                  {Check::shapes},   {Check::rules},   kOutputsContiguous,
                                  {Check::pointers}, {Check::overlap}, {Check::workspace}};

std::size_t scratch_bytes(const Arguments& arguments, const Positions& at) {
  return re_routing_scratch(arguments, at) + bytes_of_copies(arguments);
}

// MoeReRouting is MoeReRoutingV2 without weights.
consteval Draft re_routing(std::string_view op, std::span<const StepSpec> steps) {
  return {
      op,
      "rows hidden ranks experts scale_width",
      {choice("expertTokenNumType", "count", 1), choice("idxType", "gather scatter")},
      {in("tokens", dtypes(DType::f16, DType::bf16, DType::i8, DType::f8_e4m3fn, DType::f8_e5m2),
          "rows, hidden"),
       in("expertTokenNumPerRank", kIndices, "ranks, experts"),
       optional(in("perTokenScalesOptional", dtypes(DType::f32, DType::f8_e8m0), "rows, scale_width?")),
       optional(in("expertTopkWeightOptional", dtypes(DType::f32), "rows, 1")),
       out("permuteTokens", like("tokens"), "rows, hidden"),
       required_with("perTokenScalesOptional",
                     out("permutePerTokenScales", like("perTokenScalesOptional"), "rows, scale_width?")),
       out("permuteTokenIdx", dtypes(DType::i32), "rows"),
       out("expertTokenNum", like("expertTokenNumPerRank"), "experts"),
       required_with("expertTopkWeightOptional",
                     out("permuteTopkWeightOptional", dtypes(DType::f32), "rows, 1"))},
      {at_most("1", "hidden"), at_most("1", "ranks"), at_most("1", "experts"), at_most("rows", "2147483647")},
      {},
      steps,
      {&scratch_bytes, "tokens expertTokenNumPerRank perTokenScalesOptional"}};
}

constexpr const Signature& kQuery =
    signature([] { return re_routing("aclnnMoeReRoutingGetWorkspaceSize", kQuerySteps); });
constexpr const Signature& kRun = signature([] { return re_routing("aclnnMoeReRouting", kRunSteps); });
constexpr const Signature& kQueryV2 =
    signature([] { return re_routing("aclnnMoeReRoutingV2GetWorkspaceSize", kQuerySteps); });
constexpr const Signature& kRunV2 = signature([] { return re_routing("aclnnMoeReRoutingV2", kRunSteps); });

constexpr Renames kNames(kMoeReRouting, kRun,
                         "expert_token_num_type=expertTokenNumType idx_type=idxType "
                         "expert_token_num_per_rank=expertTokenNumPerRank "
                         "per_token_scales=perTokenScalesOptional permute_tokens=permuteTokens "
                         "permute_per_token_scales=permutePerTokenScales permute_token_idx=permuteTokenIdx "
                         "expert_token_num=expertTokenNum");

void run(const Caller& caller, const Tensor* t, const std::int64_t* scalars) {
  re_route(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8],
           {static_cast<ExpertTokenNum>(scalars[0]), static_cast<TokenIdx>(scalars[1])}, caller);
}
constexpr Operation kOperation = {kQuery, kRun, kNames, &run};
constexpr Operation kOperationV2 = {kQueryV2, kRunV2, kNames, &run};

struct Given {
  const aclTensor *tokens, *counts, *scales, *weights;
  const aclTensor *permute_tokens, *permute_scales, *idx, *num, *permute_weights;
};

// Replaces an argument by a copy of it and returns the view of the copy, for the caller to change.
Tensor& replace(const aclTensor*& given, aclTensor& copy) {
  copy = *given;
  given = &copy;
  return copy.view;
}

// Whether the last two of three dimensions can be merged.
bool can_join(const Tensor& view) {
  std::int64_t product = 0;
  return view.rank == 3 && !__builtin_mul_overflow(view.shape[1], view.shape[2], &product) &&
         (view.shape[1] <= 1 || view.shape[2] == 0 || view.stride[1] == view.shape[2] * view.stride[2]);
}
void join(Tensor& view) {
  view.shape[1] *= view.shape[2];
  view.stride[1] = view.stride[2];
  view.rank = 2;
}

// Phase 1: converts CANN's arguments to those of the signature, which allows fewer types and ranks.
aclnnStatus prepare(const Operation& operation, Given given, std::int64_t num_type, std::int64_t idx_type,
                    std::uint64_t* workspace_size, aclOpExecutor** executor) noexcept {
  const auto refuse_it = [&](const std::string& what) {
    return refuse(ACLNN_ERR_PARAM_INVALID, concat(operation.query.op, ": ", what));
  };
  aclTensor tokens, permute_tokens, scales, permute_scales;
  try {
    if (given.tokens != nullptr && given.permute_tokens != nullptr && is_type_of_bytes(given.tokens->type)) {
      if (given.permute_tokens->type != given.tokens->type)
        return refuse_it(concat("permuteTokens has aclDataType ", std::int64_t{given.permute_tokens->type},
                                ", expected ", std::int64_t{given.tokens->type}, ", that of tokens"));
      replace(given.tokens, tokens).dtype = replace(given.permute_tokens, permute_tokens).dtype = DType::i8;
    }
    if (given.scales == nullptr) {
      given.permute_scales = nullptr;  // not written, so its shape does not matter
    } else if (given.permute_scales != nullptr && can_join(given.scales->view) &&
               can_join(given.permute_scales->view) &&
               given.scales->view.shape[2] == given.permute_scales->view.shape[2]) {
      join(replace(given.scales, scales));
      join(replace(given.permute_scales, permute_scales));
    }
    if (given.weights == nullptr && given.permute_weights != nullptr) {
      if (!Slot(given.permute_weights->view).is_empty())
        return refuse_it(
            "permuteTopkWeightOptional is given, expected NULL without expertTopkWeightOptional");
      given.permute_weights = nullptr;
    }
  } catch (...) {
    return fail_as_thrown();
  }
  return bindings::aclnn::prepare(
      operation,
      {given.tokens, given.counts, given.scales, given.weights, given.permute_tokens, given.permute_scales,
       given.idx, given.num, given.permute_weights},
      {num_type, idx_type}, workspace_size, executor);
}

}  // namespace
}  // namespace turnout::families::moe_re_routing

namespace re_routing = turnout::families::moe_re_routing;

aclnnStatus aclnnMoeReRoutingGetWorkspaceSize(
    const aclTensor* tokens, const aclTensor* expertTokenNumPerRank, const aclTensor* perTokenScalesOptional,
    int64_t expertTokenNumType, int64_t idxType, const aclTensor* permuteTokens,
    const aclTensor* permutePerTokenScales, const aclTensor* permuteTokenIdx, const aclTensor* expertTokenNum,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return re_routing::prepare(re_routing::kOperation,
                             {tokens, expertTokenNumPerRank, perTokenScalesOptional, nullptr, permuteTokens,
                              permutePerTokenScales, permuteTokenIdx, expertTokenNum, nullptr},
                             expertTokenNumType, idxType, workspaceSize, executor);
}

aclnnStatus aclnnMoeReRouting(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream) {
  return turnout::bindings::aclnn::execute(re_routing::kOperation, {workspace, workspaceSize}, executor);
}

aclnnStatus aclnnMoeReRoutingV2GetWorkspaceSize(
    const aclTensor* tokens, const aclTensor* expertTokenNumPerRank, const aclTensor* perTokenScalesOptional,
    const aclTensor* expertTopkWeightOptional, int64_t expertTokenNumType, int64_t idxType,
    const aclTensor* permuteTokens, const aclTensor* permutePerTokenScales, const aclTensor* permuteTokenIdx,
    const aclTensor* expertTokenNum, const aclTensor* permuteTopkWeightOptional, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  return re_routing::prepare(
      re_routing::kOperationV2,
      {tokens, expertTokenNumPerRank, perTokenScalesOptional, expertTopkWeightOptional, permuteTokens,
       permutePerTokenScales, permuteTokenIdx, expertTokenNum, permuteTopkWeightOptional},
      expertTokenNumType, idxType, workspaceSize, executor);
}

aclnnStatus aclnnMoeReRoutingV2(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                aclrtStream) {
  return turnout::bindings::aclnn::execute(re_routing::kOperationV2, {workspace, workspaceSize}, executor);
}
