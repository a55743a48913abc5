// Implements bev_pool and its gradient: sums of rows by cell, without sorting them.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/dtypes.h"
#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/reductions.h"
#include "dynamic_scatter/segment_signature.h"
#include "dynamic_scatter/touched_groups.h"
#include "indices/indices.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "turnout/segments.h"

namespace turnout {
namespace families::dynamic_scatter {

using namespace core;
namespace {

// Reads coords [rows, 4] = (h, w, d, b) as cells of `grid` [batch, depth, height, width, ..].
template <class Data>
void read_cells(Call& call, const ConstTensor& coords, const BasicTensor<Data>& grid, std::int32_t* cell_of) {
  const std::int64_t limits[] = {grid.shape[2], grid.shape[3], grid.shape[1], grid.shape[0]};
  static constexpr const char* kNames[] = {"height", "width", "depth", "batch"};
  const std::int64_t rows = coords.shape[0];
  visit_index(coords.dtype, [&](auto type) {
    const auto* values = static_cast<const typename decltype(type)::type*>(coords.data);
    std::atomic<std::int64_t> bad{rows};
    parallel_for(call.context(), rows, kPointGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::int64_t at[4];
        bool is_inside = true;
        for (int k = 0; k < 4; ++k) {
          at[k] = load_once(values + 4 * i + k);
          is_inside &= in_range(at[k], limits[k]);
        }
        if (!is_inside) {
          for (std::int64_t seen = bad.load(); i < seen && !bad.compare_exchange_weak(seen, i);) {
          }
          return;
        }
        cell_of[i] =
            static_cast<std::int32_t>(((at[3] * limits[2] + at[2]) * limits[0] + at[0]) * limits[1] + at[1]);
      }
    });
    const std::int64_t row = bad.load();
    if (row == rows) return;
    for (int k = 0; k < 4; ++k)
      if (const std::int64_t value = values[4 * row + k]; !in_range(value, limits[k]))
        call.refuse(concat(call.name("coords"), "[", row, ", ", std::int64_t{k}, "] is ", value,
                           ", expected ",
                           limits[k] > 0 ? concat("0 .. ", limits[k] - 1, ", below the ", kNames[k])
                                         : concat("no rows, since ", kNames[k], " is 0")));
    call.refuse(concat(call.name("coords"), "[", row, "] changed during the call"));
  });
}

template <class Data>
std::int64_t cells_of(Call& call, const BasicTensor<Data>& grid) {
  std::int64_t cells = 1;
  for (int d = 0; d < 4; ++d) {
    if (grid.shape[d] > 0 && cells > kMaxPoints / grid.shape[d])
      call.refuse(concat("batch * depth * height * width exceeds ", kMaxPoints, ", the most cells"));
    cells *= grid.shape[d];
  }
  return cells;
}

}  // namespace
}  // namespace families::dynamic_scatter

using namespace families::dynamic_scatter;

void bev_pool(const ConstTensor& feats, const ConstTensor& coords, const Tensor& out, const Caller& caller) {
  Call call(caller, kBevPool, {feats, coords, out}, {});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const std::int64_t rows = feats.shape[0], channels = feats.shape[1], cells = cells_of(call, out);
  const Tensor pooled(out.data, out.dtype, {cells, channels});
  if (!TouchedGroups::pays(rows, cells)) {
    const MapGrouping grouping(rows, cells, context.threads());
    Scratch& scratch = call.scratch(array_bytes<std::int32_t>(rows) + grouping.scratch_bytes());
    auto* cell_of = scratch.take<std::int32_t>(rows);
    read_cells(call, coords, out, cell_of);
    return reduce_rows(context, call, grouping.run(context, cell_of, scratch), feats, pooled, Reduce::sum);
  }
  Scratch& scratch = call.scratch(array_bytes<std::int32_t>(rows) + TouchedGroups::scratch_bytes(rows));
  auto* cell_of = scratch.take<std::int32_t>(rows);
  read_cells(call, coords, out, cell_of);
  const TouchedGroups touched(context, cell_of, rows, scratch);
  call.chose("touched cells", context.threads());
  const std::int64_t row_bytes = channels * size_of(feats.dtype);
  const ReduceTask task{touched.numbered(), channels, feats.data};
  const auto reduce = reduce_kernels(context.isa()).reduce(feats.dtype, Reduce::sum);
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* const to = static_cast<std::byte*>(out.data);
  touched.for_all(
      context, cells, row_bytes,
      [&](std::int64_t number, std::int64_t cell) {
        reduce(task, number, number + 1, to + cell * row_bytes);
      },
      [&](std::int64_t first, std::int64_t last) {
        copy.clear(to + first * row_bytes, (last - first) * row_bytes);
      });
}

void bev_pool_backward(const ConstTensor& grad_out, const ConstTensor& coords, const Tensor& grad_feats,
                       const Caller& caller) {
  Call call(caller, kBevPoolBackward, {grad_out, coords, grad_feats}, {});
  if (call.nothing_to_do()) return;
  cells_of(call, grad_out);
  const std::int64_t rows = grad_feats.shape[0];
  auto* cell_of = call.scratch(array_bytes<std::int32_t>(rows)).take<std::int32_t>(rows);
  read_cells(call, coords, grad_out, cell_of);
  const std::int64_t row_bytes = grad_feats.shape[1] * size_of(grad_feats.dtype);
  const auto* from = static_cast<const std::byte*>(grad_out.data);
  make_rows(call.context(), call, rows, row_bytes, grad_feats.data,
            [&](std::int64_t first, std::int64_t last, std::byte* to) {
              for (std::int64_t i = first; i < last; ++i, to += row_bytes)
                std::memcpy(to, from + cell_of[i] * row_bytes, static_cast<std::size_t>(row_bytes));
            });
}

}  // namespace turnout
