// Maxima and means along given pairs, and their gradients, in blocks of result rows.
#include <algorithm>
#include <limits>

#include "core/dtypes.h"
#include "indices/indices.h"
#include "matrix/matrix.h"
#include "runtime/parallel.h"
#include "simd/half.h"
#include "sparse_conv/pair_lists.h"
#include "sparse_conv/pool_signature.h"
#include "turnout/sparse_conv.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

constexpr int kBlockBits = 8;
static_assert(1 << kBlockBits <= ListedPair::kMostRows);

// The operations of a pooling on a block: start(), then add() for each pair of its list, then finish() for
// each row, then one rounding.
template <class Lane>
struct Pooling {
  const matrix::Kernels<Lane>& kernels;
  std::int64_t channels;
  const std::int64_t* counts = nullptr;  // the number of pairs of each output row, if needed

  Lane start() const { return 0; }
  void finish(Lane*, std::int64_t) const {}

  // A row of any float dtype in lanes, widened into `buffer` unless it has lanes already.
  const Lane* row_of(const ConstTensor& t, std::int64_t row, Lane* buffer) const {
    const void* at = static_cast<const std::byte*>(t.data) + row * channels * size_of(t.dtype);
    if (size_of(t.dtype) != 2) return static_cast<const Lane*>(at);
    kernels.widen(&at, t.dtype, 1, channels, buffer, channels);
    return buffer;
  }
};
constexpr std::int64_t kBuffers = 3;  // rows that add() may widen

void count_pairs(const Pairs& pairs, int side, std::int64_t rows, std::int64_t* counts) {
  std::fill_n(counts, rows, 0);
  for (std::int64_t k = 0; k < pairs.offsets; ++k) {
    const std::int32_t* of = pairs.entries + (2 * k + side) * pairs.columns;
    // The pairs may have changed since they were checked.
    serial_for(0, pairs.counts[k], [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j)
        if (const std::int64_t row = load_once(of + j); in_range(row, rows)) ++counts[row];
    });
  }
}

// Computes the result in blocks of rows, each by one thread.
template <class Lane>
class PoolingPlan {
 public:
  // counted_rows: the number of outputs; 0 if the pooling does not need the number of pairs of each output.
  PoolingPlan(const Pairs& pairs, const Tensor& result, std::int64_t counted_rows, int threads)
      : pairs_(pairs),
        result_(result),
        channels_(result.shape[1]),
        row_bytes_(channels_ * size_of(result.dtype)),
        counted_rows_(counted_rows),
        threads_(pairs.total * row_bytes_ < kParallelBytes ? 1 : threads),
        lists_(pairs, kBlockBits, threads_) {}

  int threads() const { return threads_; }
  std::size_t scratch_bytes() const {
    return array_bytes<std::int64_t>(lists_.words()) + lists_.scratch_bytes() +
           array_bytes<std::int64_t>(counted_rows_) + static_cast<std::size_t>(threads_) * worker_bytes();
  }

  // make(kernels, counts) returns the Pooling. Throws for a pair with a row out of range before anything is
  // written.
  template <class Make>
  void run(Context& context, Call& call, const PairRows& from, const PairRows& to, const Make& make,
           Scratch& scratch) {
    auto* words = scratch.take<std::int64_t>(lists_.words());
    const PairsByRow by_row = lists_.build(context, call, from, to, words, scratch);
    auto* counts = scratch.take<std::int64_t>(counted_rows_);
    if (counted_rows_ > 0) count_pairs(pairs_, 1, counted_rows_, counts);
    auto* memory = scratch.rest();
    const auto pooling = make(matrix::kernels<Lane>(context.isa()), counts);
    parallel_for(
        context, by_row.blocks(), 1,
        [&](std::int64_t block, std::int64_t, int number) {
          auto* values = reinterpret_cast<Lane*>(memory + static_cast<std::size_t>(number) * worker_bytes());
          pool_block(pooling, by_row, block, values);
        },
        threads_);
  }

