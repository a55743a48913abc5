// The choice of the instruction set that a call uses.
#pragma once

#include <array>

#include "turnout/context.h"

namespace turnout::core {

inline constexpr int kIsaCount = 5;

// The strongest instruction set of this CPU, capped by TURNOUT_ISA. Throws Error(not_supported) on a CPU
// below x86-64-v2.
Isa best_isa();

// Isa::best becomes best_isa(); any other value is returned if this CPU and this build support it. Throws
// Error(not_supported) otherwise.
Isa resolve_isa(Isa wanted);

// One entry per Isa; nullptr if this build has no code for it.
template <class Kernels>
using KernelTable = std::array<const Kernels*, kIsaCount>;

}  // namespace turnout::core
