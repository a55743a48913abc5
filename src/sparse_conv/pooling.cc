// Maxima along given pairs, and their gradient: blocks of the rows that are written.
#include <algorithm>
#include <limits>

#include "core/dtypes.h"
#include "matrix/matrix.h"
#include "runtime/parallel.h"
#include "simd/half.h"
#include "sparse_conv/pair_lists.h"
#include "sparse_conv/signature.h"

namespace turnout {
namespace families::sparse_conv {
namespace {

constexpr int kBlockBits = 8;
static_assert(1 << kBlockBits <= ListedPair::kMostRows);

// For each block of rows: init(values, n), then add(values, pair) along its pairs, then one rounding.
template <class Lane, class Init, class Add>
void pool(Context& context, Call& call, std::string_view op, const ConstTensor& indice_pairs,
          const ConstTensor& indice_num, const PairRows& from, const PairRows& to, const Tensor& result,
          std::int64_t buffers, const Init& init, const Add& add) {
  const Pairs pairs = read_pairs(call, op, indice_pairs, indice_num, from, to, false);
  const std::int64_t channels = result.shape[1], row_bytes = channels * size_of(result.dtype);
  const int threads = pairs.total * row_bytes < kParallelBytes ? 1 : context.threads();
  PairLists lists(pairs, kBlockBits, threads);
  const std::int64_t own = (channels << kBlockBits) + buffers * channels;  // elements of a thread
  Scratch scratch =
      call.lease(lists.scratch_bytes() + static_cast<std::size_t>(threads) * array_bytes<Lane>(own));
  lists.build(context, call, op, from, to, scratch);
  call.chose("blocks of rows", threads);
  auto* memory = scratch.take<std::byte>(0);
  const matrix::Kernels<Lane>& kernels = matrix::kernels<Lane>(context.isa());
  parallel_for(
      context, lists.blocks(), threads == 1 ? lists.blocks() : 1,
      [&](std::int64_t begin, std::int64_t end, int number) {
        auto* values =
            reinterpret_cast<Lane*>(memory + static_cast<std::size_t>(number) * array_bytes<Lane>(own));
        Lane* buffer = values + (channels << kBlockBits);
        for (std::int64_t block = begin; block < end; ++block) {
          const std::int64_t count = lists.rows(block) * channels, first = lists.first_row(block);
          init(values, count);
          for (const ListedPair* pair = lists.begin(block); pair < lists.end(block); ++pair)
            add(kernels, values + pair->row() * channels, pair->from(), first + pair->row(), buffer);
          kernels.round(values, nullptr, count, static_cast<std::byte*>(result.data) + first * row_bytes,
                        result.dtype);
        }
      },
      threads);
}

// A row of any float dtype in lanes; in `buffer` unless it is there already.
template <class Lane>
const Lane* row_of(const matrix::Kernels<Lane>& kernels, const ConstTensor& t, std::int64_t row,
                   Lane* buffer) {
  const std::int64_t channels = t.shape[1];
  const void* at = static_cast<const std::byte*>(t.data) + row * channels * size_of(t.dtype);
  if (size_of(t.dtype) != 2) return static_cast<const Lane*>(at);
  kernels.widen(&at, t.dtype, 1, channels, buffer, channels);
  return buffer;
}

template <class Lane>
Lane lowest(DType dtype) {
  if (dtype == DType::f16) return to_float(f16{0xFBFF});
  if (dtype == DType::bf16) return to_float(bf16{0xFF7F});
  return std::numeric_limits<Lane>::lowest();
}

template <class F>
void with_lane(DType dtype, const F& f) {
  if (dtype == DType::f64) {
    f(Type<double>{});
  } else {
    f(Type<float>{});
  }
}

}  // namespace
}  // namespace families::sparse_conv

using namespace core;
using namespace families::sparse_conv;

void indice_max_pool_forward(Context& context, const ConstTensor& features, const ConstTensor& indice_pairs,
                             const ConstTensor& indice_num, const Tensor& features_out, PoolInit init) {
  Call call(context, kIndiceMaxPoolForward, {features, indice_pairs, indice_num, features_out}, {init});
  if (call.nothing_to_do()) return;
  with_lane(features.dtype, [&](auto type) {
    using Lane = typename decltype(type)::type;
    const Lane start = init == PoolInit::zero ? Lane{0} : lowest<Lane>(features.dtype);
    pool<Lane>(
        context, call, kIndiceMaxPoolForward.op, indice_pairs, indice_num, {"features", 0, features.shape[0]},
        {"features_out", 1, features_out.shape[0]}, features_out, 1,
        [&](Lane* values, std::int64_t n) { std::fill_n(values, n, start); },
        [&](const matrix::Kernels<Lane>& kernels, Lane* to, std::int64_t from, std::int64_t, Lane* buffer) {
          const Lane* in = row_of(kernels, features, from, buffer);
          for (std::int64_t c = 0; c < features.shape[1]; ++c) to[c] = in[c] > to[c] ? in[c] : to[c];
        });
  });
}

void indice_max_pool_backward(Context& context, const ConstTensor& features, const ConstTensor& features_out,
                              const ConstTensor& output_grad, const ConstTensor& indice_pairs,
                              const ConstTensor& indice_num, const Tensor& input_grad) {
  Call call(context, kIndiceMaxPoolBackward,
            {features, features_out, output_grad, indice_pairs, indice_num, input_grad}, {});
  if (call.nothing_to_do()) return;
  with_lane(features.dtype, [&](auto type) {
    using Lane = typename decltype(type)::type;
    const std::int64_t channels = features.shape[1];
    pool<Lane>(
        context, call, kIndiceMaxPoolBackward.op, indice_pairs, indice_num,
        {"output_grad", 1, output_grad.shape[0]}, {"features", 0, features.shape[0]}, input_grad, 3,
        [](Lane* values, std::int64_t n) { std::fill_n(values, n, Lane{0}); },
        [&](const matrix::Kernels<Lane>& kernels, Lane* to, std::int64_t out, std::int64_t in, Lane* buffer) {
          const Lane* value = row_of(kernels, features, in, buffer);
          const Lane* most = row_of(kernels, features_out, out, buffer + channels);
          const Lane* grad = row_of(kernels, output_grad, out, buffer + 2 * channels);
          for (std::int64_t c = 0; c < channels; ++c) to[c] += value[c] == most[c] ? grad[c] : Lane{0};
        });
  });
}

}  // namespace turnout
