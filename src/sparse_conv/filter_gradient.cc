// The gradient with respect to the filters: sums of outer products over the pairs of each offset.
#include <algorithm>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "runtime/parallel.h"
#include "sparse_conv/convolution.h"
#include "sparse_conv/signature.h"
#include "turnout/sparse_conv.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

// The number of pairs in a partial sum: a plain f32 sum over 248,636 terms has an error of 1.5e-5, with sums
// of 512 it is 1.0e-6. Part of the definition.
constexpr std::int64_t kChunk = 512;
constexpr std::int64_t kBatch = 128;  // pairs whose rows are looked up and widened at once

std::int64_t chunks_of(std::int64_t count) { return (count + kChunk - 1) / kChunk; }

}  // namespace

template <class Lane>
struct FilterGradientPlan<Lane>::Worker {
  Lane* sum;          // [depth, padded columns] of one chunk
  Lane *from, *with;  // [batch, depth] and [batch, columns], for 16-bit rows
};

template <class Lane>
FilterGradientPlan<Lane>::FilterGradientPlan(const Pairs& pairs, const ConvolutionShape& shape, int threads,
                                             Isa isa)
    : pairs_(pairs),
      shape_(shape),
      products_(isa, shape.dtype),
      padded_columns_(products_.kernels().padded(shape.columns)),
      threads_(static_cast<double>(pairs.total) * static_cast<double>(shape.depth) *
                           static_cast<double>(shape.columns) <
                       kParallelProducts
                   ? 1
                   : threads) {
  // A single thread takes all offsets together, so that it uses neighbouring rows for all of them while they
  // are in the cache. Several threads take groups of offsets, or slices of results if there are few offsets.
  groups_ = threads_ == 1 ? 1 : std::clamp<std::int64_t>(pairs.offsets, 1, 4 * threads_);
  const std::int64_t tiles = std::max<std::int64_t>(1, shape.depth / products_.kernels().tile_rows);
  slices_ = std::clamp<std::int64_t>((threads_ == 1 ? 1 : 4 * threads_) / groups_, 1, tiles);
}

template <class Lane>
std::size_t FilterGradientPlan<Lane>::scratch_bytes() const {
  const std::size_t worker = array_bytes<Lane>(shape_.depth * padded_columns_) +
                             products_.wide_bytes(kBatch, shape_.depth) +
                             products_.wide_bytes(kBatch, shape_.columns);
  return array_bytes<Lane>(pairs_.offsets * shape_.depth * padded_columns_) +
         static_cast<std::size_t>(threads_) * worker;
}

// Groups have about equal numbers of pairs.
template <class Lane>
typename FilterGradientPlan<Lane>::Task FilterGradientPlan<Lane>::task(std::int64_t i) const {
  const std::int64_t group = i / slices_, slice = i % slices_;
  const double share = static_cast<double>(pairs_.total) / static_cast<double>(groups_);
  const auto first_of = [&](std::int64_t g) {
    if (g == 0) return std::int64_t{0};
    if (g == groups_) return pairs_.offsets;
    double before = 0;
    std::int64_t k = 0;
    while (k < pairs_.offsets &&
           before + static_cast<double>(pairs_.counts[k]) / 2 < share * static_cast<double>(g))
      before += static_cast<double>(pairs_.counts[k++]);
    return k;
  };
  const auto row_of = [&](std::int64_t s) {
    const std::int64_t tile = products_.kernels().tile_rows;
    return s == slices_ ? shape_.depth : shape_.depth / tile * s / slices_ * tile;
  };
  return {first_of(group), first_of(group + 1), row_of(slice), row_of(slice + 1)};
}

template <class Lane>
void FilterGradientPlan<Lane>::add_chunk(std::int64_t k, std::int64_t chunk, const Task& task,
                                         const Operands& operands, const Worker& worker) const {
  const std::int64_t depth = task.end - task.begin, size = size_of(shape_.dtype);
  const auto* from_base = static_cast<const std::byte*>(operands.from) + task.begin * size;
  const auto* with_base = static_cast<const std::byte*>(operands.with);
  const auto last_from = static_cast<std::uint32_t>(pairs_.from_rows - 1);
  const auto last_with = static_cast<std::uint32_t>(pairs_.to_rows - 1);
  const std::int32_t *from_row = pairs_.from(k), *with_row = pairs_.to(k);
  std::fill_n(worker.sum, depth * padded_columns_, Lane{0});

  const void *from[kBatch], *with[kBatch];
  const std::int64_t end = std::min((chunk + 1) * kChunk, pairs_.counts[k]);
  for (const auto [j, count] : pieces(chunk * kChunk, end, kBatch)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const bool is_identity = k == pairs_.identity;
      const auto a = is_identity ? static_cast<std::uint32_t>(j + i) : row_once(from_row + j + i, last_from);
      const auto b = is_identity ? a : row_once(with_row + j + i, last_with);
      from[i] = from_base + std::int64_t{a} * shape_.depth * size;
      with[i] = with_base + std::int64_t{b} * shape_.columns * size;
    }
    products_.add_outer(from, with, count, depth, shape_.columns, worker.sum, padded_columns_, worker.from,
                        worker.with);
  }
  Lane* total = sums_ + (k * shape_.depth + task.begin) * padded_columns_;
  products_.kernels().round(worker.sum, total, depth * padded_columns_, total, dtype_of<Lane>);
}

