// Implements roiaware_pool3d, its gradient, and roiaware_points.
#include "roi_pooling/roiaware.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "roi_pooling/pool.h"
#include "roi_pooling/signature.h"
#include "runtime/parallel.h"
#include "simd/copy.h"

namespace turnout {
namespace families::roi_pooling {

using namespace core;
namespace {

using rows::ChannelSums;

ScalarValue as_scalar(std::span<const std::int64_t> values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}

}  // namespace

CellPoints list_points(Context& context, const ConstTensor& rois, const ConstTensor& points,
                       std::span<const std::int64_t> out_size, std::int64_t max_points, BoxZ z,
                       double margin) {
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  return visit_lane(rois.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    return CellPoints(context, static_cast<const Real*>(rois.data), rois.shape[0],
                      static_cast<const Real*>(points.data), points.shape[0],
                      BoxRule{z == BoxZ::bottom, static_cast<float>(margin)}, CellRule(out_size, max_points));
  });
}

std::int64_t write_pairs(Call& call, const CellPoints& lists, std::int64_t rois, std::int64_t cells,
                         const Tensor& cell_of, const Tensor& point_of) {
  if (lists.pairs() > cell_of.shape[0])
    call.refuse(concat(call.name("cell_of"), ".shape[0] is ", cell_of.shape[0], ", expected at least ",
                       lists.pairs(), ", the points in cells"));
  call.chose("lists by cell", call.context().threads());
  auto *cell = static_cast<std::int64_t*>(cell_of.data), *point = static_cast<std::int64_t*>(point_of.data);
  const std::int64_t grain = lists.pairs() < kParallelBytes / 16 ? rois : 1;
  parallel_for(call.context(), rois, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t roi = begin; roi < end; ++roi) {
      std::int64_t next = lists.pairs_before(roi);
      lists.for_cells(roi, [&](std::int64_t number, const std::int32_t* its, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i, ++next) {
          cell[next] = roi * cells + number;
          point[next] = its[i];
        }
      });
    }
  });
  return lists.pairs();
}

}  // namespace families::roi_pooling

using namespace families::roi_pooling;

void roiaware_pool3d(const ConstTensor& rois, const ConstTensor& points, const ConstTensor& features,
                     const Tensor& pooled, std::span<const std::int64_t> out_size, std::int64_t max_points,
                     PoolMethod pool_method, BoxZ z, double margin, const Caller& caller) {
  Call call(caller, kRoiawarePool3d, {rois, points, features, pooled},
            {as_scalar(out_size), max_points, pool_method, z, margin});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const CellPoints lists = list_points(context, rois, points, out_size, max_points, z, margin);
  const std::int64_t channels = features.shape[1], cells = pooled.shape[1];
  const std::int64_t row_bytes = channels * size_of(pooled.dtype);
  const bool is_parallel = rois.shape[0] * cells * row_bytes >= kParallelBytes;
  call.chose("lists by cell", is_parallel ? context.threads() : 1);
  const CopyKernels& copy = copy_kernels(context.isa());
  visit_float(features.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = static_cast<const T*>(features.data);
    const auto pool = pool_method == PoolMethod::max ? &pool_max<T> : &pool_avg<T>;
    parallel_for(
        context, rois.shape[0], is_parallel ? 1 : rois.shape[0], [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t roi = begin; roi < end; ++roi) {
            T* const to = static_cast<T*>(pooled.data) + roi * cells * channels;
            std::int64_t written = 0;  // cells
            const auto clear_until = [&](std::int64_t cell) {
              if (cell > written) copy.clear(to + written * channels, (cell - written) * row_bytes);
              written = cell + 1;
            };
            lists.for_cells(roi, [&](std::int64_t cell, const std::int32_t* its, std::int64_t count) {
              if (count == 0) return;  // a cell keeps no points
              clear_until(cell);
              for (const Piece piece : pieces(0, channels, kChannels))
                pool(from + piece.begin, channels, its, count, piece.count,
                     to + cell * channels + piece.begin);
            });
            clear_until(cells);
          }
          copy.finish();
        });
  });
}

