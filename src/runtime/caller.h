// The function on whose behalf an operator runs, when that function has names of its own.
//
// A door that offers an operator under another name checks its own arguments first; what it cannot check, the
// operator checks later. The Frame of the call refers to a Caller, so that log lines and errors of the
// operator name the function that the user called, with that function's argument names.
#pragma once

#include <string>
#include <string_view>

#include "core/check.h"

namespace turnout::core {

// The caller's names for the arguments and scalars of an operator.
class Renames {
 public:
  consteval Renames() = default;  // by the operator's own names
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

  bool has(std::string_view name) const {  // false: the caller has no such argument
    const Change* change = find(name);
    return change == nullptr || !change->to.empty();
  }
  // The caller's name for a word, or the word itself.
  std::string_view operator()(std::string_view word) const {
    const Change* change = find(word);
    return change == nullptr || change->to.empty() ? word : change->to;
  }
  std::string words_of(std::string_view text) const;  // the same for each word of a text

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

class Caller {
 public:
  // The log shows the caller's own arguments. The Caller keeps references to all that it is made from.
  Caller(const Arguments& arguments, const Renames& renames)
      : op_(arguments.signature().op), arguments_(&arguments), renames_(renames) {}
  // The log shows the arguments of the operator, renamed, and then the note.
  Caller(std::string_view op, const Renames& renames, std::string_view note, DTypeName dtypes)
      : op_(op), arguments_(nullptr), renames_(renames), note_(note), dtype_name_(dtypes) {}

  std::string_view op() const { return op_; }
  DTypeName dtype_name() const { return dtype_name_; }  // for error messages; the log has those of C++
  std::string describe(const Arguments& of_operator) const;
  // An error message of the operator, "op: what", with the caller's names.
  std::string in_own_words(std::string_view sentence) const;

 private:
  const std::string_view op_;
  const Arguments* const arguments_;  // or nullptr
  const Renames& renames_;
  const std::string_view note_;
  const DTypeName dtype_name_ = &name_of;
};

}  // namespace turnout::core
