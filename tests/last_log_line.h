// Captures the log: the number of lines, and the last one, which names the algorithm that a call chose.
#pragma once

#include <string>

#include "turnout/context.h"

namespace turnout::test {

class LastLogLine {
 public:
  explicit LastLogLine(int level = 1) {
    set_log(
        level,
        [](int, const char* line, void* user) {
          auto& self = *static_cast<LastLogLine*>(user);
          self.text_ = line;
          ++self.count_;
        },
        this);
  }
  ~LastLogLine() { set_log(0); }
  LastLogLine(const LastLogLine&) = delete;
  LastLogLine& operator=(const LastLogLine&) = delete;

  bool has(const std::string& words) const { return text_.find(words) != std::string::npos; }
  const std::string& text() const { return text_; }
  int count() const { return count_; }
  // The value of a key: key=word, or key="several words".
  std::string value(const std::string& key) const {
    const std::size_t at = text_.find(" " + key + "=");
    if (at == std::string::npos) return {};
    std::size_t begin = at + key.size() + 2;
    const bool is_quoted = text_[begin] == '"';
    begin += is_quoted;
    return text_.substr(begin, text_.find(is_quoted ? '"' : ' ', begin) - begin);
  }

 private:
  std::string text_;
  int count_ = 0;
};

}  // namespace turnout::test
