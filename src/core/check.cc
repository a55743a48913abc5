// Implements the steps of checks of a Signature and their error messages.
#include "core/check.h"

#include <algorithm>
#include <cmath>

#include "core/saturate.h"

namespace turnout::core {

std::string range_text(const Scalar& scalar) {
  if (scalar.is_real) {
    using Limits = std::numeric_limits<double>;
    const bool has_least = scalar.least != -Limits::infinity(), has_most = scalar.most != Limits::infinity();
    if (!has_least && !has_most) return "a number";
    if (scalar.least == Limits::lowest() && scalar.most == Limits::max()) return "a finite number";
    if (scalar.least == Limits::min() && !has_most) return "a number above 0";
    if (scalar.least == Limits::denorm_min() && scalar.most == Limits::max())
      return "a positive finite number";
    if (!has_most) return concat(number_text(scalar.least), " or more");
    if (!has_least) return concat("at most ", number_text(scalar.most));
    return concat(number_text(scalar.least), " .. ", number_text(scalar.most));
  }
  if (scalar.max == kSizeMax) return concat(scalar.min, " or more");
  const bool single = scalar.min == scalar.max;
  std::string range = single ? concat(scalar.min) : concat(scalar.min, " .. ", scalar.max);
  if (scalar.values.empty()) return range;
  return concat(single ? "" : "one of ", range, " (", scalar.values, ")");
}

std::int64_t first_out_of_range(const Scalar& scalar, const ScalarValue& given) {
  const std::int64_t count = scalar.is_vector ? given.value : 1;
  if (scalar.is_real) {
    const double* values = scalar.is_vector ? given.reals : &given.real;
    for (std::int64_t k = 0; k < count; ++k)  // quiet comparisons: the caller's thread may trap on NaN
      if (!std::isgreaterequal(values[k], scalar.least) || !std::islessequal(values[k], scalar.most))
        return k;
  } else {
    const std::int64_t* values = scalar.is_vector ? given.values : &given.value;
    for (std::int64_t k = 0; k < count; ++k)
      if (values[k] < scalar.min || values[k] > scalar.max) return k;
  }
  return -1;
}

std::int64_t length_of(const Signature& signature, const Scalar& vector, const Slot* slots) {
  const Extent& length = vector.length;
  if (length.names.count == 0) return length.factor + length.add;
  for (int i = 0; i < signature.arguments.count; ++i) {
    const Argument& argument = signature.arguments[i];
    if (!slots[i].present || slots[i].rank != argument.dims.count) continue;
    for (int d = 0; d < argument.dims.count; ++d) {
      const Extent& dim = argument.dims[d];
      const std::int64_t count = slots[i].shape[d] - dim.add;
      if (dim.names.count == 1 && dim.names[0] == length.names[0] && dim.factor == 1 && count >= 0)
        return count <= kMaxRank ? count : kUnbound;
    }
  }
  return kUnbound;
}

Arguments::Arguments(const Signature& signature, const Slot* slots, int slot_count,
                     const ScalarValue* scalars, int scalar_count, const Workspace& workspace, int threads,
                     Isa isa, const CallerNames* names)
    : signature_(signature),
      slots_(slots),
      scalars_(scalars),
      workspace_(workspace),
      threads_(threads),
      isa_(isa),
      names_(names) {
  if (slot_count != signature.arguments.count || scalar_count != signature.scalars.count)
    fail(ErrorCode::internal, "called with a different number of arguments than its signature has");
  std::fill_n(sizes_, signature.names.count, kUnbound);
  for (int i = 0; i < scalar_count; ++i)
    sizes_[i] = signature.scalars[i].is_real     ? 0
                : signature.scalars[i].is_vector ? saturating_volume(scalars[i].values, scalars[i].value)
                                                 : scalars[i].value;
}

void Arguments::fail(ErrorCode code, const std::string& what) const {
  throw Error(code, concat(op(), ": ", what));
}

std::string Arguments::dtype_text(DType dtype) const {
  if (is_dtype(dtype)) return names_ == nullptr ? name_of(dtype) : names_->dtype_name(dtype);
  if (dtype == kForeign) return name_of(dtype);
  return concat(std::int64_t{static_cast<std::uint8_t>(dtype)}, ", which is not a DType");
}

std::int64_t Arguments::evaluate(const Extent& extent) const {
  std::int64_t value = extent.factor;
  for (std::int8_t name : extent.names) {
    if (sizes_[name] == kUnbound) return kUnbound;
    value = saturating_product(value, size(name));
  }
  return saturating_sum(value, extent.add);
}

bool Arguments::check() {
  const bool only_data_is_left = passes_all_but_data();
  for (const Step& step : signature_.order) {
    if (only_data_is_left && step.check != Check::data) continue;
    if (!run(step)) return false;
  }
  return true;
}

void Arguments::check_before_handle() {
  const auto* const end = std::find_if(signature_.order.begin(), signature_.order.end(),
                                       [](const Step& step) { return step.check == Check::handle; });
  if (end == signature_.order.end()) return;
  for (const Step* step = signature_.order.begin(); step != end; ++step) run(*step);
}

bool Arguments::run(const Step& step) {
  if (!runs(step)) return true;
  switch (step.check) {
    case Check::handle:  // a call without one does not come here
      break;
    case Check::scalars:
      for (int i = 0; i < signature_.scalars.count; ++i) check_scalar(step, i);
      break;
    case Check::rules:
      check_rules(step);
      break;
    case Check::any_empty:
    case Check::outputs_empty:
      return !is_nothing_to_do(step);
    case Check::workspace_null:
      if (workspace_.size > 0 && workspace_.data == nullptr)
        fail(step.code, concat("workspace is NULL and workspace_size is ",
                               static_cast<std::int64_t>(workspace_.size), ", expected memory"));
      break;
    case Check::workspace:
      check_workspace(step);
      break;
    case Check::overlap:
      check_overlap(step);
      break;
    case Check::data:
      for (int i = 0; i < signature_.data_checks.count; ++i)
        if (step.looks_at(i)) signature_.data_checks[i].check(*this, signature_.data_checks[i].at);
      break;
    default:
      if (step.only.count == 0) {
        for (int i = 0; i < signature_.arguments.count; ++i) check_argument(step, i);
      } else {
        for (const Selection& one : step.only) {
          if (one.dim < 0) {
            check_argument(step, one.argument);
          } else if (slots_[one.argument].present) {
            check_shape(step, one.argument, one.dim);
          }
        }
      }
      if (step.check == Check::shapes) check_vector_lengths(step);
  }
  return true;
}

void Arguments::check_metadata() {
  only_metadata_ = true;
  for (const Step& step : signature_.order) {
    if (!runs(step)) continue;
    switch (step.check) {
      case Check::present:
      case Check::ranks:
      case Check::dtypes:
      case Check::shapes:
        for (int i = 0; i < signature_.arguments.count; ++i)
          if (slots_[i].present || !signature_.arguments[i].is_output()) check_argument(step, i);
        if (step.check == Check::shapes) check_vector_lengths(step);
        break;
      case Check::scalars:
        for (int i = 0; i < signature_.scalars.count; ++i) check_scalar(step, i);
        break;
      case Check::rules:
        check_rules(step);
        break;
      default:
        break;
    }
  }
}

void Arguments::check_argument(const Step& step, int i) {
  const Argument& argument = signature_.arguments[i];
  const Slot& slot = slots_[i];
  if (!slot.present) return check_absent(step, argument, slot.data);
  switch (step.check) {
    case Check::ranks: {
      bool may_drop = false, may_spread = false;
      for (const Extent& dim : argument.dims) {
        may_drop |= dim.optional;
        may_spread |= dim.is_folded;
      }
      if (slot.rank != argument.dims.count && !(may_drop && slot.rank == argument.dims.count - 1) &&
          !(may_spread && slot.rank > argument.dims.count && slot.rank <= kMaxRank))
        fail(step.code, concat(name(argument.name), " has ", std::int64_t{slot.rank},
                               " dimensions, expected ", dims_text(argument)));
      break;
    }
    case Check::dtypes: {
      bool fits = contains(argument.dtypes, slot.dtype);
      if (argument.like >= 0) {
        const Slot& other = slots_[argument.like];
        if (argument.is_lane) {
          const DType lane = lane_dtype(other.dtype);
          if (slot.dtype != lane)
            fail(step.code,
                 concat(name(argument.name), " has dtype ", dtype_text(slot.dtype), ", expected ",
                        dtype_text(lane), " for ", name(argument.like), " of ", dtype_text(other.dtype)));
          fits = true;
        } else {
          fits |= other.present ? other.dtype == slot.dtype : contains(kAnyDType, slot.dtype);
        }
      }
      if (!fits)
        fail(step.code, concat(name(argument.name), " has dtype ", dtype_text(slot.dtype), ", expected ",
                               dtypes_text(signature_, argument, names_)));
      break;
    }
    case Check::shapes:
      check_shape(step, i, -1);
      break;
    case Check::layout:
      if (!slot.is_array) {
        const std::string_view layout = slot.layout;  // an unknown one has the name of LAYOUT_ARRAY
        fail(step.code, concat(name(argument.name), " has ",
                               layout == "LAYOUT_ARRAY" ? "an unknown layout" : concat("layout ", layout),
                               ", expected LAYOUT_ARRAY"));
      }
      break;
    case Check::contiguous:
      if (!slot.is_contiguous())
        fail(step.code,
             concat(name(argument.name), " is strided, expected contiguous row-major memory for shape ",
                    shape_text(slot)));
      break;
    case Check::large:
      if (slot.elements() >= kLargeElements)
        fail(step.code, concat(name(argument.name), " has ", slot.elements(),
                               " elements, expected fewer than ", kLargeElements));
      break;
    case Check::not_empty:
      if (slot.is_empty())
        fail(step.code,
             concat(name(argument.name), " has shape ", shape_text(slot), ", expected at least one element"));
      break;
    case Check::pointers:
      if (slot.elements() == 0) break;
      if (slot.data == nullptr)
        fail(step.code,
             concat(name(argument.name), ".data is null, expected memory for shape ", shape_text(slot)));
      if (!is_aligned(slot.data, slot.dtype))
        fail(step.code,
             concat(name(argument.name), ".data is not aligned to its element size ", size_of(slot.dtype)));
      break;
    default:
      break;
  }
}

void Arguments::check_absent(const Step& step, const Argument& argument, const void* data) const {
  if (step.check == Check::present) {
    if (!argument.optional) fail(step.code, concat(name(argument.name), " is missing"));
    if (argument.required_with >= 0 && slots_[argument.required_with].present)
      fail(step.code,
           concat(name(argument.name), " is missing, expected together with ", name(argument.required_with)));
    if (argument.required_when >= 0 && scalars_[argument.required_when].value == argument.when) {
      const Scalar& scalar = signature_.scalars[argument.required_when];
      fail(step.code, concat(name(argument.name), " is missing, expected a tensor with ", name(scalar.name),
                             " ", value_name(scalar, argument.when)));
    }
  }
  if (step.check == Check::pointers && argument.by_pointer && !argument.optional)
    fail(step.code, concat(name(argument.name), " is NULL, expected memory for ", dims_text(argument)));
  if (step.check == Check::pointers && data != nullptr) {
    const bool is_empty = std::any_of(argument.dims.begin(), argument.dims.end(),
                                      [&](const Extent& dim) { return evaluate(dim) == 0; });
    if (!is_empty) fail(step.code, concat(name(argument.name), ".data is given without a descriptor"));
  }
}

void Arguments::check_scalar(const Step& step, int i) const {
  if (!step.looks_at(i)) return;
  const Scalar& scalar = signature_.scalars[i];
  const ScalarValue& given = scalars_[i];
  const std::int64_t k = first_out_of_range(scalar, given);
  if (k < 0) return;
  const std::string where = scalar.is_vector ? concat("[", k, "]") : "";
  const std::string found = scalar.is_real ? number_text(scalar.is_vector ? given.reals[k] : given.real)
                                           : concat(scalar.is_vector ? given.values[k] : given.value);
  fail(step.code, concat(name(scalar.name), where, " is ", found, ", expected ", range_text(scalar)));
}

void Arguments::check_vector_lengths(const Step& step) const {
  for (int i = 0; i < signature_.scalars.count; ++i) {
    const Scalar& scalar = signature_.scalars[i];
    if (!scalar.is_vector || scalars_[i].value == evaluate(scalar.length)) continue;
    if (only_metadata_ && evaluate(scalar.length) == kUnbound) continue;
    fail(step.code, concat(name(scalar.name), " has ", scalars_[i].value, " elements, expected ",
                           value_text(scalar.length, evaluate(scalar.length))));
  }
}

void Arguments::check_rules(const Step& step) const {
  for (int i = 0; i < signature_.rules.count; ++i) {
    if (!step.looks_at(i)) continue;
    const Rule& rule = signature_.rules[i];
    const std::int64_t left = evaluate(rule.left), right = evaluate(rule.right);
    if (right == kUnbound) continue;  // an optional argument is absent, or an extent is unknown
    if (left > right) refuse_rule(step, rule, left, right);
  }
}

bool Arguments::is_nothing_to_do(const Step& step) const {
  bool any = false, all_outputs = true;
  for (int i = 0; i < signature_.arguments.count; ++i) {
    if (!slots_[i].present || !step.looks_at(i)) continue;
    const bool empty = slots_[i].is_empty();
    any |= empty;
    if (signature_.arguments[i].is_output()) all_outputs &= empty;
  }
  return step.check == Check::outputs_empty ? all_outputs : any;
}

std::string Arguments::describe() const {
  if (names_ != nullptr && names_->arguments != nullptr) return names_->arguments->describe();
  std::string text;
  for (int i = 0; i < signature_.arguments.count; ++i) {
    if (!slots_[i].present) continue;
    text += concat(text.empty() ? "" : ", ", name(i), " ", name_of(slots_[i].dtype), shape_text(slots_[i]));
    if (slots_[i].layout != nullptr) text += concat(" ", slots_[i].layout);
  }
  for (int i = 0; i < signature_.scalars.count; ++i) {
    text += concat(text.empty() ? "" : ", ", name(signature_.scalars[i].name), " ");
    const Scalar& scalar = signature_.scalars[i];
    const ScalarValue& given = scalars_[i];
    if (!scalar.is_vector) {
      text += scalar.is_real ? number_text(given.real) : concat(given.value);
      continue;
    }
    for (std::int64_t k = 0; k < given.value; ++k)
      text += concat(k ? "x" : "", scalar.is_real ? number_text(given.reals[k]) : concat(given.values[k]));
  }
  if (names_ != nullptr && !names_->note.empty()) text += concat(", ", names_->note);
  return text;
}

}  // namespace turnout::core
