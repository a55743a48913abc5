// Grouping and interpolation of stacked features [rows, channels].
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtypes.h"
#include "core/padding.h"
#include "core/pieces.h"
#include "grouping/places.h"
#include "grouping/signature.h"
#include "rows/channel_sums.h"
#include "rows/rows.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "simd/half.h"
#include "turnout/grouping.h"

namespace turnout {
namespace families::grouping {

using namespace core;
namespace {

using rows::ChannelSums;
template <class T>
using Lane = rows::LaneOf<T>;
constexpr std::int64_t kWidth = ChannelSums<float>::kMost;  // of a block, at most

// -- grouping ----------------------------------------------------------------------------------------------

// Samples that are written together: their rows are read side by side, so that stores are wide.
constexpr std::int64_t kTogether = 8;

// to[c, s] = from[index[s], c], or 0 for the index -1; `zeros` is a row of zeros.
template <class Element>
void group_center(const Element* from, const Element* zeros, std::int64_t channels, const std::int32_t* index,
                  std::int64_t samples, Element* __restrict to) {
  const auto row = [&](std::int64_t s) { return index[s] < 0 ? zeros : from + index[s] * channels; };
  std::int64_t s = 0;
  for (; s + kTogether <= samples; s += kTogether) {
    const Element* rows[kTogether];
    for (std::int64_t k = 0; k < kTogether; ++k) rows[k] = row(s + k);
    for (std::int64_t c = 0; c < channels; ++c) {
      Element column[kTogether];
      for (std::int64_t k = 0; k < kTogether; ++k) column[k] = rows[k][c];
      std::memcpy(to + c * samples + s, column, sizeof(column));
    }
  }
  for (; s < samples; ++s) {
    const Element* one = row(s);
    for (std::int64_t c = 0; c < channels; ++c) to[c * samples + s] = one[c];
  }
}

void group_all(Call& call, const ConstTensor& features, const std::int32_t* index, const std::byte* zeros,
               const Tensor& out) {
  Context& context = call.context();
  const std::int64_t centers = out.shape[0], channels = out.shape[1], samples = out.shape[2];
  const std::int64_t center_bytes = channels * samples * size_of(out.dtype);
  const bool is_parallel = centers * center_bytes >= kParallelBytes;
  const bool is_streamed = core::is_streamed(centers * center_bytes) && center_bytes <= kTileBytes;
  call.chose(is_streamed ? "by center, streamed" : "by center", is_parallel ? context.threads() : 1);
  const CopyKernels& copy = copy_kernels(context.isa());
  const std::int64_t grain = is_parallel ? std::max<std::int64_t>(1, kRangeBytes / center_bytes) : centers;
  visit_bytes(size_of(out.dtype), [&](auto type) {
    using Element = typename decltype(type)::type;
    const auto* from = static_cast<const Element*>(features.data);
    auto* to = static_cast<Element*>(out.data);
    const auto make = [&](std::int64_t begin, std::int64_t end, Element* tile) {
      for (std::int64_t p = begin; p < end; ++p, tile += channels * samples)
        group_center(from, reinterpret_cast<const Element*>(zeros), channels, index + p * samples, samples,
                     tile);
    };
    parallel_for(context, centers, grain, [&](std::int64_t begin, std::int64_t end) {
      if (!is_streamed) return make(begin, end, to + begin * channels * samples);
      stream_rows(copy, reinterpret_cast<std::byte*>(to), center_bytes, begin, end,
                  [&](std::int64_t first, std::int64_t last, std::byte* tile) {
                    make(first, last, reinterpret_cast<Element*>(tile));
                  });
    });
  });
}

// -- gradients: each thread adds a block of channels, in the order of the indices --------------------------

// tile[s][c] = grad[c][s] for the samples of one center.
template <class T>
void transpose(const T* grad, std::int64_t samples, std::int64_t first, std::int64_t count,
               std::int64_t width, Lane<T> (*tile)[kWidth]) {
  for (std::int64_t c = 0; c < width; ++c)
    for (std::int64_t s = 0; s < count; ++s) tile[s][c] = to_float(grad[c * samples + first + s]);
}

}  // namespace
}  // namespace families::grouping

using namespace families::grouping;

void group_points_stacked(const ConstTensor& features, const ConstTensor& counts, const ConstTensor& indices,
                          const ConstTensor& index_counts, const Tensor& out, const Caller& caller) {
  Call call(caller, kGroupPointsStacked, {features, counts, indices, index_counts, out}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t count = elements_from(indices, 0), batch = counts.shape[0];
  const std::int64_t row_bytes = features.shape[1] * size_of(features.dtype);
  Scratch& scratch = call.scratch(array_bytes<std::int32_t>(count) + Starts::bytes(batch) +
                                  array_bytes<std::byte>(row_bytes));
  auto* index = scratch.take<std::int32_t>(count);
  const Starts starts(scratch, batch);
  auto* zeros = scratch.take<std::byte>(row_bytes);
  std::fill_n(zeros, row_bytes, std::byte{0});
  read_stacked(call, features.shape[0], counts, indices, index_counts, starts, index);
  group_all(call, features, index, zeros, out);
}

void group_points_stacked_backward(const ConstTensor& grad_out, const ConstTensor& counts,
                                   const ConstTensor& indices, const ConstTensor& index_counts,
                                   const Tensor& grad_features, const Caller& caller) {
  Call call(caller, kGroupPointsStackedBackward, {grad_out, counts, indices, index_counts, grad_features},
            {});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const std::int64_t count = elements_from(indices, 0), batch = counts.shape[0];
  const std::int64_t channels = grad_out.shape[1], samples = grad_out.shape[2];
  const bool is_parallel = count * channels * size_of(grad_out.dtype) >= kParallelBytes;
  call.chose("by channels", is_parallel ? context.threads() : 1);
  visit_float(grad_out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    ChannelSums<T> sums(grad_features, 2 * context.threads());
    Scratch& scratch = call.scratch(array_bytes<std::int32_t>(count) + Starts::bytes(batch) + sums.bytes());
    auto* index = scratch.take<std::int32_t>(count);
    const Starts starts(scratch, batch);
    sums.take(scratch);
    read_stacked(call, grad_features.shape[0], counts, indices, index_counts, starts, index);
    const auto* grad = static_cast<const T*>(grad_out.data);
    const std::int64_t tasks = batch * sums.blocks();
    const Stop stop;
    constexpr std::int64_t kSamples = 32;  // of a tile
    const auto add = [&](std::int64_t p, std::int64_t channel, std::int64_t width) {
      Lane<T> tile[kSamples][kWidth];
      for (const Piece piece : pieces(0, samples, kSamples)) {
        transpose(grad + (p * channels + channel) * samples, samples, piece.begin, piece.count, width, tile);
        for (std::int64_t s = 0; s < piece.count; ++s) {
          const std::int32_t row = index[p * samples + piece.begin + s];
          if (row < 0) return;  // the whole sample has no rows
          Lane<T>* to = sums.at(row, channel);
          for (std::int64_t c = 0; c < width; ++c) to[c] += tile[s][c];
        }
      }
    };
    parallel_for(context, tasks, is_parallel ? 1 : tasks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t b = i / sums.blocks(), channel = sums.first_channel(i % sums.blocks());
        sums.clear(starts.rows[b], starts.rows[b + 1], channel);
        const std::int64_t step = std::max<std::int64_t>(1, (1 << 16) / std::max<std::int64_t>(samples, 1));
        for (const Piece centers : pieces(starts.centers[b], starts.centers[b + 1], step)) {
          if (stop.is_asked()) return;
          for (std::int64_t p = centers.begin; p < centers.end(); ++p) add(p, channel, sums.width(channel));
        }
        sums.finish(starts.rows[b], starts.rows[b + 1], channel);
      }
    });
  });
}

