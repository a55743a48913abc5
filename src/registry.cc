// The operators of all families, in one list.
#include "registry.h"

#include <vector>

// Each family's list, in its operators.cc.
#define TURNOUT_FAMILY(family)                          \
  namespace turnout::families::family {                 \
  std::span<const turnout::core::Operator> operators(); \
  }
#include "families.inc"
#undef TURNOUT_FAMILY

namespace turnout::core {

std::span<const Operator> operators() {
  static const std::vector<Operator> kAll = [] {
    std::vector<Operator> all;
    const auto add = [&](std::span<const Operator> some) { all.insert(all.end(), some.begin(), some.end()); };
#define TURNOUT_FAMILY(family) add(families::family::operators());
#include "families.inc"
#undef TURNOUT_FAMILY
    return all;
  }();
  return kAll;
}

const Operator* find_operator(std::string_view name) {
  for (const Operator& one : operators())
    if (one.signature->op == name) return &one;
  return nullptr;
}

}  // namespace turnout::core
