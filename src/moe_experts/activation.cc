// The gradient of the activation between the products of an expert block.
#include <algorithm>

#include "core/dtypes.h"
#include "core/grain.h"
#include "core/padding.h"
#include "matrix/matrix.h"
#include "moe_experts/kernels.h"
#include "moe_experts/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "turnout/moe_experts.h"

namespace turnout {

using namespace core;
using namespace families::moe_experts;

void expert_activation_backward(const ConstTensor& products, const ConstTensor& inner_grad,
                                const ConstTensor& row_weights, const Tensor& products_grad,
                                const Tensor& weighted_inner, const Tensor& row_weights_grad,
                                const ExpertActivationParams& params, const Caller& caller) {
  Call call(caller, kExpertActivationBackward,
            {products, inner_grad, row_weights, products_grad, weighted_inner, row_weights_grad},
            {params.activation, params.gated, params.interleaved, params.alpha, params.limit});
  if (call.nothing_to_do()) return;
  Context& context = caller.context();
  const std::int64_t rows = products.shape[0], both = products.shape[1], inner = inner_grad.shape[1];
  const DType dtype = products.dtype;
  const auto& matrix = matrix::kernels<float>(context.isa());
  const Activation& activation = activation_kernels(context.isa()).of(params.activation);
  const auto alpha = static_cast<float>(params.alpha), limit = static_cast<float>(params.limit);
  constexpr std::int64_t kElements = (1 << 14) / kGrainDivisor;  // that are worth a thread's start
  const std::int64_t grain = std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(both, 1));
  const int threads = rows <= grain ? 1 : context.threads();
  const std::size_t worker = 2 * array_bytes<float>(both) + 2 * array_bytes<float>(inner);
  call.chose("rows", threads);
  std::byte* memory = call.scratch(static_cast<std::size_t>(threads) * worker).rest();
  const auto row_of = [](const auto& tensor, std::int64_t r, std::int64_t columns) {
    return static_cast<const std::byte*>(tensor.data) + r * columns * size_of(tensor.dtype);
  };
  const auto result_of = [](const Tensor& tensor, std::int64_t r, std::int64_t columns) {
    return static_cast<std::byte*>(tensor.data) + r * columns * size_of(tensor.dtype);
  };
  parallel_for(
      context, rows, grain,
      [&](std::int64_t begin, std::int64_t end, int number) {
        std::byte* own = memory + static_cast<std::size_t>(number) * worker;
        const auto take = [&](std::int64_t count) {
          auto* begins = reinterpret_cast<float*>(own);
          own += array_bytes<float>(count);
          return begins;
        };
        float *whole = take(both), *parted = take(both), *grad = take(inner), *h = take(inner);
        for (std::int64_t r = begin; r < end; ++r) {
          const void *a = row_of(products, r, both), *g = row_of(inner_grad, r, inner),
                     *w = row_of(row_weights, r, 1);
          float weight = 0;
          matrix.widen(&a, dtype, 1, both, whole, both);
          matrix.widen(&g, dtype, 1, inner, grad, inner);
          matrix.widen(&w, row_weights.dtype, 1, 1, &weight, 1);
          float *gate = whole, *up = params.gated ? whole + inner : nullptr;
          if (params.interleaved) {
            gate = parted;
            up = parted + inner;
            for (std::int64_t i = 0; i < inner; ++i) {
              gate[i] = whole[2 * i];
              up[i] = whole[2 * i + 1];
            }
          }
          static_cast<float*>(row_weights_grad.data)[r] =
              activation.differentiate(gate, up, grad, inner, alpha, limit, weight, h);
          if (params.interleaved)
            for (std::int64_t i = 0; i < inner; ++i) {
              whole[2 * i] = gate[i];
              whole[2 * i + 1] = up[i];
            }
          matrix.round(whole, nullptr, both, result_of(products_grad, r, both), dtype);
          matrix.round(h, nullptr, inner, result_of(weighted_inner, r, inner), dtype);
        }
      },
      threads);
}

}  // namespace turnout
