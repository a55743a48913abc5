// Scatters rows by a routing. Every row has one writer, whichever thread runs a range.
#include <algorithm>
#include <cstring>
#include <optional>

#include "core/pieces.h"
#include "rows/batches.h"
#include "runtime/parallel.h"
#include "simd/copy.h"

namespace turnout::rows {

using namespace core;
namespace {

// The state of one call after its checks, for all algorithms.
struct Move {
  Context& context;
  const Routing& routing;
  ScatterTask task;
  ScatterKernels::Scatter run;
  std::int64_t rows;

  std::int64_t row_bytes() const { return task.hidden * task.element_bytes; }
};

// Choice by choice, on this thread: needs no preparation, and the last writer wins by order.
template <class RowOf>
void move_in_order(const Move& m, const RowOf& row_of) {
  const FpEnvironment environment;
  std::int64_t batch[kBatch];
  const Routing& r = m.routing;
  for (std::int64_t k = 0; k < r.choices; ++k) {
    for (const Piece tokens : pieces(0, r.tokens, kBatch)) {
      for (std::int64_t i = 0; i < tokens.count; ++i)
        batch[i] = row_of((tokens.begin + i) * r.layout.token + k * r.layout.choice);
      m.run(m.task, batch, tokens.begin, tokens.count, k, 1, {0, m.task.hidden});
    }
  }
}

// Sets last[r] to the last writer of row r, as choice * tokens + token, or to -1 if there is none. Returns
// how many rows have a writer.
template <class RowOf>
std::int64_t fill_last_writers(const Routing& r, const RowOf& row_of, std::int64_t* last, std::int64_t rows) {
  serial_for(0, rows, [&](std::int64_t begin, std::int64_t end) {
    std::fill(last + begin, last + end, std::int64_t{-1});
  });
  std::int64_t named = 0;
  for (std::int64_t k = 0; k < r.choices; ++k) {
    serial_for(0, r.tokens, [=, &r, &named](std::int64_t begin, std::int64_t end) {
      std::int64_t first_named = 0;
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t row = row_of(t * r.layout.token + k * r.layout.choice);
        if (row < 0) continue;
        first_named += last[row] < 0;
        last[row] = k * r.tokens + t;
      }
      named += first_named;
    });
  }
  return named;
}

// Moves tokens first .. end-1 to the rows of which they are the last writer; each is read once for all its
// choices. Without `last`, no row has two writers.
template <class RowOf>
void move_tokens(const Move& m, const RowOf& row_of, const std::int64_t* last, std::int64_t first,
                 std::int64_t end, Columns columns) {
  std::int64_t batch[kBatch];
  const Routing& r = m.routing;
  for (const Piece choices : pieces(0, r.choices, kBatch)) {
    for (const Piece tokens : pieces(first, end, kBatch / choices.count)) {
      std::int64_t* next = batch;
      for (std::int64_t token = tokens.begin; token < tokens.end(); ++token) {
        for (std::int64_t choice = choices.begin; choice < choices.end(); ++choice) {
          const std::int64_t row = row_of(token * r.layout.token + choice * r.layout.choice);
          const bool wins = row >= 0 && (last == nullptr || last[row] == choice * r.tokens + token);
          *next++ = wins ? row : -1;
        }
      }
      m.run(m.task, batch, tokens.begin, tokens.count, choices.begin, choices.count, columns);
    }
  }
}

// Sets rows first .. end-1 that have no writer to zero; adjacent rows are cleared together.
void clear_rows(const Move& m, const CopyKernels& copy, const std::int64_t* last, std::int64_t first,
                std::int64_t end, Columns columns) {
  if (columns.count == 0) return;  // rows without elements may have no memory
  for (std::int64_t row = first; row < end; ++row) {
    if (last[row] >= 0) continue;
    const std::int64_t begin = row;
    while (row + 1 < end && last[row + 1] < 0) ++row;
    auto* to = static_cast<std::byte*>(m.task.routed) +
               (begin * m.task.hidden + columns.first) * m.task.element_bytes;
    const std::int64_t bytes = (row + 1 - begin) * columns.count * m.task.element_bytes;
    if (m.task.stream) {
      copy.clear(to, bytes);
    } else {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    }
  }
}

// Every row is written once, by its last writer or with zeros, whichever thread runs the range. A
// range is whole tokens (or rows), or a piece of a very long one. beside(first, end) is called for each range
// of whole tokens; with it rows are not split.
template <class RowOf, class Beside>
void move_ranges(const Move& m, const RowOf& row_of, const std::int64_t* last, bool parallel, bool zero,
                 bool whole_rows, const Beside& beside) {
  const std::int64_t tokens = m.routing.tokens;
  const std::int64_t pieces = parallel && !whole_rows ? (m.row_bytes() - 1) / kRangeBytes + 1 : 1;
  const std::int64_t width = (m.task.hidden - 1) / pieces + 1;
  const std::int64_t per_range = parallel ? std::max<std::int64_t>(1, kRangeBytes / m.row_bytes()) : kSizeMax;
  const auto ranges_of = [&](std::int64_t items) {
    return items == 0 ? 0 : ((items - 1) / per_range + 1) * pieces;
  };
  const std::int64_t token_ranges = ranges_of(tokens), row_ranges = zero ? ranges_of(m.rows) : 0;
  const CopyKernels& copy = copy_kernels(m.context.isa());
  const auto run_range = [&](std::int64_t position) {
    const bool is_rows = position >= token_ranges;
    const std::int64_t range = is_rows ? position - token_ranges : position;
    const std::int64_t first = range / pieces * per_range, column = range % pieces * width;
    const std::int64_t end = first + std::min(per_range, (is_rows ? m.rows : tokens) - first);
    const Columns columns{column, std::clamp<std::int64_t>(m.task.hidden - column, 0, width)};
    if (is_rows) {
      clear_rows(m, copy, last, first, end, columns);
    } else {
      move_tokens(m, row_of, last, first, end, columns);
      beside(first, end);
    }
    if (m.task.stream) copy.finish();
  };
  const std::int64_t ranges = token_ranges + row_ranges;
  parallel_for(m.context, ranges, parallel ? 1 : ranges, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t position = begin; position < end; ++position) run_range(position);
  });
}

}  // namespace

