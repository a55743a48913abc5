// The memory that a new allocation can use.
#pragma once

#include <cstddef>
#include <string>

namespace turnout::core {

// The bytes that this process can use before the system kills it: what the machine has available, including
// swap, and what the memory limits of its control groups leave. The largest size_t if neither is known.
// Tests set `root`, a prefix of all paths.
std::size_t available_memory(const std::string& root = "");

// Whether the system can provide this much memory. Linux grants more than it has and kills the process that
// uses it, so large requests are compared with 15/16 of available_memory(); smaller ones always pass.
bool can_provide(std::size_t bytes);

}  // namespace turnout::core
