// The operators of this family, for what treats all operators alike.
#include "moe_experts/signature.h"
#include "registry.h"
#include "turnout/moe_experts.h"

namespace turnout::families::moe_experts {

namespace {

// An optional input as the functions take it.
struct Optional {
  ConstTensor tensor;
  bool is_given;
  explicit Optional(const Tensor& t) : tensor(t), is_given(given(t)) {}
  const ConstTensor* get() const { return is_given ? &tensor : nullptr; }
};

MoeExpertsParams params_of(const ScalarValue* s) {
  return {.activation = to_enum<ExpertActivation>(s[0]),
          .gated = s[1].value != 0,
          .interleaved = s[2].value != 0};
}

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kGroupedMm,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         grouped_mm(context, t[0], t[1], t[2], Optional(t[3]).get(), t[4]);
       },
       "rows=5 depth=7 groups=2 columns=3"},
      {&kGroupedMmBackwardWeight,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         grouped_mm_backward_weight(context, t[0], t[1], t[2], t[3], given(t[4]) ? &t[4] : nullptr);
       },
       "rows=5 depth=7 columns=3 groups=2"},
      {&kMoeExperts,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         turnout::moe_experts(context, t[0], t[1], t[2], t[3], t[4], Optional(t[5]).get(),
                              Optional(t[6]).get(), t[7], params_of(s));
       },
       "activation=0 gated=1 interleaved=0 tokens=4 hidden=5 choices=2 experts=3 w13_rows=6 inner=3"},
      {&kMoeExpertsQuantized,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         turnout::moe_experts_quantized(context, t[0], t[1], t[2], t[3], t[4], t[5], t[6],
                                        Optional(t[7]).get(), Optional(t[8]).get(), t[9], params_of(s));
       },
       "activation=0 gated=1 interleaved=0 tokens=4 hidden=5 choices=2 experts=3 w13_rows=6 w13_bytes=5 "
       "w13_scales=1 w2_bytes=3 w2_scales=1"},
  };
  return kOperators;
}

}  // namespace turnout::families::moe_experts
