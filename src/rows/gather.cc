// Gathers rows with weights, and computes dot products of rows, in ranges of tokens.
#include <algorithm>

#include "rows/batches.h"
#include "runtime/parallel.h"
#include "simd/copy.h"

namespace turnout::rows {

using namespace core;
namespace {

// Finding the row of a choice takes as long as moving about this many bytes.
constexpr std::int64_t kChoiceBytes = 48;

// How tokens are divided into ranges, and very long rows into pieces of columns.
struct Cut {
  bool parallel;
  std::int64_t pieces, per_range;

  Cut(const Routing& routing, std::int64_t bytes_per_token, std::int64_t most_pieces)
      : parallel(routing.tokens * (bytes_per_token + routing.choices * kChoiceBytes) >= kParallelBytes),
        pieces(parallel ? std::clamp<std::int64_t>((bytes_per_token - 1) / kRangeBytes + 1, 1,
                                                   std::max<std::int64_t>(most_pieces, 1))
                        : 1),
        per_range(parallel ? std::max<std::int64_t>(
                                 1, kRangeBytes / (bytes_per_token + routing.choices * kChoiceBytes + 1))
                           : std::max<std::int64_t>(routing.tokens, 1)) {}

  std::int64_t ranges(std::int64_t tokens) const { return ((tokens - 1) / per_range + 1) * pieces; }
};

}  // namespace

std::size_t Dots::scratch_bytes() const { return map_bytes(routing); }
std::size_t Gather::scratch_bytes() const { return map_bytes(routing); }

void dot_rows(Context& context, Call& call, const Dots& dots) {
  const Routing& routing = dots.routing;
  if (routing.routed() == 0) return;
  const DotWork work(context, dots);
  const std::int64_t row_bytes = dots.tokens.shape[1] * size_of(dots.tokens.dtype);
  const Cut cut(routing, row_bytes * (routing.choices + 1), 1);
  Scratch& scratch = call.scratch(dots.scratch_bytes());
  call.chose("dot products", cut.parallel ? context.threads() : 1);
  with_row_of(routing, [&](auto row_of) {
    const Batches batches(routing, row_of, scratch);
    parallel_for(context, routing.tokens, cut.per_range,
                 [&](std::int64_t begin, std::int64_t end) { batches.run(begin, end, work); });
  });
}

void gather_rows(Context& context, Call& call, const Gather& gather) {
  const Routing& routing = gather.routing;
  if (routing.tokens == 0) return;
  const bool weighted = !gather.weights.is_absent();
  const DType dtype = gather.tokens.dtype;
  const std::int64_t hidden = gather.tokens.shape[1], row_bytes = hidden * size_of(dtype);
  const GatherTask task{weighted ? gather.weights.data : nullptr,
                        weighted && gather.weights.dtype == DType::f32,
                        routing.layout,
                        gather.routed.data,
                        gather.tokens.data,
                        hidden,
                        size_of(dtype),
                        is_streamed(routing.tokens * row_bytes)};
  const GatherKernels& kernels = gather_kernels(context.isa());
  const GatherKernels::Gather run = kernels.gather(dtype, weighted);
  const bool with_dots = gather.also != nullptr;
  const DotTask dots = with_dots ? task_of(*gather.also) : DotTask{};
  const GatherKernels::GatherAndDot run_both = with_dots ? kernels.gather_and_dot(dtype) : nullptr;

  // A dot product needs whole rows.
  const Cut cut(routing, row_bytes * (routing.choices + 1 + with_dots), with_dots ? 1 : hidden);
  const std::int64_t width = (hidden - 1) / cut.pieces + 1, ranges = cut.ranges(routing.tokens);
  const CopyKernels& copy = copy_kernels(context.isa());
  Scratch& scratch = call.scratch(gather.scratch_bytes());
  call.chose(task.stream ? "gather, streamed" : "gather", cut.parallel ? context.threads() : 1);
  with_row_of(routing, [&](auto row_of) {
    const Batches batches(routing, row_of, scratch);
    const auto run_range = [&](std::int64_t range) {
      const std::int64_t first = range / cut.pieces * cut.per_range, column = range % cut.pieces * width;
      const Columns columns{column, std::clamp<std::int64_t>(hidden - column, 0, width)};
      batches.run(first, std::min(first + cut.per_range, routing.tokens),
                  [&](const std::int64_t* rows, std::int64_t token, std::int64_t count) {
                    if (with_dots) {
                      run_both(task, dots, rows, token, count, routing.choices);
                    } else {
                      run(task, rows, token, count, routing.choices, columns);
                    }
                  });
      if (task.stream) copy.finish();
    };
    parallel_for(context, ranges, cut.parallel ? 1 : ranges, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t range = begin; range < end; ++range) run_range(range);
    });
  });
}

}  // namespace turnout::rows
