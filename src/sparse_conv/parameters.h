// The parameters of index pairs: their defaults, and checks that a signature cannot express.
#pragma once

#include <array>

#include "core/check.h"
#include "runtime/call.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

// Fills in the defaults. Arguments whose length differs from that of spatial_shape are left to the checks.
IndicePairsParams resolved(const IndicePairsParams& given);

// The arguments of the bindings: one value per dimension, and flags instead of a mode. Checks what the
// Signature of `op` cannot, and returns the parameters of the same convolution, centred_on_sites().
struct SpelledParams {
  Dims spatial_shape, kernel_size, stride, padding, dilation, output_padding;
  bool subm = false, transpose = false;
};
IndicePairsParams read_spelled(std::string_view op, const SpelledParams& given);
// kernel_volume(); throws Error if it is more than kMaxOffsets.
std::int64_t checked_kernel_volume(std::string_view op, const IndicePairsParams& p);

// The number of kernel offsets, before or after resolved(); saturates.
std::int64_t kernel_volume(const IndicePairsParams& p);

// indice_pairs_output_shape(); throws Error if an argument or the result is out of range.
Dims checked_output_shape(const IndicePairsParams& params);

// Checks arguments that the signature does not see, because resolved() has turned them into others.
void check_given(core::Call& call, const IndicePairsParams& params);

// The scalars in the order of the signature. They point into `p`.
std::array<core::ScalarValue, 8> scalars_of(const IndicePairsParams& p);

}  // namespace turnout::families::sparse_conv
