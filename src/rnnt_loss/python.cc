// Python bindings of this family.
#include <algorithm>

#include "bindings/python/call.h"
#include "core/check.h"
#include "rnnt_loss/signature.h"
#include "runtime/caller.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

using namespace core;
using namespace bindings;
namespace {

constexpr PythonFunction kJointForward{
    "rnnt_logprobs_joint_forward", kRnntLogprobsJointForward, "", {flag("modified")}};
constexpr PythonFunction kJointBackward{"rnnt_logprobs_joint_backward", kRnntLogprobsJointBackward,
                                        "logits_grad=out"};
constexpr PythonFunction kPrunedForward{
    "rnnt_logprobs_pruned_forward", kRnntLogprobsPrunedForward, "", {flag("modified")}};
constexpr PythonFunction kPrunedBackward{"rnnt_logprobs_pruned_backward", kRnntLogprobsPrunedBackward,
                                         "logits_grad=out"};
constexpr PythonFunction kFusedForward{
    "rnnt_logprobs_fused_forward", kRnntLogprobsFusedForward, "", {flag("modified")}};
constexpr PythonFunction kFusedBackward{"rnnt_logprobs_fused_backward", kRnntLogprobsFusedBackward};
constexpr PythonFunction kSimpleForward{
    "rnnt_logprobs_simple_forward", kRnntLogprobsSimpleForward, "", {flag("modified")}};
constexpr PythonFunction kSimpleBackward{"rnnt_logprobs_simple_backward", kRnntLogprobsSimpleBackward};
constexpr PythonFunction kPruneRanges{
    "rnnt_prune_ranges", kRnntPruneRanges, "ranges=out", {scalar("s_range", 1)}};
constexpr PythonFunction kPruningForward{"rnnt_pruning_forward", kRnntPruningForward, "pruned=out"};
constexpr PythonFunction kPruningBackward{
    "rnnt_pruning_backward", kRnntPruningBackward, "lm_grad=out", {scalar("symbols", 0)}};
constexpr PythonFunction kAlign{"rnnt_align", kRnntAlign};

// Saturates: the operator's check refuses such an extent.
std::int64_t one_more(std::int64_t extent) { return std::min(extent, kSizeMax - 1) + 1; }

// The outputs that every forward function has.
struct Steps {
  Tensor px, py, normalizer, nan_at;
};

Steps steps(PythonCall& call, nb::handle out, const ConstTensor& logits, const ConstTensor& symbols,
            std::int64_t frames, bool modified, std::int64_t normalizers, std::int64_t in_each) {
  const auto to = call.outs(out);
  const std::int64_t batch = logits.shape[0], count = symbols.shape[1];
  const Tensor px = call.out(to[0], {batch, count, modified ? frames : one_more(frames)});
  const Tensor py = call.out(to[1], {batch, one_more(count), frames});
  const Tensor normalizer = call.out(to[2], {batch, normalizers, in_each});
  return {px, py, normalizer, call.out(to[3], {batch}, DType::i64)};
}

nb::object joint_forward(nb::handle logits, nb::handle symbols, nb::handle termination_symbol,
                         nb::handle boundary, nb::handle modified, nb::handle out, bool use_torch_threads) {
  PythonCall call(kJointForward, use_torch_threads);
  const ConstTensor x = call.in(logits);
  const ConstTensor text = call.in(symbols);
  const ConstTensor box = call.optional_in(boundary);
  const std::int64_t blank = call.scalar(termination_symbol);
  const Steps to =
      steps(call, out, x, text, x.shape[1], call.flag(modified, "modified"), x.shape[1], x.shape[2]);
  call.run([&](const Caller& caller) {
    rnnt_logprobs_joint_forward(x, text, box, to.px, to.py, to.normalizer, to.nan_at, blank, caller);
  });
  return call.result();
}

nb::object joint_backward(nb::handle logits, nb::handle symbols, nb::handle normalizer, nb::handle px_grad,
                          nb::handle py_grad, nb::handle termination_symbol, nb::handle boundary,
                          nb::handle out, bool use_torch_threads) {
  PythonCall call(kJointBackward, use_torch_threads);
  const ConstTensor x = call.in(logits);
  const ConstTensor text = call.in(symbols);
  const ConstTensor box = call.optional_in(boundary);
  const ConstTensor n = call.in(normalizer), gx = call.in(px_grad), gy = call.in(py_grad);
  const std::int64_t blank = call.scalar(termination_symbol);
  const Tensor grad = call.out(out, x);
  call.run([&](const Caller& caller) {
    rnnt_logprobs_joint_backward(x, text, box, n, gx, gy, grad, blank, caller);
  });
  return call.result();
}

nb::object pruned_forward(nb::handle logits, nb::handle symbols, nb::handle ranges,
                          nb::handle termination_symbol, nb::handle boundary, nb::handle modified,
                          nb::handle use_hat_loss, nb::handle out, bool use_torch_threads) {
  PythonCall call(kPrunedForward, use_torch_threads);
  const ConstTensor x = call.in(logits);
  const ConstTensor text = call.in(symbols), rows = call.in(ranges);
  const ConstTensor box = call.optional_in(boundary);
  const RnntPrunedParams params{call.scalar(termination_symbol), call.flag(use_hat_loss, "use_hat_loss")};
  const Steps to =
      steps(call, out, x, text, x.shape[1], call.flag(modified, "modified"), x.shape[1], x.shape[2]);
  call.run([&](const Caller& caller) {
    rnnt_logprobs_pruned_forward(x, text, rows, box, to.px, to.py, to.normalizer, to.nan_at, params, caller);
  });
  return call.result();
}

nb::object pruned_backward(nb::handle logits, nb::handle symbols, nb::handle ranges, nb::handle normalizer,
                           nb::handle px_grad, nb::handle py_grad, nb::handle termination_symbol,
                           nb::handle boundary, nb::handle use_hat_loss, nb::handle out,
                           bool use_torch_threads) {
  PythonCall call(kPrunedBackward, use_torch_threads);
  const ConstTensor x = call.in(logits);
  const ConstTensor text = call.in(symbols), rows = call.in(ranges);
  const ConstTensor box = call.optional_in(boundary);
  const ConstTensor n = call.in(normalizer), gx = call.in(px_grad), gy = call.in(py_grad);
  const RnntPrunedParams params{call.scalar(termination_symbol), call.flag(use_hat_loss, "use_hat_loss")};
  const Tensor grad = call.out(out, x);
  call.run([&](const Caller& caller) {
    rnnt_logprobs_pruned_backward(x, text, rows, box, n, gx, gy, grad, params, caller);
  });
  return call.result();
}

nb::object fused_forward(nb::handle am, nb::handle lm, nb::handle weight, nb::handle bias,
                         nb::handle activation, nb::handle symbols, nb::handle ranges,
                         nb::handle termination_symbol, nb::handle boundary, nb::handle modified,
                         nb::handle use_hat_loss, nb::handle out, bool use_torch_threads) {
  PythonCall call(kFusedForward, use_torch_threads);
  const ConstTensor a = call.in(am);
  const ConstTensor l = call.in(lm), w = call.in(weight);
  const ConstTensor c = call.optional_in(bias);
  const auto by = call.named_choice<RnntActivation>(activation);
  const ConstTensor text = call.in(symbols), rows = call.in(ranges);
  const ConstTensor box = call.optional_in(boundary);
  const RnntFusedParams params{by, call.scalar(termination_symbol), call.flag(use_hat_loss, "use_hat_loss")};
  const Steps to =
      steps(call, out, a, text, a.shape[1], call.flag(modified, "modified"), a.shape[1], rows.shape[2]);
  call.run([&](const Caller& caller) {
    rnnt_logprobs_fused_forward(a, l, w, c, text, rows, box, to.px, to.py, to.normalizer, to.nan_at, params,
                                caller);
  });
  return call.result();
}

nb::object fused_backward(nb::handle am, nb::handle lm, nb::handle weight, nb::handle bias,
                          nb::handle activation, nb::handle symbols, nb::handle ranges, nb::handle normalizer,
                          nb::handle px_grad, nb::handle py_grad, nb::handle termination_symbol,
                          nb::handle boundary, nb::handle use_hat_loss, nb::handle out,
                          bool use_torch_threads) {
  PythonCall call(kFusedBackward, use_torch_threads);
  const ConstTensor a = call.in(am);
  const ConstTensor l = call.in(lm), w = call.in(weight);
  const ConstTensor c = call.optional_in(bias);
  const auto by = call.named_choice<RnntActivation>(activation);
  const ConstTensor text = call.in(symbols), rows = call.in(ranges);
  const ConstTensor box = call.optional_in(boundary);
  const ConstTensor n = call.in(normalizer), gx = call.in(px_grad), gy = call.in(py_grad);
  const RnntFusedParams params{by, call.scalar(termination_symbol), call.flag(use_hat_loss, "use_hat_loss")};
  const auto to = call.outs(out);
  const Tensor am_grad = call.out(to[0], a);
  const Tensor lm_grad = call.out(to[1], l);
  const Tensor weight_grad = call.out(to[2], w);
  Tensor bias_grad = nullptr;
  if (c.is_absent()) {
    call.no_out();
  } else {
    bias_grad = call.out(to[3], c);
  }
  call.run([&](const Caller& caller) {
    rnnt_logprobs_fused_backward(a, l, w, c, text, rows, box, n, gx, gy, am_grad, lm_grad, weight_grad,
                                 bias_grad, params, caller);
  });
  return call.result();
}

nb::object simple_forward(nb::handle lm, nb::handle am, nb::handle symbols, nb::handle termination_symbol,
                          nb::handle boundary, nb::handle modified, nb::handle out, bool use_torch_threads) {
  PythonCall call(kSimpleForward, use_torch_threads);
  const ConstTensor l = call.in(lm);
  const ConstTensor a = call.in(am), text = call.in(symbols);
  const ConstTensor box = call.optional_in(boundary);
  const std::int64_t blank = call.scalar(termination_symbol);
  const Steps to =
      steps(call, out, l, text, a.shape[1], call.flag(modified, "modified"), l.shape[1], a.shape[1]);
  call.run([&](const Caller& caller) {
    rnnt_logprobs_simple_forward(l, a, text, box, to.px, to.py, to.normalizer, to.nan_at, blank, caller);
  });
  return call.result();
}

nb::object simple_backward(nb::handle lm, nb::handle am, nb::handle symbols, nb::handle normalizer,
                           nb::handle px_grad, nb::handle py_grad, nb::handle termination_symbol,
                           nb::handle boundary, nb::handle out, bool use_torch_threads) {
  PythonCall call(kSimpleBackward, use_torch_threads);
  const ConstTensor l = call.in(lm);
  const ConstTensor a = call.in(am), text = call.in(symbols);
  const ConstTensor box = call.optional_in(boundary);
  const ConstTensor n = call.in(normalizer), gx = call.in(px_grad), gy = call.in(py_grad);
  const std::int64_t blank = call.scalar(termination_symbol);
  const auto to = call.outs(out);
  const Tensor lm_grad = call.out(to[0], l);
  const Tensor am_grad = call.out(to[1], a);
  call.run([&](const Caller& caller) {
    rnnt_logprobs_simple_backward(l, a, text, box, n, gx, gy, lm_grad, am_grad, blank, caller);
  });
  return call.result();
}

nb::object prune_ranges(nb::handle px_grad, nb::handle py_grad, nb::handle boundary, nb::handle s_range,
                        nb::handle score, nb::handle out, bool use_torch_threads) {
  PythonCall call(kPruneRanges, use_torch_threads);
  const ConstTensor gx = call.in(px_grad);
  const ConstTensor gy = call.in(py_grad), box = call.in(boundary);
  const std::int64_t wanted = call.integer(s_range, "s_range");
  const auto how = call.named_choice<PruneScore>(score);
  std::int64_t width = 0;
  call.prepare([&](const Caller& caller) { width = rnnt_prune_width(gx, gy, box, wanted, how, caller); });
  const Tensor ranges = call.out(out, {gx.shape[0], gy.shape[2], width});
  call.run([&](const Caller& caller) { rnnt_prune_ranges(gx, gy, box, ranges, how, caller); });
  return call.result();
}

nb::object pruning_forward(nb::handle lm, nb::handle ranges, nb::handle out, bool use_torch_threads) {
  PythonCall call(kPruningForward, use_torch_threads);
  const ConstTensor l = call.in(lm);
  const ConstTensor rows = call.in(ranges);
  const Tensor pruned = call.out(out, {l.shape[0], rows.shape[1], rows.shape[2], l.shape[2]});
  call.run([&](const Caller& caller) { rnnt_pruning_forward(l, rows, pruned, caller); });
  return call.result();
}

nb::object pruning_backward(nb::handle pruned_grad, nb::handle ranges, nb::handle symbols, nb::handle out,
                            bool use_torch_threads) {
  PythonCall call(kPruningBackward, use_torch_threads);
  const ConstTensor grad = call.in(pruned_grad);
  const ConstTensor rows = call.in(ranges);
  const std::int64_t count = call.integer(symbols, "symbols");
  if (count < 0) call.refuse(concat("symbols is ", count, ", expected 0 or more"));
  const Tensor lm_grad = call.out(out, {grad.shape[0], one_more(count), grad.shape[3]});
  call.run([&](const Caller& caller) { rnnt_pruning_backward(grad, rows, lm_grad, caller); });
  return call.result();
}

nb::object align(nb::handle px, nb::handle py, nb::handle boundary, nb::handle out, bool use_torch_threads) {
  PythonCall call(kAlign, use_torch_threads);
  const ConstTensor x = call.in(px);
  const ConstTensor y = call.in(py);
  const ConstTensor box = call.optional_in(boundary);
  const auto to = call.outs(out);
  const Tensor frames = call.out(to[0], {x.shape[0], x.shape[1]});
  const Tensor score = call.out(to[1], {x.shape[0]});
  call.run([&](const Caller& caller) { rnnt_align(x, y, box, frames, score, caller); });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  for (const PythonFunction* function :
       {&kJointForward, &kJointBackward, &kPrunedForward, &kPrunedBackward, &kFusedForward, &kFusedBackward,
        &kSimpleForward, &kSimpleBackward, &kPruneRanges, &kPruningForward, &kPruningBackward, &kAlign})
    list_function(*function);
  define(module, "rnnt_logprobs_joint_forward", &joint_forward);
  define(module, "rnnt_logprobs_joint_backward", &joint_backward);
  define(module, "rnnt_logprobs_pruned_forward", &pruned_forward);
  define(module, "rnnt_logprobs_pruned_backward", &pruned_backward);
  define(module, "rnnt_logprobs_fused_forward", &fused_forward);
  define(module, "rnnt_logprobs_fused_backward", &fused_backward);
  define(module, "rnnt_logprobs_simple_forward", &simple_forward);
  define(module, "rnnt_logprobs_simple_backward", &simple_backward);
  define(module, "rnnt_prune_ranges", &prune_ranges);
  define(module, "rnnt_pruning_forward", &pruning_forward);
  define(module, "rnnt_pruning_backward", &pruning_backward);
  define(module, "rnnt_align", &align);
}

}  // namespace turnout::families::rnnt_loss
