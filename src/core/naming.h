// What the caller of a door calls an operator and its arguments, where that is not what the signature calls
// them. Sentences and the arguments of log lines use the caller's names.
#pragma once

#include <span>
#include <string_view>

#include "core/signature.h"

namespace turnout::core {

struct Alias {
  std::string_view name;    // in the signature
  std::string_view called;  // by the caller; empty: the caller does not have it
};

struct Naming {
  std::string_view op;
  std::span<const Alias> aliases;
  List<std::string_view, kMaxArguments> copied;  // arguments of which the door made a copy

  constexpr std::string_view of(std::string_view name) const {
    for (const Alias& alias : aliases)
      if (alias.name == name && !alias.called.empty()) return alias.called;
    return name;
  }
  constexpr bool is_copied(std::string_view name) const {
    for (const std::string_view one : copied)
      if (one == name) return true;
    return false;
  }
};

// The names of the calls that this thread makes while the scope lives; the signatures' own for nullptr.
class NamingScope {
 public:
  explicit NamingScope(const Naming* naming) : before_(current_) { current_ = naming; }
  ~NamingScope() { current_ = before_; }
  NamingScope(const NamingScope&) = delete;
  NamingScope& operator=(const NamingScope&) = delete;

  static const Naming* current() { return current_; }
  static std::string_view op_of(const Signature& signature) {
    return current_ == nullptr || current_->op.empty() ? signature.op : current_->op;
  }
  static std::string_view name_of(std::string_view name) {
    return current_ == nullptr ? name : current_->of(name);
  }

 private:
  inline static thread_local const Naming* current_ = nullptr;
  const Naming* before_;
};

}  // namespace turnout::core
