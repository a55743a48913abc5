// The operators of this family as the doors call them: the functions of turnout/mutual_information.h with a
// Frame in place of the Context.
#pragma once

#include "runtime/frame.h"
#include "turnout/mutual_information.h"

namespace turnout::families::mutual_information {

using namespace core;

void mutual_information_forward(const Frame& frame, const ConstTensor& px, const ConstTensor& py,
                                const ConstTensor* boundary, const Tensor& p, const Tensor& ans,
                                Outside outside);
void mutual_information_backward(const Frame& frame, const ConstTensor& px, const ConstTensor& py,
                                 const ConstTensor* boundary, const ConstTensor& p, const Tensor& ans_grad,
                                 const Tensor& px_grad, const Tensor& py_grad, bool overwrite_ans_grad);
void mutual_information_forward_backward(const Frame& frame, const ConstTensor& px, const ConstTensor& py,
                                         const ConstTensor* boundary, const Tensor& ans,
                                         const Tensor& px_grad, const Tensor& py_grad);

}  // namespace turnout::families::mutual_information
