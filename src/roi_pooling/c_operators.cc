// The C functions of this family, for the tests that treat all C functions alike: there are none.
#include "c_registry.h"

namespace turnout::families::roi_pooling {

std::span<const core::COperator> c_operators() { return {}; }

}  // namespace turnout::families::roi_pooling
