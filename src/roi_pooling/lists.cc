// Implements pooling with lists, and its gradient.
#include "roi_pooling/lists.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "indices/indices.h"
#include "roi_pooling/pool.h"
#include "roi_pooling/roiaware.h"
#include "roi_pooling/signature.h"
#include "runtime/parallel.h"
#include "simd/copy.h"

namespace turnout::families::roi_pooling {

using namespace core;
namespace {

using rows::ChannelSums;

// The results of one box.
template <class T>
class BoxResults {
 public:
  BoxResults(const T* features, const Tensor& argmax, const Tensor& lists, const Tensor& pooled,
             std::int64_t first_cell)
      : features_(features),
        channels_(pooled.shape[4]),
        entries_(lists.shape[4]),
        argmax_(argmax.is_absent() ? nullptr
                                   : static_cast<std::int32_t*>(argmax.data) + first_cell * channels_),
        lists_(static_cast<std::int32_t*>(lists.data) + first_cell * entries_),
        pooled_(static_cast<T*>(pooled.data) + first_cell * channels_) {}

  // Cells without points.
  void clear(const CopyKernels& copy, std::int64_t first, std::int64_t count) const {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
    copy.clear(pooled_ + first * channels_, count * channels_ * kBytes);
    copy.clear(lists_ + first * entries_, count * entries_ * std::int64_t{sizeof(std::int32_t)});
    if (argmax_ != nullptr) std::fill_n(argmax_ + first * channels_, count * channels_, -1);
  }
  void list(std::int64_t cell, const std::int32_t* points, std::int64_t count) const {
    std::int32_t* const to = lists_ + cell * entries_;
    *to = static_cast<std::int32_t>(count);
    std::fill(std::copy_n(points, count, to + 1), to + entries_, 0);
  }
  void pool(std::int64_t cell, const std::int32_t* points, std::int64_t count) const {
    for (const Piece piece : pieces(0, channels_, kChannels)) {
      const T* const from = features_ + piece.begin;
      const std::int64_t place = cell * channels_ + piece.begin;
      T* const to = pooled_ + place;
      if (argmax_ == nullptr) {
        pool_avg(from, channels_, points, count, piece.count, to);
        continue;
      }
      std::int32_t at[kChannels];
      first_maxima(from, channels_, points, count, piece.count, at);
      for (std::int64_t c = 0; c < piece.count; ++c)
        to[c] = at[c] < 0 ? rounded<T>(0) : from[at[c] * channels_ + c];
      std::copy_n(at, piece.count, argmax_ + place);
    }
  }

 private:
  const T* const features_;
  const std::int64_t channels_, entries_;
  std::int32_t* const argmax_;
  std::int32_t* const lists_;
  T* const pooled_;
};

// The first of 0 .. count-1 that is bad, or count.
template <class IsBad>
std::int64_t first_bad(Context& context, std::int64_t count, std::int64_t grain, const IsBad& is_bad) {
  std::atomic<std::int64_t> first{count};
  parallel_for(context, count, grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t i = begin;
    while (i < end && !is_bad(i)) ++i;
    if (i == end) return;
    for (std::int64_t seen = first.load(); i < seen && !first.compare_exchange_weak(seen, i);) {
    }
  });
  return first.load();
}

[[noreturn]] void refuse_element(Call& call, std::string_view name, const ConstTensor& tensor,
                                 std::int64_t position, const std::string& expected) {
  const std::int64_t value = static_cast<const std::int32_t*>(tensor.data)[position];
  call.refuse(
      concat(element_text(call.name(name), tensor, position), " is ", value, ", expected ", expected));
}

constexpr std::int64_t kElementGrain = (64 << 10) / kGrainDivisor, kListGrain = 4096 / kGrainDivisor + 1;

void check_argmax(Call& call, const ConstTensor& argmax, std::int64_t count, std::int64_t rows) {
  const auto* at = static_cast<const std::int32_t*>(argmax.data);
  const std::int64_t bad = first_bad(call.context(), count, kElementGrain, [&](std::int64_t i) {
    return !in_range(std::int64_t{at[i]} + 1, rows + 1);
  });
  if (bad < count) refuse_element(call, "argmax", argmax, bad, concat("-1 .. ", rows - 1));
}

void check_lists(Call& call, const ConstTensor& lists, std::int64_t cells, std::int64_t rows) {
  const auto* entry = static_cast<const std::int32_t*>(lists.data);
  const std::int64_t entries = lists.shape[4];
  // The first entry of a cell that is wrong, or `entries`.
  const auto bad_entry = [&](std::int64_t cell) {
    const std::int32_t* its = entry + cell * entries;
    const std::int64_t count = load_once(its);
    if (!in_range(count, entries)) return std::int64_t{0};
    std::int64_t k = 1;
    while (k <= count && in_range(its[k], rows)) ++k;
    return k <= count ? k : entries;
  };
  const std::int64_t cell = first_bad(call.context(), cells, kListGrain,
                                      [&](std::int64_t one) { return bad_entry(one) < entries; });
  if (cell == cells) return;
  const std::int64_t k = bad_entry(cell) % entries;  // in case that the caller's memory has changed
  refuse_element(call, "lists", lists, cell * entries + k,
                 k == 0 ? concat("0 .. ", entries - 1) : concat("0 .. ", rows - 1));
}

// Adds the gradient of channels of one cell to the rows of its points. Values that have changed since they
// were checked are skipped.
template <class T>
void add_by_argmax(const ChannelSums<T>& sums, std::int64_t rows, std::int64_t channel, std::int64_t width,
                   const std::int32_t* argmax, const T* grad) {
  for (std::int64_t c = 0; c < width; ++c) {
    const std::int64_t k = load_once(argmax + c);
    if (in_range(k, rows)) *sums.at(k, channel + c) += to_float(grad[c]);
  }
}
template <class T>
void add_by_list(const ChannelSums<T>& sums, std::int64_t rows, std::int64_t channel, std::int64_t width,
                 const std::int32_t* list, std::int64_t entries, const T* grad) {
  const std::int64_t count = std::min(load_once(list), entries - 1);
  if (count <= 0) return;
  const Lane<T> share = Lane<T>(1) / static_cast<Lane<T>>(count);
  for (std::int64_t i = 1; i <= count; ++i) {
    const std::int64_t k = load_once(list + i);
    if (!in_range(k, rows)) continue;
    Lane<T>* const to = sums.at(k, channel);
    for (std::int64_t c = 0; c < width; ++c) to[c] += to_float(grad[c]) * share;
  }
}

}  // namespace

