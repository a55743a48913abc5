// Plan of sort_chunks_by_idxs: computes the output row of each input row, then moves the rows.
#include <algorithm>
#include <cstring>

#include "core/padding.h"
#include "indices/indices.h"
#include "moe_re_routing/signature.h"
#include "rows/rows.h"
#include "runtime/call.h"
#include "turnout/moe_re_routing.h"

namespace turnout {
namespace families::moe_re_routing {

using namespace core;
namespace {

// Reads each size once, checks it and keeps it. Sizes must be 0 or more and sum to `rows`.
template <class Size>
void read_sizes(Call& call, const Size* from, std::int64_t chunks, std::int64_t rows, std::int64_t* sizes) {
  const auto refuse = [&](const std::string& what) {
    call.refuse(concat(call.name("split_sizes"), what, " rows of ", call.name("input")));
  };
  std::int64_t left = rows;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t size = sizes[c] = load_once(from + c);
    if (size < 0 || size > left)
      refuse(concat("[", c, "] is ", size, ", expected 0 .. ", left, ", the remainder of the ", rows));
    left -= size;
  }
  if (left != 0) refuse(concat(" sums to ", rows - left, ", expected the ", rows));
}

// rows[i] = the output row of input row i, where position[c] is the place of chunk c in the output.
// Overwrites `position`.
void fill_rows(const std::int64_t* sizes, std::int64_t* position, std::int64_t* order, std::int64_t chunks,
               std::int32_t* rows) {
  for (std::int64_t c = 0; c < chunks; ++c) order[position[c]] = c;
  std::int64_t start = 0;
  for (std::int64_t p = 0; p < chunks; ++p) {
    position[order[p]] = start;
    start += sizes[order[p]];
  }
  for (std::int64_t c = 0; c < chunks; ++c)
    for (std::int64_t i = 0; i < sizes[c]; ++i) *rows++ = static_cast<std::int32_t>(position[c] + i);
}

}  // namespace
}  // namespace families::moe_re_routing

using namespace families::moe_re_routing;

void sort_chunks_by_idxs(const ConstTensor& input, const ConstTensor& split_sizes,
                         const ConstTensor& sorted_idxs, const ConstTensor& probs, const Tensor& output,
                         const Tensor& permuted_probs, const Caller& caller) {
  // Without probs, their output is ignored.
  Call call(
      caller, kSortChunksByIdxs,
      {input, split_sizes, sorted_idxs, probs, output, probs.is_absent() ? Slot() : Slot(permuted_probs)},
      {});
  const std::int64_t rows = input.shape[0], chunks = split_sizes.shape[0];
  if (call.nothing_to_do()) return;
  Scratch scratch = call.lease(3 * array_bytes<std::int64_t>(chunks) + array_bytes<std::int32_t>(rows));
  auto* sizes = scratch.take<std::int64_t>(chunks);
  auto* position = scratch.take<std::int64_t>(chunks);
  auto* order = scratch.take<std::int64_t>(chunks);
  auto* target = scratch.take<std::int32_t>(rows);
  visit_index(split_sizes.dtype, [&](auto type) {
    read_sizes(call, static_cast<const typename decltype(type)::type*>(split_sizes.data), chunks, rows,
               sizes);
  });
  visit_index(sorted_idxs.dtype, [&](auto type) {
    invert_permutation(call, "sorted_idxs",
                       static_cast<const typename decltype(type)::type*>(sorted_idxs.data), chunks, position);
  });
  fill_rows(sizes, position, order, chunks, target);
  if (!probs.is_absent()) {
    const std::int64_t bytes = size_of(probs.dtype);
    for (std::int64_t i = 0; i < rows; ++i)
      std::memcpy(static_cast<std::byte*>(permuted_probs.data) + target[i] * bytes,
                  static_cast<const std::byte*>(probs.data) + i * bytes, static_cast<std::size_t>(bytes));
  }
  if (input.shape[1] == 0) return;
  rows::scatter_rows(caller.context(), call,
                     {.routing = {.indices = view(static_cast<const std::int32_t*>(target), {rows}),
                                  .locations = nullptr,
                                  .num_experts = rows,
                                  .capacity = 1,
                                  .tokens = rows,
                                  .choices = 1,
                                  .layout = {1, 1}},
                      .weights = nullptr,
                      .tokens = input,
                      .routed = output,
                      .zero = false,
                      .distinct = true});
}

}  // namespace turnout
