// The last line of the log, which names the algorithm that a call chose.
#pragma once

#include <string>

#include "turnout/context.h"

namespace turnout::test {

class LastLogLine {
 public:
  LastLogLine() {
    set_log(
        1, [](int, const char* line, void* to) { *static_cast<std::string*>(to) = line; }, &text_);
  }
  ~LastLogLine() { set_log(0); }
  LastLogLine(const LastLogLine&) = delete;
  LastLogLine& operator=(const LastLogLine&) = delete;

  bool has(const std::string& words) const { return text_.find(words) != std::string::npos; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace turnout::test
