// Derives a Schema from a Signature, and writes it as text.
#include "bindings/schema.h"

#include <algorithm>

#include "core/check.h"

namespace turnout::bindings {

using core::Argument;
using core::concat;
using core::Extent;
using core::Scalar;
using core::SizeKind;
using Kind = Parameter::Kind;

namespace {

bool has_name(const Extent& extent, int name) {
  return std::any_of(extent.names.begin(), extent.names.end(), [&](std::int8_t one) { return one == name; });
}

// Whether a scalar is part of a shape, so that it may be symbolic in a traced call.
bool is_in_shapes(const core::Signature& signature, int name) {
  for (const Argument& argument : signature.arguments)
    for (const Extent& extent : argument.dims)
      if (has_name(extent, name)) return true;
  return false;
}

std::string default_text(const Scalar& scalar) {
  if (scalar.may_be_none) return "None";
  if (scalar.is_flag) return scalar.default_value != 0 ? "True" : "False";
  if (scalar.is_real) {
    std::string text = core::number_text(scalar.default_real);
    return text.find_first_of(".e") == text.npos ? text + "." : text;
  }
  if (!scalar.values.empty() && !scalar.is_code)
    return concat("\"", core::value_name(scalar, scalar.default_value), "\"");
  return concat(scalar.default_value);
}

}  // namespace

Schema::Schema(const core::Signature& signature, Convention convention)
    : signature_(signature), convention_(convention) {
  for (const Scalar& scalar : signature.scalars) has_fill_ |= scalar.is_fill;
  for (const SizeKind kind : signature.size_kinds)
    finds_sizes_ |= kind != SizeKind::shapes && kind != SizeKind::either;
  for (const bool with_default : {false, true}) {
    const auto add = [&](Kind kind, std::string_view name, int position, bool has_default) {
      if (has_default == with_default) parameters_.push_back({kind, name, position, has_default});
    };
    for (int i = 0; i < signature.arguments.count; ++i) {
      const Argument& argument = signature.arguments[i];
      const bool is_input = !argument.is_output() || (argument.role == core::Role::inout && !has_fill_);
      if (is_input && !argument.is_cpp_only)
        add(Kind::tensor, argument.name, i, argument.optional && !argument.has_no_default);
    }
    for (int i = 0; i < signature.scalars.count; ++i)
      if (is_parameter(i)) add(Kind::scalar, signature.scalars[i].name, i, signature.scalars[i].has_default);
    for (int name = signature.scalars.count; name < signature.names.count; ++name) {
      const SizeKind kind = signature.size_kinds[name - signature.scalars.count];
      if (kind == SizeKind::either || kind == SizeKind::adjusted_or_computed)
        add(Kind::size, signature.names[name], name, true);
      if (kind == SizeKind::adjusted || (kind == SizeKind::shapes && !is_determined(name) && is_extent(name)))
        add(Kind::size, signature.names[name], name, false);
    }
    for (int i = 0; i < signature.size_flags.count; ++i)
      add(Kind::size_flag, signature.size_flags[i].name, i, true);
    for (int i = 0; i < signature.arguments.count; ++i)
      if (const std::string_view flag = signature.arguments[i].request; !flag.empty())
        add(Kind::request, flag, i, true);
    if (convention == Convention::in_place) continue;
    for (int i = 0; i < signature.unused.count; ++i) add(Kind::unused, signature.unused[i].name, i, true);
    for (int i = 0; i < signature.unused_flags.count; ++i)
      add(Kind::unused_flag, signature.unused_flags[i].name, i, true);
  }
  for (int i = 0; i < signature.arguments.count; ++i) {
    const core::Role role = signature.arguments[i].role;
    if (role == core::Role::out || (role == core::Role::inout && has_fill_)) results_.push_back(i);
  }
}

// Bindings choose the fill themselves, and functional ones have no flags that make an operator write to an
// argument.
bool Schema::is_parameter(int scalar) const {
  if (signature_.scalars[scalar].is_fill) return false;
  return convention_ == Convention::in_place ||
         std::none_of(signature_.arguments.begin(), signature_.arguments.end(),
                      [&](const Argument& argument) { return argument.written_if == scalar; });
}

bool Schema::is_determined(int name) const {
  for (const Argument& argument : signature_.arguments) {
    if (argument.is_output()) continue;
    for (const Extent& extent : argument.dims) {
      const auto sizes = std::count_if(extent.names.begin(), extent.names.end(),
                                       [&](std::int8_t one) { return one >= signature_.scalars.count; });
      if (has_name(extent, name) && sizes == 1) return true;
    }
  }
  return false;
}

bool Schema::is_extent(int name) const {
  for (const Argument& argument : signature_.arguments) {
    if (!argument.is_output()) continue;
    for (const Extent& extent : argument.dims)
      if (has_name(extent, name)) return true;
  }
  return false;
}

std::string Schema::text() const {
  std::string text = concat(signature_.op, "(");
  for (const Parameter& parameter : parameters_) {
    if (&parameter != parameters_.data()) text += ", ";
    std::string type, value = "None";
    if (parameter.kind == Kind::tensor) {
      type = signature_.arguments[parameter.position].optional ? "Tensor?" : "Tensor";
    } else if (parameter.kind == Kind::unused) {
      type = "Tensor?";
    } else if (parameter.kind == Kind::request || parameter.kind == Kind::unused_flag ||
               parameter.kind == Kind::size_flag) {
      type = "bool";
      value = "False";
    } else if (parameter.kind == Kind::size) {
      type = parameter.has_default ? "SymInt?" : "SymInt";
    } else {
      const Scalar& scalar = signature_.scalars[parameter.position];
      type = scalar.is_real                                                       ? "float"
             : scalar.is_flag                                                     ? "bool"
             : scalar.is_code                                                     ? "int"
             : !scalar.values.empty()                                             ? "str"
             : scalar.is_symbolic || is_in_shapes(signature_, parameter.position) ? "SymInt"
                                                                                  : "int";
      type += concat(!scalar.is_vector    ? ""
                     : scalar.has_default ? "[1]"
                                          : "[]",
                     scalar.may_be_none ? "?" : "");
      if (scalar.has_default) value = default_text(scalar);
    }
    text += concat(type, " ", parameter.name);
    if (parameter.has_default) text += concat("=", value);
  }
  text += ") -> ";
  if (results_.size() == 1) return text + "Tensor";
  text += "(";
  for (std::size_t i = 0; i < results_.size(); ++i) text += i == 0 ? "Tensor" : ", Tensor";
  return text + ")";
}

}  // namespace turnout::bindings