// All offsets of a task advance through their pairs at the same pace, so that they use the same rows.
template <class Lane>
void FilterGradientPlan<Lane>::sum_task(const Task& task, const Operands& operands,
                                        const Worker& worker) const {
  std::int64_t steps = 0;
  for (std::int64_t k = task.first; k < task.last; ++k) {
    std::fill_n(sums_ + (k * shape_.depth + task.begin) * padded_columns_,
                (task.end - task.begin) * padded_columns_, Lane{0});
    steps = std::max(steps, chunks_of(pairs_.counts[k]));
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t k = task.first; k < task.last; ++k) {
      if (stop_.is_asked()) return;
      const std::int64_t chunks = chunks_of(pairs_.counts[k]);
      for (std::int64_t c = chunks * step / steps; c < chunks * (step + 1) / steps; ++c)
        add_chunk(k, c, task, operands, worker);
    }
  }
  auto* out = static_cast<std::byte*>(operands.filters_grad);
  for (std::int64_t k = task.first; k < task.last; ++k)
    for (std::int64_t row = k * shape_.depth + task.begin; row < k * shape_.depth + task.end; ++row)
      products_.kernels().round(sums_ + row * padded_columns_, nullptr, shape_.columns,
                                out + row * shape_.columns * size_of(shape_.dtype), shape_.dtype);
}

template <class Lane>
void FilterGradientPlan<Lane>::run(Context& context, const Operands& operands, Scratch& scratch) {
  sums_ = scratch.take<Lane>(pairs_.offsets * shape_.depth * padded_columns_);
  auto* memory = scratch.rest();
  const std::size_t sum_bytes = array_bytes<Lane>(shape_.depth * padded_columns_);
  const std::size_t from_bytes = products_.wide_bytes(kBatch, shape_.depth);
  const std::size_t with_bytes = products_.wide_bytes(kBatch, shape_.columns);
  const std::int64_t tasks = groups_ * slices_;
  parallel_for(
      context, tasks, 1,
      [&](std::int64_t i, std::int64_t, int number) {
        std::byte* own = memory + static_cast<std::size_t>(number) * (sum_bytes + from_bytes + with_bytes);
        const Worker worker{reinterpret_cast<Lane*>(own), reinterpret_cast<Lane*>(own + sum_bytes),
                            reinterpret_cast<Lane*>(own + sum_bytes + from_bytes)};
        sum_task(task(i), operands, worker);
      },
      threads_);
}

template class FilterGradientPlan<float>;
template class FilterGradientPlan<double>;

}  // namespace families::sparse_conv

using namespace families::sparse_conv;

void indice_convolution_backward_filter(const ConstTensor& features, const ConstTensor& output_grad,
                                        const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                                        const Tensor& filters_grad, const IndiceConvolutionParams& params,
                                        const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kIndiceConvolutionBackwardFilter,
            {features, output_grad, indice_pairs, indice_num, filters_grad}, {params.inverse, params.subm});
  if (call.nothing_to_do()) return;
  const PairRows from{"features", params.inverse ? 1 : 0, features.shape[0]};
  const PairRows with{"output_grad", params.inverse ? 0 : 1, output_grad.shape[0]};
  Pairs pairs = read_pairs(call, indice_pairs, indice_num, from, with, params.subm);
  visit_lane(features.dtype, [&](auto lane) {
    FilterGradientPlan<typename decltype(lane)::type> plan(
        pairs, {features.dtype, features.shape[1], output_grad.shape[1]}, context.threads(), context.isa());
    call.chose("chunks of pairs", plan.threads());
    call.uses(plan.last_isa());
    Scratch& scratch = call.scratch(pairs.scratch_bytes() + plan.scratch_bytes());
    keep_counts(call, indice_num, pairs, scratch);
    check_pairs(context, call, pairs, from, with);
    plan.run(context, {features.data, output_grad.data, filters_grad.data}, scratch);
  });
}

}  // namespace turnout
