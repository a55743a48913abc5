// Signatures, row by row.
#include "doors/python/listing.h"

#include <nanobind/stl/string.h>

#include <vector>

#include "core/check.h"
#include "core/draft.h"
#include "doors/python/function.h"
#include "doors/python/import.h"
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

nb::dict row_of(const Signature& signature, const Argument& argument, const Renames& renames,
                DTypeName dtype_name) {
  static constexpr const char* kRoles[] = {"in", "out", "inout"};
  nb::dict row;
  row["name"] = text_of(renames(argument.name));
  row["role"] = kRoles[static_cast<int>(argument.role)];
  row["optional"] = argument.optional;
  row["dtypes"] = renames.words_of(dtypes_text(signature, argument, dtype_name));
  row["dims"] = dims_text(argument);
  return row;
}

nb::dict entry_of(const Signature& signature, std::string_view op, const Renames& renames,
                  DTypeName dtype_name) {
  nb::list scalars, arguments;
  for (const Scalar& scalar : signature.scalars)
    if (renames.has(scalar.name)) scalars.append(row_of(scalar, scalar.is_vector ? scalar.length.text : ""));
  for (const Argument& argument : signature.arguments)
    if (renames.has(argument.name)) arguments.append(row_of(signature, argument, renames, dtype_name));
  nb::dict entry;
  entry["op"] = text_of(op);
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
    all.append(entry_of(*op.signature, op.signature->op, kNone, &name_of));
  return all;
}

nb::list functions() {
  nb::list all;
  for (const PythonFunction* function : listed()) {
    nb::dict entry = entry_of(function->signature, function->name, function->renames, &library_name);
    for (const ScalarSpec& scalar : function->scalars)
      nb::cast<nb::list>(entry["scalars"]).append(row_of(scalar.scalar, scalar.length));
    all.append(entry);
  }
  return all;
}

}  // namespace turnout::doors
