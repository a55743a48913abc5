// The message that a C interface keeps for each thread: why the thread's last call failed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "runtime/thread_pointer.h"

namespace turnout::bindings {

// The first failing call of a thread allocates the memory for its messages. If that fails, text() says so. A
// message that is too long is truncated.
class LastError {
 public:
  static constexpr std::size_t kBytes = 1024;  // with the final zero

  void clear() const noexcept {
    if (char* text = own()) text[0] = '\0';
  }
  void set(std::string_view message) const noexcept {
    char* text = own();
    if (text == nullptr) {
      text = static_cast<char*>(std::malloc(kBytes));
      if (!thread_text_.set(text == nullptr ? no_memory() : text)) return std::free(text);
      if (text == nullptr) return;
    }
    const std::size_t length = std::min(message.size(), kBytes - 1);
    std::memmove(text, message.data(), length);
    text[length] = '\0';
  }
  const char* text() const noexcept {
    const void* text = thread_text_.get();
    return text == nullptr ? "" : static_cast<const char*>(text);
  }

 private:
  static char* no_memory() noexcept {
    static char text[] = "turnout: a call failed, and there was no memory for its message";
    return text;
  }
  // The memory of this thread; nullptr: it has none.
  char* own() const noexcept {
    void* text = thread_text_.get();
    if (text == no_memory()) {
      thread_text_.set(nullptr);
      return nullptr;
    }
    return static_cast<char*>(text);
  }

  core::ThreadPointer thread_text_{[](void* text) {
    if (text != no_memory()) std::free(text);
  }};
};

}  // namespace turnout::bindings
