// The operators of this family.
#include "moe_re_routing/example.h"
#include "moe_re_routing/signature.h"
#include "registry.h"
#include "turnout/moe_re_routing.h"

namespace turnout::families::moe_re_routing {

using namespace core;

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&turnout::moe_re_routing>(
          kMoeReRouting, "expert_token_num_type=1 idx_type=0 rows=5 hidden=3 ranks=2 experts=3 scale_width=2",
          {.prepare = [](const Tensor* t) { fill_counts(t[0], t[1]); }}),
      op<&moe_re_routing_inverse>(kMoeReRoutingInverse, "idx_type=0 rows=5 hidden=3",
                                  {.prepare = [](const Tensor* t) { fill_identity(t[1]); }}),
      op<&sort_chunks_by_idxs>(kSortChunksByIdxs, "rows=5 hidden=3 chunks=4",
                               {.prepare =
                                    [](const Tensor* t) {
                                      fill_counts(t[0], t[1]);
                                      fill_identity(t[2]);
                                    }}),
  };
  return kOperators;
}

}  // namespace turnout::families::moe_re_routing
