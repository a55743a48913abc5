// Rows and an index for the tests and the fuzzer of the scatter functions, and their expected results.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "dynamic_scatter/reference.h"
#include "dynamic_scatter/scatter_case.h"
#include "simd/half.h"
#include "turnout/turnout.h"

namespace turnout::test {

// The type that an element is computed in; integers are added unsigned, so that they wrap around.
template <class T>
auto number_of(T v) {
  if constexpr (std::is_integral_v<T>) {
    return v;
  } else {
    return core::to_float(v);
  }
}
template <class T>
T element_of(decltype(number_of(T{})) v) {
  if constexpr (std::is_integral_v<T>) {
    return v;
  } else {
    return rounded<T>(v);
  }
}
template <class T>
decltype(number_of(T{})) lowest() {
  if constexpr (std::is_same_v<T, f16>) {
    return -65504.0f;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return core::to_float(bf16{0xFF7F});
  } else {
    return std::numeric_limits<T>::lowest();
  }
}
template <class T>
decltype(number_of(T{})) greatest() {
  if constexpr (std::is_integral_v<T>) {
    return std::numeric_limits<T>::max();
  } else {
    return -lowest<T>();
  }
}

template <class T, class Index>
struct IndexCase {
  std::int64_t rows, channels, groups;
  std::vector<T> src = {};        // [rows, channels]
  std::vector<Index> index = {};  // [rows]

  ConstTensor src_view() const { return view(src.data(), {rows, channels}); }
  ConstTensor index_view() const { return view(index.data(), {rows}); }

  // Calls f(place, rows of the group, their values) for each element of a result.
  template <class F>
  void for_each_result(const F& f) const {
    using Number = decltype(number_of(T{}));
    const auto members = reference::rows_of({index.begin(), index.end()}, static_cast<std::size_t>(groups));
    std::size_t place = 0;
    for (const auto& group : members) {
      for (std::int64_t c = 0; c < channels; ++c) {
        std::vector<Number> values;
        values.reserve(group.size());
        for (const std::int64_t i : group)
          values.push_back(number_of(src[static_cast<std::size_t>(i * channels + c)]));
        f(place++, group, values);
      }
    }
  }

  std::vector<T> expected(Reduce reduce_type) const {
    auto result = sized<T>(groups * channels);
    for_each_result([&](std::size_t place, const auto&, const auto& values) {
      if constexpr (std::is_integral_v<T>) {
        using Unsigned = std::make_unsigned_t<T>;
        result[place] = static_cast<T>(
            reference::scattered(std::vector<Unsigned>(values.begin(), values.end()), reduce_type));
      } else {
        result[place] = rounded<T>(reference::scattered(values, reduce_type));
      }
    });
    return result;
  }
  struct Extremes {
    std::vector<T> out;
    std::vector<std::int64_t> arg;
  };
  Extremes expected_maxima() const {
    return extremes([&](const auto& values, const auto& group) {
      return reference::maximum(values, group, lowest<T>(), rows);
    });
  }
  Extremes expected_minima() const {
    return extremes([&](const auto& values, const auto& group) {
      return reference::minimum(values, group, greatest<T>(), rows);
    });
  }

  // Gradients; argmax is that of expected_maxima(), only for max.
  std::vector<T> expected_backward(const std::vector<T>& grad, const std::vector<std::int64_t>& argmax,
                                   Reduce reduce_type) const {
    auto count = sized<std::int64_t>(groups);
    for (const Index g : index) ++count[static_cast<std::size_t>(g)];
    auto result = sized<T>(rows * channels);
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto group = static_cast<std::size_t>(index[static_cast<std::size_t>(i)]);
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::size_t from = group * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c);
        T& to = result[static_cast<std::size_t>(i * channels + c)];
        using Number = decltype(number_of(T{}));
        if (reduce_type == Reduce::sum || (reduce_type == Reduce::max && argmax[from] == i)) to = grad[from];
        if (reduce_type == Reduce::mean)
          to = rounded<T>(number_of(grad[from]) / static_cast<Number>(count[group]));
      }
    }
    return result;
  }

 private:
  template <class F>
  Extremes extremes(const F& find) const {
    Extremes result{sized<T>(groups * channels), sized<std::int64_t>(groups * channels)};
    for_each_result([&](std::size_t place, const auto& group, const auto& values) {
      const auto found = find(values, group);
      result.out[place] = element_of<T>(found.value);
      result.arg[place] = found.row;
    });
    return result;
  }
};

}  // namespace turnout::test
