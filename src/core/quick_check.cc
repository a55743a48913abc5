// Decides in one pass that a call passes the checks of its Signature. Calls that may not pass, or that the
// pass cannot decide, are left to the steps of check.cc, which find the error and its message.
#include <algorithm>
#include <bit>

#include "core/check.h"
#include "core/saturate.h"

namespace turnout::core {

bool Arguments::binds_extents(const Slot& slot, const Argument& argument) {
  const bool dropped = slot.rank == argument.dims.count - 1;
  if (slot.rank != argument.dims.count && !dropped) return false;
  int d = 0;
  for (const Extent& extent : argument.dims) {
    const int name = extent.names.count == 1 ? extent.names[0] : -1;
    if (dropped && extent.optional) {
      if (sizes_[name] >= 0) return false;
      sizes_[name] = kAbsent;
      continue;
    }
    if (d == slot.rank) return false;  // a required dimension is missing
    const std::int64_t actual = slot.shape[d++];
    if (name >= 0 && sizes_[name] == kUnbound && extent.factor == 1) sizes_[name] = actual - extent.add;
    if (name >= 0 && sizes_[name] < 0) return false;  // from a negative extent or an optional dimension
    const std::int64_t expected =
        name >= 0 && extent.factor == 1 ? saturating_sum(sizes_[name], extent.add) : evaluate(extent);
    if (actual < 0 || actual != expected) return false;
  }
  return d == slot.rank;
}

bool Arguments::passes_plain_shapes() {
  std::int64_t before[kMaxNames];
  std::copy_n(sizes_, signature_.names.count, before);
  for (int i = 0; i < signature_.arguments.count; ++i) {
    if (!slots_[i].present || binds_extents(slots_[i], signature_.arguments[i])) continue;
    std::copy_n(before, signature_.names.count, sizes_);
    return false;
  }
  return true;
}

bool Arguments::passes_plain_metadata() {
  for (int i = 0; i < signature_.scalars.count; ++i)
    if (first_out_of_range(signature_.scalars[i], scalars_[i]) >= 0) return false;
  for (int i = 0; i < signature_.arguments.count; ++i) {
    const Argument& argument = signature_.arguments[i];
    const Slot& slot = slots_[i];
    if (!slot.present) {
      if (!argument.is_output() && !may_be_absent(argument)) return false;
      continue;
    }
    bool fits = contains(argument.dtypes, slot.dtype);
    if (argument.like >= 0) {
      const Slot& other = slots_[argument.like];
      fits = argument.is_lane ? slot.dtype == lane_dtype(other.dtype)
                              : fits || (other.present && other.dtype == slot.dtype);
    }
    if (!fits) return false;
  }
  std::int64_t before[kMaxNames];
  std::copy_n(sizes_, signature_.names.count, before);
  if (!passes_plain_shapes()) return false;
  if (passes_rules_and_lengths()) return true;
  std::copy_n(before, signature_.names.count, sizes_);
  return false;
}

bool Arguments::may_be_absent(const Argument& argument) const {
  return argument.optional && (argument.required_with < 0 || !slots_[argument.required_with].present) &&
         (argument.required_when < 0 || scalars_[argument.required_when].value != argument.when);
}

bool Arguments::passes_rules_and_lengths() const {
  for (const Rule& rule : signature_.rules) {
    const std::int64_t right = evaluate(rule.right);
    if (right != kUnbound && evaluate(rule.left) > right) return false;
  }
  for (int i = 0; i < signature_.scalars.count; ++i)
    if (signature_.scalars[i].is_vector && scalars_[i].value != evaluate(signature_.scalars[i].length))
      return false;
  return true;
}

bool Arguments::passes_all_but_data() {
  if (!signature_.passes_in_any_order || !passes_plain_metadata()) return false;
  struct {
    std::uintptr_t first, last;
  } ranges[kMaxArguments];
  for (int i = 0; i < signature_.arguments.count; ++i) {
    const Slot& slot = slots_[i];
    ranges[i] = {};
    if (!slot.present) {
      const bool is_checked =
          std::any_of(signature_.order.begin(), signature_.order.end(),
                      [&](const Step& step) { return step.check == Check::present && step.looks_at(i); });
      if (slot.data != nullptr || (is_checked && !may_be_absent(signature_.arguments[i]))) return false;
      if (signature_.arguments[i].by_pointer && !may_be_absent(signature_.arguments[i])) return false;
      continue;
    }
    if (!slot.is_array) return false;  // a step may check the layout
    std::int64_t bytes = size_of(slot.dtype), step = 1;
    for (int d = slot.rank - 1; d >= 0; --d) {
      if (slot.shape[d] != 1 && slot.stride[d] != step) return false;
      if (__builtin_mul_overflow(step, slot.shape[d], &step)) return false;
    }
    if (slot.data == nullptr || !is_aligned(slot.data, slot.dtype) ||
        __builtin_mul_overflow(bytes, step, &bytes) || bytes == 0 || step >= kLargeElements)
      return false;
    const auto first = std::bit_cast<std::uintptr_t>(slot.data);
    ranges[i] = {first, first + static_cast<std::uintptr_t>(bytes)};
    for (int other = 0; other < i; ++other) {
      const Argument &one = signature_.arguments[i], &earlier = signature_.arguments[other];
      if (!one.is_output() && !earlier.is_output()) continue;
      if (one.may_overlap == other || earlier.may_overlap == i) continue;
      if (ranges[i].first < ranges[other].last && ranges[other].first < ranges[i].last) return false;
    }
  }
  return true;
}

}  // namespace turnout::core
