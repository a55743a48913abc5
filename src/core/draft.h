// The grammar in which a Signature is written, and its storage.
//
//   inline constexpr const Signature& kScale = signature([] {
//     return Draft{"scale",
//                  "batch rows columns",                         // sizes; the first shape with one binds it
//                  {scalar("factor", 1, 64), choice("mode", "keep zero")},
//                  {in("x", kFloats, "batch?, rows, columns"),   // `?`: this dimension may be absent
//                   out("y", like("x"), "rows * factor, columns + 1")}};
//   });
//
// Arguments are in, out or inout, and may be wrapped:
//   optional(..), or_none(..)        may be absent; with or_none, callers of a binding must pass None
//   required_with("x", ..)           optional unless x is present
//   required_when("mode", "zero", ..)  optional unless mode has the value zero
//   by_pointer(..)                   a C function takes it as a pointer without a descriptor
//   may_overlap("x", out(..))        may share memory with x; the plan must use x as it was before the call
//   shortened(out(..))               the function returns how many of its rows are valid
//   written_if("flag", inout(..))    is only read unless the flag is set. Runtimes whose operators modify no
//                                    arguments do not have the flag
//   on_request("with_y", out(..))    optional; callers of a binding request it with the flag with_y
//   by_default(DType::i64, out(..))  the dtype of a result that a binding allocates; default: the set's first
//   cpp_only(in(..))                 optional; bindings do not have it
//   unused(in(..)), unused(flag(..)) only the gradient of a binding needs it
// Dtypes are a set, like("x"), like("x", set), or lane_of("x"), which is f64 if x is f64, otherwise f32.
// In an extent, volume(v) is the product of the elements of a vector scalar v. `offsets..` may be spread over
// several dimensions of a tensor; a product, `experts * capacity..`, over one per factor.
//
// Scalars are scalar, choice, flag and real, or vectors: vector and reals.
//   code(..)                         a choice that callers pass as a number
//   fill("fill", "keep zero")        chosen by the binding: keep if the caller passes `out`
//   by_default(1, scalar(..))        has a default. For a vector, it is that of each element, and callers may
//                                    pass one integer for all
//   or_none(x, real(..))             has the default x, which callers spell None
//   symbolic(scalar(..))             may be a symbol in a traced call
//   for_sizes(flag("wide"))          a flag of bindings that determines a computed size. The function lacks
//                                    it, because the shapes of its results imply it
// Sizes may be wrapped too. The operator finds `computed(voxels)`, and `computed(groups?)` unless the caller
// or a result states it. It finds `adjusted(room)` from what the caller passes, and `adjusted(room?)` even if
// the caller passes nothing.
//
// A step of the order of checks may be limited: {Check::shapes, code, "x.1 y"} checks dimension 1 of x and
// all of y; {Check::rules, code, "space limit"} checks the rules of these names. Scalars and data checks are
// selected in the same way. {Check::outputs_empty, code, "y z"} ends the call if y and z have no elements,
// whatever the others have. {Check::present, code, "x", "mode=zero"} runs only if the scalar mode has the
// value zero. Steps before {Check::handle} must not use the context. A data check lists the names that it
// reads and receives their positions. An undeclared name does not compile, nor does a size with an argument's
// name. A check that the grammar cannot express is an ordinary `if` that throws Error.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "core/signature.h"
#include "core/words.h"

namespace turnout::core {

// A wrong word of a Draft. g++ prints it as the template argument of WrongWord, but does not print the
// arguments of a function that throws; clang 14 does, and prints a template argument as numbers.
struct Mistake {
  char text[56] = {};
  constexpr void set(std::string_view what, std::string_view word) {
    if (text[0] != 0) return;  // the first mistake is the cause of the others
#if defined(__clang__)
    throw "a Signature has a wrong word; see the arguments of this call of set()";
#endif
    std::size_t length = 0;
    for (const std::string_view part : {what, std::string_view(" "), word})
      for (const char c : part)
        if (length + 1 < sizeof(text)) text[length++] = c;
  }
};
template <Mistake kMistake>
struct WrongWord {
  static_assert(kMistake.text[0] == 0, "a Signature has a wrong word; see the argument of WrongWord");
};

// A signature during compilation: lists of fixed capacity, larger than needed.
class Draft {
 public:
  consteval Draft(std::string_view op_name, std::string_view size_names,
                  std::initializer_list<ScalarSpec> scalar_specs,
                  std::initializer_list<ArgumentSpec> argument_specs,
                  std::initializer_list<RuleSpec> rule_specs = {},
                  std::initializer_list<DataCheck> checks = {},
                  std::span<const StepSpec> steps = kStandardOrder, ScratchBytes scratch_bytes = {});

