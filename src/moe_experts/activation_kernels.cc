// The activations of an expert block and their gradients, compiled once per instruction set.
#include <algorithm>

#include "moe_experts/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "moe_experts/activation_kernels.cc"
#include "simd/simd.h"
//
#include "simd/math.h"

TURNOUT_ISA_BEGIN(families::moe_experts)

using namespace core;

constexpr std::int64_t kLanes = block_size<float>();
using V = hn::Vec<F32>;

// 1 / (1 + exp(-x)); 0 for x below -87.
HWY_INLINE V sigmoid(V x) {
  const F32 d;
  const auto one = hn::Set(d, 1.0f);
  const auto e = falling_exp(d, hn::Neg(hn::Abs(x)));  // exp(-|x|) never overflows
  const auto low = hn::Div(e, hn::Add(one, e)), high = hn::Div(one, hn::Add(one, e));
  // Keep NaN, for which falling_exp returns 0.
  return hn::IfThenElse(hn::Eq(x, x), hn::IfThenElse(hn::Lt(x, hn::Zero(d)), low, high), x);
}

// A value of an activation and its derivative.
struct Slope {
  V value, derivative;
};

// x sigmoid(y) and its derivative, given that of y.
HWY_INLINE Slope times_sigmoid(V x, V y, V slope) {
  const V s = sigmoid(y);
  const V rest = hn::Mul(hn::Mul(x, slope), hn::Sub(hn::Set(F32(), 1.0f), s));
  return {hn::Mul(x, s), hn::Mul(s, hn::Add(hn::Set(F32(), 1.0f), rest))};
}

struct Silu {
  static HWY_INLINE V apply(V x, V) { return hn::Mul(x, sigmoid(x)); }
  static HWY_INLINE Slope slope(V x, V) { return times_sigmoid(x, x, hn::Set(F32(), 1.0f)); }
};
struct GeluTanh {
  // (1 + tanh(y)) / 2 = sigmoid(2 y)
  static HWY_INLINE V twice(V x) {
    const F32 d;
    const auto cube = hn::Mul(hn::Mul(x, x), x);
    return hn::Mul(hn::Set(d, 1.5957691216f), hn::MulAdd(hn::Set(d, 0.044715f), cube, x));
  }
  static HWY_INLINE V apply(V x, V) { return hn::Mul(x, sigmoid(twice(x))); }
  static HWY_INLINE Slope slope(V x, V) {
    const F32 d;
    const auto of_twice =
        hn::MulAdd(hn::Set(d, 3 * 0.044715f * 1.5957691216f), hn::Mul(x, x), hn::Set(d, 1.5957691216f));
    return times_sigmoid(x, twice(x), of_twice);
  }
};
struct Gelu {
  // Phi(x) and its derivative. Phi(-|x|) = exp(-x^2 / 2) t (a1 + a2 t + .. + a5 t^4) / 2 with
  // t = 1 / (1 + 0.2316419 |x|), absolute error below 7.5e-8 (Hastings).
  static HWY_INLINE Slope phi(V x) {
    const F32 d;
    const auto one = hn::Set(d, 1.0f);
    const auto a = hn::Abs(x);
    const auto t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.2316419f), a, one));
    auto y = hn::MulAdd(hn::Set(d, 1.330274429f), t, hn::Set(d, -1.821255978f));
    y = hn::MulAdd(y, t, hn::Set(d, 1.781477937f));
    y = hn::MulAdd(y, t, hn::Set(d, -0.356563782f));
    y = hn::MulAdd(y, t, hn::Set(d, 0.319381530f));
    const auto density =
        hn::Mul(hn::Set(d, 0.3989422804f), falling_exp(d, hn::Mul(hn::Set(d, -0.5f), hn::Mul(a, a))));
    const auto tail = hn::Mul(hn::Mul(density, t), y);
    const auto below = hn::Lt(x, hn::Zero(d));
    return {hn::IfThenElse(below, tail, hn::Sub(one, tail)), density};
  }
  static HWY_INLINE V apply(V x, V) { return hn::IfThenElse(hn::Eq(x, x), hn::Mul(x, phi(x).value), x); }
  static HWY_INLINE Slope slope(V x, V) {
    const Slope p = phi(x);
    const auto known = hn::Eq(x, x);
    return {hn::IfThenElse(known, hn::Mul(x, p.value), x),
            hn::IfThenElse(known, hn::Add(p.value, hn::Mul(x, p.derivative)), x)};
  }
};
struct Relu {
  static HWY_INLINE V apply(V x, V) {
    return hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), hn::Zero(F32()), x);  // keeps NaN
  }
  static HWY_INLINE Slope slope(V x, V) {
    const F32 d;
    return {apply(x, x), hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f))};
  }
};
struct SwigluOai {
  static HWY_INLINE V apply(V x, V alpha) { return hn::Mul(x, sigmoid(hn::Mul(alpha, x))); }
  static HWY_INLINE Slope slope(V x, V alpha) { return times_sigmoid(x, hn::Mul(alpha, x), alpha); }
};

