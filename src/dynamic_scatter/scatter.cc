// Implements scatter_sum, scatter_mean, scatter_max and scatter_min, and their gradients.
#include "dynamic_scatter/dynamic_scatter.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "dynamic_scatter/direct.h"
#include "dynamic_scatter/grouping.h"
#include "dynamic_scatter/kernels.h"
#include "dynamic_scatter/maps.h"
#include "dynamic_scatter/reductions.h"
#include "dynamic_scatter/signature.h"
#include "dynamic_scatter/touched_groups.h"
#include "indices/indices.h"
#include "runtime/call.h"

namespace turnout {
namespace families::dynamic_scatter {

using namespace core;
namespace {

[[noreturn]] void refuse_index(Call& call, const ConstTensor& index, std::int64_t position,
                               std::int64_t groups) {
  call.refuse(concat(call.name("index"), "[", position, "] is ", map_value(index, position), ", expected ",
                     groups > 0 ? concat("0 .. ", groups - 1) : "no elements, since dim_size is 0"));
}

// Copies the index into `map`. Throws for a value that is not a group before any result is written. Returns
// whether the index is ascending, if find_order is set.
bool read_index(Call& call, const ConstTensor& index, std::int64_t groups, std::int32_t* map,
                bool find_order = false) {
  const MapRead read = read_map(call.context(), index, 0, groups, map, find_order);
  if (read.bad >= 0) refuse_index(call, index, read.bad, groups);
  return read.is_sorted;
}

// Finds the rows of each group.
class IndexGrouping {
 public:
  IndexGrouping(std::int64_t rows, std::int64_t groups, int threads)
      : rows_(rows), groups_(groups), grouping_(rows, groups, threads) {}

  std::size_t scratch_bytes() const { return array_bytes<std::int32_t>(rows_) + grouping_.scratch_bytes(); }
  VoxelGroups run(Call& call, const ConstTensor& index) const {
    Context& context = call.context();
    Scratch& scratch = call.scratch(scratch_bytes());
    auto* map = scratch.take<std::int32_t>(rows_);
    return read_index(call, index, groups_, map, true)
               ? group_by_sorted_map(context, map, rows_, groups_, scratch)
               : grouping_.run(context, map, scratch);
  }