 private:
  std::size_t worker_bytes() const {  // the rows of a block, and the buffers of add()
    return array_bytes<Lane>((channels_ << kBlockBits) + kBuffers * channels_);
  }

  template <class OnePooling>
  void pool_block(const OnePooling& pooling, const PairsByRow& by_row, std::int64_t block,
                  Lane* values) const {
    Lane* buffer = values + (channels_ << kBlockBits);
    const std::int64_t rows = by_row.rows(block), first = by_row.first_row(block);
    std::fill_n(values, rows * channels_, pooling.start());
    for (const ListedPair* pair = by_row.begin(block); pair < by_row.end(block); ++pair)
      pooling.add(values + pair->row() * channels_, pair->from(), first + pair->row(), buffer);
    for (std::int64_t row = 0; row < rows; ++row) pooling.finish(values + row * channels_, first + row);
    pooling.kernels.round(values, nullptr, rows * channels_,
                          static_cast<std::byte*>(result_.data) + first * row_bytes_, result_.dtype);
  }

  const Pairs& pairs_;
  const Tensor& result_;
  const std::int64_t channels_, row_bytes_, counted_rows_;
  const int threads_;
  PairLists lists_;
};

// Runs one pooling after the checks of its signature.
template <class Lane, class Make>
void pool(Call& call, const ConstTensor& indice_pairs, const ConstTensor& indice_num, const PairRows& from,
          const PairRows& to, const Tensor& result, std::int64_t counted_rows, const Make& make) {
  Context& context = call.context();
  Pairs pairs = read_pairs(call, indice_pairs, indice_num, from, to, false);
  PoolingPlan<Lane> plan(pairs, result, counted_rows, context.threads());
  call.chose("blocks of rows", plan.threads());
  Scratch& scratch = call.scratch(pairs.scratch_bytes() + plan.scratch_bytes());
  keep_counts(call, indice_num, pairs, scratch);
  plan.run(context, call, from, to, make, scratch);
}

template <class Lane>
struct MaxForward : Pooling<Lane> {
  const ConstTensor& features;
  Lane init;
  Lane start() const { return init; }
  void add(Lane* to, std::int64_t from, std::int64_t, Lane* buffer) const {
    const Lane* in = this->row_of(features, from, buffer);
    for (std::int64_t c = 0; c < this->channels; ++c) to[c] = in[c] > to[c] ? in[c] : to[c];
  }
};

template <class Lane>
struct MaxBackward : Pooling<Lane> {
  const ConstTensor &features, &features_out, &output_grad;
  void add(Lane* to, std::int64_t out, std::int64_t in, Lane* buffer) const {
    const Lane* value = this->row_of(features, in, buffer);
    const Lane* most = this->row_of(features_out, out, buffer + this->channels);
    const Lane* grad = this->row_of(output_grad, out, buffer + 2 * this->channels);
    for (std::int64_t c = 0; c < this->channels; ++c) to[c] += value[c] == most[c] ? grad[c] : Lane{0};
  }
};

template <class Lane>
struct AvgForward : Pooling<Lane> {
  const ConstTensor& features;
  void add(Lane* to, std::int64_t from, std::int64_t, Lane* buffer) const {
    const Lane* in = this->row_of(features, from, buffer);
    for (std::int64_t c = 0; c < this->channels; ++c) to[c] += in[c];
  }
  void finish(Lane* row, std::int64_t number) const {
    const auto count = static_cast<Lane>(std::max<std::int64_t>(this->counts[number], 1));
    for (std::int64_t c = 0; c < this->channels; ++c) row[c] /= count;
  }
};

template <class Lane>
struct AvgBackward : Pooling<Lane> {
  const ConstTensor& output_grad;
  void add(Lane* to, std::int64_t out, std::int64_t, Lane* buffer) const {
    const Lane* grad = this->row_of(output_grad, out, buffer);
    const auto count = static_cast<Lane>(std::max<std::int64_t>(this->counts[out], 1));
    for (std::int64_t c = 0; c < this->channels; ++c) to[c] += grad[c] / count;
  }
};

