// What an operator accepts, as data. One constexpr Signature beside an operator gives its checks, the
// sentence of each failure, the negative tests, the signature fuzzer, the argument tables of the docs and the
// log line.
//
//   inline constexpr Signature kScale{
//       "scale", "rows columns",                                   // sizes that shapes bind, first use binds
//       {scalar("factor", 1, 64), choice("mode", "keep zero")},    // scalars are names too
//       {in("x", kFloats, "batch?, rows, columns"),                // `?`: this dimension may be absent
//        out("y", like("x"), "rows * factor, columns + 1")}};
//
// volume(v) is the product of the elements of a vector scalar v.
// An order of steps may look at a part of what it checks: {Check::shapes, code, "x.1 y"} at one dimension of
// x and all of y, {Check::rules, code, "0 2"} at the first rule and the third; likewise data checks.
// {Check::outputs_empty, code, "y z"} ends the call when y and z have no elements, whatever the other outputs
// have. A name that is not declared is a compile error. What the grammar cannot say is an ordinary `if` that
// throws.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/dtypes.h"
#include "turnout/error.h"

namespace turnout::core {

inline constexpr int kMaxNames = 16;
inline constexpr int kMaxArguments = 12;
inline constexpr int kMaxScalars = 12;
inline constexpr int kMaxRules = 4;
inline constexpr int kMaxSteps = 24;
inline constexpr std::int64_t kSizeMax = std::numeric_limits<std::int64_t>::max();

// A list of at most N values that lives in a constant.
template <class T, int N>
struct List {
  std::array<T, N> items{};
  int count = 0;

  constexpr void push(const T& item) {
    if (count == N) throw "too many entries";  // at compile time: not a constant expression
    items[static_cast<std::size_t>(count++)] = item;
  }
  constexpr const T& operator[](int i) const { return items[static_cast<std::size_t>(i)]; }
  constexpr const T* begin() const { return items.data(); }
  constexpr const T* end() const { return items.data() + count; }
};

// factor * product of names + add; products saturate.
struct Extent {
  List<std::int8_t, 3> names;
  std::int64_t factor = 1;
  std::int64_t add = 0;
  bool optional = false;
  std::string_view text;
};

enum class Role : std::uint8_t { in, out, inout };

struct Argument {
  std::string_view name;
  Role role = Role::in;
  bool optional = false;
  std::int8_t required_with = -1;  // an optional argument that must be there when that one is
  DTypes dtypes = 0;
  std::int8_t like = -1;  // also (or only, when dtypes is empty) the dtype of that argument, if it is there
  List<Extent, kMaxRank> dims;
  constexpr bool is_output() const { return role != Role::in; }
};

struct Scalar {
  std::string_view name;
  std::int64_t min = 0;
  std::int64_t max = kSizeMax;
  std::string_view values;  // an enum: the names of min, min + 1, ...
  bool is_vector = false;   // one value per element, each within min .. max
  bool is_flag = false;     // a bool
  Extent length;
};

struct Rule {  // left <= right
  Extent left, right;
};

enum class Check : std::uint8_t {
  present,         // required arguments are there
  ranks,           // number of dimensions
  dtypes,          //
  scalars,         // ranges
  shapes,          // extents, and the lengths of vector scalars
  rules,           //
  contiguous,      // row-major without gaps; empty tensors pass
  large,           // fewer than 2^31 elements
  any_empty,       // a tensor without elements ends the call: nothing to do
  outputs_empty,   // so does the absence of output elements
  workspace_null,  // the caller's memory is there when its size is not 0, needed or not
  workspace,       // and as large as the plan's scratch
  pointers,        // not null, aligned to an element; empty tensors pass
  overlap,         // no output shares memory with another argument
  data,            // the signature's data checks: what only a function can say
};

struct Selection {            // an argument, or one dimension of it
  std::int8_t argument = -1;  // of the steps `rules` and `data`: the position of a rule or data check
  std::int8_t dim = -1;
};

struct Step {
  Check check = Check::present;
  ErrorCode code = ErrorCode::bad_param;
  List<Selection, 16> only;  // empty: all there is, in order

