// Distances of points and boxes from a position, several at a time. Included once per instruction set, after
// simd.h.
#if defined(TURNOUT_POSITIONS_PER_ISA) == defined(HWY_TARGET_TOGGLE)
#ifdef TURNOUT_POSITIONS_PER_ISA
#undef TURNOUT_POSITIONS_PER_ISA
#else
#define TURNOUT_POSITIONS_PER_ISA
#endif

TURNOUT_ISA_BEGIN(families::points)

using namespace core;

template <class Real>
struct Lanes {
  using D = hn::ScalableTag<Real>;
  using V = hn::Vec<D>;
  using M = hn::Mask<D>;
  static constexpr auto kCount = static_cast<std::int64_t>(HWY_MAX_BYTES / sizeof(Real));
  static_assert(PointLeaves<Real>::kGroup % kCount == 0 && PointLeaves<Real>::kLeaf % kCount == 0);

  static HWY_INLINE std::uint32_t bits(M mask) {
    std::conditional_t<(kCount > 8), std::uint16_t, std::uint8_t> bits;
    static_assert(sizeof(bits) == (kCount + 7) / 8);
    hn::StoreMaskBits(D(), mask, reinterpret_cast<std::uint8_t*>(&bits));
    return bits;
  }
  static HWY_INLINE Real greatest(V v) { return hn::GetLane(hn::MaxOfLanes(D(), v)); }
  static HWY_INLINE V greater(V a, V b) { return hn::IfThenElse(hn::Gt(a, b), a, b); }  // b if a is NaN
};

// A position that points and boxes are compared with.
template <class Real>
struct Position {
  using L = Lanes<Real>;
  using V = typename L::V;
  V at[3];

  explicit HWY_INLINE Position(const Real* p) {
    for (int k = 0; k < 3; ++k) at[k] = hn::Set(typename L::D(), p[k]);
  }
  HWY_INLINE V difference(const Real* axis, std::int64_t i, int k) const {
    return hn::Sub(hn::LoadU(typename L::D(), axis + i), at[k]);
  }
  static HWY_INLINE V square_sum(V x, V y, V z) {
    return hn::Add(hn::Add(hn::Mul(x, x), hn::Mul(y, y)), hn::Mul(z, z));
  }
  HWY_INLINE V distance(const Real* x, const Real* y, const Real* z, std::int64_t i) const {
    return square_sum(difference(x, i, 0), difference(y, i, 1), difference(z, i, 2));
  }
  // How far the position is outside of boxes i .. along an axis. 0 or NaN if that is not known.
  HWY_INLINE V outside(const typename PointLeaves<Real>::Boxes& boxes, std::int64_t i, int k) const {
    const typename L::D d;
    const V below = hn::Sub(hn::LoadU(d, boxes.low[k] + i), at[k]);
    const V above = hn::Sub(at[k], hn::LoadU(d, boxes.high[k] + i));
    return hn::Max(hn::Max(below, above), hn::Zero(d));
  }
  HWY_INLINE V distance(const typename PointLeaves<Real>::Boxes& boxes, std::int64_t i) const {
    return square_sum(outside(boxes, i, 0), outside(boxes, i, 1), outside(boxes, i, 2));
  }
};

// Calls visit(i) for the boxes i of first .. last - 1 that is_near(i) has, a mask for several boxes.
template <class Real, class IsNear, class Visit>
HWY_INLINE void for_boxes(std::int64_t first, std::int64_t last, const IsNear& is_near, const Visit& visit) {
  for (std::int64_t i = first; i < last; i += Lanes<Real>::kCount)
    for (std::uint32_t bits = Lanes<Real>::bits(is_near(i)); bits != 0; bits &= bits - 1)
      visit(i + std::countr_zero(bits));
}

TURNOUT_ISA_END
#endif  // per instruction set
