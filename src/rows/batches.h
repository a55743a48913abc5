// Computes the rows of a routing and their dot products, a batch of tokens at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/padding.h"
#include "core/pieces.h"
#include "rows/rows.h"
#include "runtime/interrupt.h"

namespace turnout::rows {

// Rows computed at once, on the stack.
inline constexpr std::int64_t kBatch = 256;

// Memory for all rows of a routing, which are computed in advance if tokens have more than kBatch choices.
inline std::size_t map_bytes(const Routing& routing) {
  return routing.choices > kBatch ? core::array_bytes<std::int64_t>(routing.routed()) : 0;
}

template <class RowOf>
class Batches {
 public:
  Batches(const Routing& routing, const RowOf& row_of, core::Scratch& scratch)
      : routing_(routing), row_of_(row_of) {
    if (map_bytes(routing) == 0) return;
    map_ = scratch.take<std::int64_t>(routing.routed());
    core::serial_for(0, routing.tokens, [&](std::int64_t begin, std::int64_t end) {
      fill(map_ + begin * routing.choices, begin, end - begin);
    });
  }

  // Calls work(rows, token, count) for tokens [first, end), some at a time, with rows[token][choice].
  template <class Work>
  void run(std::int64_t first, std::int64_t end, const Work& work) const {
    std::int64_t batch[kBatch];
    const std::int64_t together =
        map_ == nullptr ? kBatch / std::max<std::int64_t>(routing_.choices, 1) : kBatch;
    for (const core::Piece tokens : core::pieces(first, end, together)) {
      if (map_ == nullptr) fill(batch, tokens.begin, tokens.count);
      work(map_ == nullptr ? batch : map_ + tokens.begin * routing_.choices, tokens.begin, tokens.count);
    }
  }

 private:
  void fill(std::int64_t* rows, std::int64_t token, std::int64_t count) const {
    const RowOf row_of = row_of_;  // local copies, which stores to `rows` cannot change
    const Layout layout = routing_.layout;
    const std::int64_t choices = routing_.choices;
    if (choices == 1 || (layout.choice == 1 && layout.token == choices)) {
      const std::int64_t first = token * layout.token, step = choices == 1 ? layout.token : 1;
      for (std::int64_t i = 0; i < count * choices; ++i) rows[i] = row_of(first + i * step);
      return;
    }
    for (std::int64_t t = token; t < token + count; ++t)
      for (std::int64_t k = 0; k < choices; ++k) *rows++ = row_of(t * layout.token + k * layout.choice);
  }

  const Routing& routing_;
  const RowOf& row_of_;
  std::int64_t* map_ = nullptr;
};

inline DotTask task_of(const Dots& dots) {
  return {dots.tokens.data, dots.routed.data, dots.products.data, dots.routing.layout, dots.tokens.shape[1]};
}

class DotWork {
 public:
  DotWork(Context& context, const Dots& dots)
      : task_(task_of(dots)),
        choices_(dots.routing.choices),
        run_(gather_kernels(context.isa()).dot(dots.tokens.dtype, dots.products.dtype)) {}

  void operator()(const std::int64_t* rows, std::int64_t token, std::int64_t count) const {
    run_(task_, rows, token, count, choices_);
  }

 private:
  DotTask task_;
  std::int64_t choices_;
  GatherKernels::Dot run_;
};

}  // namespace turnout::rows
