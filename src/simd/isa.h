// The choice of the instruction set that a call uses.
#pragma once

#include <array>
#include <string>

#include "turnout/context.h"

namespace turnout::core {

inline constexpr int kIsaCount = 6;

// The best set of this CPU, capped by TURNOUT_ISA. Throws Error(not_supported) on a CPU below x86-64-v2, and
// Error(bad_param) if TURNOUT_ISA is not the name of an instruction set.
Isa best_isa();

// A message if TURNOUT_ISA names a set that is not supported here; otherwise empty.
std::string isa_note();

// `wanted` if this CPU and this build support it; otherwise throws Error(not_supported).
Isa resolve_isa(Isa wanted);

// The instruction set of kernels that are compiled for none after `last`, in a context of `isa`.
constexpr Isa at_most(Isa isa, Isa last) { return isa != Isa::neon && isa > last ? last : isa; }

// One entry per Isa; nullptr if this build has no code for it.
template <class Kernels>
using KernelTable = std::array<const Kernels*, kIsaCount>;

}  // namespace turnout::core
