// A function of Python as data: what it runs, and what Python calls it and its arguments. Sentences, the log
// and the command `turnout ops` all take their names from here.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "core/naming.h"
#include "core/signature.h"

namespace turnout::doors {

using namespace core;

class PythonFunction {
 public:
  // aliases: names of the signature that Python has another one for, or none (""). python_scalars: what
  // Python has instead. A name that the signature does not have is a compile error.
  consteval PythonFunction(std::string_view python_name, const Signature& its_signature,
                           std::initializer_list<Alias> its_aliases = {},
                           std::initializer_list<ScalarSpec> python_scalars = {})
      : name(python_name), signature(its_signature) {
    for (const Alias& alias : its_aliases) {
      if (!signature.has_argument(alias.name) && signature.size(alias.name) >= signature.scalars.count)
        throw "no such argument";
      aliases.push(alias);
    }
    for (const ScalarSpec& scalar : python_scalars) scalars.push(scalar);
  }

  Naming naming() const { return {name, {aliases.begin(), aliases.end()}, {}}; }
  constexpr bool has(std::string_view argument) const {
    for (const Alias& alias : aliases)
      if (alias.name == argument && alias.called.empty()) return false;
    return true;
  }

  std::string_view name;
  const Signature& signature;
  List<Alias, 4> aliases;
  List<ScalarSpec, 4> scalars;
};

// The functions in the order in which they were added, for `turnout ops`. Both with the GIL held.
void list_function(const PythonFunction& function);
std::span<const PythonFunction* const> listed_functions();

}  // namespace turnout::doors
