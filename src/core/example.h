// The sizes, scalars, dtypes and shapes of a valid call, from a Signature and its operator's example.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/draft.h"
#include "core/signature.h"
#include "turnout/tensor.h"

namespace turnout::core {

// The position of a size or scalar by its name at run time; names.count if there is none.
inline std::size_t position_of(const Signature& signature, std::string_view name) {
  return static_cast<std::size_t>(std::find(signature.names.begin(), signature.names.end(), name) -
                                  signature.names.begin());
}

struct Example {
  const Signature& signature;
  bool drops_dimensions;                           // leaves out the optional dimensions
  std::vector<std::int64_t> sizes;                 // by position in signature.names
  std::vector<std::vector<std::int64_t>> vectors;  // elements of the vector scalars, by scalar
  std::vector<std::vector<double>> reals;          // elements of the floating-point scalars, by scalar

  // text: "capacity=3 samples=5", a value for every name without a default. The elements of a vector all get
  // the value; a vector of floating-point numbers lists them: "range=0,4".
  Example(const Signature& its_signature, std::string_view text, bool drop_dimensions = false)
      : signature(its_signature),
        drops_dimensions(drop_dimensions),
        sizes(static_cast<std::size_t>(its_signature.names.count), 0) {
    std::map<std::size_t, std::vector<double>> real_values;
    for (int i = 0; i < signature.scalars.count; ++i) {
      sizes[static_cast<std::size_t>(i)] = signature.scalars[i].default_value;
      real_values[static_cast<std::size_t>(i)] = {signature.scalars[i].default_real};
    }
    split(text, ' ', [&](std::string_view part) {
      const std::size_t equals = part.find('=');
      const std::size_t position = position_of(signature, part.substr(0, equals));
      const bool is_scalar = position < static_cast<std::size_t>(signature.scalars.count);
      if (is_scalar && signature.scalars[static_cast<int>(position)].is_real) {
        real_values[position].clear();
        split(part.substr(equals + 1), ',', [&](std::string_view value) {
          real_values[position].push_back(std::stod(std::string(value)));
        });
      } else {
        sizes.at(position) = number(part.substr(equals + 1));
      }
    });
    if (drop_dimensions) {
      for (const Argument& argument : signature.arguments)
        for (const Extent& dim : argument.dims)
          if (dim.optional) sizes[static_cast<std::size_t>(dim.names[0])] = 1;
    }
    for (const Scalar& scalar : signature.scalars) {
      vectors.emplace_back();
      reals.emplace_back();
      if (scalar.is_real) {
        reals.back() = real_values[reals.size() - 1];
        reals.back().resize(scalar.is_vector ? static_cast<std::size_t>(evaluate(scalar.length)) : 1,
                            reals.back().back());
      }
      if (!scalar.is_vector || scalar.is_real) continue;
      std::int64_t& element = sizes[vectors.size() - 1];  // replaced by the product of the vector's elements
      vectors.back().assign(static_cast<std::size_t>(evaluate(scalar.length)), std::max(scalar.min, element));
      element = 1;
      for (std::int64_t value : vectors.back()) element *= value;
    }
  }

  std::int64_t evaluate(const Extent& extent) const {
    std::int64_t value = extent.factor;
    for (std::int8_t name : extent.names) value *= sizes[static_cast<std::size_t>(name)];
    return value + extent.add;
  }

  // The first dtype that an argument accepts.
  DType dtype(int argument) const {
    const Argument* one = &signature.arguments[argument];
    while (one->dtypes == 0 && one->like >= 0) one = &signature.arguments[one->like];
    for (int i = 0; i < kDTypeCount; ++i)
      if (contains(one->dtypes, static_cast<DType>(i))) return static_cast<DType>(i);
    return DType::f32;
  }

  std::vector<std::int64_t> shape(int argument) const {
    std::vector<std::int64_t> extents;
    for (const Extent& dim : signature.arguments[argument].dims)
      if (!(drops_dimensions && dim.optional)) extents.push_back(evaluate(dim));
    return extents;
  }

  std::vector<ScalarValue> scalar_values() const {
    std::vector<ScalarValue> values;
    for (int i = 0; i < signature.scalars.count; ++i) {
      const auto& integers = vectors[static_cast<std::size_t>(i)];
      const auto& numbers = reals[static_cast<std::size_t>(i)];
      if (signature.scalars[i].is_real && signature.scalars[i].is_vector) {
        values.emplace_back(numbers.data(), static_cast<std::int64_t>(numbers.size()));
      } else if (signature.scalars[i].is_real) {
        values.emplace_back(numbers[0]);
      } else if (signature.scalars[i].is_vector) {
        values.emplace_back(integers.data(), static_cast<std::int64_t>(integers.size()));
      } else {
        values.emplace_back(sizes[static_cast<std::size_t>(i)]);
      }
    }
    return values;
  }
};

}  // namespace turnout::core
