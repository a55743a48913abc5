// Half tensors of C functions whose operators compute in float: inputs are widened, and results are rounded
// once, after the operator has run. Other tensors stay as they are.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "runtime/context.h"
#include "turnout/tensor.h"

namespace turnout::bindings {

// Scratch memory for the float copies of the half tensors among these.
std::size_t widened_bytes(std::initializer_list<Tensor> tensors);

// A float copy of a half input.
Tensor widened(Context& context, core::Scratch& scratch, const Tensor& input);

// Float memory for a half result, which round_result() then writes.
Tensor widened_result(core::Scratch& scratch, const Tensor& result);
void round_result(Context& context, const Tensor& from, const Tensor& result);

}  // namespace turnout::bindings
