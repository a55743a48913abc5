// Element access by indices, for definitions. Their tensors are contiguous: f64 for floating-point numbers,
// i64 for everything else.
#pragma once

#include <cstdint>
#include <type_traits>

#include "turnout/tensor.h"

namespace turnout::core {

template <class T>
class Elements {
 public:
  using Data = std::conditional_t<std::is_const_v<T>, const void*, void*>;

  explicit Elements(const BasicTensor<Data>& tensor) : tensor_(tensor) {}

  bool are_given() const { return !tensor_.is_absent(); }
  std::int64_t extent(int d) const { return tensor_.shape[d]; }
  int rank() const { return tensor_.rank; }

  // x(i, j): needs one index per dimension.
  template <class... Index>
  T& operator()(Index... index) const {
    const std::int64_t indices[] = {index...};
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < sizeof...(Index); ++d) offset += indices[d] * tensor_.stride[d];
    return static_cast<T*>(tensor_.data)[offset];
  }

 private:
  const BasicTensor<Data> tensor_;
};

inline Elements<const double> numbers(const ConstTensor& tensor) { return Elements<const double>(tensor); }
inline Elements<double> numbers(const Tensor& tensor) { return Elements<double>(tensor); }
inline Elements<const std::int64_t> integers(const ConstTensor& tensor) {
  return Elements<const std::int64_t>(tensor);
}
inline Elements<std::int64_t> integers(const Tensor& tensor) { return Elements<std::int64_t>(tensor); }

}  // namespace turnout::core
