// The list of all operators, for code that treats them alike: bindings, tests, the signature fuzzer, `turnout
// ops` and the tables of the docs.
//
//   op<&row_norms>(kRowNorms, "rows=5 hidden=7 eps=0.5", {.definition = define<&reference::row_norms>})
//
// derives the generic entry from the function's parameter list: tensors in the order of the Signature, then
// its scalars or one struct of scalars, then the Caller. A parameter whose kind or role is not that of the
// Signature is a compile error.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "turnout/caller.h"

namespace turnout::core {

// Calls the operator with arguments and scalars in the Signature's order. An absent argument has rank -1.
// Returns what the function returns, or 0.
using Invoke = std::int64_t (*)(const Caller& caller, const Tensor* arguments, const ScalarValue* scalars);

// An operator that has found the sizes of its results, and now writes them.
class Prepared {
 public:
  Prepared() = default;
  virtual ~Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  // As Invoke, which it replaces.
  virtual std::int64_t run(const Caller& caller, const Tensor* arguments, const ScalarValue* scalars) = 0;
  // The sizes that OperatorParts::find_sizes has left unknown because they take work. Results whose sizes are
  // known exist by then: a call that memory cannot hold fails before the work.
  virtual void find_sizes(const Caller&, const Tensor* /*arguments*/, std::int64_t* /*sizes*/) {}
};

struct OperatorParts {
  // The definition, for the differential test and fuzzer: like Invoke, on copies of the arguments in which
  // floating-point numbers are f64 and integers i64.
  std::int64_t (*definition)(const Tensor* arguments, const ScalarValue* scalars) = nullptr;
  // The definition has the arguments in their own dtypes, and the operator has its results bit for bit.
  bool is_exact = false;
  // Fills in the data of a call, if zeros are not valid data. Absent arguments have rank -1.
  void (*prepare)(const Tensor* arguments) = nullptr;
  // Finds the sizes that the Signature calls computed or adjusted: sizes[name], which is kUnknownExtent or
  // what the caller of a binding gives. A size that is negative afterwards is refused. The Signature's flags
  // for sizes follow its scalars: see Signature::size_flag(). Runs after the checks of shapes, and must check
  // what it reads. Results that the caller does not give are absent. The log line is that of the operator,
  // which runs next: what this function returns, or Invoke if that is nullptr.
  std::unique_ptr<Prepared> (*find_sizes)(const Caller& caller, const Tensor* arguments,
                                          const ScalarValue* scalars, std::int64_t* sizes) = nullptr;
  // What callers of a binding pass, if it is not what the function takes. find_sizes gets these arguments and
  // scalars, and returns a Prepared, because Invoke does not fit. Results have the same order in both.
  const Signature* spelled = nullptr;
  // The same for an operator that finds its sizes from others, without data and without a failure.
  void (*compute_sizes)(const ScalarValue* scalars, std::int64_t* sizes) = nullptr;

  constexpr bool has_own_sizes() const { return find_sizes != nullptr || compute_sizes != nullptr; }
};

struct Operator : OperatorParts {
  const Signature* signature;
  Invoke invoke;
  // A valid call, as a value for every size and scalar. Tests start from it and break one thing at a time.
  std::string_view example;

  constexpr Operator(const Signature* its_signature, Invoke its_invoke, std::string_view its_example,
                     const OperatorParts& parts = {})
      : OperatorParts(parts), signature(its_signature), invoke(its_invoke), example(its_example) {}
  // The Signature of what callers of a binding pass.
  constexpr const Signature& for_bindings() const { return spelled != nullptr ? *spelled : *signature; }
  // Of a lambda, for a function that op() does not fit.
  template <class Lambda>
  constexpr Operator(const Signature* its_signature, Lambda, std::string_view its_example,
                     const OperatorParts& parts = {})
      : OperatorParts(parts),
        signature(its_signature),
        invoke([](const Caller& caller, const Tensor* arguments, const ScalarValue* scalars) -> std::int64_t {
          if constexpr (requires { Lambda{}(caller, arguments, scalars); }) {
            Lambda{}(caller, arguments, scalars);
          } else {
            Lambda{}(caller.context(), arguments, scalars);
          }
          return 0;
        }),
        example(its_example) {}
};

std::span<const Operator> operators();
const Operator* find_operator(std::string_view name);  // nullptr: there is none

// -- a function as an entry ---------------------------------------------------------------------------------

// Which words of the grammar a parameter fits.
enum class Kind : std::uint8_t { in, out, integer, flag, choice, real, integers, reals, fields, caller };

template <class T>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<T, ConstTensor>)
    return Kind::in;
  else if constexpr (std::is_same_v<T, Tensor>)
    return Kind::out;
  else if constexpr (std::is_same_v<T, Caller>)
    return Kind::caller;
  else if constexpr (std::is_same_v<T, bool>)
    return Kind::flag;
  else if constexpr (std::is_enum_v<T>)
    return Kind::choice;
  else if constexpr (std::is_floating_point_v<T>)
    return Kind::real;
  else if constexpr (std::is_integral_v<T>)
    return Kind::integer;
  // Not of an aggregate, of which T(pointer, int) may set two flags.
  else if constexpr (!std::is_aggregate_v<T> && std::is_constructible_v<T, const std::int64_t*, int>)
    return Kind::integers;
  else if constexpr (!std::is_aggregate_v<T> && std::is_constructible_v<T, const double*, int>)
    return Kind::reals;
  else
    return Kind::fields;
}

