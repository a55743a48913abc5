// Converts the arguments of this family to those of the row movements in rows/.
#pragma once

#include "core/check.h"
#include "rows/rows.h"
#include "runtime/caller.h"
#include "turnout/moe_dispatch.h"

namespace turnout::families::moe_dispatch {

// Routings of indices [choices?, samples] and [samples, choices?].
inline rows::Routing with_choices_first(const ConstTensor& indices, const ConstTensor& locations,
                                        const MoeBuffers& buffers) {
  const std::int64_t samples = indices.shape[indices.rank - 1];
  return {indices,          locations, buffers.num_experts,
          buffers.capacity, samples,   indices.rank == 1 ? 1 : indices.shape[0],
          {1, samples}};
}
inline rows::Routing with_choices_last(const ConstTensor& indices, const ConstTensor& locations,
                                       const MoeBuffers& buffers) {
  const std::int64_t choices = indices.rank == 1 ? 1 : indices.shape[1];
  return {indices, locations, buffers.num_experts, buffers.capacity, indices.shape[0], choices, {choices, 1}};
}

// Returns buffers, which may be [num_experts, capacity, hidden], as [num_experts * capacity, hidden]. The
// checks have ensured that they are contiguous.
template <class Data>
BasicTensor<Data> flat_buffers(const BasicTensor<Data>& t) {
  if (t.rank != 3) return t;
  return {t.data, t.dtype, {t.shape[0] * t.shape[1], t.shape[2]}};
}

}  // namespace turnout::families::moe_dispatch