  // The range of one argument in `dims`, or of one step in `only`.
  struct Part {
    int first = 0, count = 0;
  };

  std::string_view op;
  List<std::string_view, kMaxNames> names;
  List<SizeKind, kMaxNames> size_kinds;
  List<Scalar, kMaxNames> scalars;
  List<Argument, kMaxArguments> arguments;
  List<Argument, 4> unused;
  List<Scalar, 4> unused_flags;
  List<Scalar, 4> size_flags;
  List<Part, kMaxArguments> dims_of;  // in `dims`
  List<Extent, 4 * kMaxArguments> dims;
  List<Rule, 16> rules;
  List<DataCheck, 16> data_checks;
  List<Step, 32> order;
  List<Part, 32> only_of;  // in `only`
  List<Selection, 96> only;
  ScratchBytes scratch;
  bool passes_in_any_order = true;
  Mistake mistake;

 private:
  template <class List, class T>
  constexpr int find(const List& list, std::string_view T::*its_name, std::string_view mistake_text,
                     std::string_view name) {
    for (int i = 0; i < list.count; ++i)
      if (list[i].*its_name == name) return i;
    mistake.set(mistake_text, name);
    return 0;
  }
  constexpr int argument(std::string_view name) {
    return find(arguments, &Argument::name, "no such argument:", name);
  }
  constexpr int size(std::string_view name) {
    for (int i = 0; i < names.count; ++i)
      if (names[i] == name) return i;
    mistake.set("no such size or scalar:", name);
    return 0;
  }
  constexpr Extent parse_extent(std::string_view text);
  constexpr Positions positions(std::string_view list);
  constexpr std::int64_t value_of(int scalar, std::string_view value);
  constexpr Selection selection(Check check, std::string_view text);
};

// -- parsing, at compile time ------------------------------------------------------------------------------

constexpr bool is_number(std::string_view text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }
constexpr std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  for (char c : text) value = value * 10 + (c - '0');
  return value;
}

constexpr Extent Draft::parse_extent(std::string_view text) {
  Extent extent;
  if (text.back() == '?') {
    extent.optional = true;
    text = trimmed(text.substr(0, text.size() - 1));
  }
  if (text.size() > 2 && text.substr(text.size() - 2) == "..") {
    extent.is_folded = true;
    text = trimmed(text.substr(0, text.size() - 2));
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
      if (vector >= scalars.count || !scalars[vector].is_vector)
        mistake.set("volume() of a name that is not a vector:", names[vector]);
      extent.names.push(static_cast<std::int8_t>(vector));
    } else {
      extent.names.push(static_cast<std::int8_t>(size(factor)));
    }
  });
  return extent;
}

constexpr Positions Draft::positions(std::string_view list) {
  Positions found;
  split(list, ' ', [&](std::string_view name) {
    for (int i = 0; i < names.count; ++i)
      if (names[i] == name) return found.push(static_cast<std::int8_t>(i));
    found.push(static_cast<std::int8_t>(argument(name)));
  });
  return found;
}

// The number of the value name `value` of a scalar.
constexpr std::int64_t Draft::value_of(int scalar, std::string_view value) {
  std::int64_t next = scalars[scalar].min, found = -1;
  split(scalars[scalar].values, ' ', [&](std::string_view name) {
    if (name == value) found = next;
    ++next;
  });
  if (found < 0) mistake.set("the scalar has no such value:", value);
  return found;
}

constexpr Selection Draft::selection(Check check, std::string_view text) {
  const auto whole = [](int position) { return Selection{static_cast<std::int8_t>(position), -1}; };
  if (check == Check::scalars) return whole(find(scalars, &Scalar::name, "no such scalar:", text));
  if (check == Check::rules) return whole(find(rules, &Rule::name, "no such rule:", text));
  if (check == Check::data) return whole(find(data_checks, &DataCheck::name, "no such data check:", text));
  const std::size_t dot = text.find('.');
  const int position = argument(text.substr(0, dot));
  if (dot == std::string_view::npos) return whole(position);
  const std::int64_t dim = number(text.substr(dot + 1));
  if (dim >= dims_of[position].count) throw "no such dimension";
  return {static_cast<std::int8_t>(position), static_cast<std::int8_t>(dim)};
}

