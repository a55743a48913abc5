// Calls of operators that are made from the registry.
#include "bindings/python/example.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <vector>

#include "bindings/definition.h"
#include "bindings/python/export.h"
#include "bindings/python/gil.h"
#include "bindings/schema.h"
#include "core/example.h"
#include "registry.h"

namespace turnout::bindings {

using namespace core;

namespace {

const Operator& operator_named(const std::string& name) {
  const Operator* found = find_operator(name);
  if (found == nullptr)
    throw Error(ErrorCode::bad_param, concat("op is '", name, "', expected an operator's name"));
  return *found;
}

nb::object scalar_of(const Example& values, int i) {
  const Scalar& scalar = values.signature.scalars[i];
  const auto at = static_cast<std::size_t>(i);
  nb::list elements;
  if (scalar.is_real) {
    if (!scalar.is_vector) return nb::float_(values.reals[at][0]);
    for (double value : values.reals[at]) elements.append(value);
    return elements;
  }
  if (scalar.is_vector) {
    for (std::int64_t value : values.vectors[at]) elements.append(value);
    return elements;
  }
  const std::int64_t value = values.sizes[at];
  if (scalar.is_flag) return nb::bool_(value != 0);
  if (!scalar.values.empty() && !scalar.is_code) return nb::str(text_of(value_name(scalar, value)).c_str());
  return nb::int_(value);
}

}  // namespace

nb::dict example(const std::string& op) {
  const Operator& its = operator_named(op);
  const Signature& signature = its.for_bindings();
  // The Signature for bindings may lack names of the operator's own Signature.
  std::string text;
  split(its.example, ' ', [&](std::string_view part) {
    const bool is_name = position_of(signature, part.substr(0, part.find('='))) <
                         static_cast<std::size_t>(signature.names.count);
    if (is_name) text += concat(text.empty() ? "" : " ", part);
  });
  const Example values(signature, text);
  std::vector<NewArray> arrays;
  std::vector<Tensor> tensors;
  for (int i = 0; i < signature.arguments.count; ++i) {
    const std::vector<std::int64_t> shape = values.shape(i);
    const std::string_view what[2] = {op, signature.arguments[i].name};
    arrays.push_back(
        new_array(nb::none(), {}, values.dtype(i), shape.data(), static_cast<int>(shape.size()), what, 0));
    const Tensor& tensor = arrays.back().tensor;
    std::memset(tensor.data, 0, static_cast<std::size_t>(Slot(tensor).elements() * size_of(tensor.dtype)));
    tensors.push_back(tensor);
  }
  if (its.prepare != nullptr) its.prepare(tensors.data());
  nb::dict call;
  const Schema schema(signature);
  for (const Parameter& one : schema.parameters()) {
    const nb::str name(text_of(one.name).c_str());
    switch (one.kind) {
      case Parameter::Kind::tensor:
        call[name] = arrays[static_cast<std::size_t>(one.position)].object;
        break;
      case Parameter::Kind::scalar:
        call[name] = scalar_of(values, one.position);
        break;
      case Parameter::Kind::size:
        call[name] = values.sizes[static_cast<std::size_t>(one.position)];
        break;
      case Parameter::Kind::request:
        call[name] = true;
        break;
      default:  // only gradients need it
        break;
    }
  }
  return call;
}

nb::list defined_operators() {
  nb::list names;
  for (const Operator& op : operators())
    if (op.definition != nullptr) names.append(text_of(op.signature->op));
  return names;
}

std::int64_t check_definition(const std::string& op, std::int64_t draws, std::uint64_t seed) {
  const Operator& its = operator_named(op);
  if (its.definition == nullptr)
    throw Error(ErrorCode::not_supported, concat(op, ": there is no definition to compare with"));
  const WithoutGil release;
  Context one({.threads = 1}), two({.threads = 2});
  Context* const contexts[] = {&one, &two, &default_context()};
  std::int64_t ran = 0;
  for (std::int64_t i = 0; i < draws; ++i) {
    SeededRandom random(seed + static_cast<std::uint64_t>(i));
    const Comparison found = compare_with_definition(its, random, contexts);
    if (!found.difference.empty())
      throw Error(ErrorCode::internal,
                  concat(found.difference, " (seed ", static_cast<std::int64_t>(seed) + i, ")"));
    ran += found.ran;
  }
  if (ran * 10 < draws)
    throw Error(ErrorCode::internal,
                concat(op, ": ", ran, " of ", draws, " random calls ran, expected more"));
  return ran;
}

}  // namespace turnout::bindings
