// A Python function as data: its operator, and the Python names of the function and its arguments, which
// error messages, the log and `turnout ops` use.
#pragma once

#include <initializer_list>
#include <string_view>

#include "core/draft.h"
#include "core/names.h"

namespace turnout::bindings {

class PythonFunction {
 public:
  // changes: as for Renames. python_scalars: Python's replacements for scalars of the operator.
  consteval PythonFunction(std::string_view python_name, const core::Signature& its_signature,
                           std::string_view changes = "",
                           std::initializer_list<core::ScalarSpec> python_scalars = {})
      : name(python_name), signature(its_signature), renames(its_signature, changes) {
    for (const core::ScalarSpec& scalar : python_scalars) scalars.push(scalar);
  }

  std::string_view name;
  const core::Signature& signature;
  core::Renames renames;
  core::List<core::ScalarSpec, 4> scalars;
};

// Adds a function to those of `turnout ops`; requires the GIL.
void list_function(const PythonFunction& function);

}  // namespace turnout::bindings