// The members of a struct of scalars.
struct AnyMember {
  template <class T>
  operator T() const;  // NOLINT: implicit by intent; never defined
};
template <class T, class... Members>
constexpr int member_count() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; })
    return member_count<T, Members..., AnyMember>();
  else
    return static_cast<int>(sizeof...(Members));
}
template <class T>
constexpr auto members_of(const T& s) {
  constexpr int kCount = member_count<T>();
  static_assert(kCount >= 1 && kCount <= 8, "a struct of scalars has 1 .. 8 members");
  if constexpr (kCount == 1) {
    const auto& [a] = s;
    return std::tie(a);
  } else if constexpr (kCount == 2) {
    const auto& [a, b] = s;
    return std::tie(a, b);
  } else if constexpr (kCount == 3) {
    const auto& [a, b, c] = s;
    return std::tie(a, b, c);
  } else if constexpr (kCount == 4) {
    const auto& [a, b, c, d] = s;
    return std::tie(a, b, c, d);
  } else if constexpr (kCount == 5) {
    const auto& [a, b, c, d, e] = s;
    return std::tie(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    const auto& [a, b, c, d, e, f] = s;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    const auto& [a, b, c, d, e, f, g] = s;
    return std::tie(a, b, c, d, e, f, g);
  } else {
    const auto& [a, b, c, d, e, f, g, h] = s;
    return std::tie(a, b, c, d, e, f, g, h);
  }
}

// How many scalars a parameter stands for.
template <class T>
constexpr int scalar_count() {
  if constexpr (kind_of<T>() == Kind::fields)
    return member_count<T>();
  else
    return kind_of<T>() > Kind::out && kind_of<T>() < Kind::fields ? 1 : 0;
}

// A scalar as an enum. A value that does not fit becomes 255, which the checks refuse.
template <class Enum>
Enum to_enum(const ScalarValue& scalar) {
  return static_cast<Enum>(scalar.value < 0 || scalar.value > 255 ? 255 : scalar.value);
}
template <class T>
T scalar_as(const ScalarValue& scalar) {
  constexpr Kind kKind = kind_of<T>();
  if constexpr (kKind == Kind::choice)
    return to_enum<T>(scalar);
  else if constexpr (kKind == Kind::flag)
    return scalar.value != 0;
  else if constexpr (kKind == Kind::real)
    return static_cast<T>(scalar.real);
  else if constexpr (kKind == Kind::integers)
    return T(scalar.values, static_cast<int>(scalar.value));
  else if constexpr (kKind == Kind::reals)
    return T(scalar.reals, static_cast<int>(scalar.value));
  else
    return static_cast<T>(scalar.value);
}
template <class T, class Members, std::size_t... i>
T struct_of(const ScalarValue* scalars, std::index_sequence<i...>) {
  return T{scalar_as<std::remove_cvref_t<std::tuple_element_t<i, Members>>>(scalars[i])...};
}

// A function's parameter list, as arrays and as a call.
template <class Function>
struct Parameters;
template <class Result, class... P>
struct Parameters<Result (*)(P...)> {
  static constexpr int kCount = sizeof...(P);
  template <std::size_t i>
  using Type = std::remove_cvref_t<std::tuple_element_t<i, std::tuple<P...>>>;

  // The tensors, or the scalars, of the first `count` parameters.
  static constexpr int tensors_before(int count) {
    constexpr Kind kKinds[] = {kind_of<std::remove_cvref_t<P>>()...};
    int found = 0;
    for (int i = 0; i < count; ++i) found += kKinds[i] <= Kind::out;
    return found;
  }
  static constexpr int scalars_before(int count) {
    constexpr int kScalars[] = {scalar_count<std::remove_cvref_t<P>>()...};
    int found = 0;
    for (int i = 0; i < count; ++i) found += kScalars[i];
    return found;
  }

  // Throws, during compilation, what is wrong with the function.
  static constexpr void expect(const Signature& signature, bool has_caller) {
    int tensor = 0, scalar = 0;
    const auto take_tensor = [&](Kind kind) {
      if (scalar > 0) throw "a tensor follows a scalar: tensors are the first parameters";
      if (tensor == signature.arguments.count) throw "the function has more tensors than the Signature";
      if ((kind == Kind::out) != signature.arguments[tensor++].is_output())
        throw "a parameter is a ConstTensor for an output, or a Tensor for an input";
    };
    const auto take_scalar = [&](Kind kind) {
      if (scalar == signature.scalars.count) throw "the function has more scalars than the Signature";
      const Scalar& expected = signature.scalars[scalar++];
      const Kind word = expected.is_vector         ? (expected.is_real ? Kind::reals : Kind::integers)
                        : expected.is_real         ? Kind::real
                        : expected.is_flag         ? Kind::flag
                        : !expected.values.empty() ? Kind::choice
                                                   : Kind::integer;
      if (kind != word) throw "a scalar has another kind than in the Signature";
    };
    int caller = 0, position = 0;
    const auto take = [&]<class T>(std::type_identity<T>) {
      ++position;
      constexpr Kind kKind = kind_of<T>();
      if constexpr (kKind <= Kind::out) {
        take_tensor(kKind);
      } else if constexpr (kKind == Kind::caller) {
        caller = position;
      } else if constexpr (kKind == Kind::fields) {
        using Members = decltype(members_of(std::declval<T>()));
        [&]<std::size_t... i>(std::index_sequence<i...>) {
          (take_scalar(kind_of<std::remove_cvref_t<std::tuple_element_t<i, Members>>>()), ...);
        }
        (std::make_index_sequence<std::tuple_size_v<Members>>());
      } else {
        take_scalar(kKind);
      }
    };
    (take(std::type_identity<std::remove_cvref_t<P>>{}), ...);
    if (tensor < signature.arguments.count) throw "the function has fewer tensors than the Signature";
    if (scalar < signature.scalars.count) throw "the function has fewer scalars than the Signature";
    if (has_caller != (caller == kCount)) throw "the Caller is the last parameter";
  }

  template <std::size_t i>
  static decltype(auto) parameter(const Caller& caller, const Tensor* arguments, const ScalarValue* scalars) {
    constexpr Kind kKind = kind_of<Type<i>>();
    constexpr int kTensor = tensors_before(i), kScalar = scalars_before(i);
    if constexpr (kKind == Kind::in)
      return ConstTensor(arguments[kTensor]);
    else if constexpr (kKind == Kind::out)
      return (arguments[kTensor]);
    else if constexpr (kKind == Kind::caller)
      return (caller);
    else if constexpr (kKind == Kind::fields)
      return struct_of<Type<i>, decltype(members_of(std::declval<Type<i>>()))>(
          scalars + kScalar, std::make_index_sequence<member_count<Type<i>>()>());
    else
      return scalar_as<Type<i>>(scalars[kScalar]);
  }

  template <auto function>
  static std::int64_t call(const Caller& caller, const Tensor* arguments, const ScalarValue* scalars) {
    return [&]<std::size_t... i>(std::index_sequence<i...>)->std::int64_t {
      if constexpr (std::is_void_v<Result>) {
        function(parameter<i>(caller, arguments, scalars)...);
        return 0;
      } else {
        return function(parameter<i>(caller, arguments, scalars)...);
      }
    }
    (std::make_index_sequence<sizeof...(P)>());
  }
};

// Throws, during compilation, if the example has an unknown name, or lacks one that has no default.
constexpr void expect_example(const Signature& signature, std::string_view example) {
  const auto has = [](std::string_view text, std::string_view name) {
    bool found = false;
    split(text, ' ', [&](std::string_view part) { found |= part.substr(0, part.find('=')) == name; });
    return found;
  };
  split(example, ' ', [&](std::string_view part) {
    for (const std::string_view name : signature.names)
      if (name == part.substr(0, part.find('='))) return;
    throw "the example has a name that the Signature lacks";
  });
  for (int i = 0; i < signature.names.count; ++i) {
    const bool has_default = i < signature.scalars.count && signature.scalars[i].has_default;
    if (!has_default && !has(example, signature.names[i])) throw "the example lacks a size or scalar";
  }
}

template <auto function>
consteval Operator op(const Signature& signature, std::string_view example, const OperatorParts& parts = {}) {
  using Its = Parameters<decltype(function)>;
  Its::expect(signature, /*has_caller=*/true);
  expect_example(signature, example);
  bool has_fill = false;
  for (const Scalar& scalar : signature.scalars) has_fill |= scalar.is_fill;
  for (const Argument& argument : signature.arguments)
    if (argument.role == Role::inout && !has_fill && argument.written_if < 0)
      throw "an argument is inout without a fill or written_if: bindings cannot tell whether it is written";
  return {&signature, &Its::template call<function>, example, parts};
}

// A definition with the parameters of the operator, without the Caller.
template <auto function>
std::int64_t define(const Tensor* arguments, const ScalarValue* scalars) {
  return Parameters<decltype(function)>::template call<function>({}, arguments, scalars);
}

}  // namespace turnout::core
