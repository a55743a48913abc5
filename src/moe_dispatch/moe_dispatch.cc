// Plans of the MoE dispatch operators: which algorithm, how much scratch, how the work is cut.
#include "moe_dispatch/moe_dispatch.h"

#include <algorithm>
#include <cstring>

#include "indices/indices.h"
#include "moe_dispatch/kernels.h"
#include "moe_dispatch/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "runtime/stream_copy.h"
#include "simd/copy.h"

namespace turnout {
namespace families::moe_dispatch {
namespace {

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

// One call after its checks: what both algorithms need.
struct Dispatch {
  Context& context;
  DispatchTask task;
  DispatchKernels::Tokens move;
  std::int64_t choices, rows, element_bytes;

  std::int64_t row_bytes() const { return task.hidden * element_bytes; }
};

// What follows from shapes and parameters: the algorithm, and its memory. Which rows are written in parallel
// depends on how many the tokens name, so move_by_last_writer() cuts them.
class DispatchPlan {
 public:
  // in_place: dispatch shares memory with input.
  DispatchPlan(const ConstTensor& input, std::int64_t choices, const Tensor& dispatch, Fill fill,
               bool in_place)
      : rows_(dispatch.shape[0]) {
    const std::int64_t input_bytes = input.shape[0] * input.shape[1] * size_of(input.dtype);
    const std::int64_t table_bytes = rows_ * std::int64_t{sizeof(std::int64_t)};
    copied_bytes_ = in_place ? input_bytes : 0;
    // Without a table, while one thread is enough or the table would cost more than the rows that are
    // written.
    in_order_ = fill == Fill::keep && choices * input_bytes < std::max(kParallelBytes, table_bytes / 2);
  }

  bool in_order() const { return in_order_; }
  std::size_t scratch_bytes() const {
    return array_bytes<std::byte>(copied_bytes_) + (in_order_ ? 0 : array_bytes<std::int64_t>(rows_));
  }
  // Tokens as they were before the first row is written.
  const void* tokens(Context& context, const ConstTensor& input, Scratch& scratch) const {
    if (copied_bytes_ == 0) return input.data;
    void* const copied = scratch.take<std::byte>(copied_bytes_);
    stream_copy(context, copied, input.data, copied_bytes_);
    return copied;
  }

