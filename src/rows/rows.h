// The three movements of rows that mixtures of experts are made of: scatter, gather with weights, and dot
// products. Dispatch and permute scatter, combine and unpermute gather, and the gradient of the weights is a
// dot product. Each is the gradient of another one, so that they are closed under differentiation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtypes.h"
#include "indices/indices.h"
#include "rows/kernels.h"
#include "runtime/call.h"

namespace turnout::rows {

// The routed row of each choice of each token: index * capacity + location, or none where one of the two is
// out of range. Without locations all are 0: with a capacity of 1 the index is the row.
struct Routing {
  ConstTensor indices;
  ConstTensor locations;  // may be absent
  std::int64_t num_experts, capacity;
  std::int64_t tokens, choices;
  Layout layout;  // of indices, locations and weights

  std::int64_t routed() const { return tokens * choices; }
};

// f(row_of) where row_of(q) is the row at position q of the routing's arrays, or -1. Each value is read once:
// what was checked is what is used.
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
// sums in the type of the lanes; the bits do not depend on threads.
struct Dots {
  Routing routing;
  ConstTensor tokens, routed;
  Tensor products;

  std::size_t scratch_bytes() const;
};
void dot_rows(Context& context, core::Call& call, const Dots& dots);

// routed[row, :] = weight[t, k] * tokens[t, :], as if for k = 0, 1, .. and for each of them in the order of
// the tokens: the last writer of a row wins. Without weights rows are copied, whatever their dtype.
struct Scatter {
  Routing routing;
  ConstTensor weights;  // may be absent
  ConstTensor tokens;
  Tensor routed;
  bool zero;                   // rows without a writer become zero, else they are kept
  bool distinct = false;       // no row has two writers
  const Dots* also = nullptr;  // of the same tokens, while these are in the cache

  // On one thread, without a table of the last writers: there are few bytes to write.
  bool in_order() const;
  std::size_t scratch_bytes() const;
};
void scatter_rows(Context& context, core::Call& call, const Scatter& scatter);

// tokens[t, :] = sum over k of weight[t, k] * routed[row, :]. The terms are added in the order of k; product
// and sum are rounded on their own, in f64 for f64 and in f32 for all other types. A choice without a row
// adds +0.
struct Gather {
  Routing routing;
  ConstTensor weights;  // may be absent
  ConstTensor routed;
  Tensor tokens;
  // Of the same routed rows, which are read once for both. Only with weights, of the products' dtype.
  const Dots* also = nullptr;

  std::size_t scratch_bytes() const;
};
void gather_rows(Context& context, core::Call& call, const Gather& gather);

}  // namespace turnout::rows
