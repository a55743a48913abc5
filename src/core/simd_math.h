// Exponentials and logarithms of vectors; include after simd.h, like it. Not bit-equal across instruction
// sets: those without fused multiply-add round once more.
#if defined(TURNOUT_SIMD_MATH_PER_ISA) == defined(HWY_TARGET_TOGGLE)
#ifdef TURNOUT_SIMD_MATH_PER_ISA
#undef TURNOUT_SIMD_MATH_PER_ISA
#else
#define TURNOUT_SIMD_MATH_PER_ISA
#endif

#include <hwy/contrib/math/math-inl.h>

TURNOUT_ISA_BEGIN

// x = k ln 2 + r: 2^k has the bits `scale` of an exponent, |r| <= ln 2 / 2. For |x| below 2^21.
template <class D>
struct Reduced {
  hn::Vec<hn::RebindToUnsigned<D>> scale;
  hn::Vec<D> k;
};
template <class D>
HWY_INLINE Reduced<D> reduce(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto shifter = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: the sum's low bits are the integer
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shifter);
  return {hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Sub(shifted, shifter)};
}

// exp(x) for -87 < x < 88.7 (-708, 709.7), within 2 units in the last place; 0 for any other x, NaN included.
template <class D>
HWY_INLINE hn::Vec<D> bounded_exp(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto in_range = hn::And(hn::Gt(x, hn::Set(d, -708.0)), hn::Lt(x, hn::Set(d, 709.782712893384)));
    return hn::IfThenElseZero(in_range, hn::Exp(d, hn::IfThenElseZero(in_range, x)));
  } else {
    const hn::RebindToUnsigned<D> du;
    const auto by = reduce(d, x);
    auto r = hn::NegMulAdd(by.k, hn::Set(d, 0.693359375f), x);
    r = hn::NegMulAdd(by.k, hn::Set(d, -2.12194440e-4f), r);
    const auto rr = hn::Mul(r, r);
    const auto low = hn::Add(hn::Set(d, 1.0f), r);
    const auto middle = hn::MulAdd(hn::Set(d, 0.16666415333747864f), r, hn::Set(d, 0.5f));
    auto y = hn::MulAdd(hn::Set(d, 0.008375137113034725f), r, hn::Set(d, 0.04166608303785324f));
    y = hn::MulAdd(hn::Set(d, 0.0013956052716821432f), rr, y);
    y = hn::MulAdd(hn::MulAdd(y, rr, middle), rr, low);
    const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(du, y), by.scale));
    const auto in_range = hn::And(hn::Gt(x, hn::Set(d, -87.0f)), hn::Lt(x, hn::Set(d, 88.722839f)));
    return hn::IfThenElseZero(in_range, scaled);
  }
}

// log(1 + exp(x)) for -15.95 (-36.05) <= x <= 0, with an absolute error below 1.5e-7 (that of double).
template <class D>
HWY_INLINE hn::Vec<D> log1p_exp(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::Log1p(d, hn::Exp(d, x));
  } else {
    const hn::RebindToUnsigned<D> du;
    const auto by = reduce(d, x);
    const auto r = hn::NegMulAdd(by.k, hn::Set(d, 0.693147181f), x);
    // Two chains each, to wait less.
    const auto rr = hn::Mul(r, r);
    auto even = hn::MulAdd(hn::Set(d, 0.041917577385902405f), rr, hn::Set(d, 0.4999886751174927f));
    auto odd = hn::MulAdd(hn::Set(d, 0.00838110875338316f), rr, hn::Set(d, 0.166663259267807f));
    even = hn::MulAdd(even, rr, hn::Set(d, 1.0000001192092896f));
    odd = hn::MulAdd(odd, rr, hn::Set(d, 1.0000001192092896f));
    const auto e = hn::BitCast(d, hn::Add(hn::BitCast(du, hn::MulAdd(odd, r, even)), by.scale));
    const auto ee = hn::Mul(e, e), e4 = hn::Mul(ee, ee);
    const auto low =
        hn::MulAdd(hn::MulAdd(hn::Set(d, -0.24852928519248962f), e, hn::Set(d, 0.33320340514183044f)), ee,
                   hn::MulAdd(hn::Set(d, -0.49999552965164185f), e, hn::Set(d, 1.0f)));
    const auto high =
        hn::MulAdd(hn::MulAdd(hn::Set(d, -0.030109835788607597f), e, hn::Set(d, 0.07920892536640167f)), ee,
                   hn::MulAdd(hn::Set(d, -0.137464702129364f), e, hn::Set(d, 0.19145046174526215f)));
    const auto top = hn::MulAdd(hn::Set(d, 0.005383776966482401f), e4, high);
    return hn::Mul(hn::MulAdd(top, e4, low), e);
  }
}

TURNOUT_ISA_END
#endif  // per instruction set
