// Describes a fault of a call, and checks whether a call still has it after others have been added.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "c_broken_call.h"

namespace turnout::test {

using core::Check;
using core::contains;
using core::Rule;
using core::Scalar;

inline constexpr std::int64_t kLarge = std::int64_t{1} << 31;
inline constexpr int kHandle = -1;  // the handle is checked before the signature's steps

struct Fault {
  std::string what = {};
  Check check = Check::present;
  int argument = -1;
  int dim = -1;
  std::set<std::string_view> mentions = {};  // the message must contain one of them
  std::function<void(BrokenCall&)> apply = {};
  int position = -1;  // position of the scalar, rule or data check that it breaks
  int step = kHandle;
};

// Conditions of the calls of one C operator.
class CConditions : public testing::TestWithParam<const COperator*> {
 protected:
  const COperator& op = *GetParam();
  const Signature& signature = *op.signature;

  static bool uses(const Extent& extent, int name) {
    return std::find(extent.names.begin(), extent.names.end(), name) != extent.names.end();
  }
  // Whether a scalar or another argument determines this extent.
  bool is_pinned(int argument, const Extent& dim) const {
    bool pinned = dim.names.count == 0;
    for (std::int8_t name : dim.names) {
      pinned |= name < signature.scalars.count;
      for (int other = 0; other < signature.arguments.count; ++other)
        for (const Extent& d : signature.arguments[other].dims) pinned |= other != argument && uses(d, name);
    }
    return pinned;
  }
  bool is_pinned_by_data(int name) const {
    bool found = false;
    core::split(op.pinned, ' ', [&](std::string_view one) { found |= one == signature.names[name]; });
    return found;
  }
  // Whether other arguments also have this optional dimension. Extents of which it is only a factor count it
  // as 1 if it is absent.
  bool others_have(int argument, const Extent& dim) const {
    for (int other = 0; other < signature.arguments.count; ++other)
      for (const Extent& d : signature.arguments[other].dims)
        if (other != argument && d.optional && uses(d, dim.names[0])) return true;
    return false;
  }
  static int optional_dim(const Argument& argument) {
    for (int d = 0; d < argument.dims.count; ++d)
      if (argument.dims[d].optional) return d;
    return -1;
  }
  const core::Step* step_of(Check check) const {
    for (const core::Step& step : signature.order)
      if (step.check == check) return &step;
    return nullptr;
  }
  // Whether the step ends a call because of tensors without elements: with an error, or with nothing to do.
  bool ends_as_empty(const core::Step& step, const BrokenCall& call) const {
    bool any = false, all_outputs = true;
    for (int i = 0; i < signature.arguments.count; ++i) {
      if (!step.looks_at(i)) continue;
      any |= call.is_empty(i);
      if (signature.arguments[i].is_output()) all_outputs &= call.is_empty(i);
    }
    if (step.check == Check::outputs_empty) return all_outputs;
    return any && (step.check == Check::any_empty || step.check == Check::not_empty);
  }
  bool has_refused_empty(const BrokenCall& call) const {
    return std::any_of(signature.order.begin(), signature.order.end(), [&](const core::Step& step) {
      return step.check == Check::not_empty && ends_as_empty(step, call);
    });
  }
  static bool has_all_dims(const BrokenCall& call) {
    return std::none_of(call.parts.begin(), call.parts.end(),
                        [](const BrokenCall::Part& part) { return part.without_optional_dim; });
  }
  BrokenCall broken_by(const Fault& fault) const {
    BrokenCall call(op);
    fault.apply(call);
    return call;
  }
  // If `step` is given, with the sizes that the shapes before that step bind; otherwise with the call's own.
  bool breaks_rule(int position, const BrokenCall& call, int step = 0) const {
    ExampleCall given = call.with_scalars_as_given();
    if (has_all_dims(call)) call.bind(given, step);
    return given.evaluate(signature.rules[position].left) > given.evaluate(signature.rules[position].right);
  }
  bool breaks_rules_of(const core::Step& step, const BrokenCall& call) const {
    for (int i = 0; i < signature.rules.count; ++i)
      if (step.looks_at(i) && breaks_rule(i, call)) return true;
    return false;
  }
  bool is_out_of_range(int scalar, const BrokenCall& call) const {
    const auto n = static_cast<std::size_t>(scalar);
    if (signature.scalars[scalar].is_real)
      return core::first_out_of_range(signature.scalars[scalar], call.example.scalar_values()[n]) >= 0;
    const std::vector one{call.with_scalars_as_given().sizes[n]};
    for (std::int64_t value : signature.scalars[scalar].is_vector ? call.example.vectors[n] : one)
      if (value < signature.scalars[scalar].min || value > signature.scalars[scalar].max) return true;
    return false;
  }
  bool has_scalar_out_of_range(const BrokenCall& call) const {
    for (int i = 0; i < signature.scalars.count; ++i)
      if (is_out_of_range(i, call)) return true;
    return false;
  }
  // Whether the data of an argument still have the fault. An argument that is a pointer without a descriptor
  // has no memory for additional elements.
  bool is_filled(int argument, const Fault& fault, const BrokenCall& call) const {
    const std::int64_t elements = call.elements(argument);
    return elements > 0 &&
           (!signature.arguments[argument].by_pointer || elements <= broken_by(fault).elements(argument));
  }
  // Whether the sizes and scalars that a data fault changes are still changed, and the argument has elements.
  bool has_changes_of(const Fault& fault, const BrokenCall& call) const {
    const ExampleCall wanted = broken_by(fault).with_scalars_as_given(), given = call.with_scalars_as_given();
    bool all = true;
    core::split(fault.what, ' ', [&](std::string_view part) {
      const std::string_view changed = part.substr(0, part.find('='));
      const std::size_t name = position_of(signature, changed);
      if (name < given.sizes.size()) all &= given.sizes[name] == wanted.sizes[name];
      for (int i = 0; i < signature.arguments.count; ++i)
        all &= signature.arguments[i].name != changed || is_filled(i, fault, call);
    });
    return all;
  }
  // Whether a rule or a range check ends the call before the check to which the fault belongs.
  bool refused_before(const Fault& fault) const {
    const BrokenCall call = broken_by(fault);
    for (int s = 0; s < signature.order.count; ++s) {
      const core::Step& step = signature.order[s];
      if (fault.step == kHandle ? step.check == fault.check : s == fault.step) return false;
      if (step.check == Check::rules && breaks_rules_of(step, call)) return true;
      if (step.check == Check::scalars && has_scalar_out_of_range(call)) return true;
    }
    return false;
  }

  bool holds(const Fault& fault) const { return holds(fault, broken_by(fault)); }
  // Whether the fault is still present in a call to which another fault has been added.
  bool holds(const Fault& fault, const BrokenCall& call) const {
    const bool described =
        fault.argument < 0 || call.parts[static_cast<std::size_t>(fault.argument)].described;
    switch (fault.check) {
      case Check::shapes: {
        return !has_all_dims(call) || call.shapes_end() == fault.step;
      }
      case Check::dtypes:
        return described;
      case Check::contiguous:
        return described && call.elements(fault.argument) > 1;
      case Check::pointers:
        return call.elements(fault.argument) > 0;
      case Check::large:
        return described && call.elements(fault.argument) >= kLarge;
      case Check::not_empty:
      case Check::any_empty:
      case Check::outputs_empty:
        return ends_as_empty(signature.order[fault.step], call);
      case Check::scalars:
        return is_out_of_range(fault.position, call);
      case Check::rules:
        return breaks_rule(fault.position, call, fault.step);
      case Check::data:
        return has_changes_of(fault, call);
      default:
        return true;
    }
  }
};

}  // namespace turnout::test
