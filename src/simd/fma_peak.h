// The peak rate of fused multiply-adds of this CPU, to which matrix products are compared.
#pragma once

#include "turnout/context.h"

namespace turnout::core {

// Single-precision operations per second on this thread; a fused multiply-add of one lane counts as two.
// Every call measures for about 20 ms, because the clock frequency changes.
double fma_peak(Isa isa);

}  // namespace turnout::core
