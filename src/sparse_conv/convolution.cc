// The convolution and its gradient with respect to the features, in blocks of output rows.
#include "sparse_conv/convolution.h"

#include <algorithm>
#include <bit>

#include "core/dtypes.h"
#include "core/saturate.h"
#include "runtime/parallel.h"
#include "sparse_conv/signature.h"
#include "turnout/sparse_conv.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

constexpr std::int64_t kBlockBytes = 128 << 10;  // of sums, which stay in the L2 cache
constexpr std::int64_t kLeastRows = 64;          // of a block; fewer leave most tiles of a product incomplete
constexpr std::int64_t kMostBatch = 96;          // pairs; a multiple of 4, 6 and 8 rows
constexpr std::int64_t kBatchBytes = 256 << 10;  // of widened rows

int threads_for(const Pairs& pairs, const ConvolutionShape& shape, int threads) {
  const double products = static_cast<double>(pairs.total) * static_cast<double>(shape.depth) *
                          static_cast<double>(shape.columns);
  return products < kParallelProducts ? 1 : threads;
}

int block_bits_for(std::int64_t rows, std::int64_t row_bytes, int threads) {
  std::int64_t most = std::min(ListedPair::kMostRows, kBlockBytes / std::max<std::int64_t>(row_bytes, 1));
  // Four blocks per thread if there are enough rows, so that threads finish at about the same time.
  if (threads > 1) most = std::min(most, std::max(kLeastRows, rows / (4 * threads)));
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(most, 8)))) - 1;
}

std::int64_t batch_for(std::int64_t row_bytes) {
  return std::clamp<std::int64_t>(kBatchBytes / std::max<std::int64_t>(row_bytes, 1) / 24 * 24, 24,
                                  kMostBatch);
}

}  // namespace

void check_same_rows(const Arguments& arguments, const Positions& at) {
  if (arguments.size(at[0]) == 0) return;
  const std::int64_t rows = arguments.size(at[1]), out = arguments.size(at[2]);
  if (rows != out)
    arguments.fail(ErrorCode::bad_param,
                   concat(arguments.size_text(at[2]), " is ", out, " with ", arguments.name("subm"),
                          ", expected ", rows, " = ", arguments.size_text(at[1])));
}

namespace {

// The distance between neighbouring offsets of filters [k.., in, out]. Dimensions of extent 1 are ignored.
std::int64_t offset_stride(const std::int64_t* shape, const std::int64_t* stride, int rank) {
  int d = rank - 3;
  while (d > 0 && shape[d] == 1) --d;
  return stride[d];
}
std::int64_t offset_stride(const ConstTensor& filters) {
  return offset_stride(filters.shape, filters.stride, filters.rank);
}

}  // namespace

void check_filter_strides(const Arguments& arguments, const Positions& at) {
  const Slot& filters = arguments.slot(at[0]);
  if (filters.is_empty()) return;
  std::int64_t expected = offset_stride(filters.shape, filters.stride, filters.rank);
  for (int d = filters.rank - 3; d >= 0; --d) {
    if (filters.shape[d] == 1) continue;
    if (filters.stride[d] != expected)
      arguments.fail(ErrorCode::bad_param,
                     concat(arguments.name(at[0]), ".stride(", std::int64_t{d}, ") is ", filters.stride[d],
                            ", expected contiguous kernel dimensions"));
    expected = saturating_product(expected, filters.shape[d]);
  }
}

template <class Lane>
struct ConvolutionPlan<Lane>::Worker {
  Lane* sums;  // [rows of a block, padded columns]
  Lane* wide;  // [batch, depth], for 16-bit rows
};

template <class Lane>
ConvolutionPlan<Lane>::ConvolutionPlan(const Pairs& pairs, const ConvolutionShape& shape, int threads,
                                       Isa isa, const ConstTensor& index)
    : pairs_(pairs),
      shape_(shape),
      kernels_(matrix::kernels<Lane>(isa)),
      padded_columns_(kernels_.padded(shape.columns)),
      block_bits_(block_bits_for(pairs.to_rows, padded_columns_ * std::int64_t{sizeof(Lane)}, threads)),
      threads_(threads_for(pairs, shape, threads)),
      batch_(batch_for(shape.depth * std::int64_t{sizeof(Lane)})),
      lists_(pairs, block_bits_, threads_) {
  if (!index.is_absent()) kept_.emplace(index, pairs);
}