 private:
  std::int64_t rows_, copied_bytes_;
  bool in_order_;
};

// One choice after the other, on this thread: nothing to prepare, and the last writer wins by itself.
template <class RowOf>
void move_in_order(const Dispatch& d, const RowOf& row_of) {
  const FpEnvironment environment;
  std::int64_t batch[kBatch];
  for (std::int64_t k = 0; k < d.choices; ++k) {
    for (std::int64_t first = 0; first < d.task.samples; first += kBatch) {
      const std::int64_t count = std::min(kBatch, d.task.samples - first);
      for (std::int64_t i = 0; i < count; ++i) batch[i] = row_of(k * d.task.samples + first + i);
      d.move(d.task, batch, first, count, k, 1, {0, d.task.hidden});
    }
  }
}

// Tokens first .. end-1 to the rows of which they are the last writer; each is read once for all its choices.
template <class RowOf>
void move_tokens(const Dispatch& d, const RowOf& row_of, const std::int64_t* last, std::int64_t first,
                 std::int64_t end, Columns columns) {
  std::int64_t batch[kBatch];
  const std::int64_t samples = d.task.samples, most = std::min(d.choices, kBatch);
  for (std::int64_t k = 0; k < d.choices; k += most) {
    const std::int64_t choices = std::min(most, d.choices - k), together = kBatch / choices;
    for (std::int64_t i = first; i < end; i += together) {
      const std::int64_t count = std::min(together, end - i);
      std::int64_t* next = batch;
      for (std::int64_t token = i; token < i + count; ++token) {
        for (std::int64_t q = k * samples + token; q < (k + choices) * samples; q += samples) {
          const std::int64_t row = row_of(q);
          *next++ = row >= 0 && last[row] == q ? row : -1;
        }
      }
      d.move(d.task, batch, i, count, k, choices, columns);
    }
  }
}

// Those of rows first .. end-1 that have no writer become zero; rows that lie together are cleared together.
void clear_rows(const Dispatch& d, const CopyKernels& copy, const std::int64_t* last, std::int64_t first,
                std::int64_t end, Columns columns) {
  for (std::int64_t row = first; row < end; ++row) {
    if (last[row] >= 0) continue;
    const std::int64_t begin = row;
    while (row + 1 < end && last[row + 1] < 0) ++row;
    auto* to =
        static_cast<std::byte*>(d.task.dispatch) + (begin * d.task.hidden + columns.first) * d.element_bytes;
    const std::int64_t bytes = (row + 1 - begin) * columns.count * d.element_bytes;
    if (d.task.stream) {
      copy.clear(to, bytes);
    } else {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    }
  }
}

// Every row is written once, by its last writer or with zeros, so that it does not matter who runs a range. A
// range is whole tokens (or rows), or a piece of one very long one.
template <class RowOf>
void move_by_last_writer(const Dispatch& d, const RowOf& row_of, const std::int64_t* last, bool parallel,
                         bool zero) {
  const std::int64_t pieces = parallel ? (d.row_bytes() - 1) / kRangeBytes + 1 : 1;
  const std::int64_t width = (d.task.hidden - 1) / pieces + 1;
  const std::int64_t per_range = parallel ? std::max<std::int64_t>(1, kRangeBytes / d.row_bytes()) : kSizeMax;
  const auto ranges_of = [&](std::int64_t items) {
    return items == 0 ? 0 : ((items - 1) / per_range + 1) * pieces;
  };
  const std::int64_t token_ranges = ranges_of(d.task.samples), row_ranges = zero ? ranges_of(d.rows) : 0;
  const CopyKernels& copy = copy_kernels(d.context.isa());
  const auto run_range = [&](std::int64_t position) {
    const bool is_rows = position >= token_ranges;
    const std::int64_t range = is_rows ? position - token_ranges : position;
    const std::int64_t first = range / pieces * per_range, column = range % pieces * width;
    const std::int64_t end = first + std::min(per_range, (is_rows ? d.rows : d.task.samples) - first);
    const Columns columns{column, std::clamp<std::int64_t>(d.task.hidden - column, 0, width)};
    if (is_rows) {
      clear_rows(d, copy, last, first, end, columns);
    } else {
      move_tokens(d, row_of, last, first, end, columns);
    }
    if (d.task.stream) copy.finish();
  };
  const std::int64_t ranges = token_ranges + row_ranges;
  parallel_for(d.context, ranges, parallel ? 1 : ranges, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t position = begin; position < end; ++position) run_range(position);
  });
}

}  // namespace

void moe_dispatch_forward(const Frame& frame, const ConstTensor& gates, const ConstTensor& indices,
                          const ConstTensor& locations, const ConstTensor& input, const Tensor& dispatch,
                          const MoeDispatchParams& params) {
  Context& context = frame.context;
  Call call(frame, kMoeDispatchForward, {gates, indices, locations, input, dispatch},
            {params.capacity, params.num_experts, params.fill});
  if (call.nothing_to_do()) return;

  const std::int64_t choices = call.size(kMoeDispatchForward.size("choices"));
  const DispatchPlan plan(input, choices, dispatch, params.fill, share_memory(input, dispatch));
  Scratch& scratch = call.scratch(plan.scratch_bytes());
  Dispatch d{context,
             {gates.data, plan.tokens(context, input, scratch), dispatch.data, input.shape[0], input.shape[1],
              false},
             dispatch_kernels(context.isa()).tokens(input.dtype, gates.dtype),
             choices,
             dispatch.shape[0],
             size_of(dispatch.dtype)};
  if (plan.in_order()) {
    call.chose("in order", 1);
    with_row_of(indices, locations, params, [&](auto row_of) { move_in_order(d, row_of); });
    return;
  }

  auto* last = scratch.take<std::int64_t>(d.rows);
  with_row_of(indices, locations, params, [&](auto row_of) {
    const std::int64_t named = last_writers(choices * d.task.samples, row_of, last, d.rows);
    const bool zero = params.fill == Fill::zero;
    const std::int64_t written = (zero ? d.rows : named) * d.row_bytes();
    const bool parallel = written >= kParallelBytes;
    d.task.stream = written >= kStreamBytes;
    call.chose(d.task.stream ? "last writers, streamed" : "last writers", parallel ? context.threads() : 1);
    move_by_last_writer(d, row_of, last, parallel, zero);
  });
}

}  // namespace families::moe_dispatch

void moe_dispatch_forward(Context& context, const ConstTensor& gates, const ConstTensor& indices,
                          const ConstTensor& locations, const ConstTensor& input, const Tensor& dispatch,
                          const MoeDispatchParams& params) {
  families::moe_dispatch::moe_dispatch_forward(context, gates, indices, locations, input, dispatch, params);
}

}  // namespace turnout
