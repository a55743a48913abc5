// Implements the checks of memory: overlaps, workspaces, and what a Slot covers.
#include <algorithm>
#include <bit>

#include "core/check.h"
#include "core/padding.h"
#include "core/saturate.h"

namespace turnout::core {
namespace {

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

bool share_memory(const Slot& a, const Slot& b) {
  if (!a.present || !b.present || a.elements() == 0 || b.elements() == 0) return false;
  return range_of(a).overlaps(range_of(b));
}

std::int64_t Slot::elements() const { return saturating_volume(shape, rank); }

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

}  // namespace turnout::core
