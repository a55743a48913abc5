// Maxima and means over the rows of each batch element, and their gradients.
#include <algorithm>
#include <limits>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "indices/indices.h"
#include "matrix/matrix.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "sparse_conv/pool_kernels.h"
#include "sparse_conv/pool_signature.h"
#include "turnout/sparse_conv.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

// A mean sums the rows of a batch element kChunk at a time, and adds these sums in order, so that its error
// does not grow with the number of rows. Within a chunk, row i is added to sum i % kPoolTurns; these sums are
// added pairwise. Part of the definition.
constexpr std::int64_t kChunk = 512;
static_assert(kChunk % kPoolTurns == 0);
constexpr std::int64_t kSlice = 16;       // channels, so that threads do not write to the same cache line
constexpr std::int64_t kMostRows = 4096;  // rows of a range, and between checks for an interruption

// Rows begin .. begin+count-1 of one batch element: at most kChunk of them.
struct Chunk {
  std::int64_t batch, begin, count;
};

// The batch number of each row, checked and copied, because the caller's may change during the call.
class Batches {
 public:
  Batches(std::int64_t rows, std::int64_t size) : rows_(rows), size_(size) {}

  std::size_t scratch_bytes() const {
    return array_bytes<std::int32_t>(rows_) + array_bytes<std::int64_t>(size_);
  }
  // If the batch numbers ascend, sets the counts, and returns true; the numbers are not copied.
  bool read_ascending(const ConstTensor& indices, std::int64_t* counts) {
    const std::int64_t columns = indices.shape[1];
    return visit_index(indices.dtype, [&](auto type) {
      const auto* given = static_cast<const typename decltype(type)::type*>(indices.data);
      std::fill_n(counts, size_, 0);
      counts_ = counts;
      std::int64_t current = -1, first = 0;
      bool ascends = true;
      serial_for(0, rows_, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end && ascends; ++row) {
          const std::int64_t number = load_once(given + row * columns);
          if (number == current) continue;
          ascends = number > current && in_range(number, size_);
          if (current >= 0) counts[current] = row - first;
          first = row;
          current = number;
        }
      });
      if (ascends && current >= 0) counts[current] = rows_ - first;
      return ascends;
    });
  }
  void read(Call& call, const ConstTensor& indices, Scratch& scratch) {
    auto* numbers = scratch.take<std::int32_t>(rows_);
    auto* counts = scratch.take<std::int64_t>(size_);
    std::fill_n(counts, size_, 0);
    const std::int64_t columns = indices.shape[1];
    visit_index(indices.dtype, [&](auto type) {
      const auto* given = static_cast<const typename decltype(type)::type*>(indices.data);
      // Runs of equal numbers are counted at once.
      std::int64_t current = 0, begin_of_run = 0;
      serial_for(0, rows_, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t number = load_once(given + row * columns);
          if (!in_range(number, size_)) refuse(call, row, number);
          numbers[row] = static_cast<std::int32_t>(number);
          if (number != current) {
            counts[current] += row - begin_of_run;
            begin_of_run = row;
            current = number;
          }
        }
      });
      if (rows_ > 0) counts[current] += rows_ - begin_of_run;
    });
    numbers_ = numbers;
    counts_ = counts;
  }

  std::int64_t operator[](std::int64_t row) const { return numbers_[row]; }
  std::int64_t count(std::int64_t batch) const { return counts_[batch]; }
  std::int64_t rows() const { return rows_; }
  std::int64_t size() const { return size_; }

 private:
  [[noreturn]] void refuse(Call& call, std::int64_t row, std::int64_t number) const {
    const std::string expected =
        size_ == 0 ? "expected no rows, since there are no batches" : concat("expected 0 .. ", size_ - 1);
    call.refuse(concat(call.name("indices"), "[", row, ", 0] is ", number, ", ", expected));
  }

  const std::int64_t rows_, size_;
  const std::int32_t* numbers_ = nullptr;
  const std::int64_t* counts_ = nullptr;
};

// Rows of a float tensor in lanes.
template <class Lane>
struct LaneRows {
  const matrix::Kernels<Lane>& kernels;
  const ConstTensor& tensor;

  // Channels first .. first+count-1 of a row, widened into `buffer` unless they are lanes already.
  const Lane* operator()(std::int64_t row, std::int64_t first, std::int64_t count, Lane* buffer) const {
    const void* at =
        static_cast<const std::byte*>(tensor.data) + (row * tensor.shape[1] + first) * size_of(tensor.dtype);
    if (size_of(tensor.dtype) != 2) return static_cast<const Lane*>(at);
    kernels.widen(&at, tensor.dtype, 1, count, buffer, count);
    return buffer;
  }
};

enum class Reduction : std::uint8_t { max, mean };