// Gate and up as the activation takes them. Keeps NaN, as torch.clamp does.
struct Pair {
  V gate, up;
};
template <class Op>
HWY_INLINE Pair limited(V gate, V up, V limit) {
  if constexpr (std::is_same_v<Op, SwigluOai>) {
    const V least = hn::Neg(limit);
    const V clamped = hn::IfThenElse(hn::Gt(up, limit), limit, hn::IfThenElse(hn::Lt(up, least), least, up));
    return {hn::IfThenElse(hn::Gt(gate, limit), limit, gate), hn::Add(clamped, hn::Set(F32(), 1.0f))};
  } else {
    return {gate, up};
  }
}

template <class Op>
HWY_INLINE V activated(V gate, V up, V alpha, V limit, bool gated) {
  const Pair of = limited<Op>(gate, up, limit);
  const V h = Op::apply(of.gate, alpha);
  return gated ? hn::Mul(h, of.up) : h;
}

template <class Op>
void apply(const float* gate, const float* up, std::int64_t count, float alpha, float limit, float* to) {
  const F32 d;
  const V a = hn::Set(d, alpha), most = hn::Set(d, limit);
  const bool gated = up != nullptr;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const V g = hn::LoadU(d, gate + i);
    hn::StoreU(activated<Op>(g, gated ? hn::LoadU(d, up + i) : g, a, most, gated), d, to + i);
  }
  if (i == count) return;
  HWY_ALIGN float last[kLanes] = {}, last_up[kLanes] = {};
  std::copy_n(gate + i, count - i, last);
  if (gated) std::copy_n(up + i, count - i, last_up);
  hn::Store(activated<Op>(hn::Load(d, last), hn::Load(d, last_up), a, most, gated), d, last);
  std::copy_n(last, count - i, to + i);
}

// One vector of differentiate(). Values beyond the limit have no gradient.
template <class Op>
HWY_INLINE V differentiate_vector(float* gate, float* up, V grad, V alpha, V limit, V weight, float* to) {
  const F32 d;
  const V g = hn::LoadU(d, gate), u = up == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, up);
  const Pair of = limited<Op>(g, u, limit);
  const Slope slope = Op::slope(of.gate, alpha);
  const V h = up == nullptr ? slope.value : hn::Mul(slope.value, of.up);
  const V weighted = hn::Mul(grad, weight);
  V gate_grad = hn::Mul(hn::Mul(weighted, of.up), slope.derivative), up_grad = hn::Mul(weighted, slope.value);
  if constexpr (std::is_same_v<Op, SwigluOai>) {
    gate_grad = hn::IfThenElseZero(hn::Le(g, limit), gate_grad);
    up_grad = hn::IfThenElseZero(hn::Le(hn::Abs(u), limit), up_grad);
  }
  hn::StoreU(gate_grad, d, gate);
  if (up != nullptr) hn::StoreU(up_grad, d, up);
  hn::StoreU(hn::Mul(h, weight), d, to);
  return hn::Mul(grad, h);
}

template <class Op>
float differentiate(float* gate, float* up, const float* grad, std::int64_t count, float alpha, float limit,
                    float weight, float* to) {
  const F32 d;
  const V a = hn::Set(d, alpha), most = hn::Set(d, limit), w = hn::Set(d, weight);
  V sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    sum = hn::Add(sum, differentiate_vector<Op>(gate + i, up == nullptr ? up : up + i, hn::LoadU(d, grad + i),
                                                a, most, w, to + i));
  if (i < count) {
    HWY_ALIGN float last[kLanes] = {}, last_up[kLanes] = {}, last_grad[kLanes] = {}, last_to[kLanes];
    const std::int64_t left = count - i;
    std::copy_n(gate + i, left, last);
    if (up != nullptr) std::copy_n(up + i, left, last_up);
    std::copy_n(grad + i, left, last_grad);
    sum = hn::Add(sum, differentiate_vector<Op>(last, up == nullptr ? nullptr : last_up,
                                                hn::Load(d, last_grad), a, most, w, last_to));
    std::copy_n(last, left, gate + i);
    if (up != nullptr) std::copy_n(last_up, left, up + i);
    std::copy_n(last_to, left, to + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class Op>
constexpr Activation kActivation = {&apply<Op>, &differentiate<Op>};

const Activation& activation_of(ExpertActivation activation) {
  switch (activation) {
    case ExpertActivation::gelu:
      return kActivation<Gelu>;
    case ExpertActivation::gelu_tanh:
      return kActivation<GeluTanh>;
    case ExpertActivation::relu:
      return kActivation<Relu>;
    case ExpertActivation::swigluoai:
      return kActivation<SwigluOai>;
    default:
      return kActivation<Silu>;
  }
}

constexpr ActivationKernels kActivationKernels = {&activation_of};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::moe_experts, ActivationKernels, activation_kernels, kActivationKernels)
#endif
