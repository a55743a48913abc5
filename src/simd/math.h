// Vector exponentials and logarithms. Include it after simd.h, in the same way. Results are not bit-equal
// across instruction sets: without a fused multiply-add there is an additional rounding.
#if defined(TURNOUT_SIMD_MATH_PER_ISA) == defined(HWY_TARGET_TOGGLE)
#ifdef TURNOUT_SIMD_MATH_PER_ISA
#undef TURNOUT_SIMD_MATH_PER_ISA
#else
#define TURNOUT_SIMD_MATH_PER_ISA
#endif

#include <hwy/contrib/math/math-inl.h>

TURNOUT_ISA_BEGIN(core)

// Range reduction x = k ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^21. `scale` is k shifted into the exponent
// field: adding it to the bits of a float multiplies the float by 2^k.
template <class D>
struct Reduced {
  hn::Vec<hn::RebindToUnsigned<D>> scale;
  hn::Vec<D> k;
};
template <class D>
HWY_INLINE Reduced<D> reduce(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto shifter = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: the low mantissa bits of the sum are k
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shifter);
  return {hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Sub(shifted, shifter)};
}

// exp(x) for -87.33 < x < 88 (-708, 709), within 2 units in the last place; 0 for smaller x and NaN;
// unspecified for larger x.
template <class D>
HWY_INLINE hn::Vec<D> falling_exp(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const auto in_range = hn::Gt(x, hn::Set(d, -708.0));
    return hn::IfThenElseZero(in_range, hn::Exp(d, hn::IfThenElseZero(in_range, x)));
  } else {
    const hn::RebindToUnsigned<D> du;
    const auto by = reduce(d, x);
    auto r = hn::NegMulAdd(by.k, hn::Set(d, 0.693359375f), x);
    r = hn::NegMulAdd(by.k, hn::Set(d, -2.12194440e-4f), r);
    const auto rr = hn::Mul(r, r);
    const auto middle = hn::MulAdd(hn::Set(d, 0.16666415333747864f), r, hn::Set(d, 0.5f));
    auto y = hn::MulAdd(hn::Set(d, 0.008375137113034725f), r, hn::Set(d, 0.04166608303785324f));
    y = hn::MulAdd(hn::Set(d, 0.0013956052716821432f), rr, y);
    // Add 1 last: 1 + r would be rounded before rr / 2 is added. For small r, rr / 2 would then be lost,
    // always in the same direction.
    y = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(y, hn::Mul(rr, rr), hn::MulAdd(middle, rr, r)));
    const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(du, y), by.scale));
    return hn::IfThenElseZero(hn::Gt(x, hn::Set(d, -87.33f)), scaled);
  }
}

// Polynomials for log(1 + exp(x)), one column for each of eight ranges of x. Rows 0 to 6 are the coefficients
// of (x + c)^0 .. (x + c)^6, row 7 is c.
// Column = (bits of y) >> 22 & 7 with y = 1 - 15/16 x: the two low bits of the exponent and the top bit of
// the mantissa. The exponent field of 1.0 is 127, whose two low bits are 11. So the columns are, in order,
//   y in [2,3) [3,4) [4,6) [6,8) [8,12) [12,16) [1,1.5) [1.5,2)
alignas(32) inline constexpr float kLog1pExp[8][8] = {
    {0.18495336f, 0.06785584f, 0.013730674f, 0.001649842f, 6.8139394e-05f, 9.4204756e-07f, 0.56237745f,
     0.36724204f},
    {0.16885693f, 0.065604806f, 0.013636919f, 0.0016485312f, 6.83048e-05f, 9.444189e-07f, 0.43014735f,
     0.30735803f},
    {0.07017221f, 0.030650431f, 0.006725369f, 0.000822908f, 3.4135748e-05f, 4.7219322e-07f, 0.12256031f,
     0.106444545f},
    {0.015491679f, 0.008877246f, 0.0021800536f, 0.00027305158f, 1.1084716e-05f, 1.5326656e-07f, 0.0057072206f,
     0.013670146f},
    {0.0009224082f, 0.0016146994f, 0.00051548285f, 6.780867e-05f, 2.7797257e-06f, 3.831134e-08f,
     -0.004807975f, -0.0024606988f},
    {-0.00053246605f, 0.000110403635f, 9.258962e-05f, 1.3991795e-05f, 6.834761e-07f, 9.46743e-09f,
     -0.0005476372f, -0.0010537396f},
    {-0.00015946636f, -3.3526478e-05f, 1.1206788e-05f, 2.2706226e-06f, 1.1227893e-07f, 1.5807593e-09f,
     0.0002937957f, 2.319059e-05f},
    {1.59375f, 2.65625f, 4.28125f, 6.40625f, 9.59375f, 13.875f, 0.28125f, 0.8125f},
};

// log(1 + exp(x)) for -15.95 <= x <= 0, absolute error below 1.5e-7. f64: for -36.05 <= x <= 0, to double
// precision.
template <class D>
HWY_INLINE hn::Vec<D> log1p_exp(D d, hn::Vec<D> x) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return hn::Log1p(d, hn::Exp(d, x));
  } else if constexpr (hn::MaxLanes(D()) == 8) {  // one register holds one row of the table
    const hn::RebindToUnsigned<D> du;
    const auto place = hn::MulAdd(x, hn::Set(d, -0.9375f), hn::Set(d, 1.0f));
    // The permutation uses the three low bits of each index and ignores the others.
    const auto range = hn::IndicesFromVec(d, hn::ShiftRight<22>(hn::BitCast(du, place)));
    const auto row = [&](int i) HWY_ATTR { return hn::TableLookupLanes(hn::Load(d, kLog1pExp[i]), range); };
    const auto t = hn::Add(x, row(7)), tt = hn::Mul(t, t);
    const auto high = hn::MulAdd(row(6), tt, hn::MulAdd(row(5), t, row(4)));
    return hn::MulAdd(hn::MulAdd(high, tt, hn::MulAdd(row(3), t, row(2))), tt, hn::MulAdd(row(1), t, row(0)));
  } else {
    const hn::RebindToUnsigned<D> du;
    const auto by = reduce(d, x);
    const auto r = hn::NegMulAdd(by.k, hn::Set(d, 0.693147181f), x);
    // Even and odd terms separately: two short dependency chains instead of one long one.
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
