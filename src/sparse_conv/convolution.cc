// The convolution and its gradient with respect to the features, in blocks of output rows.
#include "sparse_conv/convolution.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "core/saturate.h"
#include "runtime/parallel.h"
#include "simd/half.h"
#include "sparse_conv/signature.h"
#include "turnout/sparse_conv.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

constexpr std::int64_t kBlockBytes = 256 << 10;  // of sums, which stay in the L2 cache
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

// With few channels, a product for each pair spends most of its time on its sums. If most neighbours are
// present, all of them are multiplied at once.
constexpr std::int64_t kFewChannels = 8, kMostGathered = 1024, kLeastGatheredRows = 1024;
constexpr double kDense = 0.6;  // the share of all neighbours

std::int64_t gathered_for(const Pairs& pairs, const ConvolutionShape& shape) {
  const std::int64_t all = saturating_product(pairs.offsets, shape.depth);
  const double possible = static_cast<double>(pairs.offsets) * static_cast<double>(pairs.to_rows);
  const bool dense =
      pairs.to_rows >= kLeastGatheredRows && static_cast<double>(pairs.total) >= kDense * possible;
  return dense && pairs.offsets > 1 && shape.depth <= kFewChannels && all <= kMostGathered ? all : 0;
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
  Lane* wide;  // [batch, depth], for 16-bit rows; or [rows of a block, gathered]
};

template <class Lane>
ConvolutionPlan<Lane>::ConvolutionPlan(const Pairs& pairs, const ConvolutionShape& shape, int threads,
                                       Isa isa, const ConstTensor& index)
    : pairs_(pairs),
      shape_(shape),
      products_(isa, shape.dtype),
      padded_columns_(products_.kernels().padded(shape.columns)),
      threads_(threads_for(pairs, shape, threads)),
      block_bits_(block_bits_for(pairs.to_rows, padded_columns_ * std::int64_t{sizeof(Lane)}, threads_)),
      batch_(batch_for(shape.depth * std::int64_t{sizeof(Lane)})),
      gathered_(gathered_for(pairs, shape)),
      lists_(pairs, block_bits_, threads_) {
  if (!index.is_absent()) kept_.emplace(index, pairs);
}

template <class Lane>
std::size_t ConvolutionPlan<Lane>::worker_bytes() const {
  return array_bytes<Lane>(padded_columns_ << block_bits_) +
         std::max(products_.wide_bytes(batch_, shape_.depth), array_bytes<Lane>(gathered_ << block_bits_));
}

// The packed filters, by offset or all together.
template <class Lane>
std::size_t ConvolutionPlan<Lane>::filter_bytes() const {
  return std::max(
      static_cast<std::size_t>(pairs_.offsets) * products_.packed_bytes(shape_.depth, shape_.columns),
      array_bytes<Lane>(products_.kernels().packed_size(gathered_, shape_.columns)));
}

template <class Lane>
std::size_t ConvolutionPlan<Lane>::scratch_bytes() const {
  return (kept_ ? kept_->scratch_bytes()
                : lists_.scratch_bytes() + array_bytes<std::int64_t>(lists_.words())) +
         filter_bytes() + array_bytes<Lane>(padded_columns_) +
         static_cast<std::size_t>(threads_) * worker_bytes();
}

template <class Lane>
void ConvolutionPlan<Lane>::pack(Context& context, const ConvolutionOperands& operands) {
  if (operands.bias != nullptr)
    products_.kernels().widen(&operands.bias, shape_.dtype, 1, shape_.columns, bias_, padded_columns_);
  gathers_ = gathered_ > 0 && pack_gathered(operands);
  if (gathers_) return;
  const std::size_t bytes = products_.packed_bytes(shape_.depth, shape_.columns);
  parallel_for(
      context, pairs_.offsets, 1,
      [&](std::int64_t k, std::int64_t) {
        if (pairs_.counts[k] == 0 && !kept_) return;  // the kept index may contain it nevertheless
        const auto* from = static_cast<const std::byte*>(operands.filters) +
                           k * operands.offset_stride * size_of(shape_.dtype);
        products_.pack(
            {from, shape_.dtype, shape_.depth, shape_.columns, operands.depth_stride, operands.column_stride},
            packed_ + static_cast<std::size_t>(k) * bytes);
      },
      threads_);
}

// Packs all filters as one matrix [offsets * depth, columns]. Returns false if they are not laid out as one,
// or if one is not finite: its product with the 0 of an absent neighbour would be NaN.
template <class Lane>
bool ConvolutionPlan<Lane>::pack_gathered(const ConvolutionOperands& operands) {
  if (operands.offset_stride != shape_.depth * operands.depth_stride) return false;
  auto* packed = reinterpret_cast<Lane*>(packed_);
  products_.kernels().pack({operands.filters, shape_.dtype, gathered_, shape_.columns, operands.depth_stride,
                            operands.column_stride},
                           packed);
  return std::all_of(packed, packed + products_.kernels().packed_size(gathered_, shape_.columns),
                     [](Lane v) { return std::isfinite(v); });
}