template <class Lane>
Lane lowest(DType dtype) {
  if (dtype == DType::f16) return to_float(f16{0xFBFF});
  if (dtype == DType::bf16) return to_float(bf16{0xFF7F});
  return std::numeric_limits<Lane>::lowest();
}

}  // namespace
}  // namespace families::sparse_conv

using namespace families::sparse_conv;

void indice_max_pool_forward(const ConstTensor& features, const ConstTensor& indice_pairs,
                             const ConstTensor& indice_num, const Tensor& features_out, PoolInit init,
                             const Caller& caller) {
  Call call(caller, kIndiceMaxPoolForward, {features, indice_pairs, indice_num, features_out}, {init});
  if (call.nothing_to_do()) return;
  visit_lane(features.dtype, [&](auto type) {
    using Lane = typename decltype(type)::type;
    const Lane start = init == PoolInit::zero ? Lane{0} : lowest<Lane>(features.dtype);
    pool<Lane>(call, indice_pairs, indice_num, {"features", 0, features.shape[0]},
               {"features_out", 1, features_out.shape[0]}, features_out, 0,
               [&](const auto& kernels, const std::int64_t* counts) {
                 return MaxForward<Lane>{{kernels, features.shape[1], counts}, features, start};
               });
  });
}

void indice_max_pool_backward(const ConstTensor& features, const ConstTensor& features_out,
                              const ConstTensor& output_grad, const ConstTensor& indice_pairs,
                              const ConstTensor& indice_num, const Tensor& input_grad, const Caller& caller) {
  Call call(caller, kIndiceMaxPoolBackward,
            {features, features_out, output_grad, indice_pairs, indice_num, input_grad}, {});
  if (call.nothing_to_do()) return;
  visit_lane(features.dtype, [&](auto type) {
    using Lane = typename decltype(type)::type;
    pool<Lane>(
        call, indice_pairs, indice_num, {"output_grad", 1, output_grad.shape[0]},
        {"features", 0, features.shape[0]}, input_grad, 0,
        [&](const auto& kernels, const std::int64_t* counts) {
          return MaxBackward<Lane>{{kernels, features.shape[1], counts}, features, features_out, output_grad};
        });
  });
}

void indice_avg_pool_forward(const ConstTensor& features, const ConstTensor& indice_pairs,
                             const ConstTensor& indice_num, const Tensor& features_out,
                             const Caller& caller) {
  Call call(caller, kIndiceAvgPoolForward, {features, indice_pairs, indice_num, features_out}, {});
  if (call.nothing_to_do()) return;
  visit_lane(features.dtype, [&](auto type) {
    using Lane = typename decltype(type)::type;
    pool<Lane>(call, indice_pairs, indice_num, {"features", 0, features.shape[0]},
               {"features_out", 1, features_out.shape[0]}, features_out, features_out.shape[0],
               [&](const auto& kernels, const std::int64_t* counts) {
                 return AvgForward<Lane>{{kernels, features.shape[1], counts}, features};
               });
  });
}

void indice_avg_pool_backward(const ConstTensor& output_grad, const ConstTensor& indice_pairs,
                              const ConstTensor& indice_num, const Tensor& input_grad, const Caller& caller) {
  Call call(caller, kIndiceAvgPoolBackward, {output_grad, indice_pairs, indice_num, input_grad}, {});
  if (call.nothing_to_do()) return;
  visit_lane(output_grad.dtype, [&](auto type) {
    using Lane = typename decltype(type)::type;
    pool<Lane>(call, indice_pairs, indice_num, {"output_grad", 1, output_grad.shape[0]},
               {"input_grad", 0, input_grad.shape[0]}, input_grad, output_grad.shape[0],
               [&](const auto& kernels, const std::int64_t* counts) {
                 return AvgBackward<Lane>{{kernels, output_grad.shape[1], counts}, output_grad};
               });
  });
}

}  // namespace turnout
