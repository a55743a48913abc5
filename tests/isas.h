// The instruction sets that tests compare.
#pragma once

#include <vector>

#include "simd/isa.h"

namespace turnout::test {

// All instruction sets of this CPU, weakest first.
inline std::vector<Isa> supported_isas() {
  std::vector<Isa> all;
  for (int i = 0; i < core::kIsaCount; ++i)
    if (is_supported(static_cast<Isa>(i))) all.push_back(static_cast<Isa>(i));
  return all;
}

}  // namespace turnout::test
