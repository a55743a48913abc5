// The words of the grammar that draft.h explains. Each returns a spec for the constructor of Draft.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "core/signature.h"

namespace turnout::core {

struct DTypeSpec {
  DTypes dtypes = 0;
  std::string_view like;
  bool is_lane = false;
  constexpr DTypeSpec(DTypes set) : dtypes(set) {}  // NOLINT: a set is a spec
  constexpr DTypeSpec(DTypes set, std::string_view name, bool lane = false)
      : dtypes(set), like(name), is_lane(lane) {}
};
consteval DTypeSpec like(std::string_view name, DTypes or_one_of = 0) { return {or_one_of, name}; }
consteval DTypeSpec lane_of(std::string_view name) { return {0, name, true}; }

struct ArgumentSpec {
  Argument argument;  // without the positions of the names below
  std::string_view dims, like;
  std::string_view required_with = {}, required_when = {}, when = {}, may_overlap = {}, written_if = {};
  bool is_unused = false;

  consteval ArgumentSpec(std::string_view name, Role role, DTypeSpec dtype, std::string_view its_dims)
      : argument{.name = name, .role = role, .dtypes = dtype.dtypes, .is_lane = dtype.is_lane},
        dims(its_dims),
        like(dtype.like) {}
};
consteval ArgumentSpec in(std::string_view name, DTypeSpec dtype, std::string_view dims) {
  return {name, Role::in, dtype, dims};
}
consteval ArgumentSpec out(std::string_view name, DTypeSpec dtype, std::string_view dims) {
  return {name, Role::out, dtype, dims};
}
consteval ArgumentSpec inout(std::string_view name, DTypeSpec dtype, std::string_view dims) {
  return {name, Role::inout, dtype, dims};
}
consteval ArgumentSpec optional(ArgumentSpec spec) {
  spec.argument.optional = true;
  return spec;
}
consteval ArgumentSpec or_none(ArgumentSpec spec) {
  spec.argument.optional = spec.argument.has_no_default = true;
  return spec;
}
consteval ArgumentSpec required_with(std::string_view name, ArgumentSpec spec) {
  spec.argument.optional = true;
  spec.required_with = name;
  return spec;
}

consteval ArgumentSpec required_when(std::string_view name, std::string_view value, ArgumentSpec spec) {
  spec.argument.optional = true;
  spec.required_when = name;
  spec.when = value;
  return spec;
}

consteval ArgumentSpec may_overlap(std::string_view name, ArgumentSpec spec) {
  spec.may_overlap = name;
  return spec;
}

consteval ArgumentSpec written_if(std::string_view name, ArgumentSpec spec) {
  if (spec.argument.role != Role::inout) throw "only an inout argument can be written by a flag";
  spec.written_if = name;
  return spec;
}

consteval ArgumentSpec by_pointer(ArgumentSpec spec) {
  spec.argument.by_pointer = true;
  return spec;
}

consteval ArgumentSpec shortened(ArgumentSpec spec) {
  spec.argument.is_shortened = true;
  return spec;
}

consteval ArgumentSpec on_request(std::string_view name, ArgumentSpec spec) {
  spec.argument.optional = true;
  spec.argument.request = name;
  return spec;
}

consteval ArgumentSpec by_default(DType dtype, ArgumentSpec spec) {
  if (spec.argument.role != Role::out) throw "only an output has a dtype by default";
  if (!contains(spec.argument.dtypes, dtype)) throw "the argument does not accept that dtype";
  spec.argument.new_dtype = static_cast<std::int8_t>(dtype);
  return spec;
}

consteval ArgumentSpec cpp_only(ArgumentSpec spec) {
  if (spec.argument.role != Role::in) throw "only an input can be for C++ only";
  spec.argument.optional = spec.argument.is_cpp_only = true;
  return spec;
}

consteval ArgumentSpec unused(ArgumentSpec spec) {
  spec.argument.optional = spec.is_unused = true;
  return spec;
}

struct ScalarSpec {
  Scalar scalar;
  std::string_view length;
  bool is_unused = false;
  bool is_for_sizes = false;
  constexpr bool is_of_function() const { return !is_unused && !is_for_sizes; }
};
consteval ScalarSpec scalar(std::string_view name, std::int64_t min, std::int64_t max = kSizeMax) {
  return {{.name = name, .min = min, .max = max}, {}};
}
// An enum whose value names are separated by spaces. `first` is the value of the first name; smaller values
// are rejected.
consteval ScalarSpec choice(std::string_view name, std::string_view values, std::int64_t first = 0) {
  std::int64_t last = first;
  for (char c : values) last += c == ' ';
  return {{.name = name, .min = first, .max = last, .values = values}, {}};
}
consteval ScalarSpec code(std::string_view name, std::string_view values) {
  ScalarSpec spec = choice(name, values);
  spec.scalar.is_code = true;
  return spec;
}
// An enum of two values: the first keeps the rest of a result that the caller passes, the second fills it.
consteval ScalarSpec fill(std::string_view name, std::string_view values) {
  ScalarSpec spec = choice(name, values);
  spec.scalar.is_fill = true;
  return spec;
}
consteval ScalarSpec flag(std::string_view name) {
  return {{.name = name, .min = 0, .max = 1, .values = "no yes", .is_flag = true}, {}};
}
consteval ScalarSpec vector(std::string_view name, std::string_view length, std::int64_t min,
                            std::int64_t max = kSizeMax) {
  return {{.name = name, .min = min, .max = max, .is_vector = true}, length};
}
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kFinite = std::numeric_limits<double>::max();
// Not the smallest positive number, which processors that flush denormals treat as 0.
inline constexpr double kPositive = std::numeric_limits<double>::min();
// A floating-point number. NaN is rejected.
consteval ScalarSpec real(std::string_view name, double least = -kInfinity, double most = kInfinity) {
  return {{.name = name, .is_real = true, .least = least, .most = most}, {}};
}
consteval ScalarSpec reals(std::string_view name, std::string_view length, double least = -kInfinity,
                           double most = kInfinity) {
  return {{.name = name, .is_vector = true, .is_real = true, .least = least, .most = most}, length};
}
consteval ScalarSpec by_default(double value, ScalarSpec spec) {
  spec.scalar.has_default = true;
  spec.scalar.default_real = value;
  if (!spec.scalar.is_real) spec.scalar.default_value = static_cast<std::int64_t>(value);
  return spec;
}
consteval ScalarSpec by_default(std::string_view value, ScalarSpec spec) {
  std::int64_t next = spec.scalar.min;
  split(spec.scalar.values, ' ', [&](std::string_view name) {
    if (name == value) {
      spec.scalar.has_default = true;
      spec.scalar.default_value = next;
    }
    ++next;
  });
  if (!spec.scalar.has_default) throw "the scalar has no such value";
  return spec;
}
consteval ScalarSpec unused(ScalarSpec spec) {
  if (!spec.scalar.is_flag) throw "only a flag or an input can be unused";
  spec = by_default("no", spec);
  spec.is_unused = true;
  return spec;
}
consteval ScalarSpec for_sizes(ScalarSpec spec) {
  if (!spec.scalar.is_flag) throw "only a flag can be for sizes";
  spec = by_default("no", spec);
  spec.is_for_sizes = true;
  return spec;
}
// An integer that may be symbolic in a traced call, as sizes may, because it depends on data.
consteval ScalarSpec symbolic(ScalarSpec spec) {
  if (spec.scalar.is_real || !spec.scalar.values.empty()) throw "only integers can be symbolic";
  spec.scalar.is_symbolic = true;
  return spec;
}
consteval ScalarSpec or_none(double value, ScalarSpec spec) {
  spec = by_default(value, spec);
  spec.scalar.may_be_none = true;
  return spec;
}

struct RuleSpec {
  std::string_view left, right, name;
};
consteval RuleSpec at_most(std::string_view left, std::string_view right, std::string_view name = {}) {
  return {left, right, name};
}

struct StepSpec {
  Check check;
  ErrorCode code = ErrorCode::bad_param;
  std::string_view only = {};  // "input.1 dispatch": arguments or single dimensions; otherwise names
  std::string_view when = {};  // "mode=zero": only if that scalar has that value
};

// The order of checks of all C++ and Python functions.
inline constexpr StepSpec kStandardOrder[] = {{Check::present},    {Check::ranks},         {Check::dtypes},
                                              {Check::scalars},    {Check::shapes},        {Check::rules},
                                              {Check::contiguous}, {Check::outputs_empty}, {Check::pointers},
                                              {Check::overlap},    {Check::data}};

}  // namespace turnout::core
