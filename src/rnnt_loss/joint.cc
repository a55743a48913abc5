// Plans of the log-probabilities of given logits, joint and pruned. Threads take groups of frames.
#include <cstring>

#include "core/dtypes.h"
#include "rnnt_loss/joint_rows.h"
#include "rnnt_loss/signature.h"
#include "runtime/parallel.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

using namespace core;
namespace {

struct JointArguments {
  const ConstTensor& logits;
  Lattices::Source lattice;
  RnntPrunedParams params;

  JointShape shape(std::int64_t columns) const {
    const std::int64_t frames = logits.shape[1];
    return {{logits.shape[0], lattice.symbols.shape[1], frames, columns == frames},
            logits.shape[2],
            logits.shape[3],
            columns,
            params.termination_symbol,
            !lattice.ranges.is_absent(),
            params.use_hat_loss};
  }
  bool is_parallel() const {
    return Slot(logits).elements() >= kParallelBytes / std::max<std::int64_t>(1, size_of(logits.dtype));
  }
};

JointArguments joint(const ConstTensor& logits, const ConstTensor& symbols, const ConstTensor& ranges,
                     const ConstTensor& boundary, const RnntPrunedParams& params) {
  return {logits, {symbols, ranges, boundary, params.use_hat_loss ? 1 : 0, logits.shape[3]}, params};
}

void forward(Call& call, const JointArguments& a, const Tensor& px, const Tensor& py,
             const Tensor& normalizer, const Tensor& nan_at) {
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  check_hat(call, a.params, "logits", 3, a.logits.shape[3]);
  const JointShape shape = a.shape(px.shape[2]);
  const FrameRanges ranges(shape, a.is_parallel());
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.lattice, shape.is_pruned) +
                                  array_bytes<std::int64_t>(ranges.count));
  const Lattices lattices(call, shape.lattice, a.lattice, scratch);
  auto* found = scratch.take<std::int64_t>(ranges.count);
  call.chose("rows", ranges.is_parallel ? context.threads() : 1);
  visit_float(a.logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Lane = LaneOf<T>;
    const RowKernels<Lane>& kernels = row_kernels<Lane>(context.isa());
    const auto* logits = static_cast<const T*>(a.logits.data);
    parallel_for(context, ranges.count, ranges.grain(), [&](std::int64_t begin, std::int64_t end) {
      const FpEnvironment environment(Denormals::flushed);
      for (std::int64_t i = begin; i < end; ++i) {
        const JointRange<Lane> range(shape, lattices, ranges, i);
        StepWriter<T> writer(range, shape, kernels, px.data, py.data, static_cast<Lane*>(normalizer.data));
        range.visit(
            [&](std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
              writer.write(logits + place * shape.classes, place, t, s, symbol);
            },
            writer.outside());
        found[i] = writer.nan_at();
      }
    });
  });
  ranges.first_of_each(found, shape.lattice.batch, static_cast<std::int64_t*>(nan_at.data));
}

void backward(Call& call, const JointArguments& a, const ConstTensor& normalizer, const ConstTensor& px_grad,
              const ConstTensor& py_grad, const Tensor& logits_grad) {
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  check_hat(call, a.params, "logits", 3, a.logits.shape[3]);
  if (logits_grad.data != a.logits.data && share_memory(logits_grad, a.logits))
    call.refuse(concat(call.name("logits_grad"), " partly overlaps ", call.name("logits"),
                       ", expected the same array or separate memory"));
  const JointShape shape = a.shape(px_grad.shape[2]);
  const FrameRanges ranges(shape, a.is_parallel());
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.lattice, shape.is_pruned));
  const Lattices lattices(call, shape.lattice, a.lattice, scratch);
  call.chose("rows", ranges.is_parallel ? context.threads() : 1);
  visit_float(a.logits.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Lane = LaneOf<T>;
    const RowKernels<Lane>& kernels = row_kernels<Lane>(context.isa());
    const auto* logits = static_cast<const T*>(a.logits.data);
    const auto* n = static_cast<const Lane*>(normalizer.data);
    auto* to = static_cast<T*>(logits_grad.data);
    const auto clear = [&](std::int64_t place, std::int64_t count) {
      std::memset(to + place * shape.classes, 0, static_cast<std::size_t>(count * shape.classes) * sizeof(T));
    };
    parallel_for(context, ranges.count, ranges.grain(), [&](std::int64_t begin, std::int64_t end) {
      const FpEnvironment environment(Denormals::flushed);
      for (std::int64_t i = begin; i < end; ++i) {
        const JointRange<Lane> range(shape, lattices, ranges, i);
        range.visit(
            [&](std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
              const StepGrads<Lane> grads(range, px_grad.data, py_grad.data, t, s, symbol);
              if (grads.are_zero()) return clear(place, 1);
              const std::int64_t first = place * shape.classes;
              grads.to_logits(shape, kernels, logits + first, n[place], symbol, to + first);
            },
            clear);
      }
    });
  });
}

}  // namespace
}  // namespace turnout::families::rnnt_loss

namespace turnout {

using namespace families::rnnt_loss;

void rnnt_logprobs_joint_forward(const ConstTensor& logits, const ConstTensor& symbols,
                                 const ConstTensor& boundary, const Tensor& px, const Tensor& py,
                                 const Tensor& normalizer, const Tensor& nan_at,
                                 std::int64_t termination_symbol, const Caller& caller) {
  Call call(caller, kRnntLogprobsJointForward, {logits, symbols, boundary, px, py, normalizer, nan_at},
            {termination_symbol});
  forward(call, joint(logits, symbols, nullptr, boundary, {termination_symbol}), px, py, normalizer, nan_at);
}

void rnnt_logprobs_joint_backward(const ConstTensor& logits, const ConstTensor& symbols,
                                  const ConstTensor& boundary, const ConstTensor& normalizer,
                                  const ConstTensor& px_grad, const ConstTensor& py_grad,
                                  const Tensor& logits_grad, std::int64_t termination_symbol,
                                  const Caller& caller) {
  Call call(caller, kRnntLogprobsJointBackward,
            {logits, symbols, boundary, normalizer, px_grad, py_grad, logits_grad}, {termination_symbol});
  backward(call, joint(logits, symbols, nullptr, boundary, {termination_symbol}), normalizer, px_grad,
           py_grad, logits_grad);
}

void rnnt_logprobs_pruned_forward(const ConstTensor& logits, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor& boundary, const Tensor& px,
                                  const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                  const RnntPrunedParams& params, const Caller& caller) {
  Call call(caller, kRnntLogprobsPrunedForward,
            {logits, symbols, ranges, boundary, px, py, normalizer, nan_at},
            {params.termination_symbol, params.use_hat_loss});
  forward(call, joint(logits, symbols, ranges, boundary, params), px, py, normalizer, nan_at);
}

void rnnt_logprobs_pruned_backward(const ConstTensor& logits, const ConstTensor& symbols,
                                   const ConstTensor& ranges, const ConstTensor& boundary,
                                   const ConstTensor& normalizer, const ConstTensor& px_grad,
                                   const ConstTensor& py_grad, const Tensor& logits_grad,
                                   const RnntPrunedParams& params, const Caller& caller) {
  Call call(caller, kRnntLogprobsPrunedBackward,
            {logits, symbols, ranges, boundary, normalizer, px_grad, py_grad, logits_grad},
            {params.termination_symbol, params.use_hat_loss});
  backward(call, joint(logits, symbols, ranges, boundary, params), normalizer, px_grad, py_grad, logits_grad);
}

}  // namespace turnout
