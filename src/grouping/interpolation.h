// three_interpolate() and its gradient with a choice for indices that are not the number of a row.
#pragma once

#include "grouping/places.h"
#include "turnout/caller.h"
#include "turnout/tensor.h"

namespace turnout::families::grouping {

// A term whose index is skipped is 0.
void interpolate_points(const ConstTensor& features, const ConstTensor& indices, const ConstTensor& weights,
                        Strays strays, const Tensor& out, const Caller& caller);
void interpolate_points_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                 const ConstTensor& weights, Strays strays, const Tensor& grad_features,
                                 const Caller& caller);

}  // namespace turnout::families::grouping