 private:
  const std::int64_t rows_, groups_;
  const MapGrouping grouping_;
};

// The groups of an index that names few of many groups.
std::size_t touched_bytes(std::int64_t rows) {
  return array_bytes<std::int32_t>(rows) + TouchedGroups::scratch_bytes(rows);
}
TouchedGroups touched_groups(Call& call, const ConstTensor& index, std::int64_t groups, Scratch& scratch) {
  const std::int64_t rows = index.shape[0];
  auto* map = scratch.take<std::int32_t>(rows);
  read_index(call, index, groups, map);
  call.chose("touched groups", call.context().threads());
  return {call.context(), map, rows, scratch};
}

// Sums and means of no rows are 0.
void reduce_touched(Context& context, Call& call, const ConstTensor& src, const ConstTensor& index,
                    const Tensor& out, Reduce reduce_type) {
  const TouchedGroups touched =
      touched_groups(call, index, out.shape[0], call.scratch(touched_bytes(index.shape[0])));
  const std::int64_t row_bytes = src.shape[1] * size_of(src.dtype);
  const ReduceTask task{touched.numbered(), src.shape[1], src.data};
  const auto reduce = reduce_kernels(context.isa()).reduce(src.dtype, reduce_type);
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* const to = static_cast<std::byte*>(out.data);
  touched.for_all(
      context, out.shape[0], row_bytes,
      [&](std::int64_t number, std::int64_t group) {
        reduce(task, number, number + 1, to + group * row_bytes);
      },
      [&](std::int64_t first, std::int64_t last) {
        copy.clear(to + first * row_bytes, (last - first) * row_bytes);
      });
}

// Without rows, the maximum or minimum is 0 and arg, unless it is absent, is `rows`.
void extreme_touched(Context& context, Call& call, const ConstTensor& src, const ConstTensor& index,
                     const Tensor& out, const Tensor& arg, Extreme which) {
  const TouchedGroups touched =
      touched_groups(call, index, out.shape[0], call.scratch(touched_bytes(index.shape[0])));
  const std::int64_t channels = src.shape[1], row_bytes = channels * size_of(src.dtype);
  const bool has_arg = !arg.is_absent();
  const ExtremeTask task{touched.numbered(), channels, src.data, has_arg ? size_of(arg.dtype) : 0};
  const auto reduce = extreme_kernels(context.isa()).reduce(which, src.dtype, has_arg);
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* const to = static_cast<std::byte*>(out.data);
  if (!has_arg)
    return touched.for_all(
        context, out.shape[0], row_bytes,
        [&](std::int64_t number, std::int64_t group) {
          reduce(task, number, number + 1, to + group * row_bytes, nullptr);
        },
        [&](std::int64_t first, std::int64_t last) {
          copy.clear(to + first * row_bytes, (last - first) * row_bytes);
        });
  visit_index(arg.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    auto* const from = static_cast<Index*>(arg.data);
    touched.for_all(
        context, out.shape[0], std::max(row_bytes, channels * std::int64_t{sizeof(Index)}),
        [&](std::int64_t number, std::int64_t group) {
          reduce(task, number, number + 1, to + group * row_bytes, from + group * channels);
        },
        [&](std::int64_t first, std::int64_t last) {
          copy.clear(to + first * row_bytes, (last - first) * row_bytes);
          std::fill(from + first * channels, from + last * channels, static_cast<Index>(src.shape[0]));
        });
  });
}

// Copies the gradients of the touched groups into consecutive rows, so that spread_rows() sees only those.
void mean_backward_touched(Context& context, Call& call, const ConstTensor& grad_out,
                           const ConstTensor& index, const Tensor& grad_src) {
  const std::int64_t rows = index.shape[0], row_bytes = grad_out.shape[1] * size_of(grad_out.dtype);
  Scratch& scratch =
      call.scratch(touched_bytes(rows) + array_bytes<std::byte>(rows * row_bytes) + lane_counts_bytes(rows));
  const TouchedGroups touched = touched_groups(call, index, grad_out.shape[0], scratch);
  auto* grads = scratch.take<std::byte>(rows * row_bytes);
  const auto* from = static_cast<const std::byte*>(grad_out.data);
  const std::int64_t grain = std::max<std::int64_t>(1, kRangeBytes / row_bytes);
  parallel_for(context, touched.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::memcpy(grads + i * row_bytes, from + touched.group(i) * row_bytes,
                  static_cast<std::size_t>(row_bytes));
  });
  BackwardTask task{};
  task.groups = touched.numbered();
  task.counts = lane_counts(grad_src.dtype, touched.count(), scratch,
                            [&](std::int64_t i) { return touched.numbered().count(i); });
  spread_rows(context, call, task, ConstTensor(grads, grad_out.dtype, {touched.count(), grad_out.shape[1]}),
              nullptr, nullptr, grad_src, Reduce::mean);
}

// Clears grad_src and writes the gradient of each maximum to the row that it comes from. Each element has at
// most one writer, because the group that an element is the maximum of is that of its row.
struct MaximaShape {
  std::int64_t groups, rows, channels;
};
template <class Bits, class Index>
void scatter_maxima_of(Context& context, const Bits* grads, const Index* argmax, const std::int32_t* map,
                       const MaximaShape& shape, std::int64_t grain, Bits* to) {
  parallel_for(context, shape.groups, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t g = begin; g < end; ++g) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const std::int64_t row = load_once(argmax + g * shape.channels + c);
        if (in_range(row, shape.rows) && map[row] == g)
          to[row * shape.channels + c] = grads[g * shape.channels + c];
      }
    }
  });
}
void scatter_maxima(Call& call, const ConstTensor& grad_out, const ConstTensor& argmax,
                    const std::int32_t* map, const MaximaShape& shape, const Tensor& grad_src) {
  Context& context = call.context();
  const std::int64_t row_bytes = shape.channels * size_of(grad_src.dtype);
  const std::int64_t bytes = shape.rows * row_bytes;
  const bool parallel = bytes >= kParallelBytes, stream = is_streamed(bytes);
  call.chose(stream ? "by maximum, streamed" : "by maximum", parallel ? context.threads() : 1);
  const CopyKernels& copy = copy_kernels(context.isa());
  auto* const to = static_cast<std::byte*>(grad_src.data);
  parallel_for(context, bytes, parallel ? kRangeBytes : bytes, [&](std::int64_t begin, std::int64_t end) {
    if (!stream) {
      std::memset(to + begin, 0, static_cast<std::size_t>(end - begin));
    } else {
      copy.clear(to + begin, end - begin);
      copy.finish();
    }
  });
  const std::int64_t grain = parallel ? kPointGrain / (4 * shape.channels) + 1 : shape.groups;
  visit_index(argmax.dtype, [&](auto index) {
    const auto* from = static_cast<const typename decltype(index)::type*>(argmax.data);
    const auto write = [&](auto bits) {
      using Bits = decltype(bits);
      scatter_maxima_of(context, static_cast<const Bits*>(grad_out.data), from, map, shape, grain,
                        static_cast<Bits*>(grad_src.data));
    };
    switch (size_of(grad_src.dtype)) {
      case 2:
        return write(std::uint16_t{});
      case 4:
        return write(std::uint32_t{});
      default:
        return write(std::uint64_t{});
    }
  });
}

