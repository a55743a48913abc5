// The operators of this family, for what treats all operators alike.
#include "registry.h"
#include "rnnt_loss/signature.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {
namespace {

// Zeros are legal symbols and boundaries; the rows of ranges count from 0.
void fill_ranges(const Tensor& ranges) {
  auto* to = static_cast<std::int64_t*>(ranges.data);
  for (std::int64_t i = 0; i < ranges.shape[0] * ranges.shape[1] * ranges.shape[2]; ++i)
    to[i] = i % ranges.shape[2];
}

struct Optional {
  ConstTensor tensor;
  bool is_given;
  explicit Optional(const Tensor& t) : tensor(t), is_given(given(t)) {}
  const ConstTensor* get() const { return is_given ? &tensor : nullptr; }
};

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kRnntLogprobsJointForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         rnnt_logprobs_joint_forward(context, t[0], t[1], Optional(t[2]).get(), t[3], t[4], t[5], t[6],
                                     s[0].value);
       },
       "termination_symbol=3 batch=2 frames=5 num_symbols=3 classes=4 columns=6"},
      {&kRnntLogprobsJointBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         rnnt_logprobs_joint_backward(context, t[0], t[1], Optional(t[2]).get(), t[3], t[4], t[5], t[6],
                                      s[0].value);
       },
       "termination_symbol=3 batch=2 frames=5 num_symbols=3 classes=4 columns=6"},
      {&kRnntLogprobsPrunedForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         rnnt_logprobs_pruned_forward(context, t[0], t[1], t[2], Optional(t[3]).get(), t[4], t[5], t[6], t[7],
                                      {s[0].value, s[1].value != 0});
       },
       "termination_symbol=3 use_hat_loss=0 batch=2 frames=5 rows=2 classes=4 num_symbols=3 columns=6",
       [](const Tensor* t) { fill_ranges(t[2]); }},
      {&kRnntLogprobsPrunedBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         rnnt_logprobs_pruned_backward(context, t[0], t[1], t[2], Optional(t[3]).get(), t[4], t[5], t[6],
                                       t[7], {s[0].value, s[1].value != 0});
       },
       "termination_symbol=3 use_hat_loss=0 batch=2 frames=5 rows=2 classes=4 num_symbols=3 columns=6",
       [](const Tensor* t) { fill_ranges(t[2]); }},
      {&kRnntLogprobsFusedForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor am = t[0], lm = t[1], weight = t[2];
         rnnt_logprobs_fused_forward(
             context, {am, lm, weight, Optional(t[3]).get(), to_enum<RnntActivation>(s[0])}, t[4], t[5],
             Optional(t[6]).get(), t[7], t[8], t[9], t[10], {s[1].value, s[2].value != 0});
       },
       "activation=1 termination_symbol=3 use_hat_loss=0 batch=2 frames=5 width=6 num_symbols=3 classes=4 "
       "rows=2 "
       "columns=6",
       [](const Tensor* t) { fill_ranges(t[5]); }},
      {&kRnntLogprobsFusedBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         const ConstTensor am = t[0], lm = t[1], weight = t[2];
         rnnt_logprobs_fused_backward(
             context, {am, lm, weight, Optional(t[3]).get(), to_enum<RnntActivation>(s[0])}, t[4], t[5],
             Optional(t[6]).get(), t[7], t[8], t[9], {t[10], t[11], t[12], given(t[13]) ? &t[13] : nullptr},
             {s[1].value, s[2].value != 0});
       },
       "activation=1 termination_symbol=3 use_hat_loss=0 batch=2 frames=5 width=6 num_symbols=3 classes=4 "
       "rows=2 "
       "columns=6",
       [](const Tensor* t) { fill_ranges(t[5]); }},
      {&kRnntLogprobsSimpleForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         rnnt_logprobs_simple_forward(context, t[0], t[1], t[2], Optional(t[3]).get(), t[4], t[5], t[6], t[7],
                                      s[0].value);
       },
       "termination_symbol=3 batch=2 num_symbols=3 classes=4 frames=5 columns=6"},
      {&kRnntLogprobsSimpleBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         rnnt_logprobs_simple_backward(context, t[0], t[1], t[2], Optional(t[3]).get(), t[4], t[5], t[6],
                                       t[7], t[8], s[0].value);
       },
       "termination_symbol=3 batch=2 num_symbols=3 classes=4 frames=5 columns=6"},
      {&kRnntPruneRanges,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         rnnt_prune_ranges(context, t[0], t[1], t[2], t[3], to_enum<PruneScore>(s[0]));
       },
       "score=0 batch=2 num_symbols=3 columns=6 frames=5 rows=2"},
      {&kRnntPruningForward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         rnnt_pruning_forward(context, t[0], t[1], t[2]);
       },
       "batch=2 num_symbols=3 width=4 frames=5 rows=2", [](const Tensor* t) { fill_ranges(t[1]); }},
      {&kRnntPruningBackward,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         rnnt_pruning_backward(context, t[0], t[1], t[2]);
       },
       "batch=2 frames=5 rows=2 width=4 num_symbols=3", [](const Tensor* t) { fill_ranges(t[1]); }},
      {&kRnntAlign,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         rnnt_align(context, t[0], t[1], Optional(t[2]).get(), t[3], t[4]);
       },
       "batch=2 num_symbols=3 columns=6 frames=5"},
  };
  return kOperators;
}

}  // namespace turnout::families::rnnt_loss
