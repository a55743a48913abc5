// Maxima and means over the rows of each batch element, and their gradients.
#include <algorithm>
#include <limits>

#include "core/dtypes.h"
#include "indices/indices.h"
#include "matrix/matrix.h"
#include "runtime/parallel.h"
#include "sparse_conv/pool_signature.h"
#include "turnout/sparse_conv.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

// The number of rows that are summed before their sum is added to the total, as in the gradient of filters,
// so that the error of a mean does not grow with the number of rows. Part of the definition.
constexpr std::int64_t kChunk = 512;
constexpr std::int64_t kSlice = 16;       // channels, so that threads do not write to the same cache line
constexpr std::int64_t kMostRows = 4096;  // rows of a range, and between checks for an interruption

// The batch number of each row, checked and copied, because the caller's may change during the call.
class Batches {
 public:
  Batches(std::int64_t rows, std::int64_t size) : rows_(rows), size_(size) {}

  std::size_t scratch_bytes() const {
    return array_bytes<std::int32_t>(rows_) + array_bytes<std::int64_t>(size_);
  }
  void read(Call& call, const ConstTensor& indices, Scratch& scratch) {
    auto* numbers = scratch.take<std::int32_t>(rows_);
    auto* counts = scratch.take<std::int64_t>(size_);
    std::fill_n(counts, size_, 0);
    const std::int64_t columns = indices.shape[1];
    visit_index(indices.dtype, [&](auto type) {
      const auto* given = static_cast<const typename decltype(type)::type*>(indices.data);
      serial_for(0, rows_, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t number = load_once(given + row * columns);
          if (!in_range(number, size_)) refuse(call, row, number);
          numbers[row] = static_cast<std::int32_t>(number);
          ++counts[number];
        }
      });
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

// Each thread takes a slice of the channels of all rows, so that every result is reduced in ascending order
// of rows for any number of threads.
template <class Lane>
class GlobalPoolPlan {
 public:
  GlobalPoolPlan(const ConstTensor& features, std::int64_t batch_size, Reduction reduction, int threads,
                 Isa isa)
      : reduction_(reduction),
        features_{matrix::kernels<Lane>(isa), features},
        batches_(features.shape[0], batch_size),
        channels_(features.shape[1]),
        slices_(features.shape[0] * channels_ * size_of(features.dtype) < kParallelBytes
                    ? 1
                    : std::clamp<std::int64_t>(channels_ / kSlice, 1, threads)) {}

  int threads() const { return static_cast<int>(slices_); }
  std::size_t scratch_bytes() const {
    return batches_.scratch_bytes() + 2 * array_bytes<Lane>(batches_.size() * channels_) +
           static_cast<std::size_t>(slices_) * worker_bytes();
  }

  void run(Context& context, Call& call, const ConstTensor& indices, const Tensor& out, Scratch& scratch) {
    batches_.read(call, indices, scratch);
    const std::int64_t size = batches_.size() * channels_;
    totals_ = scratch.take<Lane>(size);
    partial_ = scratch.take<Lane>(size);
    auto* memory = scratch.rest();
    std::fill_n(totals_, size,
                reduction_ == Reduction::max ? -std::numeric_limits<Lane>::infinity() : Lane{0});
    std::fill_n(partial_, size, Lane{0});
    parallel_for(context, slices_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slice = begin; slice < end; ++slice) {
        std::byte* own = memory + static_cast<std::size_t>(slice) * worker_bytes();
        auto* seen = reinterpret_cast<std::int64_t*>(own);
        auto* wide = reinterpret_cast<Lane*>(own + array_bytes<std::int64_t>(batches_.size()));
        const std::int64_t first = first_of(slice), count = first_of(slice + 1) - first;
        reduction_ == Reduction::max ? maximum(first, count, wide) : sum(first, count, wide, seen);
      }
    });
    for (std::int64_t batch = 0; batch < batches_.size(); ++batch) store(batch, out);
  }