consteval Draft::Draft(std::string_view op_name, std::string_view size_names,
                       std::initializer_list<ScalarSpec> scalar_specs,
                       std::initializer_list<ArgumentSpec> argument_specs,
                       std::initializer_list<RuleSpec> rule_specs, std::initializer_list<DataCheck> checks,
                       std::span<const StepSpec> steps, ScratchBytes scratch_bytes)
    : op(op_name), scratch(scratch_bytes) {
  for (const ScalarSpec& spec : scalar_specs) {
    if (spec.is_unused) {
      unused_flags.push(spec.scalar);
    } else if (spec.is_for_sizes) {
      size_flags.push(spec.scalar);
    } else {
      names.push(spec.scalar.name);
    }
  }
  split(size_names, ' ', [&](std::string_view name) {
    SizeKind kind = SizeKind::shapes;
    if (const std::size_t open = name.find('('); open != std::string_view::npos) {
      if (name.back() != ')') throw "a size has ( without )";
      const std::string_view word = name.substr(0, open);
      if (word != "computed" && word != "adjusted") throw "a size is neither computed nor adjusted";
      name = name.substr(open + 1, name.size() - open - 2);
      kind = word == "adjusted" ? SizeKind::adjusted : SizeKind::computed;
      if (name.back() == '?') {
        kind = kind == SizeKind::computed ? SizeKind::either : SizeKind::adjusted_or_computed;
        name.remove_suffix(1);
      }
    }
    names.push(name);
    size_kinds.push(kind);
  });
  if (size_flags.count > 0) {
    bool has_computed = false;
    for (SizeKind kind : size_kinds) has_computed |= kind == SizeKind::computed;
    if (!has_computed) throw "a flag is for sizes, but no size is computed";
    if (names.count + size_flags.count > kMaxNames) throw "too many entries";
  }
  for (const ArgumentSpec& spec : argument_specs)
    for (std::string_view name : names)
      if (name == spec.argument.name) throw "a size or scalar has the name of an argument";
  for (const ScalarSpec& spec : scalar_specs) {
    if (!spec.is_of_function()) continue;
    Scalar parsed = spec.scalar;
    scalars.push(parsed);  // a later vector may name it as its length
    if (!parsed.is_vector) continue;
    parsed.length = parse_extent(spec.length);
    scalars.items[static_cast<std::size_t>(scalars.count - 1)] = parsed;
  }
  for (const ArgumentSpec& spec : argument_specs) {
    const Argument& parsed = spec.argument;
    if (parsed.is_shortened && parsed.role != Role::out) throw "only an output can be shortened";
    if (!parsed.request.empty() && parsed.role != Role::out) throw "only an output can be on request";
    if (spec.is_unused) {
      if (parsed.role != Role::in) throw "only an input can be unused";
      unused.push(parsed);
      continue;
    }
    arguments.push(parsed);
    Part part{dims.count, 0};
    split(spec.dims, ',', [&](std::string_view dim) { dims.push(parse_extent(dim)), ++part.count; });
    dims_of.push(part);
  }
  int i = 0;
  for (const ArgumentSpec& spec : argument_specs) {
    if (spec.is_unused) continue;
    Argument& parsed = arguments.items[static_cast<std::size_t>(i++)];
    const auto position = [&](std::string_view name) {
      return name.empty() ? std::int8_t{-1} : static_cast<std::int8_t>(argument(name));
    };
    parsed.like = position(spec.like);
    parsed.required_with = position(spec.required_with);
    parsed.may_overlap = position(spec.may_overlap);
    if (!spec.required_when.empty()) {
      parsed.required_when = static_cast<std::int8_t>(size(spec.required_when));
      parsed.when = value_of(parsed.required_when, spec.when);
    }
    if (!spec.written_if.empty()) {
      const int flag = size(spec.written_if);
      const bool is_flag = flag < scalars.count && scalars[flag].is_flag;
      if (!is_flag || !scalars[flag].has_default || scalars[flag].default_value != 0)
        mistake.set("written_if names no flag that is off by default:", spec.written_if);
      parsed.written_if = static_cast<std::int8_t>(flag);
    }
    if (parsed.may_overlap < 0) continue;
    if (!parsed.is_output()) throw "only an output can share memory";
    if (arguments[parsed.may_overlap].is_output()) throw "two outputs cannot share memory";
  }
  for (const RuleSpec& spec : rule_specs)
    rules.push({parse_extent(spec.left), parse_extent(spec.right), spec.name});
  for (DataCheck check : checks) {
    check.at = positions(check.looks_at);
    data_checks.push(check);
  }
  scratch.at = positions(scratch.looks_at);
  bool has_data = false, has_shapes = false;
  for (const StepSpec& spec : steps) {
    if (spec.check == Check::workspace && scratch.bytes == nullptr)
      throw "no size to compare a workspace with";
    Part part{only.count, 0};
    split(spec.only, ' ',
          [&](std::string_view text) { only.push(selection(spec.check, text)), ++part.count; });
    has_data |= spec.check == Check::data;
    has_shapes |= spec.check == Check::shapes && spec.only.empty();
    if (spec.check == Check::workspace || spec.check == Check::workspace_null ||
        (spec.check == Check::shapes && has_data))
      passes_in_any_order = false;
    Step step{spec.check, spec.code};
    if (!spec.when.empty()) {
      const std::size_t equals = spec.when.find('=');
      step.when = static_cast<std::int8_t>(
          find(scalars, &Scalar::name, "no such scalar:", spec.when.substr(0, equals)));
      step.value = value_of(step.when, spec.when.substr(equals + 1));
    }
    order.push(step);
    only_of.push(part);
  }
  passes_in_any_order &= has_shapes;
}

