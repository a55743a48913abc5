// The caller of each thread, and sentences in its words.
#include "runtime/caller.h"

#include <algorithm>

namespace turnout::core {
namespace {

thread_local const Caller* current_caller = nullptr;

bool is_in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

std::string Renames::words_of(std::string_view text) const {
  std::string words;
  while (!text.empty()) {
    const auto length =
        static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_in_name) - text.begin());
    words += length == 0 ? text.substr(0, 1) : (*this)(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return words;
}

Caller::Caller(const Arguments& arguments, const Renames& renames)
    : op_(arguments.signature().op), arguments_(&arguments), renames_(renames), before_(current_caller) {
  current_caller = this;
}
Caller::Caller(std::string_view op, const Renames& renames, std::string_view note)
    : op_(op), arguments_(nullptr), renames_(renames), note_(note), before_(current_caller) {
  current_caller = this;
}
Caller::~Caller() { current_caller = before_; }

const Caller* Caller::current() { return current_caller; }

std::string Caller::describe(const Arguments& of_operator) const {
  if (arguments_ != nullptr) return arguments_->describe();
  return concat(renames_.words_of(of_operator.describe()), note_.empty() ? "" : ", ", note_);
}

std::string Caller::in_own_words(std::string_view sentence) const {
  const std::size_t colon = std::min(sentence.find(": "), sentence.size());
  return concat(op_, renames_.words_of(sentence.substr(colon)));
}

}  // namespace turnout::core
