// The conversions of 16-bit floats of one instruction set, for half_test.cc, which is compiled once per set.
#pragma once

#include "turnout/context.h"
#include "turnout/tensor.h"

namespace turnout::core {

struct HalfKernels {
  void (*copy_f16)(const f16* from, f16* to);
  void (*copy_bf16)(const bf16* from, bf16* to);
  void (*narrow_f16)(const float* from, f16* to);
  void (*narrow_bf16)(const float* from, bf16* to);
  void (*widen_f16)(const f16* from, float* to);
  void (*widen_bf16)(const bf16* from, float* to);
};
const HalfKernels* half_kernels(Isa isa);
inline constexpr int kBatch = 64;  // elements per call: a multiple of every block

}  // namespace turnout::core
