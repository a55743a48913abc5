// A call of a C operator. It is initially valid; tests insert faults.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "bindings/mluop/call.h"
#include "c_registry.h"
#include "core/draft.h"
#include "example_call.h"

namespace turnout::test {

using core::COperator;

inline mluOpDataType_t c_dtype(DType dtype) {
  for (int value = 0; value < 128; ++value)
    if (bindings::dtype_of_c(static_cast<mluOpDataType_t>(value)) == dtype)
      return static_cast<mluOpDataType_t>(value);
  return MLUOP_DTYPE_INVALID;
}

// A valid call of the signature, plus the changes applied to it. Changes accumulate.
struct BrokenCall {
  struct Part {
    mluOpDataType_t dtype;
    mluOpTensorLayout_t layout = MLUOP_LAYOUT_ARRAY;
    bool described = true;
    bool strided = false;
    bool has_data = true;
    int shared_with = -1;  // the argument whose memory is passed instead
    bool without_optional_dim = false;
    int rank_change = 0;
    std::vector<std::int64_t> extent_change;
  };

  ExampleCall example;  // its sizes define the shapes
  std::vector<std::int64_t> scalar_change;
  std::vector<Part> parts;
  bool has_handle = true;
  bool has_workspace = true;
  std::size_t missing_workspace = 0;  // bytes below what the query returns
  std::size_t more_workspace = 0;     // bytes above it

  explicit BrokenCall(const COperator& op) : BrokenCall(op, op.example) {}
  BrokenCall(const COperator& op, std::string_view sizes) : example(*op.signature, sizes) {
    if (op.prepare != nullptr) op.prepare(example.tensors.data());
    scalar_change.resize(static_cast<std::size_t>(op.signature->scalars.count));
    for (const Tensor& t : example.tensors)
      parts.push_back({.dtype = c_dtype(t.dtype), .extent_change = std::vector<std::int64_t>(kMaxRank)});
  }

  // Sets a size or scalar; for a vector scalar, the product of its elements.
  void set_size(std::size_t name, std::int64_t value) {
    example.sizes[name] = value;
    if (static_cast<int>(name) >= example.signature.scalars.count || example.vectors[name].empty()) return;
    std::fill(example.vectors[name].begin(), example.vectors[name].end(), 1);
    example.vectors[name].front() = value;
  }
  // "stride=2 mode=1 x.dtype=1 y.rank=-1": sets sizes, scalars, all elements of int64 arguments, and dtypes,
  // and adds to ranks.
  void change(std::string_view changes) {
    core::split(changes, ' ', [&](std::string_view part) {
      const std::size_t eq = part.find('='), first = eq + 1 + (part[eq + 1] == '-');
      const std::string_view changed = part.substr(0, eq);
      const std::size_t name = position_of(example.signature, changed);
      const std::int64_t value = core::number(part.substr(first)) * (first == eq + 1 ? 1 : -1);
      for (int i = 0; i < example.signature.arguments.count; ++i) {
        if (example.signature.arguments[i].name == changed)
          return example.fill(i, static_cast<std::uint64_t>(value));
        if (std::string(example.signature.arguments[i].name) + ".dtype" == changed) {
          parts[static_cast<std::size_t>(i)].dtype = static_cast<mluOpDataType_t>(value);
          return;
        }
        if (std::string(example.signature.arguments[i].name) + ".rank" == changed) {
          parts[static_cast<std::size_t>(i)].rank_change = static_cast<int>(value);
          return;
        }
      }
      example.sizes.at(name) = value;
      if (static_cast<int>(name) < example.signature.scalars.count && !example.vectors[name].empty()) {
        std::fill(example.vectors[name].begin(), example.vectors[name].end(), value);
        example.sizes[name] = 1;
        for (std::int64_t element : example.vectors[name]) example.sizes[name] *= element;
      }
    });
  }

