// The list of all operators of the C interface, for tests that cover every operator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "turnout/mluop/mlu_op.h"

namespace turnout::core {

using Descriptors = const mluOpTensorDescriptor_t*;
using Scalars = const ScalarValue*;

struct COperator {
  const Signature* signature;
  // Calls the C function with arguments and scalars in the signature's order.
  mluOpStatus_t (*invoke)(mluOpHandle_t handle, Descriptors descriptors, void* const* data, Scalars scalars,
                          const Workspace& workspace);
  // A valid call: a value for every size and scalar. Tests start from it and break one thing at a time.
  std::string_view example;
  // Fills in the data of that call, if zeros are not valid data.
  void (*prepare)(const Tensor* arguments) = nullptr;
  // Returns the required workspace size; nullptr if the function takes no workspace.
  mluOpStatus_t (*query)(mluOpHandle_t handle, Descriptors descriptors, void* const* data, Scalars scalars,
                         std::size_t* workspace_size) = nullptr;
  // For each data check of the signature, changes to the example that break this check but no earlier one: of
  // sizes, of scalars, of all elements of an argument, of its dtype ("x.dtype=1") or rank ("x.rank=-1").
  std::string_view data_faults[8] = {};
  // Whether some results are written even if there is nothing to compute.
  bool writes_when_empty = false;
  // Sizes for which a data check accepts only the example's value; tests of other checks do not change them.
  std::string_view pinned = {};
  // If a function has several signatures: what distinguishes this one.
  std::string_view variant = {};
};

std::span<const COperator> c_operators();

// -- a C function as `invoke` and `query` -------------------------------------------------------------------

template <class Function>
struct CParameters;
template <class... P>
struct CParameters<mluOpStatus_t (*)(P...)> {
  enum class Kind : std::uint8_t { handle, descriptor, data, workspace, workspace_size, size_result, scalar };
  static constexpr std::size_t kCount = sizeof...(P);
  template <std::size_t i>
  using Type = std::tuple_element_t<i, std::tuple<P...>>;

  // A pointer after a descriptor is the data of that argument; one before a size is the workspace.
  template <std::size_t i>
  static constexpr Kind kind() {
    using T = Type<i>;
    if constexpr (std::is_same_v<T, mluOpHandle_t>) {
      return Kind::handle;
    } else if constexpr (std::is_same_v<T, mluOpTensorDescriptor_t>) {
      return Kind::descriptor;
    } else if constexpr (std::is_same_v<T, std::size_t*>) {
      return Kind::size_result;
    } else if constexpr (std::is_same_v<T, std::size_t>) {
      return Kind::workspace_size;
    } else if constexpr (std::is_pointer_v<T>) {
      static_assert(i > 0);
      return std::is_same_v<Type<i - 1>, mluOpTensorDescriptor_t> ? Kind::data : Kind::workspace;
    } else {
      return Kind::scalar;
    }
  }
  // How many parameters of a kind precede parameter i.
  template <std::size_t i>
  static constexpr std::size_t before(Kind kind_) {
    return []<std::size_t... j>(std::index_sequence<j...>, Kind wanted) {
      return (std::size_t{0} + ... + static_cast<std::size_t>(kind<j>() == wanted));
    }
    (std::make_index_sequence<i>(), kind_);
  }

  struct Values {
    mluOpHandle_t handle;
    Descriptors descriptors;
    void* const* data;
    Scalars scalars;
    const Workspace& workspace;
    std::size_t* size;
  };
  template <std::size_t i>
  static Type<i> value(const Values& values) {
    constexpr Kind kKind = kind<i>();
    if constexpr (kKind == Kind::handle) {
      return values.handle;
    } else if constexpr (kKind == Kind::descriptor) {
      return values.descriptors[before<i>(Kind::descriptor)];
    } else if constexpr (kKind == Kind::data) {
      return static_cast<Type<i>>(values.data[before<i>(Kind::descriptor) - 1]);
    } else if constexpr (kKind == Kind::workspace) {
      return values.workspace.data;
    } else if constexpr (kKind == Kind::workspace_size) {
      return values.workspace.size;
    } else if constexpr (kKind == Kind::size_result) {
      return values.size;
    } else if constexpr (std::is_floating_point_v<Type<i>>) {
      return static_cast<Type<i>>(values.scalars[before<i>(Kind::scalar)].real);
    } else {
      return static_cast<Type<i>>(values.scalars[before<i>(Kind::scalar)].value);
    }
  }
  template <auto function>
  static mluOpStatus_t call(const Values& values) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) { return function(value<i>(values)...); }
    (std::make_index_sequence<kCount>());
  }
};

// Calls `function`, whose descriptors and scalars are in the signature's order.
template <auto function>
mluOpStatus_t c_invoke(mluOpHandle_t handle, Descriptors descriptors, void* const* data, Scalars scalars,
                       const Workspace& workspace) {
  std::size_t size = 0;
  return CParameters<decltype(function)>::template call<function>(
      {handle, descriptors, data, scalars, workspace, &size});
}
// Calls a workspace query that has the first descriptors and scalars of the function.
template <auto function>
mluOpStatus_t c_query(mluOpHandle_t handle, Descriptors descriptors, void* const* data, Scalars scalars,
                      std::size_t* size) {
  return CParameters<decltype(function)>::template call<function>(
      {handle, descriptors, data, scalars, {}, size});
}

// For a lambda instead of these.
inline int as_int(const ScalarValue& scalar) { return static_cast<int>(scalar.value); }

}  // namespace turnout::core
