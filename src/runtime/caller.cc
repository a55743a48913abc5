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

Caller::Caller(const Arguments& arguments, const Renames& renames)
    : arguments_(arguments), renames_(renames), before_(current_caller) {
  current_caller = this;
}
Caller::~Caller() { current_caller = before_; }

const Caller* Caller::current() { return current_caller; }

std::string Caller::in_own_words(std::string_view sentence) const {
  const std::size_t colon = std::min(sentence.find(": "), sentence.size());
  std::string text(arguments_.signature().op);
  for (std::size_t at = colon; at < sentence.size();) {
    const std::string_view rest = sentence.substr(at);
    const auto length =
        static_cast<std::size_t>(std::find_if_not(rest.begin(), rest.end(), is_in_name) - rest.begin());
    text += length == 0 ? rest.substr(0, 1) : renames_(rest.substr(0, length));
    at += std::max<std::size_t>(length, 1);
  }
  return text;
}

}  // namespace turnout::core
