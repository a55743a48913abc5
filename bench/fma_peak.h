// The fused multiply-adds that this CPU does at most: what products are measured against.
#pragma once

#include "turnout/context.h"

namespace turnout::core {

// Two floating-point operations for each fused multiply-add of a lane, per second, on this thread. Measured
// anew in every call, about 20 ms: clocks change.
double fma_peak(Isa isa, bool is_f64);

}  // namespace turnout::core
