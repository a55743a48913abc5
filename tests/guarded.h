// Test memory with guard bytes at both ends, misaligned on request.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace turnout::test {

// `count` elements of T that start `offset` elements after a 64-byte boundary. A change of the surrounding
// bytes is an error.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t count, std::int64_t offset = 0)
      : count_(static_cast<std::size_t>(count)),
        memory_(2 * kGuard + 64 + (count_ + static_cast<std::size_t>(offset)) * sizeof(T), kGuardByte) {
    auto base = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard;
    base = (base + 63) / 64 * 64 + static_cast<std::uintptr_t>(offset) * sizeof(T);
    first_ = reinterpret_cast<T*>(base);
    for (std::size_t i = 0; i < count_; ++i) first_[i] = T{};
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { EXPECT_TRUE(guards_intact()); }

  T* data() { return first_; }
  T& operator[](std::int64_t i) { return first_[i]; }
  std::int64_t size() const { return static_cast<std::int64_t>(count_); }
  std::size_t bytes() const { return count_ * sizeof(T); }
  void copy_from(Guarded& other) {
    if (count_ > 0) std::memcpy(first_, other.first_, bytes());
  }
  bool same_bytes(Guarded& other) {
    return count_ == other.count_ && (count_ == 0 || std::memcmp(first_, other.first_, bytes()) == 0);
  }
  bool guards_intact() const {
    const auto* begin = reinterpret_cast<const unsigned char*>(first_);
    for (const unsigned char* p = memory_.data(); p < begin; ++p)
      if (*p != kGuardByte) return false;
    for (const unsigned char* p = begin + bytes(); p < memory_.data() + memory_.size(); ++p)
      if (*p != kGuardByte) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr unsigned char kGuardByte = 0xA5;
  std::size_t count_;
  std::vector<unsigned char> memory_;
  T* first_;
};

}  // namespace turnout::test
