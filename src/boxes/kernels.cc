// Looks for near boxes, clips boxes and compares upright ones, several at a time. Compiled once per
// instruction set.
#include "boxes/kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "boxes/kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(families::boxes)

using namespace core;
using V = hn::Vec<F32>;
using M = hn::Mask<F32>;
constexpr auto kLanes = static_cast<std::int64_t>(HWY_MAX_BYTES / sizeof(float));
static_assert(kLanes <= Clipped::kMost && kLanes <= Reaches<float>::kPadding);
static_assert(kLanes <= UprightBoxes<float>::kPadding);

template <bool with_sides>
std::int64_t find_near(const Reaches<float>& of, std::int64_t i, const Reaches<float>& all,
                       std::int64_t first, std::int64_t last, std::int32_t* found) {
  const F32 d;
  const U32 du;
  const V x = hn::Set(d, of.x[i]), y = hn::Set(d, of.y[i]), reach = hn::Set(d, of.reach[i]);
  const V radius = hn::Set(d, of.radius[i]), side = hn::Set(d, of.side[i]);
  auto* to = reinterpret_cast<std::uint32_t*>(found);
  std::int64_t count = 0;
  for (std::int64_t j = first; j < last; j += kLanes) {
    const V dx = hn::Sub(hn::LoadU(d, all.x + j), x), dy = hn::Sub(hn::LoadU(d, all.y + j), y);
    const V sum = hn::Add(hn::LoadU(d, all.reach + j), reach);
    const V square = hn::Add(hn::Mul(dx, dx), hn::Mul(dy, dy));
    M is_far = hn::Gt(square, hn::Mul(sum, sum));  // false for NaN
    if constexpr (with_sides) {
      const V other_side = hn::LoadU(d, all.side + j), other_radius = hn::LoadU(d, all.radius + j);
      const V least = hn::IfThenElse(hn::Lt(other_side, side), other_side, side);
      const V most = hn::IfThenElse(hn::Gt(other_radius, radius), other_radius, radius);
      const V thickness = hn::Mul(hn::Mul(least, least), hn::Set(d, 5e4f));
      is_far = hn::And(is_far, hn::Gt(hn::Mul(thickness, thickness), hn::Mul(square, hn::Mul(most, most))));
    }
    M is_near = hn::Not(is_far);
    if (j + kLanes > last) is_near = hn::And(is_near, hn::FirstN(d, static_cast<std::size_t>(last - j)));
    if (hn::AllFalse(d, is_near)) continue;
    const auto numbers = hn::Iota(du, static_cast<std::uint32_t>(j));
    hn::StoreU(compress(numbers, hn::RebindMask(du, is_near)), du, to + count);
    count += static_cast<std::int64_t>(hn::CountTrue(d, is_near));
  }
  return count;
}

// The numbers of several boxes, one vector for each.
struct Lanes {
  alignas(64) float corner_x[4][kLanes], corner_y[4][kLanes];
  alignas(64) float x[kLanes], y[kLanes], cosine[kLanes], sine[kLanes], limit_x[kLanes], limit_y[kLanes];

  Lanes(const BevBox<float>* boxes, const std::int32_t* listed, int count) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const BevBox<float>& box = boxes[listed[std::min(lane, count - 1)]];
      for (int k = 0; k < 4; ++k) {
        corner_x[k][lane] = box.corner_x[k];
        corner_y[k][lane] = box.corner_y[k];
      }
      x[lane] = box.x;
      y[lane] = box.y;
      cosine[lane] = box.cosine;
      sine[lane] = box.sine;
      limit_x[lane] = box.limit_x;
      limit_y[lane] = box.limit_y;
    }
  }
};

// Whether points (px, py) are in boxes, with the margin.
HWY_INLINE M has(V x, V y, V cosine, V sine, V limit_x, V limit_y, V px, V py) {
  const V right = hn::Sub(px, x), up = hn::Sub(py, y);
  const V rx = hn::Add(hn::Mul(right, cosine), hn::Mul(up, sine));
  const V ry = hn::Add(hn::Mul(right, hn::Neg(sine)), hn::Mul(up, cosine));
  return hn::And(hn::Lt(hn::Abs(rx), limit_x), hn::Lt(hn::Abs(ry), limit_y));
}
// (p - o) x (q - o)
HWY_INLINE V turn(V px, V py, V qx, V qy, V ox, V oy) {
  return hn::Sub(hn::Mul(hn::Sub(px, ox), hn::Sub(qy, oy)), hn::Mul(hn::Sub(qx, ox), hn::Sub(py, oy)));
}
HWY_INLINE M touch(V p0, V p1, V q0, V q1) {
  return hn::And(hn::Le(hn::Min(p0, p1), hn::Max(q0, q1)), hn::Le(hn::Min(q0, q1), hn::Max(p0, p1)));
}