template <class Lane>
std::size_t ConvolutionPlan<Lane>::scratch_bytes() const {
  const bool widens = size_of(shape_.dtype) == 2;
  const std::size_t worker = array_bytes<Lane>(padded_columns_ << block_bits_) +
                             (widens ? array_bytes<Lane>(batch_ * shape_.depth) : 0);
  return (kept_ ? kept_->scratch_bytes()
                : lists_.scratch_bytes() + array_bytes<std::int64_t>(lists_.words())) +
         array_bytes<Lane>(pairs_.offsets * kernels_.packed_size(shape_.depth, shape_.columns)) +
         array_bytes<Lane>(padded_columns_) + static_cast<std::size_t>(threads_) * worker;
}

template <class Lane>
void ConvolutionPlan<Lane>::pack(Context& context, const ConvolutionOperands& operands) {
  const std::int64_t size = kernels_.packed_size(shape_.depth, shape_.columns);
  parallel_for(
      context, pairs_.offsets, 1,
      [&](std::int64_t k, std::int64_t) {
        if (pairs_.counts[k] == 0 && !kept_) return;  // the kept index may contain it nevertheless
        const auto* from = static_cast<const std::byte*>(operands.filters) +
                           k * operands.offset_stride * size_of(shape_.dtype);
        kernels_.pack(
            {from, shape_.dtype, shape_.depth, shape_.columns, operands.depth_stride, operands.column_stride},
            packed_ + k * size);
      },
      threads_);
  if (operands.bias != nullptr)
    kernels_.widen(&operands.bias, shape_.dtype, 1, shape_.columns, bias_, padded_columns_);
}

template <class Lane>
void ConvolutionPlan<Lane>::add_block(std::int64_t block, const ConvolutionOperands& operands,
                                      const Worker& worker) const {
  const PairsByRow own{pairs_.to_rows, block_bits_};
  const std::int64_t rows = own.rows(block);
  const std::int64_t from_bytes = shape_.depth * size_of(shape_.dtype);
  const std::int64_t to_bytes = shape_.columns * size_of(shape_.dtype);
  const std::int64_t packed_size = kernels_.packed_size(shape_.depth, shape_.columns);
  const auto* base = static_cast<const std::byte*>(operands.from);
  std::fill_n(worker.sums, rows * padded_columns_, Lane{0});

  const void* there[kMostBatch];
  const Lane* from[kMostBatch];
  Lane* to[kMostBatch];
  // A block of a kept index may have more rows than `block`; pairs of other rows are skipped. Source rows and
  // offsets are clamped, because the memory of a kept index may change during the call.
  const int more_bits = by_row_.block_bits - block_bits_;
  const std::int64_t of_index = block >> more_bits;
  const std::int64_t first = own.first_row(block) - by_row_.first_row(of_index);
  const std::int64_t last_from = pairs_.from_rows - 1, last_offset = pairs_.offsets - 1;
  const ListedPair* const end = by_row_.end(of_index);
  for (const ListedPair* pair = by_row_.begin(of_index); pair < end;) {
    ListedPair one = ListedPair::once(pair);
    const std::int64_t k = one.offset();
    std::int64_t count = 0;
    do {
      const auto row = static_cast<std::uint64_t>(one.row() - first);
      if (row < static_cast<std::uint64_t>(rows)) {
        const std::byte* at = base + std::min(one.from(), last_from) * from_bytes;
        there[count] = at;
        from[count] = reinterpret_cast<const Lane*>(at);
        to[count++] = worker.sums + static_cast<std::int64_t>(row) * padded_columns_;
      }
      if (++pair == end) break;
      one = ListedPair::once(pair);
    } while (count < batch_ && one.offset() == k);
    if (size_of(shape_.dtype) == 2) {
      kernels_.widen(there, shape_.dtype, count, shape_.depth, worker.wide, shape_.depth);
      for (std::int64_t i = 0; i < count; ++i) from[i] = worker.wide + i * shape_.depth;
    }
    kernels_.multiply(from, to, count, packed_ + std::min(k, last_offset) * packed_size, shape_.depth,
                      padded_columns_, matrix::Write::add);
  }

  auto* out = static_cast<std::byte*>(operands.to) + own.first_row(block) * to_bytes;
  const Lane* bias = operands.bias != nullptr ? bias_ : nullptr;
  for (std::int64_t row = 0; row < rows; ++row)
    kernels_.round(worker.sums + row * padded_columns_, bias, shape_.columns, out + row * to_bytes,
                   shape_.dtype);
}

