// The registry entries of this family's operators.
#include "moe_re_routing/example.h"
#include "moe_re_routing/signature.h"
#include "registry.h"
#include "turnout/moe_re_routing.h"

namespace turnout::families::moe_re_routing {

using namespace core;

namespace {

// Not lambdas in the entries, because clang 14 miscompiles lambdas as arguments of a consteval function.
void fill_re_routing(const Tensor* t) { fill_counts(t[0], t[1]); }
void fill_inverse(const Tensor* t) { fill_identity(t[1]); }
void fill_chunks(const Tensor* t) {
  fill_counts(t[0], t[1]);
  fill_identity(t[2]);
}

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&turnout::moe_re_routing>(
          kMoeReRouting, "expert_token_num_type=1 idx_type=0 rows=5 hidden=3 ranks=2 experts=3 scale_width=2",
          {.prepare = fill_re_routing}),
      op<&moe_re_routing_inverse>(kMoeReRoutingInverse, "idx_type=0 rows=5 hidden=3",
                                  {.prepare = fill_inverse}),
      op<&sort_chunks_by_idxs>(kSortChunksByIdxs, "rows=5 hidden=3 chunks=4", {.prepare = fill_chunks}),
  };
  return kOperators;
}

}  // namespace turnout::families::moe_re_routing
