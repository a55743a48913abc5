// Lists Signatures as dictionaries.
#include "bindings/python/listing.h"

#include <nanobind/stl/string.h>

#include <vector>

#include "bindings/python/function.h"
#include "bindings/python/import.h"
#include "bindings/python/operators.h"
#include "bindings/schema.h"
#include "core/check.h"
#include "core/draft.h"
#include "registry.h"

namespace turnout::bindings {

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
  row["range"] = range_text(scalar);
  row["values"] = text_of(scalar.values);
  row["length"] = text_of(length);
  return row;
}

nb::dict row_of(const Signature& signature, const Argument& argument, const CallerNames& names) {
  static constexpr const char* kRoles[] = {"in", "out", "inout"};
  nb::dict row;
  row["name"] = text_of(names.renames(argument.name));
  row["role"] = kRoles[static_cast<int>(argument.role)];
  row["optional"] = argument.optional;
  row["dtypes"] = dtypes_text(signature, argument, &names);
  row["dims"] = dims_text(argument);
  return row;
}

nb::dict entry_of(const Signature& signature, const CallerNames& names) {
  const Renames& renames = names.renames;
  nb::list scalars, arguments;
  for (const Scalar& scalar : signature.scalars)
    if (renames.has(scalar.name)) scalars.append(row_of(scalar, scalar.is_vector ? scalar.length.text : ""));
  for (const Argument& argument : signature.arguments)
    if (renames.has(argument.name)) arguments.append(row_of(signature, argument, names));
  nb::dict entry;
  entry["op"] = text_of(names.op);
  entry["scalars"] = scalars;
  entry["arguments"] = arguments;
  return entry;
}

}  // namespace

void list_function(const PythonFunction& function) { listed().push_back(&function); }

nb::list signatures() {
  static constexpr Renames kNone;
  nb::list all;
  for (const Operator& op : operators())
    all.append(entry_of(*op.signature, {.op = op.signature->op, .renames = kNone}));
  return all;
}

nb::list functions() {
  nb::list all;
  for (const Operator* op : derived_operators()) {
    const Signature& signature = op->for_bindings();
    const Schema schema(signature);
    const Renames renames = schema.results().size() == 1
                                ? Renames(signature.arguments[schema.results()[0]].name, "out")
                                : Renames();
    const PythonFunction* function = function_of(signature);
    const CallerNames names{.op = function == nullptr ? signature.op : function->name,
                            .renames = renames,
                            .dtype_name = &library_name};
    nb::dict entry = entry_of(signature, names);
    nb::list arguments, scalars;
    for (const Argument& argument : signature.arguments)
      if (!argument.is_cpp_only) arguments.append(row_of(signature, argument, names));
    entry["arguments"] = arguments;
    for (const Scalar& scalar : signature.scalars)
      if (!scalar.is_fill) scalars.append(row_of(scalar, scalar.is_vector ? scalar.length.text : ""));
    for (const Parameter& one : schema.parameters())
      if (one.kind == Parameter::Kind::size)
        scalars.append(row_of({.name = one.name, .min = one.has_default ? -kSizeMax : 0}, ""));
      else if (one.kind == Parameter::Kind::request || one.kind == Parameter::Kind::size_flag)
        scalars.append(row_of({.name = one.name, .max = 1, .values = "no yes", .is_flag = true}, ""));
    if (function != nullptr)
      for (const ScalarSpec& scalar : function->scalars) scalars.append(row_of(scalar.scalar, scalar.length));
    entry["scalars"] = scalars;
    all.append(entry);
  }
  for (const PythonFunction* function : listed()) {
    nb::dict entry =
        entry_of(function->signature,
                 {.op = function->name, .renames = function->renames, .dtype_name = &library_name});
    for (const ScalarSpec& scalar : function->scalars)
      nb::cast<nb::list>(entry["scalars"]).append(row_of(scalar.scalar, scalar.length));
    all.append(entry);
  }
  return all;
}

}  // namespace turnout::bindings