  constexpr bool selects_positions() const { return check == Check::rules || check == Check::data; }
  // Whether the step looks at this dimension of an argument (-1: at any of it), or at the rule or data check
  // at this position.
  constexpr bool looks_at(int position, int dim = -1) const {
    if (only.count == 0) return true;
    for (const Selection& one : only)
      if (one.argument == position && (one.dim < 0 || one.dim == dim)) return true;
    return false;
  }
};

// What the consteval helpers below hand to Signature's constructor.
struct DTypeSpec {
  DTypes dtypes = 0;
  std::string_view like;
  constexpr DTypeSpec(DTypes set) : dtypes(set) {}  // NOLINT: a set is a spec
  constexpr DTypeSpec(DTypes set, std::string_view name) : dtypes(set), like(name) {}
};
consteval DTypeSpec like(std::string_view name, DTypes or_one_of = 0) { return {or_one_of, name}; }

struct ArgumentSpec {
  std::string_view name;
  Role role;
  DTypeSpec dtype;
  std::string_view dims;
  bool is_optional = false;
  std::string_view required_with = {};
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
consteval ArgumentSpec optional(ArgumentSpec argument) {
  argument.is_optional = true;
  return argument;
}
// Optional, unless the argument of that name is there.
consteval ArgumentSpec required_with(std::string_view name, ArgumentSpec argument) {
  argument.is_optional = true;
  argument.required_with = name;
  return argument;
}

struct ScalarSpec {
  Scalar scalar;
  std::string_view length;
};
consteval ScalarSpec scalar(std::string_view name, std::int64_t min, std::int64_t max = kSizeMax) {
  return {{name, min, max, {}, false, false, {}}, {}};
}
// `first`: the value that the first name stands for, where those before it are refused.
consteval ScalarSpec choice(std::string_view name, std::string_view values, std::int64_t first = 0) {
  std::int64_t last = first;
  for (char c : values) last += c == ' ';
  return {{name, first, last, values, false, false, {}}, {}};
}
consteval ScalarSpec flag(std::string_view name) { return {{name, 0, 1, "no yes", false, true, {}}, {}}; }
consteval ScalarSpec vector(std::string_view name, std::string_view length, std::int64_t min,
                            std::int64_t max = kSizeMax) {
  return {{name, min, max, {}, true, false, {}}, length};
}

struct RuleSpec {
  std::string_view left, right;
};
consteval RuleSpec at_most(std::string_view left, std::string_view right) { return {left, right}; }

struct StepSpec {
  Check check;
  ErrorCode code = ErrorCode::bad_param;
  std::string_view only = {};  // "input.1 dispatch": arguments, or single dimensions; "0 2": positions
};

class Arguments;
// A check of the data, or of scalars beyond their ranges; throws Error. It sees arguments that passed the
// steps before its own: all others in the standard order.
struct DataCheck {
  std::string_view name;
  void (*check)(const Arguments& arguments) = nullptr;
};

// Bytes of scratch memory that the plan takes for arguments whose shapes agree, on Arguments::threads(): what
// a workspace is for. A query that looks at no shapes gives it arguments whose shapes do not agree, and no
// sizes.
using ScratchBytes = std::size_t (*)(const Arguments& arguments);

// The order of checks of the whole C++ and Python library.
inline constexpr StepSpec kStandardOrder[] = {{Check::present},    {Check::ranks},         {Check::dtypes},
                                              {Check::scalars},    {Check::shapes},        {Check::rules},
                                              {Check::contiguous}, {Check::outputs_empty}, {Check::pointers},
                                              {Check::overlap},    {Check::data}};

class Signature {
 public:
  consteval Signature(std::string_view op_name, std::string_view size_names,
                      std::initializer_list<ScalarSpec> scalar_specs,
                      std::initializer_list<ArgumentSpec> argument_specs,
                      std::initializer_list<RuleSpec> rule_specs = {},
                      std::initializer_list<DataCheck> checks = {},
                      std::span<const StepSpec> steps = kStandardOrder, ScratchBytes scratch_bytes = nullptr);

  constexpr int argument(std::string_view name) const {
    for (int i = 0; i < arguments.count; ++i)
      if (arguments[i].name == name) return i;
    throw "no such argument";
  }
  constexpr bool has_argument(std::string_view name) const {
    for (const Argument& one : arguments)
      if (one.name == name) return true;
    return false;
  }
  // Whether its memory is row-major without gaps; else any view does.
  constexpr bool needs_contiguous(int position) const {
    for (const Step& step : order)
      if (step.check == Check::contiguous && step.looks_at(position)) return true;
    return false;
  }
  // Position of a size or scalar in Arguments; a misspelt name does not compile in a constant.
  constexpr int size(std::string_view name) const {
    for (int i = 0; i < names.count; ++i)
      if (names[i] == name) return i;
    throw "no such size";
  }

