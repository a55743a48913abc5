// Counts the allocations of a test program.
#pragma once

#include <cstdint>

namespace turnout::test {

std::int64_t allocations();  // so far, C++ and aligned C ones

}  // namespace turnout::test
