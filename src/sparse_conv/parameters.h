// The parameters of index pairs: their defaults, and checks that a signature cannot express.
#pragma once

#include <array>

#include "core/check.h"
#include "runtime/call.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;

// Fills in the defaults. Arguments whose length is not that of spatial_shape are left for the checks to
// refuse.
IndicePairsParams resolved(const IndicePairsParams& given);

// Checks what the signature does not see, because resolved() has turned it into other arguments.
void check_given(Call& call, const IndicePairsParams& given);

// The scalars in the order of the signature. They point into `p`.
std::array<ScalarValue, 8> scalars_of(const IndicePairsParams& p);

}  // namespace turnout::families::sparse_conv
