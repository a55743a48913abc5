// The C headers of CANN's interface must compile as C++, the opt-in header even as the first include.
#include "turnout/aclnn/runtime/acl/acl.h"

#include "turnout/aclnn/aclnn_moe_re_routing.h"

static_assert(ACL_SUCCESS == ACLNN_SUCCESS);
static_assert(ACL_FLOAT4_E2M1 == 40 && ACL_FLOAT4_E1M2 == 41);
