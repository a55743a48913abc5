// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"
#include "moe_re_routing/example.h"

namespace turnout::families::moe_re_routing {

using namespace core;

// Beside the functions they belong to, in c_api.cc.
extern const Signature& kMluOpGetMoeReRoutingWorkspaceSize;
extern const Signature& kMluOpMoeReRouting;
extern const Signature& kMluOpMoeReRoutingInverse;

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {&kMluOpGetMoeReRoutingWorkspaceSize,
       [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars, const Workspace&) {
         std::size_t size = 0;
         return mluOpGetMoeReRoutingWorkspaceSize(handle, d[0], d[1], d[2], &size);
       },
       "rows=5 hidden=3 ranks=2 experts=3 scale_width=2"},
      {&kMluOpMoeReRouting,
       [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
         return mluOpMoeReRouting(handle, d[0], data[0], d[1], data[1], d[2], data[2], s[0].value, s[1].value,
                                  w.data, w.size, d[3], data[3], d[4], data[4], d[5], data[5], d[6], data[6]);
       },
       "expert_token_num_type=1 idx_type=0 rows=5 hidden=3 ranks=2 experts=3 scale_width=2",
       [](const Tensor* t) { fill_counts(t[0], t[1]); },
       [](mluOpHandle_t handle, Descriptors d, void* const*, Scalars, std::size_t* size) {
         return mluOpGetMoeReRoutingWorkspaceSize(handle, d[0], d[1], d[2], size);
       }},
      {&kMluOpMoeReRoutingInverse,
       [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace&) {
         return mluOpMoeReRoutingInverse(handle, d[0], data[0], d[1], data[1], s[0].value, d[2], data[2]);
       },
       "idx_type=0 rows=5 hidden=3", [](const Tensor* t) { fill_identity(t[1]); }},
  };
  return kOperators;
}

}  // namespace turnout::families::moe_re_routing
