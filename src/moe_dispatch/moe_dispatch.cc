// Plans of the MoE dispatch operators: which algorithm, how much scratch, how the output is cut.
#include "turnout/moe_dispatch.h"

#include <algorithm>
#include <cstring>

#include "core/call.h"
#include "core/copy.h"
#include "core/indices.h"
#include "core/parallel.h"
#include "moe_dispatch/kernels.h"
#include "moe_dispatch/signature.h"

namespace turnout {
namespace {

using namespace core;

// Rows that are computed at once, on the stack.
constexpr std::int64_t kBatch = 256;

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

  const std::int64_t rows = dispatch.shape[0], samples = input.shape[0], hidden = input.shape[1];
  const std::int64_t choices = call.size(kMoeDispatchForward.size("choices"));
  const std::int64_t row_bytes = hidden * size_of(dispatch.dtype);
  const auto move = dispatch_kernels(context.isa()).tokens(input.dtype, gates.dtype);
  DispatchTask task{gates.data, input.data, dispatch.data, samples, hidden, false};

  // One choice after the other, on this thread: nothing to prepare, and the last writer wins by itself. Worth
  // it while one thread is enough, or while a table of all rows would cost more than the rows that are
  // written.
  const std::int64_t most = samples * choices * row_bytes;
  const bool few = most < std::max(kParallelBytes, rows * std::int64_t{sizeof(std::int64_t)} / 2);
  if (params.fill == Fill::keep && few) {
    call.chose("in order", 1);
    with_row_of(indices, locations, params, [&](auto row_of) {
      const FpEnvironment environment;
      std::int64_t batch[kBatch];
      for (std::int64_t k = 0; k < choices; ++k) {
        for (std::int64_t first = 0; first < samples; first += kBatch) {
          const std::int64_t count = std::min(kBatch, samples - first);
          for (std::int64_t i = 0; i < count; ++i) batch[i] = row_of(k * samples + first + i);
          move(task, batch, first, count, k, 1, {0, hidden});
        }
      }
    });
    return;
  }

  // The last writer of each row first. Then tokens are read in order, by whichever thread, and written to the
  // rows of which they are the last writer; rows without a writer are cleared beside that.
  Scratch& scratch = call.scratch(static_cast<std::size_t>(rows) * sizeof(std::int64_t));
  auto* last = scratch.take<std::int64_t>(rows);
  with_row_of(indices, locations, params, [&](auto row_of) {
    const std::int64_t named = last_writers(samples * choices, row_of, last, rows);
    const bool zero = params.fill == Fill::zero;
    const std::int64_t written = (zero ? rows : named) * row_bytes;
    const bool parallel = written >= kParallelBytes;
    task.stream = written >= kStreamBytes;
    call.chose(task.stream ? "last writers, streamed" : "last writers", parallel ? context.threads() : 1);

    // A range is a few tokens, or a piece of one very long token; the same for rows.
    const std::int64_t pieces = parallel ? (row_bytes - 1) / kRangeBytes + 1 : 1;
    const std::int64_t width = (hidden - 1) / pieces + 1;
    const std::int64_t per_range = parallel ? std::max<std::int64_t>(1, kRangeBytes / row_bytes) : kSizeMax;
    const auto ranges_of = [&](std::int64_t items) {
      return items == 0 ? 0 : ((items - 1) / per_range + 1) * pieces;
    };
    const std::int64_t token_ranges = ranges_of(samples), row_ranges = zero ? ranges_of(rows) : 0;

    const auto move_range = [&](std::int64_t first, std::int64_t end, Columns columns) {
      std::int64_t batch[kBatch];
      const std::int64_t together = std::min(choices, kBatch);
      for (std::int64_t k = 0; k < choices; k += together) {
        const std::int64_t some = std::min(together, choices - k);
        for (std::int64_t i = first; i < end; i += kBatch / some) {
          const std::int64_t count = std::min(kBatch / some, end - i);
          std::int64_t* next = batch;
          for (std::int64_t token = i; token < i + count; ++token) {
            for (std::int64_t q = k * samples + token; q < (k + some) * samples; q += samples) {
              const std::int64_t row = row_of(q);
              *next++ = row >= 0 && last[row] == q ? row : -1;
            }
          }
          move(task, batch, i, count, k, some, columns);
        }
      }
    };
    const CopyKernels& copy = copy_kernels(context.isa());
    const auto clear_range = [&](std::int64_t first, std::int64_t end, Columns columns) {
      const std::int64_t size = size_of(dispatch.dtype), bytes = columns.count * size;
      for (std::int64_t row = first; row < end; ++row) {
        if (last[row] >= 0) continue;
        auto* to = static_cast<std::byte*>(dispatch.data) + (row * hidden + columns.first) * size;
        if (task.stream) {
          copy.clear(to, bytes);
        } else {
          std::memset(to, 0, static_cast<std::size_t>(bytes));
        }
      }
    };
    parallel_for(context, token_ranges + row_ranges, 1, [&](std::int64_t begin, std::int64_t) {
      const bool is_rows = begin >= token_ranges;
      const std::int64_t range = is_rows ? begin - token_ranges : begin, items = is_rows ? rows : samples;
      const std::int64_t first = range / pieces * per_range, column = range % pieces * width;
      const std::int64_t end = first + std::min(per_range, items - first);
      const Columns columns{column, std::min(width, hidden - column)};
      if (is_rows) {
        clear_range(first, end, columns);
      } else {
        move_range(first, end, columns);
      }
      if (task.stream) copy.finish();
    });
  });
}

}  // namespace turnout