bool Scatter::in_order() const {
  // True if the table would cost more than the rows that are written, or if one thread is enough.
  const std::int64_t table_bytes = distinct ? 0 : routed.shape[0] * std::int64_t{sizeof(std::int64_t)};
  const std::int64_t row_bytes = tokens.shape[1] * size_of(tokens.dtype);
  if (also != nullptr) return false;
  if (row_bytes <= kShortRow) return true;
  return !zero && routing.routed() * row_bytes < std::max(kParallelBytes, table_bytes / 2);
}

std::size_t Scatter::scratch_bytes() const {
  if (in_order()) return 0;
  const std::size_t table = distinct ? 0 : array_bytes<std::int64_t>(routed.shape[0]);
  return table + (also == nullptr ? 0 : map_bytes(routing));
}

void scatter_rows(Context& context, Call& call, const Scatter& scatter) {
  const Routing& routing = scatter.routing;
  const bool weighted = !scatter.weights.is_absent();
  const DType dtype = scatter.tokens.dtype;
  Move m{context,
         routing,
         {weighted ? scatter.weights.data : nullptr, routing.layout, scatter.tokens.data, scatter.routed.data,
          scatter.tokens.shape[1], size_of(dtype), false},
         scatter_kernels(context.isa()).scatter(dtype, weighted, weighted ? scatter.weights.dtype : dtype),
         scatter.routed.shape[0]};
  if (scatter.in_order()) {
    call.chose("in order", 1);
    if (scatter.zero) std::memset(m.task.routed, 0, static_cast<std::size_t>(m.rows * m.row_bytes()));
    with_row_of(routing, [&](auto row_of) { move_in_order(m, row_of); });
    return;
  }

  std::optional<DotWork> dots;
  if (scatter.also != nullptr) dots.emplace(context, *scatter.also);
  Scratch& scratch = call.scratch(scatter.scratch_bytes());
  auto* last = scatter.distinct ? nullptr : scratch.take<std::int64_t>(m.rows);
  with_row_of(routing, [&](auto row_of) {
    std::int64_t named = m.rows;
    if (last != nullptr) named = fill_last_writers(routing, row_of, last, m.rows);
    const std::int64_t written = (scatter.zero ? m.rows : named) * m.row_bytes();
    const bool parallel = written >= kParallelBytes;
    m.task.stream = is_streamed(written);
    call.chose(m.task.stream ? "last writers, streamed" : "last writers", parallel ? context.threads() : 1);
    if (!dots) {
      move_ranges(m, row_of, last, parallel, scatter.zero, false, [](std::int64_t, std::int64_t) {});
      return;
    }
    const Batches batches(routing, row_of, scratch);
    move_ranges(m, row_of, last, parallel, scatter.zero, true,
                [&](std::int64_t first, std::int64_t end) { batches.run(first, end, *dots); });
  });
}

}  // namespace turnout::rows
