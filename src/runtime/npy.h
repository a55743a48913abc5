// Writes the files of a recorded call: arrays in NumPy's .npy format, and text.
#pragma once

#include <string>
#include <string_view>

#include "turnout/tensor.h"

namespace turnout::core {

// Writes the elements of `array` in row-major order, whatever its strides. NumPy lacks bfloat16 and 8-bit
// floats; their bits are written as unsigned integers. Requires rank <= kMaxRank, extents >= 0 and a valid
// dtype.
//
// The kernel reads the memory, so an unmapped address does not crash the process: the function then returns
// false and leaves no file. Throws Error(internal) if the file cannot be written.
bool write_npy(const std::string& path, const ConstTensor& array);
// Replaces the file if it exists. Throws Error(internal) if it cannot be written.
void write_text(const std::string& path, std::string_view text);

}  // namespace turnout::core
