// Implements the checks of a Signature and their error messages.
#include "core/check.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/padding.h"
#include "core/saturate.h"

namespace turnout::core {
namespace {

// The product of sizes; 0 when one is negative.
std::int64_t volume_of(const std::int64_t* sizes, std::int64_t count) {
  std::int64_t volume = 1;
  for (std::int64_t k = 0; k < count; ++k)
    volume = saturating_product(volume, std::max<std::int64_t>(0, sizes[k]));
  return volume;
}

// The joint extent of several dimensions. If one is negative or unknown, returns it.
std::int64_t extent_of(const std::int64_t* shape, int count) {
  for (int d = 0; d < count; ++d)
    if (shape[d] < 0) return shape[d];
  return volume_of(shape, count);
}

// The bytes an argument can touch: [first, last).
struct Range {
  std::uintptr_t first, last;
  bool overlaps(const Range& other) const { return first < other.last && other.first < last; }
};
Range range_of(const Slot& slot) {
  std::int64_t low = 0, high = 1;
  for (int d = 0; d < slot.rank; ++d) {
    const std::int64_t reach = saturating_product(slot.shape[d] - 1, slot.stride[d]);
    low = saturating_sum(low, std::min<std::int64_t>(reach, 0));
    high = saturating_sum(high, std::max<std::int64_t>(reach, 0));
  }
  const auto base = std::bit_cast<std::uintptr_t>(slot.data);
  const std::int64_t size = size_of(slot.dtype);
  const auto below = static_cast<std::uintptr_t>(-saturating_product(low, size));
  return {base - std::min(base, below), base + static_cast<std::uintptr_t>(saturating_product(high, size))};
}

}  // namespace

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

bool share_memory(const Slot& a, const Slot& b) {
  if (!a.present || !b.present || a.elements() == 0 || b.elements() == 0) return false;
  return range_of(a).overlaps(range_of(b));
}

std::int64_t Slot::elements() const { return volume_of(shape, rank); }

bool Slot::is_empty() const { return shape == nullptr || std::find(shape, shape + rank, 0) != shape + rank; }

bool Slot::is_contiguous() const {
  std::int64_t step = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (shape[d] == 0) return true;
    if (shape[d] != 1 && stride[d] != step) return elements() == 0;
    step = saturating_product(step, shape[d]);
  }
  return true;
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
                : signature.scalars[i].is_vector ? volume_of(scalars[i].values, scalars[i].value)
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

int Arguments::spread_of(int i, int dim) const {
  const Argument& argument = signature_.arguments[i];
  return argument.dims[dim].is_folded ? slots_[i].rank - (argument.dims.count - 1) : 1;
}

// Binds the only unbound factor of a product and returns the extent. If another factor is 0, any extent
// fits.
std::int64_t Arguments::bind_factor(const Step& step, int i, int dim, int position, std::int64_t actual) {
  const Extent& extent = signature_.arguments[i].dims[dim];
  Extent others = extent;
  others.names = {};
  std::int8_t unbound = -1;
  for (const std::int8_t name : extent.names) {
    if (sizes_[name] != kUnbound) {
      others.names.push(name);
    } else if (unbound >= 0) {
      return kUnbound;
    } else {
      unbound = name;
    }
  }
  if (spread_of(i, dim) == extent.names.count) {  // each factor has a dimension
    for (int k = 0; k < extent.names.count; ++k)
      if (extent.names[k] == unbound) sizes_[unbound] = slots_[i].shape[position + k];
    return evaluate(extent);
  }
  others.add = 0;
  const std::int64_t known = evaluate(others);
  if (known <= 0) {
    sizes_[unbound] = 0;
    return actual;
  }
  if (actual % known != 0)
    fail(step.code, concat(place_text(i, position, spread_of(i, dim)), " is ", actual,
                           ", expected a multiple of ", value_text(others, known)));
  sizes_[unbound] = actual / known;
  return actual;
}

// A product that is spread over several dimensions has one per factor.
void Arguments::check_factors(const Step& step, int i, const Extent& extent, int position, int spread) const {
  if (spread != extent.names.count)
    fail(step.code, concat(name(i), " has ", std::int64_t{slots_[i].rank}, " dimensions, expected ",
                           dims_text(signature_.arguments[i])));
  for (int k = 0; k < spread; ++k) {
    const std::int8_t factor = extent.names[k];
    const std::int64_t actual = slots_[i].shape[position + k];
    if (sizes_[factor] == kUnbound || actual == size(factor)) continue;
    fail(step.code, concat(place_text(i, position + k), " is ", actual, ", expected ", size(factor), " = ",
                           size_text(factor)));
  }
}

// Tensors that spread the same size over several dimensions must agree in each of them: if only the product
// fits, the order of the elements may differ. A single dimension fits any spread.
void Arguments::check_spread(const Step& step, int i, const Extent& extent, int position, int spread) const {
  for (int other = 0; other < i; ++other) {
    const Argument& argument = signature_.arguments[other];
    if (!slots_[other].present) continue;
    int first = 0;
    for (int dim = 0; dim < argument.dims.count; first += spread_of(other, dim++)) {
      if (!argument.dims[dim].is_folded || argument.dims[dim].text != extent.text) continue;
      const int theirs = spread_of(other, dim);
      if (theirs <= 1) continue;
      if (theirs != spread)
        fail(step.code, concat(name(i), " has ", std::int64_t{slots_[i].rank}, " dimensions, expected ",
                               std::int64_t{slots_[i].rank + theirs - spread}, ": as many for ", extent.text,
                               " as ", name(other), " has"));
      for (int d = 0; d < spread; ++d) {
        const std::int64_t mine = slots_[i].shape[position + d], its = slots_[other].shape[first + d];
        if (mine == its || (only_metadata_ && (mine == kUnknownExtent || its == kUnknownExtent))) continue;
        fail(step.code, concat(place_text(i, position + d), " is ", mine, ", expected ", its, " = ",
                               place_text(other, first + d)));
      }
      return;
    }
  }
}

void Arguments::check_shape(const Step& step, int i, int only_dim) {
  const Argument& argument = signature_.arguments[i];
  const Slot& slot = slots_[i];
  const bool dropped = slot.rank < argument.dims.count;
  int d = 0;  // position in the tensor; `dim` is the position in the signature
  for (int dim = 0; dim < argument.dims.count; ++dim) {
    const Extent& extent = argument.dims[dim];
    if (dropped && extent.optional) {
      std::int64_t& bound = sizes_[extent.names[0]];
      if (bound >= 0)
        fail(step.code, concat(name(argument.name), " has no dimension ", extent.text, ", expected ",
                               dims_text(argument), " with ", extent.text, " = ", bound));
      bound = kAbsent;
      continue;
    }
    const int position = d, spread = spread_of(i, dim);
    const std::int64_t actual = spread == 1 ? slot.shape[d] : extent_of(slot.shape + d, spread);
    d += spread;
    if (only_dim >= 0 && only_dim != dim) continue;
    if (only_metadata_ && actual == kUnknownExtent) continue;
    if (spread > 1 && extent.names.count > 1) check_factors(step, i, extent, position, spread);
    if (spread > 1 && extent.names.count == 1) check_spread(step, i, extent, position, spread);
    if (actual < 0)
      fail(step.code, concat(place_text(i, position, spread), " is ", actual, ", expected 0 or more"));
    if (extent.optional && sizes_[extent.names[0]] == kAbsent)
      fail(step.code, concat(name(argument.name), " has a dimension ", extent.text,
                             " that an earlier argument does not have; its shape is ", shape_text(slot)));
    std::int64_t expected = evaluate(extent);
    if (expected == kUnbound && extent.names.count == 1) {
      if (actual < extent.add)
        fail(step.code,
             concat(place_text(i, position, spread), " is ", actual, ", expected ", extent.add, " or more"));
      sizes_[extent.names[0]] = (actual - extent.add) / extent.factor;
      expected = evaluate(extent);
    }
    if (expected == kUnbound && extent.names.count > 1)
      expected = bind_factor(step, i, dim, position, actual);
    if (expected == kUnbound) expected = extent.add;
    if (actual != expected) refuse_extent(step, i, dim, actual, expected);
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

// The dimensions of the input that has the same extent; if there is none, one per factor.
template <class Push>
void Arguments::push_folded(const Extent& extent, const Push& push) const {
  for (int i = 0; i < signature_.arguments.count; ++i) {
    const Argument& argument = signature_.arguments[i];
    if (argument.is_output() || !slots_[i].present) continue;
    int position = 0;
    for (int dim = 0; dim < argument.dims.count; ++dim) {
      const int spread = spread_of(i, dim);
      if (argument.dims[dim].is_folded && argument.dims[dim].text == extent.text) {
        for (int d = 0; d < spread; ++d) push(slots_[i].shape[position + d]);
        return;
      }
      position += spread;
    }
  }
  for (const std::int8_t name : extent.names) push(size(name));
}

int Arguments::result_shape(int i, std::int64_t* shape) const {
  int rank = 0;
  const auto push = [&](std::int64_t extent) {
    if (rank < kMaxRank) shape[rank++] = extent;
  };
  for (const Extent& extent : signature_.arguments[i].dims) {
    if (extent.optional && sizes_[extent.names[0]] == kAbsent) continue;
    if (!extent.is_folded) {
      push(evaluate(extent));
      continue;
    }
    push_folded(extent, push);
  }
  return rank;
}

std::size_t Arguments::workspace_bytes() const {
  const std::size_t bytes = signature_.scratch.bytes(*this, signature_.scratch.at);
  return bytes == 0 ? 0 : bytes + kScratchAlignment - 1;
}

void Arguments::check_workspace(const Step& step) const {
  const std::size_t required = workspace_bytes();
  if (required == 0) return;  // a workspace that is given anyway is ignored
  if (workspace_.size > 0 && workspace_.data == nullptr)
    fail(step.code, concat("workspace is NULL and workspace_size is not 0, expected memory for ",
                           static_cast<std::int64_t>(required), " bytes or more"));
  if (workspace_.size < required)
    fail(step.code, concat("workspace_size is ", static_cast<std::int64_t>(workspace_.size),
                           " bytes, expected ", static_cast<std::int64_t>(required), " or more"));
  const auto first = std::bit_cast<std::uintptr_t>(workspace_.data);
  const Range lent{first, first + workspace_.size};
  for (int i = 0; i < signature_.arguments.count; ++i) {
    if (!slots_[i].present || slots_[i].data == nullptr || slots_[i].elements() == 0) continue;
    if (lent.overlaps(range_of(slots_[i])))
      fail(step.code, concat("workspace overlaps ", name(i), " in memory, expected separate buffers"));
  }
}

void Arguments::check_overlap(const Step& step) const {
  for (int o = 0; o < signature_.arguments.count; ++o) {
    if (!signature_.arguments[o].is_output() || !slots_[o].present || slots_[o].elements() == 0) continue;
    const Range output = range_of(slots_[o]);
    for (int i = 0; i < signature_.arguments.count; ++i) {
      // Two outputs are compared once; an output is not compared with itself.
      if (i <= o && signature_.arguments[i].is_output()) continue;
      if (i == signature_.arguments[o].may_overlap) continue;
      if (!slots_[i].present || slots_[i].elements() == 0) continue;
      if (output.overlaps(range_of(slots_[i])))
        fail(step.code, concat(name(o), " overlaps ", name(i), " in memory, expected separate buffers"));
    }
  }
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
