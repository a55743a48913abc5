// Python bindings of this family: all of them follow from the Signatures.
#include <nanobind/nanobind.h>

namespace turnout::families::rnnt_loss {

void bind(nanobind::module_&) {}

}  // namespace turnout::families::rnnt_loss