void clip(const BevBox<float>& a, const BevBox<float>* boxes, const std::int32_t* listed, int count,
          Clipped& to) {
  const F32 d;
  const U32 du;
  const Lanes b(boxes, listed, count);
  auto found = hn::Zero(du);
  V sum_x = hn::Zero(d), sum_y = hn::Zero(d), points = hn::Zero(d);
  const V one = hn::Set(d, 1.0f);
  int next = 0;
  const auto add = [&](V px, V py, M counts) HWY_ATTR {
    hn::Store(px, d, to.x[next]);
    hn::Store(py, d, to.y[next]);
    const auto bit = hn::Set(du, std::uint32_t{1} << next);
    found = hn::Or(found, hn::IfThenElseZero(hn::RebindMask(du, counts), bit));
    sum_x = hn::IfThenElse(counts, hn::Add(sum_x, px), sum_x);
    sum_y = hn::IfThenElse(counts, hn::Add(sum_y, py), sum_y);
    points = hn::Add(points, hn::IfThenElseZero(counts, one));
    ++next;
  };
  for (int i = 0; i < 4; ++i) {
    const int k = (i + 1) % 4;
    const V p0x = hn::Set(d, a.corner_x[i]), p0y = hn::Set(d, a.corner_y[i]);
    const V p1x = hn::Set(d, a.corner_x[k]), p1y = hn::Set(d, a.corner_y[k]);
    for (int j = 0; j < 4; ++j) {
      const int l = (j + 1) % 4;
      const V q0x = hn::Load(d, b.corner_x[j]), q0y = hn::Load(d, b.corner_y[j]);
      const V q1x = hn::Load(d, b.corner_x[l]), q1y = hn::Load(d, b.corner_y[l]);
      const V s1 = turn(q0x, q0y, p1x, p1y, p0x, p0y), s2 = turn(p1x, p1y, q1x, q1y, p0x, p0y);
      const V s3 = turn(p0x, p0y, q1x, q1y, q0x, q0y), s4 = turn(q1x, q1y, p1x, p1y, q0x, q0y);
      M crosses = hn::And(hn::Gt(hn::Mul(s1, s2), hn::Zero(d)), hn::Gt(hn::Mul(s3, s4), hn::Zero(d)));
      if (hn::AllFalse(d, crosses)) {
        ++next;
        continue;
      }
      crosses = hn::And(crosses, hn::And(touch(p0x, p1x, q0x, q1x), touch(p0y, p1y, q0y, q1y)));
      const V s5 = turn(q1x, q1y, p1x, p1y, p0x, p0y), by = hn::Sub(s5, s1);
      V x = hn::Div(hn::Sub(hn::Mul(s5, q0x), hn::Mul(s1, q1x)), by);
      V y = hn::Div(hn::Sub(hn::Mul(s5, q0y), hn::Mul(s1, q1y)), by);
      const M is_flat = hn::AndNot(hn::Gt(hn::Abs(by), hn::Set(d, 1e-8f)), crosses);
      if (!hn::AllFalse(d, is_flat)) {
        const V a0 = hn::Sub(p0y, p1y), b0 = hn::Sub(p1x, p0x);
        const V c0 = hn::Sub(hn::Mul(p0x, p1y), hn::Mul(p1x, p0y));
        const V a1 = hn::Sub(q0y, q1y), b1 = hn::Sub(q1x, q0x);
        const V c1 = hn::Sub(hn::Mul(q0x, q1y), hn::Mul(q1x, q0y));
        const V determinant = hn::Sub(hn::Mul(a0, b1), hn::Mul(a1, b0));
        x = hn::IfThenElse(is_flat, hn::Div(hn::Sub(hn::Mul(b0, c1), hn::Mul(b1, c0)), determinant), x);
        y = hn::IfThenElse(is_flat, hn::Div(hn::Sub(hn::Mul(a1, c0), hn::Mul(a0, c1)), determinant), y);
      }
      add(x, y, crosses);
    }
  }
  const V x = hn::Load(d, b.x), y = hn::Load(d, b.y), cosine = hn::Load(d, b.cosine);
  const V sine = hn::Load(d, b.sine), limit_x = hn::Load(d, b.limit_x), limit_y = hn::Load(d, b.limit_y);
  for (int k = 0; k < 4; ++k) {
    const V its_x = hn::Load(d, b.corner_x[k]), its_y = hn::Load(d, b.corner_y[k]);
    add(its_x, its_y,
        has(hn::Set(d, a.x), hn::Set(d, a.y), hn::Set(d, a.cosine), hn::Set(d, a.sine), hn::Set(d, a.limit_x),
            hn::Set(d, a.limit_y), its_x, its_y));
    const V own_x = hn::Set(d, a.corner_x[k]), own_y = hn::Set(d, a.corner_y[k]);
    add(own_x, own_y, has(x, y, cosine, sine, limit_x, limit_y, own_x, own_y));
  }
  hn::Store(found, du, to.found);

  // The keys of SharedPoints::sort().
  const V centre_x = hn::Div(sum_x, points), centre_y = hn::Div(sum_y, points);
  std::uint32_t any = 0;
  for (int lane = 0; lane < count; ++lane) any |= to.found[lane];
  for (int k = 0; k < Clipped::kPoints; ++k) {
    if ((any >> k & 1) == 0) continue;
    const V right = hn::Sub(hn::Load(d, to.x[k]), centre_x), up = hn::Sub(hn::Load(d, to.y[k]), centre_y);
    const V part = hn::Div(up, hn::Add(hn::Abs(right), hn::Abs(up)));
    const V two = hn::IfThenElse(hn::Gt(up, hn::Zero(d)), hn::Set(d, 2.0f), hn::Set(d, -2.0f));
    hn::Store(hn::IfThenElse(hn::Ge(right, hn::Zero(d)), part, hn::Sub(two, part)), d, to.key[k]);
  }
}

