// Operators that bindings prepare before they allocate results.
#pragma once

#include "roi_pooling/cell_points.h"
#include "runtime/call.h"
#include "turnout/roi_pooling.h"

namespace turnout::families::roi_pooling {

// The lists of a call.
CellPoints list_points(Context& context, const ConstTensor& rois, const ConstTensor& points,
                       std::span<const std::int64_t> out_size, std::int64_t max_points, BoxZ z,
                       double margin);
// Writes the pairs of the lists; refuses the call if there is no room for them.
std::int64_t write_pairs(core::Call& call, const CellPoints& lists, std::int64_t rois, std::int64_t cells,
                         const Tensor& cell_of, const Tensor& point_of);

}  // namespace turnout::families::roi_pooling