  std::vector<std::int64_t> shape(int argument) const {
    const Part& part = parts[static_cast<std::size_t>(argument)];
    std::vector<std::int64_t> shape;
    for (const Extent& dim : example.signature.arguments[argument].dims)
      if (!part.without_optional_dim || !dim.optional)
        shape.push_back(example.evaluate(dim) + part.extent_change[shape.size()]);
    shape.resize(static_cast<std::size_t>(static_cast<int>(shape.size()) + part.rank_change), 1);
    return shape;
  }
  std::int64_t elements(int argument) const {
    std::int64_t count = 1;
    for (std::int64_t extent : shape(argument)) count *= std::max<std::int64_t>(extent, 0);
    return count;
  }
  bool is_empty(int argument) const {
    const std::vector<std::int64_t> extents = shape(argument);
    return std::count(extents.begin(), extents.end(), 0) > 0;
  }
  // The first step that finds a wrong shape, if each size is bound by the first step that uses it; -1 if all
  // shapes fit. Only for calls with all optional dimensions.
  int shapes_end() const {
    ExampleCall known = with_scalars_as_given();
    return bind(known, example.signature.order.count);
  }
  // The same for the steps before `until`; `known` gets the sizes that these bind.
  int bind(ExampleCall& known, int until) const {
    const Signature& signature = example.signature;
    std::vector<bool> bound(known.sizes.size());
    std::fill_n(bound.begin(), signature.scalars.count, true);
    const auto fits = [&](int argument, int d) {
      const std::int64_t extent = shape(argument)[static_cast<std::size_t>(d)];
      const Extent& dim = signature.arguments[argument].dims[d];
      for (std::int8_t name : dim.names) {
        const auto n = static_cast<std::size_t>(name);
        if (!bound[n]) known.sizes[n] = (extent - dim.add) / dim.factor;
        bound[n] = true;
      }
      return extent >= 0 && known.evaluate(dim) == extent;
    };
    for (int s = 0; s < until; ++s) {
      if (signature.order[s].check != core::Check::shapes) continue;
      const auto& only = signature.order[s].only;
      std::vector<core::Selection> looks_at(only.begin(), only.end());
      if (looks_at.empty())
        for (int i = 0; i < signature.arguments.count; ++i)
          looks_at.push_back({static_cast<std::int8_t>(i), -1});
      for (const core::Selection& one : looks_at)
        for (int d = 0; d < signature.arguments[one.argument].dims.count; ++d)
          if ((one.dim < 0 || one.dim == d) && parts[static_cast<std::size_t>(one.argument)].described &&
              !fits(one.argument, d))
            return s;
    }
    return -1;
  }
  // The sizes as passed to the C function: scalar_change is applied to the scalars but not to the shapes.
  ExampleCall with_scalars_as_given() const {
    ExampleCall given(example.signature, "");
    given.sizes = example.sizes;
    for (std::size_t i = 0; i < scalar_change.size(); ++i) given.sizes[i] += scalar_change[i];
    return given;
  }

  // The workspace size that the function's query returns for this call; 0 if the function has no query.
  std::size_t workspace_size(const COperator& op, mluOpHandle_t handle) const {
    std::size_t size = 0;
    if (op.query != nullptr) {
      EXPECT_EQ(op.query(handle, Descriptors(*this).given.data(), data().data(), scalars().data(), &size),
                MLUOP_STATUS_SUCCESS)
          << turnoutLastError();
    }
    return size;
  }

  // required: the workspace_size() of the call before it was broken.
  mluOpStatus_t invoke(const COperator& op, mluOpHandle_t handle, std::size_t required) const {
    return invoke(op, handle, required, [](const auto& call) { return call(); });
  }
  // around(call) must run call(), the C function. Everything that the test needs for it is allocated before.
  template <class Around>
  mluOpStatus_t invoke(const COperator& op, mluOpHandle_t handle, std::size_t required,
                       const Around& around) const {
    std::vector<std::byte> memory(required - missing_workspace + more_workspace);
    const Descriptors descriptors(*this);
    const auto pointers = data();
    const auto values = scalars();
    return around([&] {
      return op.invoke(has_handle ? handle : nullptr, descriptors.given.data(), pointers.data(),
                       values.data(), {has_workspace ? memory.data() : nullptr, memory.size()});
    });
  }

 private:
  std::vector<void*> data() const {
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::size_t from = parts[i].shared_with < 0 ? i : static_cast<std::size_t>(parts[i].shared_with);
      pointers.push_back(parts[i].has_data ? example.tensors[from].data : nullptr);
    }
    return pointers;
  }

  struct Descriptors {
    std::vector<mluOpTensorStruct> all;
    std::vector<mluOpTensorDescriptor_t> given;  // nullptr for no descriptor
    explicit Descriptors(const BrokenCall& call) : all(call.parts.size()) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        call.describe(static_cast<int>(i), &all[i]);
        given.push_back(call.parts[i].described ? &all[i] : nullptr);
      }
    }
  };

  std::vector<core::ScalarValue> scalars() const {
    auto values = example.scalar_values();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!example.signature.scalars[static_cast<int>(i)].is_vector) values[i].value += scalar_change[i];
    return values;
  }

  void describe(int argument, mluOpTensorDescriptor_t desc) const {
    const Part& part = parts[static_cast<std::size_t>(argument)];
    const std::vector<std::int64_t> sizes = shape(argument);
    std::vector<std::int64_t> stride(sizes.size());
    std::int64_t step = part.strided ? 2 : 1;
    for (std::size_t d = sizes.size(); d-- > 0; step *= std::max<std::int64_t>(sizes[d], 0)) stride[d] = step;
    if (sizes.empty()) mluOpSetTensorDescriptorPointerMode(desc, MLUOP_POINTER_MODE_HOST);
    EXPECT_EQ(mluOpSetTensorDescriptorEx_v2(desc, part.layout, part.dtype, static_cast<int>(sizes.size()),
                                            sizes.data(), stride.data()),
              MLUOP_STATUS_SUCCESS);
  }
};

}  // namespace turnout::test