void three_interpolate_stacked(const ConstTensor& features, const ConstTensor& indices,
                               const ConstTensor& weights, const Tensor& out, const Caller& caller) {
  Call call(caller, kThreeInterpolateStacked, {features, indices, weights, out}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t count = elements_from(indices, 0), centers = out.shape[0];
  Scratch copied = call.lease(array_bytes<std::int32_t>(count));
  auto* index = copied.take<std::int32_t>(count);
  read_indices(call, indices, features.shape[0], Strays::refuse, index);
  const rows::Routing routing{.indices = ConstTensor(index, DType::i32, {centers, 3}),
                              .locations = nullptr,
                              .num_experts = features.shape[0],
                              .capacity = 1,
                              .tokens = centers,
                              .choices = 3,
                              .layout = {3, 1}};
  rows::gather_rows(call.context(), call,
                    {.routing = routing, .weights = weights, .routed = features, .tokens = out});
}

void three_interpolate_stacked_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                        const ConstTensor& weights, const Tensor& grad_features,
                                        const Caller& caller) {
  Call call(caller, kThreeInterpolateStackedBackward, {grad_out, indices, weights, grad_features}, {});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const std::int64_t count = elements_from(indices, 0), centers = grad_out.shape[0];
  const std::int64_t channels = grad_out.shape[1], rows = grad_features.shape[0];
  const bool is_parallel = count * channels * size_of(grad_out.dtype) >= kParallelBytes;
  call.chose("by channels", is_parallel ? context.threads() : 1);
  visit_float(grad_out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    ChannelSums<T> sums(grad_features, 2 * context.threads());
    Scratch& scratch = call.scratch(array_bytes<std::int32_t>(count) + sums.bytes());
    auto* index = scratch.take<std::int32_t>(count);
    sums.take(scratch);
    read_indices(call, indices, rows, Strays::refuse, index);
    const auto* grad = static_cast<const T*>(grad_out.data);
    const auto* weight = static_cast<const Lane<T>*>(weights.data);
    const Stop stop;
    const auto add = [&](std::int64_t p, std::int64_t channel, std::int64_t width) {
      Lane<T> wide[kWidth];
      for (std::int64_t c = 0; c < width; ++c) wide[c] = to_float(grad[p * channels + channel + c]);
      for (std::int64_t i = 3 * p; i < 3 * p + 3; ++i) {
        Lane<T>* to = sums.at(index[i], channel);
        for (std::int64_t c = 0; c < width; ++c) to[c] += wide[c] * weight[i];
      }
    };
    const std::int64_t blocks = sums.blocks();
    parallel_for(context, blocks, is_parallel ? 1 : blocks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t channel = sums.first_channel(block);
        sums.clear(0, rows, channel);
        for (const Piece piece : pieces(0, centers, 1 << 16)) {
          if (stop.is_asked()) return;
          for (std::int64_t p = piece.begin; p < piece.end(); ++p) add(p, channel, sums.width(channel));
        }
        sums.finish(0, rows, channel);
      }
    });
  });
}

}  // namespace turnout
