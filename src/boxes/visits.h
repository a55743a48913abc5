// The order in which non-maximum suppression visits boxes.
#pragma once

#include <cstdint>

#include "runtime/context.h"
#include "turnout/tensor.h"

namespace turnout::families::boxes {

// Scratch memory of visits_of().
std::size_t visits_bytes(std::int64_t count, const ConstTensor& scores);

// The numbers of the boxes by descending score: NaN first, equal ones in ascending order; without scores in
// ascending order. In scratch memory.
const std::int32_t* visits_of(core::Scratch& scratch, std::int64_t count, const ConstTensor& scores);

}  // namespace turnout::families::boxes
