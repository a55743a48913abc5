// The C functions of all families, in one list.
#include "c_registry.h"

#include <vector>

// Each family's list, in its c_operators.cc.
#define TURNOUT_FAMILY(family)                             \
  namespace turnout::families::family {                    \
  std::span<const turnout::core::COperator> c_operators(); \
  }
#include "families.inc"
#undef TURNOUT_FAMILY

namespace turnout::core {

std::span<const COperator> c_operators() {
  static const std::vector<COperator> kAll = [] {
    std::vector<COperator> all;
    const auto add = [&](std::span<const COperator> some) {
      all.insert(all.end(), some.begin(), some.end());
    };
#define TURNOUT_FAMILY(family) add(families::family::c_operators());
#include "families.inc"
#undef TURNOUT_FAMILY
    return all;
  }();
  return kAll;
}

}  // namespace turnout::core
