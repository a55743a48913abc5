// A workspace inside a buffer with a known byte pattern, to see what a call writes inside and around it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace turnout::test {

inline constexpr std::size_t kWorkspaceOffsets[] = {0, 1, 8, 63};

class PaintedWorkspace {
 public:
  PaintedWorkspace(std::size_t required, std::size_t offset)
      : memory_(required + 2 * 64, kPaintedByte), offset_(offset), required_(required) {}

  char* begin() { return memory_.data() + offset_; }
  const std::vector<char>& memory() const { return memory_; }

  void expect_used_and_nothing_around_it() {
    EXPECT_EQ(is_painted(begin(), begin() + required_), required_ == 0) << offset_;
    EXPECT_TRUE(is_painted(memory_.data(), begin())) << offset_;
    EXPECT_TRUE(is_painted(begin() + required_, memory_.data() + memory_.size())) << offset_;
  }

 private:
  static constexpr char kPaintedByte = 'x';
  static bool is_painted(const char* from, const char* to) {
    return std::all_of(from, to, [](char byte) { return byte == kPaintedByte; });
  }

  std::vector<char> memory_;
  std::size_t offset_, required_;
};

}  // namespace turnout::test
