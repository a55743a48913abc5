// The function on whose behalf an operator runs, when that function has names of its own.
//
// A door that offers an operator under another name checks its own arguments first; what it cannot check, the
// operator checks later. While a Caller lives, the log lines and errors of the operators that its thread
// calls speak of the function that the user called, with that function's argument names.
#pragma once

#include <string>
#include <string_view>

#include "core/check.h"

namespace turnout::core {

// What an operator's arguments and scalars are called by a caller.
class Renames {
 public:
  // `changes` is "boundary=opt_boundary ...", an operator's name and the caller's. A name of the operator
  // that the caller does not have must be there ("fill=" when nothing of the caller stands for it), and a
  // name that one of them does not have does not compile.
  consteval Renames(const Signature& op, const Signature& caller, std::string_view changes) {
    split(changes, ' ', [&](std::string_view change) {
      const std::size_t equals = change.find('=');
      const Change one{change.substr(0, equals), change.substr(equals + 1)};
      if (!has_name(op, one.from)) throw "the operator has no such name";
      if (!one.to.empty() && !has_name(caller, one.to)) throw "the caller has no such name";
      changes_.push(one);
    });
    const auto expect = [&](std::string_view name) {
      if (!has_name(caller, name) && find(name) == nullptr) throw "the caller has another name for this";
    };
    for (const Argument& argument : op.arguments) expect(argument.name);
    for (const Scalar& one : op.scalars) expect(one.name);
  }

  // The caller's name for a word, or the word itself.
  std::string_view operator()(std::string_view word) const {
    const Change* change = find(word);
    return change == nullptr || change->to.empty() ? word : change->to;
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

class Caller {
 public:
  // Of this thread, until it goes. `arguments` are those of the caller, for the log.
  Caller(const Arguments& arguments, const Renames& renames);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  static const Caller* current();  // nullptr: the operator was called by its own name

  const Arguments& arguments() const { return arguments_; }
  // "op: what" as the caller says it.
  std::string in_own_words(std::string_view sentence) const;

 private:
  const Arguments& arguments_;
  const Renames& renames_;
  const Caller* before_;
};

}  // namespace turnout::core
