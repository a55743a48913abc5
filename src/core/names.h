// The names of an operator and its arguments as a caller spells them, for error messages and the log.
//
// A binding that offers an operator under other names passes them to the operator, which uses them when it
// builds a message.
#pragma once

#include <string_view>

#include "core/signature.h"
#include "turnout/tensor.h"

namespace turnout::core {

// The caller's names for the arguments and scalars of an operator.
class Renames {
 public:
  constexpr Renames() = default;  // the operator's own names
  // `changes` is a list like "boundary=opt_boundary fill=": the operator's name, then the caller's, which is
  // empty if the caller has no such argument. Every name of the operator that the caller does not have must
  // be listed. A listed name that does not exist is a compile error.
  consteval Renames(const Signature& op, const Signature& caller, std::string_view changes)
      : Renames(op, changes) {
    for (const Change& one : changes_)
      if (!one.to.empty() && !has_name(caller, one.to)) throw "the caller has no such name";
    const auto expect = [&](std::string_view name) {
      if (!has_name(caller, name) && find(name) == nullptr) throw "the caller does not have this name";
    };
    for (const Argument& argument : op.arguments) expect(argument.name);
    for (const Scalar& one : op.scalars) expect(one.name);
  }

  // For a caller without its own signature. Names that are not listed stay the same.
  consteval Renames(const Signature& op, std::string_view changes) {
    split(changes, ' ', [&](std::string_view change) {
      const std::size_t equals = change.find('=');
      if (!has_name(op, change.substr(0, equals))) throw "the operator has no such name";
      changes_.push({change.substr(0, equals), change.substr(equals + 1)});
    });
  }
  // Renames a single name.
  constexpr Renames(std::string_view from, std::string_view to) { changes_.push({from, to}); }

  bool has(std::string_view name) const {  // whether the caller has this argument
    const Change* change = find(name);
    return change == nullptr || !change->to.empty();
  }
  // The caller's spelling of a name.
  std::string_view operator()(std::string_view name) const {
    const Change* change = find(name);
    return change == nullptr || change->to.empty() ? name : change->to;
  }

 private:
  struct Change {
    std::string_view from, to;
  };

  static constexpr bool has_name(const Signature& signature, std::string_view name) {
    for (const Scalar& one : signature.scalars)
      if (one.name == name) return true;
    return signature.has_argument(name);
  }
  constexpr const Change* find(std::string_view name) const {
    for (const Change& change : changes_)
      if (change.from == name) return &change;
    return nullptr;
  }

  List<Change, 12> changes_;
};

// The caller's name of a dtype: "f32" in C++, "float32" in Python.
using DTypeName = const char* (*)(DType dtype);

class Arguments;

// The function that the user called. Does not own what it refers to.
struct CallerNames {
  std::string_view op;
  const Renames& renames;
  std::string_view note = {};            // follows the arguments in the log
  DTypeName dtype_name = &name_of;       // for error messages; the log uses the names of C++
  const Arguments* arguments = nullptr;  // of a C function; the log shows these
};

}  // namespace turnout::core
