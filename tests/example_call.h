// A valid call, generated from a Signature alone, for tests that then break it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/draft.h"
#include "core/signature.h"
#include "turnout/tensor.h"

namespace turnout::test {

using core::Argument;
using core::Extent;
using core::Signature;

// The position of a size or scalar whose name is known at run time only; names.count when there is none.
inline std::size_t position_of(const Signature& signature, std::string_view name) {
  return static_cast<std::size_t>(std::find(signature.names.begin(), signature.names.end(), name) -
                                  signature.names.begin());
}

struct ExampleCall {
  const Signature& signature;
  std::vector<std::int64_t> sizes;                 // by position in signature.names
  std::vector<std::vector<std::int64_t>> vectors;  // elements of the vector scalars, by scalar
  std::vector<std::vector<double>> reals;          // elements of the floating-point scalars, by scalar
  std::vector<std::unique_ptr<std::vector<std::uint64_t>>> memory;  // by argument
  std::vector<Tensor> tensors;

  // example: "capacity=3 samples=5", a value for every name; for a vector, the value of each element, or of
  // floating-point numbers all of them: "range=0,4".
  // drop_optional: leave out the optional dimensions.
  ExampleCall(const Signature& s, std::string_view example, bool drop_optional = false)
      : signature(s), sizes(static_cast<std::size_t>(s.names.count), 0) {
    std::map<std::size_t, std::vector<double>> real_values;
    core::split(example, ' ', [&](std::string_view part) {
      const std::size_t eq = part.find('=');
      const std::size_t position = position_of(s, part.substr(0, eq));
      const bool is_scalar = position < static_cast<std::size_t>(s.scalars.count);
      if (is_scalar && s.scalars[static_cast<int>(position)].is_real) {
        core::split(part.substr(eq + 1), ',', [&](std::string_view value) {
          real_values[position].push_back(std::stod(std::string(value)));
        });
      } else {
        sizes.at(position) = core::number(part.substr(eq + 1));
      }
    });
    if (drop_optional) {
      for (const Argument& argument : s.arguments)
        for (const Extent& dim : argument.dims)
          if (dim.optional) sizes[static_cast<std::size_t>(dim.names[0])] = 1;
    }
    for (const core::Scalar& scalar : s.scalars) {
      vectors.emplace_back();
      reals.emplace_back();
      if (scalar.is_real) {
        reals.back() = real_values.at(reals.size() - 1);
        reals.back().resize(scalar.is_vector ? static_cast<std::size_t>(evaluate(scalar.length)) : 1,
                            reals.back().back());
      }
      if (!scalar.is_vector || scalar.is_real) continue;
      std::int64_t& element = sizes[vectors.size() - 1];  // replaced by the product of the vector's elements
      vectors.back().assign(static_cast<std::size_t>(evaluate(scalar.length)), std::max(scalar.min, element));
      element = 1;
      for (std::int64_t value : vectors.back()) element *= value;
    }
    for (const Argument& argument : s.arguments) {
      DType dtype = DType::f32;
      for (const Argument* a = &argument;; a = &s.arguments[a->like]) {
        if (a->dtypes != 0 || a->like < 0) {
          for (int i = kDTypeCount; i-- > 0;)
            if (core::contains(a->dtypes, static_cast<DType>(i))) dtype = static_cast<DType>(i);
          break;
        }
      }
      std::vector<std::int64_t> shape;
      for (const Extent& dim : argument.dims)
        if (!(drop_optional && dim.optional)) shape.push_back(evaluate(dim));
      tensors.emplace_back(nullptr, dtype, shape.data(), static_cast<int>(shape.size()));
      memory.emplace_back();
      allocate(static_cast<int>(tensors.size()) - 1);
    }
  }

  std::int64_t evaluate(const Extent& extent) const {
    std::int64_t value = extent.factor;
    for (std::int8_t name : extent.names) value *= sizes[static_cast<std::size_t>(name)];
    return value + extent.add;
  }

  // Allocates zeroed memory for the current shape and dtype of argument i, with room to spare.
  void allocate(int i) {
    Tensor& t = tensors[static_cast<std::size_t>(i)];
    const std::int64_t elements = core::Slot(t).elements();
    auto& block = memory[static_cast<std::size_t>(i)];
    block = std::make_unique<std::vector<std::uint64_t>>(static_cast<std::size_t>(elements) + 64, 0u);
    t.data = block->data();
  }

  void fill(int i, std::uint64_t word) {
    auto& block = *memory[static_cast<std::size_t>(i)];
    std::fill(block.begin(), block.end(), word);
  }

  std::vector<core::ScalarValue> scalar_values() const {
    std::vector<core::ScalarValue> values;
    for (int i = 0; i < signature.scalars.count; ++i) {
      const auto& v = vectors[static_cast<std::size_t>(i)];
      const auto& r = reals[static_cast<std::size_t>(i)];
      if (signature.scalars[i].is_real && signature.scalars[i].is_vector) {
        values.emplace_back(r.data(), static_cast<std::int64_t>(r.size()));
      } else if (signature.scalars[i].is_real) {
        values.emplace_back(r[0]);
      } else if (signature.scalars[i].is_vector) {
        values.emplace_back(v.data(), static_cast<std::int64_t>(v.size()));
      } else {
        values.emplace_back(sizes[static_cast<std::size_t>(i)]);
      }
    }
    return values;
  }

  // The bytes of all outputs, to check that a failing call has written nothing.
  std::string output_bytes() const {
    std::string bytes;
    for (int i = 0; i < signature.arguments.count; ++i) {
      if (!signature.arguments[i].is_output()) continue;
      const auto& block = *memory[static_cast<std::size_t>(i)];
      bytes.append(reinterpret_cast<const char*>(block.data()), block.size() * sizeof(block[0]));
    }
    return bytes;
  }
  void paint_outputs() {
    for (int i = 0; i < signature.arguments.count; ++i) {
      auto& block = *memory[static_cast<std::size_t>(i)];
      if (signature.arguments[i].is_output())
        std::memset(block.data(), 0x5A, block.size() * sizeof(block[0]));
    }
  }
};

}  // namespace turnout::test
