// Turns the bytes of a fuzzer into values. After the last byte all values are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace turnout::test {

// libFuzzer reports a failure when the process aborts.
inline void require(bool condition) {
  if (!condition) std::abort();
}

class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  template <class T>
  T value() {
    T v{};
    const std::size_t take = size_ < sizeof(T) ? size_ : sizeof(T);
    if (take > 0) std::memcpy(&v, data_, take);
    data_ += take;
    size_ -= take;
    return v;
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(value<std::uint16_t>()) % (high - low + 1);
  }
  bool flag() { return value<std::uint8_t>() & 1; }
  bool one_in(int n) { return value<std::uint8_t>() % n == n - 1; }
  bool empty() const { return size_ == 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

}  // namespace turnout::test