 private:
  std::size_t worker_bytes() const {  // rows seen of each batch element, and a widened row
    return array_bytes<std::int64_t>(batches_.size()) + array_bytes<Lane>(channels_);
  }
  std::int64_t first_of(std::int64_t slice) const {
    return slice == slices_ ? channels_ : channels_ / kSlice * slice / slices_ * kSlice;
  }

  void maximum(std::int64_t first, std::int64_t count, Lane* wide) const {
    for (std::int64_t row = 0; row < batches_.rows(); ++row) {
      if (row % kMostRows == 0 && stop_.is_asked()) return;
      const Lane* in = features_(row, first, count, wide);
      Lane* to = totals_ + batches_[row] * channels_ + first;
      for (std::int64_t c = 0; c < count; ++c) to[c] = in[c] > to[c] ? in[c] : to[c];
    }
  }

  void sum(std::int64_t first, std::int64_t count, Lane* wide, std::int64_t* seen) const {
    const auto add_partial = [&](std::int64_t batch) {
      Lane *to = totals_ + batch * channels_ + first, *from = partial_ + batch * channels_ + first;
      for (std::int64_t c = 0; c < count; ++c) to[c] += from[c];
      std::fill_n(from, count, Lane{0});
    };
    std::fill_n(seen, batches_.size(), 0);
    for (std::int64_t row = 0; row < batches_.rows(); ++row) {
      if (row % kMostRows == 0 && stop_.is_asked()) return;
      const std::int64_t batch = batches_[row];
      const Lane* in = features_(row, first, count, wide);
      Lane* to = partial_ + batch * channels_ + first;
      for (std::int64_t c = 0; c < count; ++c) to[c] += in[c];
      if (++seen[batch] % kChunk == 0) add_partial(batch);
    }
    for (std::int64_t batch = 0; batch < batches_.size(); ++batch)
      if (seen[batch] % kChunk != 0) add_partial(batch);
  }

  void store(std::int64_t batch, const Tensor& out) const {
    Lane* row = totals_ + batch * channels_;
    const std::int64_t count = batches_.count(batch);
    if (count == 0) {
      std::fill_n(row, channels_, Lane{0});
    } else if (reduction_ == Reduction::mean) {
      for (std::int64_t c = 0; c < channels_; ++c) row[c] /= static_cast<Lane>(count);
    }
    features_.kernels.round(row, nullptr, channels_,
                            static_cast<std::byte*>(out.data) + batch * channels_ * size_of(out.dtype),
                            out.dtype);
  }

  const Reduction reduction_;
  const LaneRows<Lane> features_;
  const Stop stop_;
  Batches batches_;
  const std::int64_t channels_, slices_;
  Lane *totals_ = nullptr, *partial_ = nullptr;  // [batch_size, channels]
};

void pool(const Caller& caller, const Signature& op, const ConstTensor& features, const ConstTensor& indices,
          const Tensor& features_out, Reduction reduction) {
  Context& context = caller.context();
  Call call(caller, op, {features, indices, features_out}, {});
  if (call.nothing_to_do()) return;
  visit_lane(features.dtype, [&](auto type) {
    GlobalPoolPlan<typename decltype(type)::type> plan(features, features_out.shape[0], reduction,
                                                       context.threads(), context.isa());
    call.chose("slices of channels", plan.threads());
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
      Lane* result = wide + 3 * channels;
      for (std::int64_t row = begin; row < end; ++row) {
        const Lane* value = values(row, 0, channels, wide);
        const Lane* most = maxima(batches[row], 0, channels, wide + channels);
        const Lane* grad = grads(batches[row], 0, channels, wide + 2 * channels);
        for (std::int64_t c = 0; c < channels; ++c) result[c] = value[c] == most[c] ? grad[c] : Lane{0};
        kernels.round(result, nullptr, channels,
                      static_cast<std::byte*>(input_grad.data) + row * channels * size_of(input_grad.dtype),
                      input_grad.dtype);
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
      for (std::int64_t row = begin; row < end; ++row)
        std::copy_n(shares + batches[row] * row_bytes, row_bytes, to + row * row_bytes);
    });
  });
}

}  // namespace turnout