// If the rows of each batch element are consecutive, threads take chunks of rows. Otherwise each takes a
// slice of the channels of all rows. Both add in the same order.
template <class Lane>
class GlobalPoolPlan {
 public:
  GlobalPoolPlan(const ConstTensor& features, std::int64_t batch_size, Reduction reduction, int threads,
                 Isa isa)
      : is_max_(reduction == Reduction::max),
        features_{matrix::kernels<Lane>(isa), features},
        reduce_(pool_kernels<Lane>(isa).reduce(features.dtype, is_max_)),
        batches_(features.shape[0], batch_size),
        channels_(features.shape[1]),
        row_bytes_(channels_ * size_of(features.dtype)),
        is_parallel_(features.shape[0] * row_bytes_ >= kParallelBytes),
        slices_(is_parallel_ ? std::clamp<std::int64_t>(channels_ / kSlice, 1, threads) : 1),
        threads_(is_parallel_ ? threads : 1),
        most_chunks_(features.shape[0] / kChunk + batch_size) {}

  int threads() const { return threads_; }
  std::size_t scratch_bytes() const {
    const std::size_t in_chunks =
        array_bytes<std::int64_t>(batches_.size()) + array_bytes<Chunk>(most_chunks_) +
        array_bytes<Lane>(most_chunks_ * channels_) +
        static_cast<std::size_t>(threads_) * array_bytes<Lane>(kPoolTurns * channels_);
    const std::size_t in_slices =
        batches_.scratch_bytes() + array_bytes<std::int64_t>(slices_ * batches_.size()) +
        array_bytes<Lane>(batches_.size() * kPoolTurns * channels_) + array_bytes<Lane>(slices_ * channels_);
    return array_bytes<Lane>(batches_.size() * channels_) + in_chunks + in_slices;
  }

  void run(Context& context, Call& call, const ConstTensor& indices, const Tensor& out, Scratch& scratch) {
    const std::int64_t size = batches_.size() * channels_;
    totals_ = scratch.take<Lane>(size);
    auto* counts = scratch.take<std::int64_t>(batches_.size());
    const bool ascending = batches_.read_ascending(indices, counts);
    if (!ascending) batches_.read(call, indices, scratch);
    std::fill_n(totals_, size, start());
    call.chose(ascending ? "chunks of rows" : "slices of channels",
               ascending ? threads_ : static_cast<int>(slices_));
    ascending ? run_chunks(context, scratch) : run_slices(context, scratch);
    for (std::int64_t batch = 0; batch < batches_.size(); ++batch) store(batch, out);
  }

 private:
  Lane start() const { return is_max_ ? -std::numeric_limits<Lane>::infinity() : Lane{0}; }
  std::int64_t first_of(std::int64_t slice) const {
    return slice == slices_ ? channels_ : channels_ / kSlice * slice / slices_ * kSlice;
  }

  // total[c] = total[c] + the sum of results[0 .. kPoolTurns-1, c], pairwise, or the largest of them.
  void fold(const Lane* results, std::int64_t first, std::int64_t count, Lane* total) const {
    const auto larger = [](Lane a, Lane b) { return b > a ? b : a; };
    for (std::int64_t c = first; c < first + count; ++c) {
      const auto r = [&](std::int64_t turn) { return results[turn * channels_ + c]; };
      if (is_max_) {
        for (std::int64_t turn = 0; turn < kPoolTurns; ++turn) total[c] = larger(total[c], r(turn));
      } else {
        total[c] += ((r(0) + r(1)) + (r(2) + r(3))) + ((r(4) + r(5)) + (r(6) + r(7)));
      }
    }
  }

  void run_chunks(Context& context, Scratch& scratch) {
    auto* chunks = scratch.take<Chunk>(most_chunks_);
    auto* sums = scratch.take<Lane>(most_chunks_ * channels_);
    std::int64_t number = 0, row = 0;
    for (std::int64_t batch = 0; batch < batches_.size(); ++batch) {
      for (const Piece rows : pieces(row, row + batches_.count(batch), kChunk))
        chunks[number++] = {batch, rows.begin, rows.count};
      row += batches_.count(batch);
    }
    std::fill_n(sums, number * channels_, start());
    const std::int64_t own = static_cast<std::int64_t>(array_bytes<Lane>(kPoolTurns * channels_));
    auto* memory = scratch.take<std::byte>(threads_ * own);
    const std::int64_t grain = is_parallel_ ? kRangeBytes / (kChunk * row_bytes_) + 1 : number;
    parallel_for(
        context, number, grain,
        [&](std::int64_t begin, std::int64_t end, int worker) {
          auto* results = reinterpret_cast<Lane*>(memory + worker * own);
          for (std::int64_t i = begin; i < end; ++i) {
            std::fill_n(results, kPoolTurns * channels_, start());
            reduce_(static_cast<const std::byte*>(features_.tensor.data) + chunks[i].begin * row_bytes_,
                    chunks[i].count, channels_, results);
            fold(results, 0, channels_, sums + i * channels_);
          }
        },
        threads_);
    for (std::int64_t i = 0; i < number; ++i) {
      Lane* total = totals_ + chunks[i].batch * channels_;
      const Lane* sum = sums + i * channels_;
      for (std::int64_t c = 0; c < channels_; ++c)
        total[c] = !is_max_ ? total[c] + sum[c] : sum[c] > total[c] ? sum[c] : total[c];
    }
  }

