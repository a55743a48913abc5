// How a caller spells the names of an operator, for error messages and the log.
//
// A binding that offers an operator under another name, or with other argument names, passes these names to
// the operator. Messages are rendered with them where they are built.
#pragma once

#include <string_view>

#include "core/signature.h"
#include "turnout/tensor.h"

namespace turnout::core {

// The caller's names for the arguments and scalars of an operator.
class Renames {
 public:
  constexpr Renames() = default;  // by the operator's own names
  // `changes` is a list like "boundary=opt_boundary fill=": the operator's name, then the caller's, which is
  // empty if the caller has no such argument. Every name of the operator that the caller does not have must
  // be listed. A listed name that does not exist is a compile error.
  consteval Renames(const Signature& op, const Signature& caller, std::string_view changes)
      : Renames(op, changes) {
    for (const Change& one : changes_)
      if (!one.to.empty() && !has_name(caller, one.to)) throw "the caller has no such name";
    const auto expect = [&](std::string_view name) {
      if (!has_name(caller, name) && find(name) == nullptr) throw "the caller has another name for this";
    };
    for (const Argument& argument : op.arguments) expect(argument.name);
    for (const Scalar& one : op.scalars) expect(one.name);
  }

  // For a caller without a signature of its own. Names that are not listed stay the same.
  consteval Renames(const Signature& op, std::string_view changes) {
    split(changes, ' ', [&](std::string_view change) {
      const std::size_t equals = change.find('=');
      if (!has_name(op, change.substr(0, equals))) throw "the operator has no such name";
      changes_.push({change.substr(0, equals), change.substr(equals + 1)});
    });
  }
  // Of one name.
  constexpr Renames(std::string_view from, std::string_view to) { changes_.push({from, to}); }

  bool has(std::string_view name) const {  // false: the caller has no such argument
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

// What a caller calls a dtype: "f32" in C++, "float32" in Python.
using DTypeName = const char* (*)(DType dtype);

class Arguments;

// The function that the user called. It refers to everything that it is made from.
struct CallerNames {
  std::string_view op;
  const Renames& renames;
  std::string_view note = {};            // follows the arguments in the log
  DTypeName dtype_name = &name_of;       // for error messages; the log has those of C++
  const Arguments* arguments = nullptr;  // of a C function: the log shows these
};

}  // namespace turnout::core