void suppress(const UprightBoxes<float>& boxes, const UprightRule<float>& rule, std::int64_t i,
              std::int64_t first, std::int64_t last) {
  const F32 d;
  const U32 du;
  const V x1 = hn::Set(d, boxes.x1[i]), y1 = hn::Set(d, boxes.y1[i]);
  const V x2 = hn::Set(d, boxes.x2[i]), y2 = hn::Set(d, boxes.y2[i]), area = hn::Set(d, boxes.area[i]);
  const V offset = hn::Set(d, rule.offset), threshold = hn::Set(d, rule.threshold);
  const V least = hn::Set(d, rule.least);
  const bool has_least = rule.least > 0;
  const auto positive = [&](V v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), v); };
  for (std::int64_t j = first; j < last; j += kLanes) {
    // NaN needs no care: the area of such a box is NaN, too.
    const V width = hn::Sub(hn::Min(hn::LoadU(d, boxes.x2 + j), x2), hn::Max(hn::LoadU(d, boxes.x1 + j), x1));
    const V height =
        hn::Sub(hn::Min(hn::LoadU(d, boxes.y2 + j), y2), hn::Max(hn::LoadU(d, boxes.y1 + j), y1));
    const V inter = hn::Mul(positive(hn::Add(width, offset)), positive(hn::Add(height, offset)));
    V by = hn::Sub(hn::Add(area, hn::LoadU(d, boxes.area + j)), inter);
    if (has_least) by = hn::IfThenElse(hn::Gt(by, least), by, least);
    M exceeds = hn::Gt(hn::Div(inter, by), threshold);
    if (j + kLanes > last) exceeds = hn::And(exceeds, hn::FirstN(d, static_cast<std::size_t>(last - j)));
    if (hn::AllFalse(d, exceeds)) continue;
    const auto bits = hn::IfThenElseZero(hn::RebindMask(du, exceeds), hn::Set(du, ~std::uint32_t{0}));
    if (j + kLanes <= last) {
      hn::StoreU(hn::Or(hn::LoadU(du, boxes.is_suppressed + j), bits), du, boxes.is_suppressed + j);
    } else {  // the boxes after these may be another thread's
      alignas(64) std::uint32_t each[kLanes];
      hn::Store(bits, du, each);
      for (std::int64_t k = j; k < last; ++k) boxes.is_suppressed[k] |= each[k - j];
    }
  }
}

constexpr Kernels kBoxKernels = {&find_near<false>, &find_near<true>, &clip, static_cast<int>(kLanes),
                                 &suppress};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::boxes, Kernels, kernels, kBoxKernels)
#endif
