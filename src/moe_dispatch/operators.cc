// The operators of this family, for what treats all operators alike.
#include "moe_dispatch/signature.h"
#include "registry.h"
#include "turnout/moe_dispatch.h"

namespace turnout::families::moe_dispatch {

namespace {

// An optional input as the functions take it.
struct Optional {
  ConstTensor tensor;
  bool is_given;
  explicit Optional(const Tensor& t) : tensor(t), is_given(given(t)) {}
  const ConstTensor* get() const { return is_given ? &tensor : nullptr; }
};

MoeBuffers buffers_of(const ScalarValue* s) { return {s[0].value, s[1].value}; }

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      {&kMoeDispatchForward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_dispatch_forward(context, t[0], t[1], t[2], t[3], t[4],
                              {s[0].value, s[1].value, to_enum<Fill>(s[2])});
       },
       "capacity=3 num_experts=2 fill=1 choices=2 samples=5 hidden=7"},
      {&kMoeDispatchBackwardData,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_dispatch_backward_data(context, Optional(t[0]).get(), t[1], t[2], t[3], t[4], buffers_of(s));
       },
       "capacity=3 num_experts=2 choices=2 samples=5 hidden=7"},
      {&kMoeDispatchBackwardGate,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_dispatch_backward_gate(context, t[0], t[1], t[2], t[3], t[4], buffers_of(s));
       },
       "capacity=3 num_experts=2 choices=2 samples=5 hidden=7"},
      {&kMoeDispatchBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_dispatch_backward(context, t[0], t[1], t[2], t[3], t[4], t[5], t[6], buffers_of(s));
       },
       "capacity=3 num_experts=2 choices=2 samples=5 hidden=7"},
      {&kMoeLocations,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_locations(context, t[0], Optional(t[1]).get(), t[2], t[3], s[0].value);
       },
       "num_experts=4 samples=5 choices=2"},
      {&kMoeDispatch,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         turnout::moe_dispatch(context, t[0], t[1], Optional(t[2]).get(), Optional(t[3]).get(), t[4],
                               buffers_of(s));
       },
       "capacity=3 num_experts=2 samples=5 hidden=7 choices=2"},
      {&kMoeCombine,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_combine(context, t[0], t[1], Optional(t[2]).get(), Optional(t[3]).get(), t[4], s[0].value);
       },
       "capacity=3 rows=6 hidden=7 samples=5 choices=2"},
      {&kMoeCombineBackward,
       [](Context& context, const Tensor* t, const ScalarValue* s) {
         moe_combine_backward(context, t[0], t[1], t[2], Optional(t[3]).get(), t[4], t[5], t[6], s[0].value);
       },
       "capacity=3 samples=5 hidden=7 rows=6 choices=2"},
      {&kMoeTokenPermute,
       [](Context& context, const Tensor* t, const ScalarValue*) {
         moe_token_permute(context, t[0], t[1], t[2], t[3]);
       },
       "samples=5 hidden=7 choices=2 rows=5"},
  };
  return kOperators;
}

}  // namespace turnout::families::moe_dispatch
