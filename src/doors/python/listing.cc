// Signatures, row by row.
#include "doors/python/listing.h"

#include <nanobind/stl/string.h>

#include <vector>

#include "core/check.h"
#include "doors/python/function.h"
#include "registry.h"

namespace turnout::doors {

using namespace core;

namespace nb = nanobind;
namespace {

std::vector<const PythonFunction*>& listed() {
  static std::vector<const PythonFunction*> all;
  return all;
}

nb::dict row_of(const Scalar& scalar, std::string_view length) {
  nb::dict row;
  row["name"] = text_of(scalar.name);
  row["min"] = scalar.min;
  row["max"] = scalar.max;
  row["values"] = text_of(scalar.values);
  row["length"] = text_of(length);
  return row;
}

nb::dict row_of(const Signature& signature, const Argument& argument, const Naming& naming) {
  static constexpr const char* kRoles[] = {"in", "out", "inout"};
  nb::dict row;
  row["name"] = text_of(naming.of(argument.name));
  row["role"] = kRoles[static_cast<int>(argument.role)];
  row["optional"] = argument.optional;
  row["dtypes"] = dtypes_text(signature, argument, &naming);
  row["dims"] = dims_text(argument);
  return row;
}

// Rows of Python: a flag is True or False.
Scalar in_python(Scalar scalar) {
  if (scalar.is_flag) scalar.values = "False True";
  return scalar;
}

template <class Has>
nb::dict entry_of(const Signature& signature, const Naming& naming, const Has& has) {
  nb::list scalars, arguments;
  for (const Scalar& scalar : signature.scalars)
    if (has(scalar.name)) scalars.append(row_of(in_python(scalar), scalar.is_vector ? scalar.length.text : ""));
  for (const Argument& argument : signature.arguments)
    if (has(argument.name)) arguments.append(row_of(signature, argument, naming));
  nb::dict entry;
  entry["op"] = text_of(naming.op);
  entry["scalars"] = scalars;
  entry["arguments"] = arguments;
  return entry;
}

}  // namespace

void list_function(const PythonFunction& function) { listed().push_back(&function); }

std::span<const PythonFunction* const> listed_functions() { return listed(); }

nb::list signatures() {
  nb::list all;
  for (const Operator& op : operators())
    all.append(entry_of(*op.signature, {op.signature->op, {}, {}}, [](std::string_view) { return true; }));
  return all;
}

nb::list functions() {
  nb::list all;
  for (const PythonFunction* function : listed_functions()) {
    nb::dict entry = entry_of(function->signature, function->naming(),
                              [&](std::string_view name) { return function->has(name); });
    for (const ScalarSpec& scalar : function->scalars)
      nb::cast<nb::list>(entry["scalars"]).append(row_of(in_python(scalar.scalar), scalar.length));
    all.append(entry);
  }
  return all;
}

}  // namespace turnout::doors
