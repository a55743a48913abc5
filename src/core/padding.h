// Sizes of arrays in scratch memory. Each array begins on a cache line.
#pragma once

#include <cstddef>
#include <cstdint>

namespace turnout::core {

inline constexpr std::size_t kScratchAlignment = 64;

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// The bytes that Scratch::take<T>(count) uses.
template <class T>
constexpr std::size_t array_bytes(std::int64_t count) {
  return padded(static_cast<std::size_t>(count) * sizeof(T));
}

}  // namespace turnout::core
