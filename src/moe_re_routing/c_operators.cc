// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"
#include "moe_re_routing/example.h"

namespace turnout::families::moe_re_routing {

using namespace core;

// Defined in c_api.cc.
extern const Signature& kMluOpGetMoeReRoutingWorkspaceSize;
extern const Signature& kMluOpMoeReRouting;
extern const Signature& kMluOpMoeReRoutingInverse;

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpGetMoeReRoutingWorkspaceSize,
       .invoke = c_invoke<&mluOpGetMoeReRoutingWorkspaceSize>,
       .example = "rows=5 hidden=3 ranks=2 experts=3 scale_width=2"},
      {.signature = &kMluOpMoeReRouting,
       .invoke = c_invoke<&mluOpMoeReRouting>,
       .example = "expert_token_num_type=1 idx_type=0 rows=5 hidden=3 ranks=2 experts=3 scale_width=2",
       .prepare = [](const Tensor* t) { fill_counts(t[0], t[1]); },
       .query = c_query<&mluOpGetMoeReRoutingWorkspaceSize>},
      {.signature = &kMluOpMoeReRoutingInverse,
       .invoke = c_invoke<&mluOpMoeReRoutingInverse>,
       .example = "idx_type=0 rows=5 hidden=3",
       .prepare = [](const Tensor* t) { fill_identity(t[1]); }},
  };
  return kOperators;
}

}  // namespace turnout::families::moe_re_routing