void roiaware_pool3d_backward(const ConstTensor& grad_pooled, const ConstTensor& rois,
                              const ConstTensor& points, const ConstTensor& features,
                              const Tensor& grad_features, std::span<const std::int64_t> out_size,
                              std::int64_t max_points, PoolMethod pool_method, BoxZ z, double margin,
                              const Caller& caller) {
  Call call(caller, kRoiawarePool3dBackward, {grad_pooled, rois, points, features, grad_features},
            {as_scalar(out_size), max_points, pool_method, z, margin});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const CellPoints lists = list_points(context, rois, points, out_size, max_points, z, margin);
  const std::int64_t channels = grad_features.shape[1], cells = grad_pooled.shape[1];
  const std::int64_t count_of_rois = rois.shape[0], rows = grad_features.shape[0];
  const bool is_parallel = (lists.pairs() + rows) * channels * size_of(grad_features.dtype) >= kParallelBytes;
  call.chose("lists by cell", is_parallel ? context.threads() : 1);
  visit_float(grad_pooled.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    ChannelSums<T> sums(grad_features, 2 * context.threads());
    sums.take(call.scratch(sums.bytes()));
    const auto *grad = static_cast<const T*>(grad_pooled.data), *from = static_cast<const T*>(features.data);
    const Stop stop;
    const auto add = [&](std::int64_t roi, std::int64_t channel) {
      const std::int64_t width = sums.width(channel);
      lists.for_cells(roi, [&](std::int64_t cell, const std::int32_t* its, std::int64_t count) {
        const T* g = grad + (roi * cells + cell) * channels + channel;
        if (pool_method == PoolMethod::max && count == 1) {  // as in most cells; adding 0 changes no sum
          const T* row = from + its[0] * channels + channel;
          Lane<T>* to = sums.at(its[0], channel);
          for (std::int64_t c = 0; c < width; ++c) {
            const bool is_taken = to_float(row[c]) > -std::numeric_limits<Lane<T>>::infinity();
            to[c] += is_taken ? to_float(g[c]) : Lane<T>(0);
          }
          return;
        }
        if (pool_method == PoolMethod::max) {
          std::int32_t at[ChannelSums<T>::kMost];
          first_maxima(from + channel, channels, its, count, width, at);
          for (std::int64_t c = 0; c < width; ++c)
            if (at[c] >= 0) *sums.at(at[c], channel + c) += to_float(g[c]);
          return;
        }
        const Lane<T> share = Lane<T>(1) / static_cast<Lane<T>>(count);
        for (std::int64_t i = 0; i < count; ++i) {
          Lane<T>* to = sums.at(its[i], channel);
          for (std::int64_t c = 0; c < width; ++c) to[c] += to_float(g[c]) * share;
        }
      });
    };
    const std::int64_t blocks = sums.blocks();
    parallel_for(context, blocks, is_parallel ? 1 : blocks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t channel = sums.first_channel(block);
        sums.clear(0, rows, channel);
        for (std::int64_t roi = 0; roi < count_of_rois; ++roi) {
          if (stop.is_asked()) return;
          add(roi, channel);
        }
        sums.finish(0, rows, channel);
      }
    });
  });
}

std::int64_t roiaware_points(const ConstTensor& rois, const ConstTensor& points, const Tensor& cell_of,
                             const Tensor& point_of, std::span<const std::int64_t> out_size,
                             std::int64_t max_points, BoxZ z, double margin, const Caller& caller) {
  Call call(caller, kRoiawarePoints, {rois, points, cell_of, point_of},
            {as_scalar(out_size), max_points, z, margin});
  if (call.nothing_to_do()) return 0;
  const CellPoints lists = list_points(call.context(), rois, points, out_size, max_points, z, margin);
  return write_pairs(call, lists, rois.shape[0], CellRule(out_size, max_points).cells(), cell_of, point_of);
}

}  // namespace turnout
