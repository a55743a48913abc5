// The choice of the instruction set that a call uses.
#pragma once

#include <array>
#include <string>

#include "turnout/context.h"

namespace turnout::core {

inline constexpr int kIsaCount = 6;

// The best this CPU has, capped by TURNOUT_ISA; Error(not_supported) on a CPU below x86-64-v2,
// Error(bad_param) when TURNOUT_ISA is the name of no instruction set.
Isa best_isa();

// A message when TURNOUT_ISA names a set that is not supported here; else empty.
std::string isa_note();

// `wanted` if this CPU and this build have it, else Error(not_supported).
Isa resolve_isa(Isa wanted);

// The instruction set of kernels that are compiled for none after `last`, in a context of `isa`.
constexpr Isa at_most(Isa isa, Isa last) { return isa != Isa::neon && isa > last ? last : isa; }

// One entry per Isa; nullptr if this build has no code for it.
template <class Kernels>
using KernelTable = std::array<const Kernels*, kIsaCount>;

}  // namespace turnout::core
