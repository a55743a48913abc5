// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/draft.h"

namespace turnout::families::moe_re_routing {

using namespace core::grammar;

// The scratch memory of moe_re_routing's plan, for the C functions. Positions: tokens, counts, scales.
std::size_t re_routing_scratch(const Arguments& arguments, const Positions& at);

// The plans check the values of counts and permutations and keep what they have read, because another thread
// may change the caller's memory during a call.
inline constexpr const Signature& kMoeReRouting = signature([] {
  return Draft{
      "moe_re_routing",
      "rows hidden ranks experts scale_width",
      {by_default("count", code("expert_token_num_type", "cumsum count")),
       by_default("gather", code("idx_type", "gather scatter"))},
      {in("tokens", kAnyDType, "rows, hidden"), in("expert_token_num_per_rank", kIndices, "ranks, experts"),
       optional(in("per_token_scales", kAnyDType, "rows, scale_width?")),
       out("permute_tokens", like("tokens"), "rows, hidden"),
       required_with("per_token_scales",
                     out("permute_per_token_scales", like("per_token_scales"), "rows, scale_width?")),
       out("permute_token_idx", dtypes(DType::i32), "rows"),
       out("expert_token_num", like("expert_token_num_per_rank"), "experts")},
      {at_most("1", "hidden"), at_most("1", "ranks"), at_most("1", "experts"),
       at_most("rows", "2147483647")}};
});

inline constexpr const Signature& kMoeReRoutingInverse = signature([] {
  return Draft{"moe_re_routing_inverse",
               "rows hidden",
               {by_default("gather", code("idx_type", "gather scatter"))},
               {in("permute_tokens", kAnyDType, "rows, hidden"), in("permute_token_idx", kIndices, "rows"),
                out("tokens", like("permute_tokens"), "rows, hidden")}};
});

inline constexpr const Signature& kSortChunksByIdxs = signature([] {
  return Draft{"sort_chunks_by_idxs",
               "rows hidden chunks",
               {},
               {in("input", kAnyDType, "rows, hidden"), in("split_sizes", kIndices, "chunks"),
                in("sorted_idxs", kIndices, "chunks"), optional(in("probs", kAnyDType, "rows")),
                out("output", like("input"), "rows, hidden"),
                required_with("probs", out("permuted_probs", like("probs"), "rows"))},
               {at_most("1", "chunks"), at_most("rows", "2147483647")}};
});

}  // namespace turnout::families::moe_re_routing