  void run_slices(Context& context, Scratch& scratch) {
    auto* seen = scratch.take<std::int64_t>(slices_ * batches_.size());
    auto* results = scratch.take<Lane>(batches_.size() * kPoolTurns * channels_);
    auto* wide = scratch.take<Lane>(slices_ * channels_);
    std::fill_n(seen, slices_ * batches_.size(), 0);
    std::fill_n(results, batches_.size() * kPoolTurns * channels_, start());
    parallel_for(context, slices_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slice = begin; slice < end; ++slice)
        reduce_slice(first_of(slice), first_of(slice + 1) - first_of(slice), seen + slice * batches_.size(),
                     results, wide + slice * channels_);
    });
  }

  void reduce_slice(std::int64_t first, std::int64_t count, std::int64_t* seen, Lane* all, Lane* wide) const {
    const auto results_of = [&](std::int64_t batch) { return all + batch * kPoolTurns * channels_; };
    const auto flush = [&](std::int64_t batch) {
      fold(results_of(batch), first, count, totals_ + batch * channels_);
      for (std::int64_t turn = 0; turn < kPoolTurns; ++turn)
        std::fill_n(results_of(batch) + turn * channels_ + first, count, start());
    };
    for (std::int64_t row = 0; row < batches_.rows(); ++row) {
      if (row % kMostRows == 0 && stop_.is_asked()) return;
      const std::int64_t batch = batches_[row];
      const Lane* in = features_(row, first, count, wide);
      Lane* to = results_of(batch) + seen[batch] % kPoolTurns * channels_ + first;
      for (std::int64_t c = 0; c < count; ++c)
        to[c] = !is_max_ ? to[c] + in[c] : in[c] > to[c] ? in[c] : to[c];
      if (++seen[batch] % kChunk == 0) flush(batch);
    }
    for (std::int64_t batch = 0; batch < batches_.size(); ++batch)
      if (seen[batch] % kChunk != 0) flush(batch);
  }

  void store(std::int64_t batch, const Tensor& out) const {
    Lane* row = totals_ + batch * channels_;
    const std::int64_t count = batches_.count(batch);
    if (count == 0) {
      std::fill_n(row, channels_, Lane{0});
    } else if (is_max_) {
      for (std::int64_t c = 0; c < channels_; ++c) row[c] += Lane{0};  // -0 becomes +0
    } else {
      for (std::int64_t c = 0; c < channels_; ++c) row[c] /= static_cast<Lane>(count);
    }
    features_.kernels.round(row, nullptr, channels_,
                            static_cast<std::byte*>(out.data) + batch * channels_ * size_of(out.dtype),
                            out.dtype);
  }

  const bool is_max_;
  const LaneRows<Lane> features_;
  const typename PoolKernels<Lane>::Reduce reduce_;
  const Stop stop_;
  Batches batches_;
  const std::int64_t channels_, row_bytes_;
  const bool is_parallel_;
  const std::int64_t slices_;
  const int threads_;
  const std::int64_t most_chunks_;
  Lane* totals_ = nullptr;  // [batch_size, channels]
};

void pool(const Caller& caller, const Signature& op, const ConstTensor& features, const ConstTensor& indices,
          const Tensor& features_out, Reduction reduction) {
  Context& context = caller.context();
  Call call(caller, op, {features, indices, features_out}, {});
  if (call.nothing_to_do()) return;
  visit_lane(features.dtype, [&](auto type) {
    GlobalPoolPlan<typename decltype(type)::type> plan(features, features_out.shape[0], reduction,
                                                       context.threads(), context.isa());
    plan.run(context, call, indices, features_out, call.scratch(plan.scratch_bytes()));
  });
}

// Calls f(begin, end, number) for ranges of rows; `number` is the thread's number.
template <class F>
void for_rows(Context& context, int threads, std::int64_t rows, const F& f) {
  const std::int64_t grain = std::clamp<std::int64_t>(rows / (4 * threads), 1, kMostRows);
  parallel_for(context, rows, grain, f, threads);
}
int threads_for(const Context& context, const Tensor& rows) {
  return rows.shape[0] * rows.shape[1] * size_of(rows.dtype) < kParallelBytes ? 1 : context.threads();
}

}  // namespace
}  // namespace families::sparse_conv

