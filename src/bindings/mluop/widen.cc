// Implements the conversions of half tensors.
#include "bindings/mluop/widen.h"

#include "core/check.h"
#include "runtime/parallel.h"
#include "simd/half.h"

namespace turnout::bindings {

using namespace core;
namespace {

constexpr std::int64_t kGrain = kParallelBytes / 6;  // elements of a range; each moves 6 bytes

Tensor in_float(Scratch& scratch, const Tensor& half) {
  return {scratch.take<float>(Slot(half).elements()), DType::f32, half.shape, half.rank};
}

}  // namespace

std::size_t widened_bytes(std::initializer_list<Tensor> tensors) {
  std::size_t bytes = 0;
  for (const Tensor& one : tensors)
    if (one.dtype == DType::f16) bytes += array_bytes<float>(Slot(one).elements());
  return bytes;
}

Tensor widened(Context& context, Scratch& scratch, const Tensor& input) {
  if (input.dtype != DType::f16) return input;
  const Tensor wide = in_float(scratch, input);
  const auto* from = static_cast<const f16*>(input.data);
  auto* to = static_cast<float*>(wide.data);
  parallel_for(context, Slot(input).elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = to_float(from[i]);
  });
  return wide;
}

Tensor widened_result(Scratch& scratch, const Tensor& result) {
  return result.dtype == DType::f16 ? in_float(scratch, result) : result;
}

void round_result(Context& context, const Tensor& from, const Tensor& result) {
  if (result.dtype != DType::f16) return;
  const auto* values = static_cast<const float*>(from.data);
  auto* to = static_cast<f16*>(result.data);
  parallel_for(context, Slot(result).elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = from_float<f16>(values[i]);
  });
}

}  // namespace turnout::bindings