template <const Signature& signature>
void reduce(const Caller& caller, const ConstTensor& given_src, const ConstTensor& index,
            const Tensor& given_out, Reduce reduce_type) {
  Call call(caller, signature, {given_src, index, given_out}, {});
  if (call.nothing_to_do()) return;
  Context& context = caller.context();
  constexpr int kChannels = signature.find_size("channels");
  const std::int64_t channels = call.size(kChannels);
  const ConstTensor src = as_rows(given_src, channels);
  const Tensor out = as_rows(given_out, channels);
  if (TouchedGroups::pays(src.shape[0], out.shape[0]))
    return reduce_touched(context, call, src, index, out, reduce_type);
  const std::int64_t rows = src.shape[0];
  if (const DirectSums direct(rows, out, reduce_type); direct.pays(context.threads())) {
    Scratch& scratch = call.scratch(array_bytes<std::int32_t>(rows) + direct.scratch_bytes());
    auto* map = scratch.take<std::int32_t>(rows);
    read_index(call, index, out.shape[0], map);
    return direct.run(context, call, map, src.data, scratch);
  }
  const IndexGrouping plan(src.shape[0], out.shape[0], context.threads());
  const VoxelGroups groups = plan.run(call, index);
  reduce_rows(context, call, groups, src, out, reduce_type);
}

template <const Signature& signature>
void reduce_extreme(const Caller& caller, const ConstTensor& given_src, const ConstTensor& index,
                    const Tensor& given_out, const Tensor& given_arg, Extreme which) {
  Call call(caller, signature, {given_src, index, given_out, given_arg}, {});
  if (call.nothing_to_do()) return;
  Context& context = caller.context();
  constexpr int kChannels = signature.find_size("channels");
  const std::int64_t channels = call.size(kChannels);
  const ConstTensor src = as_rows(given_src, channels);
  const Tensor out = as_rows(given_out, channels), none = nullptr;
  const Tensor arg = given_arg.is_absent() ? none : as_rows(given_arg, channels);
  const std::int64_t rows = src.shape[0];
  if (TouchedGroups::pays(rows, out.shape[0]))
    return extreme_touched(context, call, src, index, out, arg, which);
  if (const DirectExtremes direct(rows, out, arg, which); direct.pays(context.threads())) {
    Scratch& scratch = call.scratch(array_bytes<std::int32_t>(rows) + direct.scratch_bytes());
    auto* map = scratch.take<std::int32_t>(rows);
    read_index(call, index, out.shape[0], map);
    return direct.run(context, call, map, src.data, scratch);
  }
  const IndexGrouping plan(rows, out.shape[0], context.threads());
  extreme_rows(context, call, plan.run(call, index), src, out, arg, which);
}

}  // namespace

}  // namespace families::dynamic_scatter

using namespace families::dynamic_scatter;

std::int64_t scatter_dim_size(const ConstTensor& index, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kScatterDimSize, {index}, {});
  const Chunks chunks(index.shape[0]);
  std::int64_t most_of[kMaxChunks];
  std::int64_t least_of[kMaxChunks];
  visit_index(index.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    const auto* values = static_cast<const Index*>(index.data);
    chunks.run(context, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      Index least = 0, most = -1;
      for (std::int64_t x = begin; x < end; ++x) {
        least = std::min(least, values[x]);
        most = std::max(most, values[x]);
      }
      least_of[part] = least;
      most_of[part] = most;
    });
  });
  const std::int64_t least = *std::min_element(least_of, least_of + chunks.parts);
  const std::int64_t most = *std::max_element(most_of, most_of + chunks.parts);
  if (least < 0 || most >= kMaxPoints)
    for (std::int64_t x = 0; x < index.shape[0]; ++x)
      if (const std::int64_t value = map_value(index, x); value < 0 || value >= kMaxPoints)
        refuse_index(call, index, x, kMaxPoints);
  call.chose("by element", index.shape[0] >= kSharedPoints ? context.threads() : 1);
  return std::min(most, kMaxPoints - 1) + 1;  // the index may have changed between the two reads
}

