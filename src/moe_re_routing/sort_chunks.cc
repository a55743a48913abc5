// Plan of sort_chunks_by_idxs: finds the place of each chunk, then copies whole chunks.
#include <algorithm>
#include <cstring>

#include "core/padding.h"
#include "indices/indices.h"
#include "moe_re_routing/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
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

// Sets source[c] and target[c] to the first input and output row of chunk c; source[chunks] is the number of
// rows. position[c] is the place of chunk c in the output.
void place_chunks(const std::int64_t* sizes, const std::int64_t* position, std::int64_t* order,
                  std::int64_t chunks, std::int64_t* source, std::int64_t* target) {
  for (std::int64_t c = 0; c < chunks; ++c) order[position[c]] = c;
  for (std::int64_t p = 0, start = 0; p < chunks; start += sizes[order[p++]]) target[order[p]] = start;
  source[0] = 0;
  for (std::int64_t c = 0; c < chunks; ++c) source[c + 1] = source[c] + sizes[c];
}

// Copies all chunks of rows of row_bytes bytes. Threads take ranges of the input.
void copy_chunks(Context& context, const std::int64_t* source, const std::int64_t* target,
                 std::int64_t chunks, std::int64_t row_bytes, bool stream, bool parallel, const void* from,
                 void* to) {
  const std::int64_t bytes = source[chunks] * row_bytes;
  const CopyKernels& copy = copy_kernels(context.isa());
  parallel_for(context, bytes, parallel ? kRangeBytes : bytes, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t c = std::upper_bound(source, source + chunks, begin / row_bytes) - source - 1;
    for (std::int64_t low = begin; low < end; ++c) {
      const std::int64_t high = std::min(end, source[c + 1] * row_bytes);
      auto* there = static_cast<std::byte*>(to) + low + (target[c] - source[c]) * row_bytes;
      const auto* here = static_cast<const std::byte*>(from) + low;
      if (stream) {
        copy.stream(there, here, high - low);
      } else {
        std::memcpy(there, here, static_cast<std::size_t>(high - low));
      }
      low = high;
    }
    if (stream) copy.finish();
  });
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
  Scratch& scratch =
      call.scratch(4 * array_bytes<std::int64_t>(chunks) + array_bytes<std::int64_t>(chunks + 1));
  auto* sizes = scratch.take<std::int64_t>(chunks);
  auto* position = scratch.take<std::int64_t>(chunks);
  auto* order = scratch.take<std::int64_t>(chunks);
  auto* target = scratch.take<std::int64_t>(chunks);
  auto* source = scratch.take<std::int64_t>(chunks + 1);
  visit_index(split_sizes.dtype, [&](auto type) {
    read_sizes(call, static_cast<const typename decltype(type)::type*>(split_sizes.data), chunks, rows,
               sizes);
  });
  visit_index(sorted_idxs.dtype, [&](auto type) {
    invert_permutation(call, "sorted_idxs",
                       static_cast<const typename decltype(type)::type*>(sorted_idxs.data), chunks, position);
  });
  place_chunks(sizes, position, order, chunks, source, target);
  const std::int64_t row_bytes = input.shape[1] * size_of(input.dtype);
  const bool parallel = rows * row_bytes >= kParallelBytes, stream = is_streamed(rows * row_bytes);
  Context& context = caller.context();
  call.chose(stream ? "chunks, streamed" : "chunks", parallel ? context.threads() : 1);
  if (!probs.is_absent())
    copy_chunks(context, source, target, chunks, size_of(probs.dtype), false, false, probs.data,
                permuted_probs.data);
  if (row_bytes > 0)
    copy_chunks(context, source, target, chunks, row_bytes, stream, parallel, input.data, output.data);
}

}  // namespace turnout
