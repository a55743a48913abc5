// An array of at most N elements on the stack, of which it constructs only as many as needed: constructing
// the largest number of arguments would take as long as a small call.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace turnout::bindings {

template <class T, int N>
class BoundedArray {
 public:
  template <class... Value>
  explicit BoundedArray(int count, const Value&... value) : count_(count) {
    for (int i = 0; i < count; ++i) new (data() + i) T(value...);
  }
  ~BoundedArray() {
    if constexpr (!std::is_trivially_destructible_v<T>) std::destroy_n(data(), count_);
  }
  BoundedArray(const BoundedArray&) = delete;
  BoundedArray& operator=(const BoundedArray&) = delete;

  T* data() { return reinterpret_cast<T*>(memory_); }
  const T* data() const { return reinterpret_cast<const T*>(memory_); }
  T& operator[](int i) { return data()[i]; }
  const T& operator[](int i) const { return data()[i]; }

 private:
  alignas(T) std::byte memory_[N * sizeof(T)];
  int count_;
};

}  // namespace turnout::bindings