// Calls body(offset, row within the block, source row) for the pairs of a block in ascending offset.
template <class Lane>
template <class Body>
void ConvolutionPlan<Lane>::for_each_pair(std::int64_t block, const Body& body) const {
  // A block of a kept index may have more rows than `block`; pairs of other rows are skipped. Source rows and
  // offsets are clamped, because the memory of a kept index may change during the call.
  const PairsByRow own{pairs_.to_rows, block_bits_};
  const auto rows = static_cast<std::uint64_t>(own.rows(block));
  const std::int64_t of_index = block >> (by_row_.block_bits - block_bits_);
  const std::int64_t first = own.first_row(block) - by_row_.first_row(of_index);
  const std::int64_t last_from = pairs_.from_rows - 1, last_offset = pairs_.offsets - 1;
  const ListedPair* const end = by_row_.end(of_index);
  for (const ListedPair* pair = by_row_.begin(of_index); pair < end; ++pair) {
    const ListedPair one = ListedPair::once(pair);
    const auto row = static_cast<std::uint64_t>(one.row() - first);
    if (row < rows)
      body(std::min(one.offset(), last_offset), static_cast<std::int64_t>(row),
           std::min(one.from(), last_from));
  }
}

template <class Lane>
void ConvolutionPlan<Lane>::multiply_pairs(std::int64_t block, const std::byte* base,
                                           const Worker& worker) const {
  const std::int64_t from_bytes = shape_.depth * size_of(shape_.dtype);
  const std::size_t packed_bytes = products_.packed_bytes(shape_.depth, shape_.columns);
  const void* from[kMostBatch];
  Lane* to[kMostBatch];
  std::int64_t count = 0, offset = 0;
  const auto multiply = [&] {
    products_.multiply(from, to, count, packed_ + static_cast<std::size_t>(offset) * packed_bytes,
                       shape_.depth, padded_columns_, matrix::Write::add, worker.wide);
    count = 0;
  };
  for_each_pair(block, [&](std::int64_t k, std::int64_t row, std::int64_t from_row) {
    if (count == batch_ || (k != offset && count > 0)) multiply();
    offset = k;
    from[count] = base + from_row * from_bytes;
    to[count++] = worker.sums + row * padded_columns_;
  });
  if (count > 0) multiply();
}

// Copies the elements of all neighbours of a row next to each other, with 0 for those that are absent, and
// multiplies them at once.
template <class Lane>
void ConvolutionPlan<Lane>::multiply_gathered(std::int64_t block, const std::byte* base,
                                              const Worker& worker) const {
  const std::int64_t rows = PairsByRow{pairs_.to_rows, block_bits_}.rows(block);
  std::fill_n(worker.wide, rows * gathered_, Lane{0});
  visit_float(shape_.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<matrix::LaneOf<T>, Lane>) {
      const auto add = [&]<int kDepth>(std::integral_constant<int, kDepth>) {
        for_each_pair(block, [&](std::int64_t k, std::int64_t row, std::int64_t from_row) {
          const T* from = reinterpret_cast<const T*>(base) + from_row * kDepth;
          Lane* to = worker.wide + row * gathered_ + k * kDepth;
          for (int c = 0; c < kDepth; ++c) to[c] += static_cast<Lane>(to_float(from[c]));
        });
      };
      [&]<int... I>(std::integer_sequence<int, I...>) {
        ((shape_.depth == I + 1 ? add(std::integral_constant<int, I + 1>()) : void()), ...);
      }
      (std::make_integer_sequence<int, int{kFewChannels}>());
    }
  });
  const auto* packed = reinterpret_cast<const Lane*>(packed_);
  for (const Piece piece : pieces(0, rows, kMostBatch)) {
    const Lane* from[kMostBatch];
    Lane* to[kMostBatch];
    for (std::int64_t i = 0; i < piece.count; ++i) {
      from[i] = worker.wide + (piece.begin + i) * gathered_;
      to[i] = worker.sums + (piece.begin + i) * padded_columns_;
    }
    products_.kernels().multiply(from, to, piece.count, packed, gathered_, padded_columns_,
                                 matrix::Write::store);
  }
}

template <class Lane>
void ConvolutionPlan<Lane>::add_block(std::int64_t block, const ConvolutionOperands& operands,
                                      const Worker& worker) const {
  const PairsByRow own{pairs_.to_rows, block_bits_};
  const std::int64_t rows = own.rows(block);
  const std::int64_t to_bytes = shape_.columns * size_of(shape_.dtype);
  const auto* base = static_cast<const std::byte*>(operands.from);
  if (gathers_) {
    multiply_gathered(block, base, worker);
  } else {
    std::fill_n(worker.sums, rows * padded_columns_, Lane{0});
    multiply_pairs(block, base, worker);
  }

  auto* out = static_cast<std::byte*>(operands.to) + own.first_row(block) * to_bytes;
  const Lane* bias = operands.bias != nullptr ? bias_ : nullptr;
  for (std::int64_t row = 0; row < rows; ++row)
    products_.kernels().round(worker.sums + row * padded_columns_, bias, shape_.columns, out + row * to_bytes,
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
  packed_ = scratch.take<std::byte>(static_cast<std::int64_t>(filter_bytes()));
  bias_ = scratch.take<Lane>(padded_columns_);
  const std::int64_t sums = padded_columns_ << block_bits_;
  auto* memory = scratch.rest();
  const std::size_t bytes = worker_bytes();
  pack(context, operands);
  const std::int64_t blocks = PairsByRow{pairs_.to_rows, block_bits_}.blocks();
  parallel_for(
      context, blocks, 1,
      [&](std::int64_t block, std::int64_t, int number) {
        std::byte* own = memory + static_cast<std::size_t>(number) * bytes;
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
    call.uses(plan.last_isa());
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
