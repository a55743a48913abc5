// The operators of this family, for what treats all operators alike.
#include "moe_re_routing/example.h"
#include "moe_re_routing/signature.h"
#include "registry.h"
#include "turnout/moe_re_routing.h"

namespace turnout::families::moe_re_routing {

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kMoeReRouting,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor scales = t[2];
         turnout::moe_re_routing(context, t[0], t[1], given(t[2]) ? &scales : nullptr, t[3],
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
      {&kSortChunksByIdxs,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         const ConstTensor probs = t[3];
         sort_chunks_by_idxs(context, t[0], t[1], t[2], given(t[3]) ? &probs : nullptr, t[4],
                             given(t[5]) ? &t[5] : nullptr);
       },
       "rows=5 hidden=3 chunks=4",
       [](const Tensor* t) {
         fill_counts(t[0], t[1]);
         fill_identity(t[2]);
       }},
  };
  return kOperators;
}

}  // namespace turnout::families::moe_re_routing
