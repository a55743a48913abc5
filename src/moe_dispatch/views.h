// How the arguments of this family become those of the movements of rows.
#pragma once

#include "core/check.h"
#include "moe_dispatch/moe_dispatch.h"
#include "rows/rows.h"

namespace turnout::families::moe_dispatch {

using namespace core;

inline Slot slot_of(const ConstTensor* tensor) { return tensor == nullptr ? Slot() : Slot(*tensor); }

// A routing of indices [choices?, samples], and one of [samples, choices?].
inline rows::Routing with_choices_first(const ConstTensor& indices, const ConstTensor* locations,
                                        const MoeBuffers& buffers) {
  const std::int64_t samples = indices.shape[indices.rank - 1];
  return {indices,          locations, buffers.num_experts,
          buffers.capacity, samples,   indices.rank == 1 ? 1 : indices.shape[0],
          {1, samples}};
}
inline rows::Routing with_choices_last(const ConstTensor& indices, const ConstTensor* locations,
                                       const MoeBuffers& buffers) {
  const std::int64_t choices = indices.rank == 1 ? 1 : indices.shape[1];
  return {indices, locations, buffers.num_experts, buffers.capacity, indices.shape[0], choices, {choices, 1}};
}

// Buffers of experts [num_experts, capacity, hidden] as [num_experts * capacity, hidden]. Three other
// dimensions stay three, for the checks to refuse, and strided buffers stay strided.
template <class Data>
BasicTensor<Data> flat_buffers(const BasicTensor<Data>& t, std::int64_t capacity) {
  if (t.rank != 3 || t.shape[1] != capacity) return t;
  BasicTensor<Data> flat = t;
  flat.rank = 2;
  if (__builtin_mul_overflow(t.shape[0], t.shape[1], &flat.shape[0])) flat.shape[0] = kSizeMax;
  flat.shape[1] = t.shape[2];
  flat.stride[0] = Slot(t).is_contiguous() ? t.shape[2] : 0;
  flat.stride[1] = t.stride[2];
  return flat;
}

}  // namespace turnout::families::moe_dispatch
