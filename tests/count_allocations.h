// Counts the allocations of a test program.
#pragma once

#include <cstdint>

namespace turnout::test {

std::int64_t allocations();  // since the start: operator new and aligned C allocations

}  // namespace turnout::test