using namespace families::sparse_conv;

void global_max_pool_forward(const ConstTensor& features, const ConstTensor& indices,
                             const Tensor& features_out, const Caller& caller) {
  pool(caller, kGlobalMaxPoolForward, features, indices, features_out, Reduction::max);
}

void global_avg_pool_forward(const ConstTensor& features, const ConstTensor& indices,
                             const Tensor& features_out, const Caller& caller) {
  pool(caller, kGlobalAvgPoolForward, features, indices, features_out, Reduction::mean);
}

void global_max_pool_backward(const ConstTensor& features, const ConstTensor& features_out,
                              const ConstTensor& output_grad, const ConstTensor& indices,
                              const Tensor& input_grad, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kGlobalMaxPoolBackward, {features, features_out, output_grad, indices, input_grad}, {});
  if (call.nothing_to_do()) return;
  visit_lane(features.dtype, [&](auto type) {
    using Lane = typename decltype(type)::type;
    const std::int64_t rows = features.shape[0], channels = features.shape[1];
    const std::int64_t row_bytes = channels * size_of(input_grad.dtype);
    const bool is_half = size_of(input_grad.dtype) == 2;
    const int threads = threads_for(context, input_grad);
    Batches batches(rows, features_out.shape[0]);
    const std::size_t own = 4 * array_bytes<Lane>(channels);  // three widened rows, and the result
    call.chose("rows", threads);
    Scratch& scratch = call.scratch(batches.scratch_bytes() + static_cast<std::size_t>(threads) * own);
    batches.read(call, indices, scratch);
    auto* memory = scratch.rest();
    const auto& kernels = matrix::kernels<Lane>(context.isa());
    const LaneRows<Lane> values{kernels, features}, maxima{kernels, features_out},
        grads{kernels, output_grad};
    for_rows(context, threads, rows, [&](std::int64_t begin, std::int64_t end, int number) {
      auto* wide = reinterpret_cast<Lane*>(memory + static_cast<std::size_t>(number) * own);
      for (std::int64_t row = begin; row < end; ++row) {
        auto* const to = static_cast<std::byte*>(input_grad.data) + row * row_bytes;
        Lane* const result = is_half ? wide + 3 * channels : reinterpret_cast<Lane*>(to);
        const Lane* value = values(row, 0, channels, wide);
        const Lane* most = maxima(batches[row], 0, channels, wide + channels);
        const Lane* grad = grads(batches[row], 0, channels, wide + 2 * channels);
        for (std::int64_t c = 0; c < channels; ++c) result[c] = value[c] == most[c] ? grad[c] : Lane{0};
        if (is_half) kernels.round(result, nullptr, channels, to, input_grad.dtype);
      }
    });
  });
}

void global_avg_pool_backward(const ConstTensor& output_grad, const ConstTensor& indices,
                              const Tensor& input_grad, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kGlobalAvgPoolBackward, {output_grad, indices, input_grad}, {});
  if (call.nothing_to_do()) return;
  visit_lane(output_grad.dtype, [&](auto type) {
    using Lane = typename decltype(type)::type;
    const std::int64_t rows = input_grad.shape[0], channels = input_grad.shape[1];
    const std::int64_t row_bytes = channels * size_of(input_grad.dtype);
    const int threads = threads_for(context, input_grad);
    Batches batches(rows, output_grad.shape[0]);
    call.chose("rows", threads);
    Scratch& scratch =
        call.scratch(batches.scratch_bytes() + array_bytes<std::byte>(batches.size() * row_bytes) +
                     2 * array_bytes<Lane>(channels));
    batches.read(call, indices, scratch);
    // All rows of a batch element get the same gradient.
    auto* shares = scratch.take<std::byte>(batches.size() * row_bytes);
    auto *wide = scratch.take<Lane>(channels), *share = scratch.take<Lane>(channels);
    const auto& kernels = matrix::kernels<Lane>(context.isa());
    const LaneRows<Lane> grads{kernels, output_grad};
    for (std::int64_t batch = 0; batch < batches.size(); ++batch) {
      const Lane* grad = grads(batch, 0, channels, wide);
      const auto count = static_cast<Lane>(std::max<std::int64_t>(batches.count(batch), 1));
      for (std::int64_t c = 0; c < channels; ++c) share[c] = grad[c] / count;
      kernels.round(share, nullptr, channels, shares + batch * row_bytes, input_grad.dtype);
    }
    for_rows(context, threads, rows, [&](std::int64_t begin, std::int64_t end, int) {
      auto* to = static_cast<std::byte*>(input_grad.data);
      with_row_copy(row_bytes, [&](const auto& copy) {
        for (std::int64_t row = begin; row < end; ++row)
          copy(to + row * row_bytes, shares + batches[row] * row_bytes);
      });
    });
  });
}

}  // namespace turnout
