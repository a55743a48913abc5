// The peak rate of fused multiply-adds as a C function, which the Python benchmarks load.
#include "fma_peak.h"

extern "C" __attribute__((visibility("default"))) double turnout_fma_peak_f32() {
  return turnout::core::fma_peak(turnout::Context().isa(), false);
}
