// Implements bev_pool and its gradient: sums of rows by cell. The grid has its channels first, so blocks of
// cells are computed with their channels last, in the cache, and transposed.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/dtypes.h"
#include "core/padding.h"
#include "dynamic_scatter/direct.h"
#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/reductions.h"
#include "dynamic_scatter/segment_signature.h"
#include "indices/indices.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "turnout/segments.h"

namespace turnout {
namespace families::dynamic_scatter {

using namespace core;
namespace {

// A result or gradient [batch, channels, depth, height, width].
struct Grid {
  std::int64_t batch, channels, depth, height, width, plane;  // plane: cells of a sample and channel

  template <class Data>
  Grid(Call& call, const BasicTensor<Data>& all)
      : batch(all.shape[0]),
        channels(all.shape[1]),
        depth(all.shape[2]),
        height(all.shape[3]),
        width(all.shape[4]),
        plane(0) {
    std::int64_t product = 1;
    for (const std::int64_t extent : {batch, depth, height, width}) {
      if (extent > 0 && product > kMaxPoints / extent)
        call.refuse(concat("batch * depth * height * width exceeds ", kMaxPoints, ", the most cells"));
      product *= extent;
    }
    plane = depth * height * width;
  }
  std::int64_t cells() const { return batch * plane; }
};

// Reads coords [rows, 4] = (h, w, d, b) as numbers of cells.
void read_cells(Call& call, const ConstTensor& coords, const Grid& grid, std::int32_t* cell_of) {
  const std::int64_t limits[] = {grid.height, grid.width, grid.depth, grid.batch};
  static constexpr const char* kNames[] = {"height", "width", "depth", "batch"};
  const std::int64_t rows = coords.shape[0];
  visit_index(coords.dtype, [&](auto type) {
    const auto* values = static_cast<const typename decltype(type)::type*>(coords.data);
    std::atomic<std::int64_t> bad{rows};
    parallel_for(call.context(), rows, point_grain(rows), [&](std::int64_t begin, std::int64_t end) {
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

// Cells that are computed together, channels last, in a tile of a worker's memory.
class Tiles {
 public:
  Tiles(const Grid& grid, std::int64_t row_bytes, int workers)
      : cells(std::clamp<std::int64_t>(kTileBytes / std::max<std::int64_t>(row_bytes, 1), 16, 256)),
        plane_(grid.plane),
        tile_bytes_(padded(static_cast<std::size_t>(cells * row_bytes))),
        workers_(workers) {}
  std::size_t bytes() const { return tile_bytes_ * static_cast<std::size_t>(workers_); }
  void take(Scratch& scratch) { memory_ = scratch.take<std::byte>(static_cast<std::int64_t>(bytes())); }

  // Calls f(first cell, last cell, place, tile) for blocks that cover cells first .. last-1, where `place` is
  // that of the first cell in its sample, for channel 0.
  template <class F>
  void for_blocks(std::int64_t first, std::int64_t last, std::int64_t channels, int worker,
                  const F& f) const {
    std::byte* const tile = memory_ + static_cast<std::size_t>(worker) * tile_bytes_;
    while (first < last) {
      const std::int64_t sample = first / plane_;
      const std::int64_t end = std::min({last, (sample + 1) * plane_, first + cells});
      f(first, end, sample * channels * plane_ + first % plane_, tile);
      first = end;
    }
  }

  const std::int64_t cells;

 private:
  const std::int64_t plane_;
  const std::size_t tile_bytes_;
  const int workers_;
  std::byte* memory_ = nullptr;
};

// The rows of each cell, and the memory of a call.
class Pooling {
 public:
  Pooling(Call& call, const Grid& of, std::int64_t rows, DType dtype, const ConstTensor& coords)
      : grid(of),
        row_bytes(grid.channels * size_of(dtype)),
        workers_(call.context().threads()),
        tiles_(grid, row_bytes, workers_) {
    const MapGrouping grouping(rows, grid.cells(), workers_);
    Scratch& scratch =
        call.scratch(array_bytes<std::int32_t>(rows) + grouping.scratch_bytes() + tiles_.bytes());
    auto* cell_of = scratch.take<std::int32_t>(rows);
    tiles_.take(scratch);
    read_cells(call, coords, grid, cell_of);
    groups = grouping.run(call.context(), cell_of, scratch);
    parallel_ = (groups.grouped() + groups.voxels) * row_bytes >= 2 * kParallelBytes;
    call.chose("by cell", parallel_ ? workers_ : 1);
  }

  // Calls f(first cell, last cell, place, tile) for all blocks of cells.
  template <class F>
  void for_blocks(Context& context, const F& f) const {
    for_voxel_ranges(
        context, groups, row_bytes, parallel_,
        [&](std::int64_t first, std::int64_t last, int worker) {
          tiles_.for_blocks(first, last, grid.channels, worker, f);
        },
        workers_);
  }

  const Grid grid;
  const std::int64_t row_bytes;
  VoxelGroups groups;

 private:
  const int workers_;
  bool parallel_;
  Tiles tiles_;
};

// Rows that are transposed side by side, so that the accesses to planes are wide.
constexpr std::int64_t kTogether = 8;

// to[c * plane + i] = tile[i, c]
template <class Element>
void put_channels_first(const Element* tile, std::int64_t cells, std::int64_t channels,
                        Element* __restrict to, std::int64_t plane) {
  std::int64_t i = 0;
  for (; i + kTogether <= cells; i += kTogether)
    for (std::int64_t c = 0; c < channels; ++c) {
      Element column[kTogether];
      for (std::int64_t k = 0; k < kTogether; ++k) column[k] = tile[(i + k) * channels + c];
      std::memcpy(to + c * plane + i, column, sizeof(column));
    }
  for (; i < cells; ++i)
    for (std::int64_t c = 0; c < channels; ++c) to[c * plane + i] = tile[i * channels + c];
}

// tile[i, c] = from[c * plane + i]
template <class Element>
void put_channels_last(const Element* from, std::int64_t plane, std::int64_t cells, std::int64_t channels,
                       Element* __restrict tile) {
  std::int64_t i = 0;
  for (; i + kTogether <= cells; i += kTogether)
    for (std::int64_t c = 0; c < channels; ++c) {
      Element column[kTogether];
      std::memcpy(column, from + c * plane + i, sizeof(column));
      for (std::int64_t k = 0; k < kTogether; ++k) tile[(i + k) * channels + c] = column[k];
    }
  for (; i < cells; ++i)
    for (std::int64_t c = 0; c < channels; ++c) tile[i * channels + c] = from[c * plane + i];
}

// Adds the rows in their order to sums that fit the cache. Returns false if that takes longer.
bool pool_in_order(Call& call, const Grid& grid, const ConstTensor& feats, const ConstTensor& coords,
                   const Tensor& out) {
  Context& context = call.context();
  const std::int64_t rows = feats.shape[0], bytes = grid.cells() * grid.channels * size_of(out.dtype);
  Tensor sums(nullptr, out.dtype, {grid.cells(), grid.channels});
  const DirectSums plan(rows, sums, Reduce::sum);
  if (!plan.pays(context.threads())) return false;
  Scratch& scratch =
      call.scratch(array_bytes<std::int32_t>(rows) + array_bytes<std::byte>(bytes) + plan.scratch_bytes());
  auto* cell_of = scratch.take<std::int32_t>(rows);
  sums.data = scratch.take<std::byte>(bytes);
  read_cells(call, coords, grid, cell_of);
  DirectSums(rows, sums, Reduce::sum).run(context, call, cell_of, feats.data, scratch);
  visit_bytes(size_of(out.dtype), [&](auto type) {
    using Element = typename decltype(type)::type;
    const auto* from = static_cast<const Element*>(sums.data);
    auto* to = static_cast<Element*>(out.data);
    const std::int64_t sample = grid.channels * grid.plane;
    for (std::int64_t b = 0; b < grid.batch; ++b)
      parallel_for(context, grid.plane, kRangeBytes / grid.channels + 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     put_channels_first(from + b * sample + begin * grid.channels, end - begin, grid.channels,
                                        to + b * sample + begin, grid.plane);
                   });
  });
  return true;
}

// Reads the channels of each row's cell where they are. Transposing a cell takes less time than that, but
// pays only if enough cells have rows.
void gather_few(Call& call, const Grid& grid, const std::int32_t* cell_of, const ConstTensor& grad_out,
                const Tensor& grad_feats) {
  const std::int64_t rows = grad_feats.shape[0];
  make_rows(call.context(), call, rows, grid.channels * size_of(grad_feats.dtype), grad_feats.data,
            [&](std::int64_t first, std::int64_t last, std::byte* there) {
              visit_bytes(size_of(grad_feats.dtype), [&](auto type) {
                using Element = typename decltype(type)::type;
                const auto* from = static_cast<const Element*>(grad_out.data);
                auto* to = reinterpret_cast<Element*>(there);
                for (std::int64_t i = first; i < last; ++i) {
                  const std::int64_t sample = cell_of[i] / grid.plane, place = cell_of[i] % grid.plane;
                  const Element* const cell = from + sample * grid.channels * grid.plane + place;
                  for (std::int64_t c = 0; c < grid.channels; ++c) *to++ = cell[c * grid.plane];
                }
              });
            });
}

// Transposes the whole gradient, which fits the cache, and copies the row of each cell.
void gather_transposed(Call& call, const Grid& grid, const std::int32_t* cell_of, const ConstTensor& grad_out,
                       const Tensor& grad_feats, std::byte* transposed) {
  Context& context = call.context();
  const DType dtype = grad_out.dtype;
  ConstTensor cells(grad_out.data, dtype, {grid.cells(), grid.channels});
  if (grid.channels > 1) {
    cells.data = transposed;
    visit_bytes(size_of(dtype), [&](auto type) {
      using Element = typename decltype(type)::type;
      const auto* from = static_cast<const Element*>(grad_out.data);
      auto* to = reinterpret_cast<Element*>(transposed);
      const std::int64_t sample = grid.channels * grid.plane;
      const bool parallel = 2 * sample * size_of(dtype) >= kParallelBytes;
      for (std::int64_t b = 0; b < grid.batch; ++b)
        parallel_for(context, grid.plane, parallel ? kRangeBytes / grid.channels + 1 : grid.plane,
                     [&](std::int64_t begin, std::int64_t end) {
                       put_channels_last(from + b * sample + begin, grid.plane, end - begin, grid.channels,
                                         to + b * sample + begin * grid.channels);
                     });
    });
  }
  BackwardTask task{};
  task.groups = {.points = grad_feats.shape[0], .voxels = grid.cells(), .map = cell_of};
  spread_rows(context, call, task, cells, nullptr, nullptr, grad_feats, Reduce::sum);
}

}  // namespace
}  // namespace families::dynamic_scatter

using namespace families::dynamic_scatter;

void bev_pool(const ConstTensor& feats, const ConstTensor& coords, const Tensor& out, const Caller& caller) {
  Call call(caller, kBevPool, {feats, coords, out}, {});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const Grid grid(call, out);
  if (pool_in_order(call, grid, feats, coords, out)) return;
  const Pooling pooling(call, grid, feats.shape[0], out.dtype, coords);
  const std::int32_t* const starts = pooling.groups.starts;
  const ReduceTask task{pooling.groups, grid.channels, feats.data};
  const auto reduce = reduce_kernels(context.isa()).reduce(feats.dtype, Reduce::sum);
  visit_bytes(size_of(out.dtype), [&](auto type) {
    using Element = typename decltype(type)::type;
    auto* const to = static_cast<Element*>(out.data);
    pooling.for_blocks(context,
                       [&](std::int64_t cell, std::int64_t end, std::int64_t place, std::byte* tile) {
                         const auto* const sums = reinterpret_cast<const Element*>(tile);
                         const std::int64_t cells = end - cell;
                         if (4 * (starts[end] - starts[cell]) >= cells) {
                           reduce(task, cell, end, tile);
                           return put_channels_first(sums, cells, grid.channels, to + place, grid.plane);
                         }
                         // Most cells have no rows.
                         for (std::int64_t c = 0; c < grid.channels; ++c)
                           std::fill_n(to + place + c * grid.plane, cells, Element{0});
                         for (std::int64_t i = 0; i < cells; ++i) {
                           if (starts[cell + i] == starts[cell + i + 1]) continue;
                           reduce(task, cell + i, cell + i + 1, tile);
                           for (std::int64_t c = 0; c < grid.channels; ++c)
                             to[place + c * grid.plane + i] = sums[c];
                         }
                       });
  });
}

void bev_pool_backward(const ConstTensor& grad_out, const ConstTensor& coords, const Tensor& grad_feats,
                       const Caller& caller) {
  Call call(caller, kBevPoolBackward, {grad_out, coords, grad_feats}, {});
  if (call.nothing_to_do()) return;
  const Grid grid(call, grad_out);
  const std::int64_t rows = grad_feats.shape[0];
  const std::int64_t bytes = grid.cells() * grid.channels * size_of(grad_out.dtype);
  const bool few = rows<grid.cells() / 8, transposes = grid.channels> 1;
  if (few || !transposes || !is_streamed(bytes)) {
    Scratch& scratch = call.scratch(array_bytes<std::int32_t>(rows) +
                                    (few || !transposes ? 0 : array_bytes<std::byte>(bytes)));
    auto* cell_of = scratch.take<std::int32_t>(rows);
    read_cells(call, coords, grid, cell_of);
    if (few && transposes) return gather_few(call, grid, cell_of, grad_out, grad_feats);
    return gather_transposed(call, grid, cell_of, grad_out, grad_feats,
                             transposes ? scratch.take<std::byte>(bytes) : nullptr);
  }
  const Pooling pooling(call, grid, rows, grad_out.dtype, coords);
  const std::int32_t* const starts = pooling.groups.starts;
  auto* const to = static_cast<std::byte*>(grad_feats.data);
  visit_bytes(size_of(grad_out.dtype), [&](auto type) {
    using Element = typename decltype(type)::type;
    const auto* from = static_cast<const Element*>(grad_out.data);
    pooling.for_blocks(call.context(),
                       [&](std::int64_t cell, std::int64_t end, std::int64_t place, std::byte* tile) {
                         if (starts[cell] == starts[end]) return;
                         put_channels_last(from + place, grid.plane, end - cell, grid.channels,
                                           reinterpret_cast<Element*>(tile));
                         for (; cell < end; ++cell, tile += pooling.row_bytes)
                           for (std::int32_t i = starts[cell]; i < starts[cell + 1]; ++i)
                             std::memcpy(to + pooling.groups.order[i] * pooling.row_bytes, tile,
                                         static_cast<std::size_t>(pooling.row_bytes));
                       });
  });
}

}  // namespace turnout
