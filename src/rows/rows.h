// The row operations of mixtures of experts: scatter, gather with weights, and dot products. Dispatch and
// permute scatter, combine and unpermute gather, and the gradient of the weights is a dot product. The
// gradient of each is again one of the three.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtypes.h"
#include "indices/indices.h"
#include "rows/kernels.h"
#include "runtime/call.h"

namespace turnout::rows {

// The routed row of each choice of each token: index * capacity + location, or none if one of the two is out
// of range. Absent locations count as 0: with a capacity of 1 the index is the row.
struct Routing {
  ConstTensor indices;
  ConstTensor locations;  // may be absent
  std::int64_t num_experts, capacity;
  std::int64_t tokens, choices;
  Layout layout;  // of indices, locations and weights

  std::int64_t routed() const { return tokens * choices; }
};

// Calls f(row_of), where row_of(q) is the row at position q of the routing's arrays, or -1. Each value is
// read once, so that the value that was checked is the value that is used.
template <class F>
auto with_row_of(const Routing& routing, const F& f) {
  return core::visit_index(routing.indices.dtype, [&](auto index) {
    const auto* indices = static_cast<const typename decltype(index)::type*>(routing.indices.data);
    const std::int64_t num_experts = routing.num_experts, capacity = routing.capacity;
    if (routing.locations.is_absent()) {
      return f([=](std::int64_t q) -> std::int64_t {
        const std::int64_t expert = core::load_once(indices + q);
        return core::in_range(expert, num_experts) && capacity > 0 ? expert * capacity : -1;
      });
    }
    return core::visit_index(routing.locations.dtype, [&](auto location) {
      const auto* slots = static_cast<const typename decltype(location)::type*>(routing.locations.data);
      return f([=](std::int64_t q) -> std::int64_t {
        const std::int64_t expert = core::load_once(indices + q), slot = core::load_once(slots + q);
        return core::in_range(expert, num_experts) && core::in_range(slot, capacity)
                   ? expert * capacity + slot
                   : -1;
      });
    });
  });
}

// products[t, k] = sum over j of tokens[t, j] * routed[row, j], or 0 without a row. Accumulated in f64 from
// sums in the lane type; the bits do not depend on the number of threads.
struct Dots {
  Routing routing;
  ConstTensor tokens, routed;
  Tensor products;

  std::size_t scratch_bytes() const;
};
void dot_rows(Context& context, core::Call& call, const Dots& dots);

// routed[row, :] = weight[t, k] * tokens[t, :], as if executed for k = 0, 1, .. and for each k in the order
// of the tokens: the last writer of a row wins. Without weights, rows of any dtype are copied.
struct Scatter {
  Routing routing;
  ConstTensor weights;  // may be absent
  ConstTensor tokens;
  Tensor routed;
  bool zero;                   // whether rows without a writer are set to zero; otherwise they are kept
  bool distinct = false;       // no row has two writers
  const Dots* also = nullptr;  // of the same tokens, computed while these are in the cache

  // Whether to run on one thread without a table of the last writers, because there are few bytes to write.
  bool in_order() const;
  std::size_t scratch_bytes() const;
};
void scatter_rows(Context& context, core::Call& call, const Scatter& scatter);

// tokens[t, :] = sum over k of weight[t, k] * routed[row, :]. The terms are added in the order of k; product
// and sum are rounded separately, in f64 for f64 and in f32 otherwise. A choice without a row adds +0.
struct Gather {
  Routing routing;
  ConstTensor weights;  // may be absent
  ConstTensor routed;
  Tensor tokens;
  // Of the same routed rows, which are read once for both. Requires weights of the products' dtype.
  const Dots* also = nullptr;

  std::size_t scratch_bytes() const;
};
void gather_rows(Context& context, core::Call& call, const Gather& gather);

}  // namespace turnout::rows