template <class Lane>
void ConvolutionPlan<Lane>::run(Context& context, Call& call, const PairRows& from, const PairRows& to,
                                const ConvolutionOperands& operands, Scratch& scratch) {
  if (kept_) {
    by_row_ = kept_->check(context, call, from, scratch);
  } else {
    by_row_ = lists_.build(context, call, from, to, scratch.take<std::int64_t>(lists_.words()), scratch);
  }
  packed_ = scratch.take<Lane>(pairs_.offsets * kernels_.packed_size(shape_.depth, shape_.columns));
  bias_ = scratch.take<Lane>(padded_columns_);
  const std::int64_t sums = padded_columns_ << block_bits_;
  const std::int64_t wide = size_of(shape_.dtype) == 2 ? batch_ * shape_.depth : 0;
  auto* memory = scratch.rest();
  const auto worker_bytes = array_bytes<Lane>(sums) + array_bytes<Lane>(wide);
  pack(context, operands);
  const std::int64_t blocks = PairsByRow{pairs_.to_rows, block_bits_}.blocks();
  parallel_for(
      context, blocks, 1,
      [&](std::int64_t block, std::int64_t, int number) {
        std::byte* own = memory + static_cast<std::size_t>(number) * worker_bytes;
        const Worker worker{reinterpret_cast<Lane*>(own),
                            reinterpret_cast<Lane*>(own + array_bytes<Lane>(sums))};
        add_block(block, operands, worker);
      },
      threads_);
}

template class ConvolutionPlan<float>;
template class ConvolutionPlan<double>;

namespace {

// Runs one convolution after the checks of its signature.
void convolve(Call& call, const ConstTensor& indice_pairs, const ConstTensor& indice_num,
              const ConstTensor& index, const PairRows& from, const PairRows& to, bool subm,
              const ConvolutionShape& shape, const ConvolutionOperands& operands) {
  Context& context = call.context();
  Pairs pairs = read_pairs(call, indice_pairs, indice_num, from, to, subm);
  visit_lane(shape.dtype, [&](auto lane) {
    using Lane = typename decltype(lane)::type;
    ConvolutionPlan<Lane> plan(pairs, shape, context.threads(), context.isa(), index);
    call.chose(index.is_absent() ? "blocks of rows" : "blocks of a kept index", plan.threads());
    Scratch& scratch = call.scratch(pairs.scratch_bytes() + plan.scratch_bytes());
    keep_counts(call, indice_num, pairs, scratch);
    plan.run(context, call, from, to, operands, scratch);
  });
}

}  // namespace
}  // namespace families::sparse_conv

using namespace families::sparse_conv;

void indice_convolution_forward(const ConstTensor& features, const ConstTensor& filters,
                                const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                                const ConstTensor& bias, const ConstTensor& index, const Tensor& features_out,
                                const IndiceConvolutionParams& params, const Caller& caller) {
  Call call(caller, kIndiceConvolutionForward,
            {features, filters, indice_pairs, indice_num, bias, index, features_out},
            {params.inverse, params.subm});
  if (call.nothing_to_do()) return;
  convolve(call, indice_pairs, indice_num, index, {"features", params.inverse ? 1 : 0, features.shape[0]},
           {"features_out", params.inverse ? 0 : 1, features_out.shape[0]}, params.subm,
           {features.dtype, features.shape[1], features_out.shape[1]},
           {features.data, bias.data, features_out.data, filters.data, offset_stride(filters),
            filters.stride[filters.rank - 2], filters.stride[filters.rank - 1]});
}

void indice_convolution_backward_data(const ConstTensor& output_grad, const ConstTensor& filters,
                                      const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                                      const ConstTensor& index, const Tensor& input_grad,
                                      const IndiceConvolutionParams& params, const Caller& caller) {
  Call call(caller, kIndiceConvolutionBackwardData,
            {output_grad, filters, indice_pairs, indice_num, index, input_grad},
            {params.inverse, params.subm});
  if (call.nothing_to_do()) return;
  convolve(call, indice_pairs, indice_num, index,
           {"output_grad", params.inverse ? 0 : 1, output_grad.shape[0]},
           {"input_grad", params.inverse ? 1 : 0, input_grad.shape[0]}, params.subm,
           {output_grad.dtype, output_grad.shape[1], input_grad.shape[1]},
           {output_grad.data, nullptr, input_grad.data, filters.data, offset_stride(filters),
            filters.stride[filters.rank - 1], filters.stride[filters.rank - 2]});
}

}  // namespace turnout