  std::string_view op;
  List<std::string_view, kMaxNames> names;  // the scalars first, then the sizes that shapes bind
  List<Scalar, kMaxScalars> scalars;
  List<Argument, kMaxArguments> arguments;
  List<Rule, kMaxRules> rules;
  List<DataCheck, kMaxRules> data_checks;
  List<Step, kMaxSteps> order;
  ScratchBytes scratch = nullptr;  // where there is a workspace, or a query of its size

 private:
  constexpr Extent parse_extent(std::string_view text) const;
};

// -- parsing, at compile time ------------------------------------------------------------------------------

constexpr std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Calls f for each part of `text` between separators.
template <class F>
constexpr void split(std::string_view text, char separator, F&& f) {
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    f(trimmed(text.substr(0, end)));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
}

constexpr bool is_number(std::string_view text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }
constexpr std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  for (char c : text) value = value * 10 + (c - '0');
  return value;
}

constexpr Extent Signature::parse_extent(std::string_view text) const {
  Extent extent;
  if (text.back() == '?') {
    extent.optional = true;
    text = trimmed(text.substr(0, text.size() - 1));
  }
  extent.text = text;
  const std::size_t plus = text.find('+');
  if (plus != std::string_view::npos) {
    extent.add = number(trimmed(text.substr(plus + 1)));
    text = trimmed(text.substr(0, plus));
  }
  split(text, '*', [&](std::string_view factor) {
    if (is_number(factor)) {
      extent.factor *= number(factor);
    } else if (factor.substr(0, 7) == "volume(" && factor.back() == ')') {
      const int vector = size(factor.substr(7, factor.size() - 8));
      if (vector >= scalars.count || !scalars[vector].is_vector) throw "volume of what is no vector";
      extent.names.push(static_cast<std::int8_t>(vector));
    } else {
      extent.names.push(static_cast<std::int8_t>(size(factor)));
    }
  });
  return extent;
}

consteval Signature::Signature(std::string_view op_name, std::string_view size_names,
                               std::initializer_list<ScalarSpec> scalar_specs,
                               std::initializer_list<ArgumentSpec> argument_specs,
                               std::initializer_list<RuleSpec> rule_specs,
                               std::initializer_list<DataCheck> checks, std::span<const StepSpec> steps,
                               ScratchBytes scratch_bytes)
    : op(op_name), scratch(scratch_bytes) {
  for (const ScalarSpec& spec : scalar_specs) names.push(spec.scalar.name);
  split(size_names, ' ', [&](std::string_view name) { names.push(name); });
  for (const ScalarSpec& spec : scalar_specs) {
    scalars.push(spec.scalar);
    if (spec.scalar.is_vector)
      scalars.items[static_cast<std::size_t>(scalars.count - 1)].length = parse_extent(spec.length);
  }
  for (const ArgumentSpec& spec : argument_specs) {
    Argument argument{spec.name, spec.role, spec.is_optional, -1, spec.dtype.dtypes, -1, {}};
    split(spec.dims, ',', [&](std::string_view dim) { argument.dims.push(parse_extent(dim)); });
    arguments.push(argument);
  }
  int position = 0;
  for (const ArgumentSpec& spec : argument_specs) {
    Argument& parsed = arguments.items[static_cast<std::size_t>(position++)];
    if (!spec.dtype.like.empty()) parsed.like = static_cast<std::int8_t>(argument(spec.dtype.like));
    if (!spec.required_with.empty())
      parsed.required_with = static_cast<std::int8_t>(argument(spec.required_with));
  }
  for (const RuleSpec& spec : rule_specs) rules.push({parse_extent(spec.left), parse_extent(spec.right)});
  for (const DataCheck& check : checks) data_checks.push(check);
  for (const StepSpec& spec : steps) {
    if (spec.check == Check::workspace && scratch == nullptr) throw "no size to compare a workspace with";
    Step step{spec.check, spec.code, {}};
    split(spec.only, ' ', [&](std::string_view part) {
      if (step.selects_positions()) {
        if (number(part) >= (spec.check == Check::rules ? rules.count : data_checks.count))
          throw "no such rule or data check";
        step.only.push({static_cast<std::int8_t>(number(part)), -1});
        return;
      }
      const std::size_t dot = part.find('.');
      Selection selection{static_cast<std::int8_t>(argument(part.substr(0, dot))), -1};
      if (dot != std::string_view::npos) {
        selection.dim = static_cast<std::int8_t>(number(part.substr(dot + 1)));
        if (selection.dim >= arguments[selection.argument].dims.count) throw "no such dimension";
      }
      step.only.push(selection);
    });
    order.push(step);
  }
}

}  // namespace turnout::core