// -- storage -----------------------------------------------------------------------------------------------

// The lists of one signature, with their exact lengths. Make is the type of the lambda that drafts it.
template <class Make>
struct StoredSignature {
  static constexpr Draft kDraft = Make{}();
  static constexpr WrongWord<kDraft.mistake> kNoMistake{};

  template <class T, int kCount, int N>
  static constexpr std::array<T, kCount> exact(const List<T, N>& list) {
    std::array<T, kCount> items{};
    for (int i = 0; i < kCount; ++i) items[static_cast<std::size_t>(i)] = list[i];
    return items;
  }
  template <class T, std::size_t kCount>
  static constexpr View<T> view(const std::array<T, kCount>& items) {
    return {items.data(), static_cast<int>(kCount)};
  }

  static constexpr auto kNames = exact<std::string_view, kDraft.names.count>(kDraft.names);
  static constexpr auto kSizeKinds = exact<SizeKind, kDraft.size_kinds.count>(kDraft.size_kinds);
  static constexpr auto kUnused = exact<Argument, kDraft.unused.count>(kDraft.unused);
  static constexpr auto kUnusedFlags = exact<Scalar, kDraft.unused_flags.count>(kDraft.unused_flags);
  static constexpr auto kSizeFlags = exact<Scalar, kDraft.size_flags.count>(kDraft.size_flags);
  static constexpr auto kScalars = exact<Scalar, kDraft.scalars.count>(kDraft.scalars);
  static constexpr auto kDims = exact<Extent, kDraft.dims.count>(kDraft.dims);
  static constexpr auto kRules = exact<Rule, kDraft.rules.count>(kDraft.rules);
  static constexpr auto kDataChecks = exact<DataCheck, kDraft.data_checks.count>(kDraft.data_checks);
  static constexpr auto kOnly = exact<Selection, kDraft.only.count>(kDraft.only);
  static constexpr auto kArguments = [] {
    auto items = exact<Argument, kDraft.arguments.count>(kDraft.arguments);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Draft::Part part = kDraft.dims_of[static_cast<int>(i)];
      items[i].dims = {kDims.data() + part.first, part.count};
    }
    return items;
  }();
  static constexpr auto kOrder = [] {
    auto items = exact<Step, kDraft.order.count>(kDraft.order);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Draft::Part part = kDraft.only_of[static_cast<int>(i)];
      items[i].only = {kOnly.data() + part.first, part.count};
    }
    return items;
  }();
  static constexpr Signature kSignature{
      kDraft.op,     view(kNames),       view(kSizeKinds),          view(kScalars), view(kArguments),
      view(kUnused), view(kUnusedFlags), view(kSizeFlags),          view(kRules),   view(kDataChecks),
      view(kOrder),  kDraft.scratch,     kDraft.passes_in_any_order};
};

template <class Make>
consteval const Signature& signature(Make) {
  return StoredSignature<Make>::kSignature;
}

// The words of the grammar, for headers that define Signatures: using namespace core::grammar.
namespace grammar {
using core::Arguments, core::ArgumentSpec, core::at_most, core::by_default, core::by_pointer, core::Check,
    core::choice, core::code, core::cpp_only, core::DataCheck, core::Draft, core::dtypes, core::DTypes,
    core::fill, core::flag, core::for_sizes, core::in, core::inout, core::kAnyDType, core::kFinite,
    core::kFloats, core::kIndices, core::kInfinity, core::kPositive, core::kStandardOrder, core::lane_of,
    core::like, core::may_overlap, core::on_request, core::optional, core::or_none, core::out,
    core::Positions, core::real, core::reals, core::required_when, core::required_with, core::RuleSpec,
    core::scalar, core::ScalarSpec, core::shortened, core::signature, core::Signature, core::StepSpec,
    core::symbolic, core::unused, core::vector, core::written_if;
}  // namespace grammar

}  // namespace turnout::core
