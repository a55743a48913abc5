// Log lines and error messages in the names of the caller.
#include "runtime/caller.h"

#include <algorithm>

namespace turnout::core {
namespace {

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

std::string Caller::describe(const Arguments& of_operator) const {
  if (arguments_ != nullptr) return arguments_->describe();
  return concat(renames_.words_of(of_operator.describe()), note_.empty() ? "" : ", ", note_);
}

std::string Caller::in_own_words(std::string_view sentence) const {
  const std::size_t colon = std::min(sentence.find(": "), sentence.size());
  return concat(op_, renames_.words_of(sentence.substr(colon)));
}

}  // namespace turnout::core
