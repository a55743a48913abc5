// The sentence that a C interface keeps for each thread: why the thread's last call failed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace turnout::doors {

// A plain array: it can also say that memory is out, and it needs no destructor when a thread ends. A
// sentence that is too long is cut.
class LastError {
 public:
  static constexpr std::size_t kBytes = 1024;  // with the final zero

  void clear() noexcept { text_[0] = '\0'; }
  void set(std::string_view sentence) noexcept {
    const std::size_t length = std::min(sentence.size(), kBytes - 1);
    std::memmove(text_, sentence.data(), length);
    text_[length] = '\0';
  }
  const char* text() const noexcept { return text_; }

 private:
  char text_[kBytes] = "";
};

}  // namespace turnout::doors
