// RoI-aware pooling with the results of mmcv's operator that its gradient needs: a list of points for each
// cell, and the point of each maximum.
#pragma once

#include "turnout/caller.h"
#include "turnout/roi_pooling.h"
#include "turnout/tensor.h"

namespace turnout::families::roi_pooling {

// roiaware_pool3d() with mmcv's rule: z is the bottom of a box, and the margin is 0.
//   pooled  [rois, X, Y, Z, channels]
//   lists   i32 [rois, X, Y, Z, entries]: the number of points of the cell, these points, then 0
//   argmax  i32 [rois, X, Y, Z, channels]: the point of each maximum, or -1; only for max, otherwise absent
// Every element of them is written.
void pool_with_lists(const ConstTensor& rois, const ConstTensor& points, const ConstTensor& features,
                     const Tensor& argmax, const Tensor& lists, const Tensor& pooled, PoolMethod method,
                     const Caller& caller);

// roiaware_pool3d_backward() by argmax for max, and by the lists for avg. Refuses the call if a number of
// points does not fit its list, or if a point is not a row of grad_features.
void pool_backward_by_lists(const ConstTensor& lists, const ConstTensor& argmax,
                            const ConstTensor& grad_pooled, const Tensor& grad_features, PoolMethod method,
                            const Caller& caller);

}  // namespace turnout::families::roi_pooling