void pool_with_lists(const ConstTensor& rois, const ConstTensor& points, const ConstTensor& features,
                     const Tensor& argmax, const Tensor& lists, const Tensor& pooled, PoolMethod method,
                     const Caller& caller) {
  constexpr BoxZ kBottom = BoxZ::bottom;
  constexpr double kNoMargin = 0;
  const std::int64_t boxes = pooled.shape[0], channels = pooled.shape[4], entries = lists.shape[4];
  const std::int64_t out_size[3] = {pooled.shape[1], pooled.shape[2], pooled.shape[3]};
  const std::int64_t cells = out_size[0] * out_size[1] * out_size[2];
  Call call(caller, kRoiawarePool3d,
            {rois, points, features, Tensor(pooled.data, pooled.dtype, {boxes, cells, channels})},
            {ScalarValue(out_size, 3), entries - 1, method, kBottom, kNoMargin});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const CellPoints found = list_points(context, rois, points, out_size, entries - 1, kBottom, kNoMargin);
  const std::int64_t bytes =
      boxes * cells *
      (channels * (size_of(pooled.dtype) + size_of(DType::i32)) + entries * size_of(DType::i32));
  const bool is_parallel = bytes >= kParallelBytes;
  call.chose("lists by cell", is_parallel ? context.threads() : 1);
  const CopyKernels& copy = copy_kernels(context.isa());
  visit_float(features.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = static_cast<const T*>(features.data);
    parallel_for(context, boxes, is_parallel ? 1 : boxes, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t box = begin; box < end; ++box) {
        const BoxResults<T> to(from, argmax, lists, pooled, box * cells);
        std::int64_t written = 0;  // cells
        const auto clear_until = [&](std::int64_t cell) {
          if (cell > written) to.clear(copy, written, cell - written);
          written = cell + 1;
        };
        found.for_cells(box, [&](std::int64_t cell, const std::int32_t* its, std::int64_t count) {
          if (count == 0) return;  // a list has no room
          clear_until(cell);
          to.list(cell, its, count);
          to.pool(cell, its, count);
        });
        clear_until(cells);
      }
      copy.finish();
    });
  });
}

void pool_backward_by_lists(const ConstTensor& lists, const ConstTensor& argmax,
                            const ConstTensor& grad_pooled, const Tensor& grad_features, PoolMethod method,
                            const Caller& caller) {
  Call call(caller, kRoiawareListsBackward, {lists, argmax, grad_pooled, grad_features}, {method});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const std::int64_t rows = grad_features.shape[0], channels = grad_features.shape[1];
  const std::int64_t entries = lists.shape[4];
  const std::int64_t cells =
      grad_pooled.shape[0] * grad_pooled.shape[1] * grad_pooled.shape[2] * grad_pooled.shape[3];
  const bool by_argmax = method == PoolMethod::max;
  if (by_argmax) {
    check_argmax(call, argmax, cells * channels, rows);
  } else {
    check_lists(call, lists, cells, rows);
  }
  const bool is_parallel = (cells + rows) * channels * size_of(grad_features.dtype) >= kParallelBytes;
  call.chose("by channel", is_parallel ? context.threads() : 1);
  const auto *at = static_cast<const std::int32_t*>(argmax.data),
             *entry = static_cast<const std::int32_t*>(lists.data);
  visit_float(grad_pooled.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    ChannelSums<T> sums(grad_features, 2 * context.threads());
    sums.take(call.scratch(sums.bytes()));
    const auto* grad = static_cast<const T*>(grad_pooled.data);
    const Stop stop;
    const std::int64_t blocks = sums.blocks();
    parallel_for(context, blocks, is_parallel ? 1 : blocks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t channel = sums.first_channel(block), width = sums.width(channel);
        sums.clear(0, rows, channel);
        const bool ended = stop.blocks(0, cells, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t cell = first; cell < last; ++cell) {
            const std::int64_t place = cell * channels + channel;
            if (by_argmax) {
              add_by_argmax(sums, rows, channel, width, at + place, grad + place);
            } else {
              add_by_list(sums, rows, channel, width, entry + cell * entries, entries, grad + place);
            }
          }
        });
        if (!ended) return;
        sums.finish(0, rows, channel);
      }
    });
  });
}

}  // namespace turnout::families::roi_pooling
