// Plans of the MoE dispatch operators: which algorithm, how much scratch, how the output is cut.
#include "turnout/moe_dispatch.h"

#include <algorithm>

#include "core/call.h"
#include "core/copy.h"
#include "core/indices.h"
#include "core/parallel.h"
#include "moe_dispatch/kernels.h"
#include "moe_dispatch/signature.h"

namespace turnout {
namespace {

using namespace core;

// Tokens whose rows are computed at once, on the stack.
constexpr std::int64_t kTokenBatch = 256;

// f(row_of) where row_of(q) is the row of routing position q, or -1.
template <class F>
auto with_row_of(const ConstTensor& indices, const ConstTensor& locations, const MoeDispatchParams& params,
                 const F& f) {
  return visit_index(indices.dtype, [&](auto index) {
    return visit_index(locations.dtype, [&](auto location) {
      const auto* experts = static_cast<const typename decltype(index)::type*>(indices.data);
      const auto* slots = static_cast<const typename decltype(location)::type*>(locations.data);
      return f([=](std::int64_t q) -> std::int64_t {
        const bool valid = in_range(experts[q], params.num_experts) && in_range(slots[q], params.capacity);
        return valid ? experts[q] * params.capacity + slots[q] : -1;
      });
    });
  });
}

}  // namespace

void moe_dispatch_forward(Context& context, const ConstTensor& gates, const ConstTensor& indices,
                          const ConstTensor& locations, const ConstTensor& input, const Tensor& dispatch,
                          const MoeDispatchParams& params) {
  Call call(context, kMoeDispatchForward, {gates, indices, locations, input, dispatch},
            {params.capacity, params.num_experts, params.fill});
  if (call.nothing_to_do()) return;

  const std::int64_t rows = dispatch.shape[0];
  const std::int64_t routed = call.size(kMoeDispatchForward.size("choices")) * input.shape[0];
  const std::int64_t row_bytes = dispatch.shape[1] * size_of(dispatch.dtype);
  const DispatchKernels& kernels = dispatch_kernels(context.isa());
  DispatchTask task{gates.data,        input.data, dispatch.data, nullptr, input.shape[0], input.shape[1],
                    dispatch.shape[1], 1,          false,         false};

  // In token order, on this thread: nothing to prepare, and the last writer wins by itself. Worth it while
  // one thread is enough, or while a table of all rows would cost more than the rows that are written.
  const bool few =
      routed * row_bytes < std::max(kParallelBytes, rows * std::int64_t{sizeof(std::int64_t)} / 2);
  if (params.fill == Fill::keep && few) {
    call.chose("tokens", 1);
    const auto move = kernels.tokens(input.dtype, gates.dtype);
    with_row_of(indices, locations, params, [&](auto row_of) {
      const FpEnvironment environment;
      std::int64_t batch[kTokenBatch];
      for (std::int64_t first = 0; first < routed; first += kTokenBatch) {
        const std::int64_t count = std::min(kTokenBatch, routed - first);
        for (std::int64_t i = 0; i < count; ++i) batch[i] = row_of(first + i);
        move(task, batch, first, count);
      }
    });
    return;
  }

  // In row order: the last writer of each row first, then every row is written once, by whichever thread.
  Scratch& scratch = call.scratch(static_cast<std::size_t>(rows) * sizeof(std::int64_t));
  auto* last = scratch.take<std::int64_t>(rows);
  const std::int64_t named = with_row_of(
      indices, locations, params, [&](auto row_of) { return last_writers(routed, row_of, last, rows); });
  task.last = last;
  task.zero = params.fill == Fill::zero;
  const std::int64_t written = (task.zero ? rows : named) * row_bytes;
  task.stream = written >= kStreamBytes;
  task.pieces_per_row = (row_bytes - 1) / kRangeBytes + 1;
  task.piece = (task.hidden - 1) / task.pieces_per_row + 1;
  const std::int64_t pieces = rows * task.pieces_per_row;
  const std::int64_t piece_bytes = task.piece * size_of(dispatch.dtype);
  const std::int64_t grain =
      written < kParallelBytes ? pieces : std::max<std::int64_t>(1, kRangeBytes / piece_bytes);
  call.chose(task.stream ? "rows, streamed" : "rows", written < kParallelBytes ? 1 : context.threads());
  const auto move = kernels.rows(input.dtype, gates.dtype);
  parallel_for(context, pieces, grain, [&](std::int64_t begin, std::int64_t end) { move(task, begin, end); });
}

}  // namespace turnout