void scatter_sum(const ConstTensor& src, const ConstTensor& index, const Tensor& out, const Caller& caller) {
  reduce<kScatterSum>(caller, src, index, out, Reduce::sum);
}

void scatter_mean(const ConstTensor& src, const ConstTensor& index, const Tensor& out, const Caller& caller) {
  reduce<kScatterMean>(caller, src, index, out, Reduce::mean);
}

void scatter_max(const ConstTensor& src, const ConstTensor& index, const Tensor& out, const Tensor& argmax,
                 const Caller& caller) {
  reduce_extreme<kScatterMax>(caller, src, index, out, argmax, Extreme::maximum);
}

void scatter_min(const ConstTensor& src, const ConstTensor& index, const Tensor& out, const Tensor& argmin,
                 const Caller& caller) {
  reduce_extreme<kScatterMin>(caller, src, index, out, argmin, Extreme::minimum);
}

void scatter_sum_backward(const ConstTensor& given_grad_out, const ConstTensor& index,
                          const Tensor& given_grad_src, const Caller& caller) {
  Call call(caller, kScatterSumBackward, {given_grad_out, index, given_grad_src}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t channels = call.size(kScatterSumBackward.size("channels"));
  const ConstTensor grad_out = as_rows(given_grad_out, channels);
  const Tensor grad_src = as_rows(given_grad_src, channels);
  const std::int64_t rows = index.shape[0], groups = grad_out.shape[0];
  auto* map = call.scratch(array_bytes<std::int32_t>(rows)).take<std::int32_t>(rows);
  read_index(call, index, groups, map);
  BackwardTask task{};
  task.groups = {.points = rows, .voxels = groups, .map = map};
  spread_rows(caller.context(), call, task, grad_out, nullptr, nullptr, grad_src, Reduce::sum);
}

void scatter_mean_backward(const ConstTensor& given_grad_out, const ConstTensor& index,
                           const Tensor& given_grad_src, const Caller& caller) {
  Call call(caller, kScatterMeanBackward, {given_grad_out, index, given_grad_src}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t channels = call.size(kScatterMeanBackward.size("channels"));
  const ConstTensor grad_out = as_rows(given_grad_out, channels);
  const Tensor grad_src = as_rows(given_grad_src, channels);
  const std::int64_t rows = index.shape[0], groups = grad_out.shape[0];
  if (TouchedGroups::pays(rows, groups))
    return mean_backward_touched(caller.context(), call, grad_out, index, grad_src);
  Scratch& scratch = call.scratch(array_bytes<std::int32_t>(rows) + array_bytes<std::int32_t>(groups) +
                                  lane_counts_bytes(groups) +
                                  shares_bytes(rows, groups, channels * size_of(grad_src.dtype)));
  auto* map = scratch.take<std::int32_t>(rows);
  read_index(call, index, groups, map);
  auto* counts = scratch.take<std::int32_t>(groups);
  std::fill_n(counts, groups, 0);
  serial_for(0, rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t x = begin; x < end; ++x) ++counts[map[x]];
  });
  BackwardTask task{};
  task.groups = {.points = rows, .voxels = groups, .map = map};
  task.counts = lane_counts(grad_src.dtype, groups, scratch, [&](std::int64_t g) { return counts[g]; });
  spread_means(caller.context(), call, task, grad_out, grad_src, scratch);
}

void scatter_max_backward(const ConstTensor& grad_out, const ConstTensor& index, const ConstTensor& argmax,
                          const Tensor& grad_src, const Caller& caller) {
  Call call(caller, kScatterMaxBackward, {grad_out, index, argmax, grad_src}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t rows = index.shape[0];
  auto* map = call.scratch(array_bytes<std::int32_t>(rows)).take<std::int32_t>(rows);
  read_index(call, index, grad_out.shape[0], map);
  const std::int64_t channels = call.size(kScatterMaxBackward.size("channels"));
  const std::int64_t groups = grad_out.shape[0];
  if (groups <= rows) return scatter_maxima(call, grad_out, argmax, map, {groups, rows, channels}, grad_src);
  const ExtremeBackwardTask task{map, channels, grad_out.data, argmax.data};
  const auto backward = extreme_kernels(caller.context().isa()).backward(grad_out.dtype, argmax.dtype);
  make_rows(caller.context(), call, rows, channels * size_of(grad_src.dtype), grad_src.data,
            [&](std::int64_t first, std::int64_t last, std::byte* to) { backward(task, first, last, to); });
}

}  // namespace turnout
