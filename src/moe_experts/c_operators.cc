// This family has no C functions; the tests that treat all C functions alike need this empty list.
#include "c_registry.h"

namespace turnout::families::moe_experts {

std::span<const core::COperator> c_operators() { return {}; }

}  // namespace turnout::families::moe_experts
