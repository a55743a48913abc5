// Furthest point sampling among points in leaves. Compiled once per instruction set.
#include "points/kernels.h"

#include <algorithm>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "points/sampling_kernels.cc"
#include "simd/simd.h"
// After simd.h.
#include "points/positions.h"

TURNOUT_ISA_BEGIN(families::points)

template <class Real>
struct Sampling {
  using L = Lanes<Real>;
  using V = typename L::V;
  static constexpr std::int64_t kLeaf = PointLeaves<Real>::kLeaf, kGroup = PointLeaves<Real>::kGroup;
  const SampleTask<Real>& task;

  // The largest of `count` numbers that are above kNoDistance, otherwise kNoDistance.
  HWY_INLINE Real most_of(const Real* from, std::int64_t count) const {
    V most = hn::Set(typename L::D(), Real(kNoDistance));
    for (std::int64_t j = 0; j < count; j += L::kCount)
      most = L::greater(hn::LoadU(typename L::D(), from + j), most);
    return L::greatest(most);
  }

  HWY_INLINE void update_leaf(const Position<Real>& last, std::int64_t leaf) const {
    const typename L::D d;
    const std::int64_t first = leaf * kLeaf;
    const Real *x = task.leaves.x() + first, *y = task.leaves.y() + first, *z = task.leaves.z() + first;
    Real* distances = task.distances + first;
    V most = hn::Set(d, Real(kNoDistance));
    for (std::int64_t j = 0; j < kLeaf; j += L::kCount) {
      const V is = hn::LoadU(d, distances + j), to_last = last.distance(x, y, z, j);
      const V now = hn::IfThenElse(hn::Lt(to_last, is), to_last, is);  // `is` if the new one is NaN
      hn::StoreU(now, d, distances + j);
      most = L::greater(now, most);
    }
    task.leaf_most[leaf] = L::greatest(most);
    task.leaf_row[leaf] = -1;
  }

  // A box at a distance of its largest one, or farther, does not change.
  HWY_INLINE void update(const Real* last_point) const {
    const typename L::D d;
    const Position<Real> last(last_point);
    const auto is_near = [&](const auto& boxes, const Real* most, std::int64_t i) HWY_ATTR {
      return hn::Not(hn::Ge(last.distance(boxes, i), hn::LoadU(d, most + i)));
    };
    for_boxes<Real>(
        0, padded_groups(task.leaves.groups()),
        [&](std::int64_t i) HWY_ATTR { return is_near(task.leaves.group_boxes(), task.group_most, i); },
        [&](std::int64_t group) HWY_ATTR {
          if (group >= task.leaves.groups()) return;
          const std::int64_t first = group * kGroup;
          for_boxes<Real>(
              first, first + kGroup,
              [&](std::int64_t i) HWY_ATTR { return is_near(task.leaves.leaf_boxes(), task.leaf_most, i); },
              [&](std::int64_t leaf) HWY_ATTR { update_leaf(last, leaf); });
          task.group_most[group] = most_of(task.leaf_most + first, kGroup);
        });
  }

  HWY_INLINE std::int32_t row_of(std::int64_t leaf) const {
    std::int32_t& known = task.leaf_row[leaf];
    if (known >= 0) return known;
    const V most = hn::Set(typename L::D(), task.leaf_most[leaf]);
    std::int32_t lowest = PointLeaves<Real>::kNoRow;
    for_boxes<Real>(
        leaf * kLeaf, (leaf + 1) * kLeaf,
        [&](std::int64_t i) HWY_ATTR { return hn::Eq(hn::LoadU(typename L::D(), task.distances + i), most); },
        [&](std::int64_t i) HWY_ATTR { lowest = std::min(lowest, task.leaves.rows()[i]); });
    return known = lowest;
  }

  HWY_INLINE std::int32_t next() const {
    const typename L::D d;
    const std::int64_t groups = padded_groups(task.leaves.groups());
    const Real most = most_of(task.group_most, groups);
    if (!(most > Real(kNoDistance))) return 0;
    const V sought = hn::Set(d, most);
    std::int32_t lowest = PointLeaves<Real>::kNoRow;
    const auto has_most = [&](const Real* from) HWY_ATTR { return hn::Eq(hn::LoadU(d, from), sought); };
    for_boxes<Real>(
        0, groups, [&](std::int64_t i) HWY_ATTR { return has_most(task.group_most + i); },
        [&](std::int64_t group) HWY_ATTR {
          for_boxes<Real>(
              group * kGroup, (group + 1) * kGroup,
              [&](std::int64_t i) HWY_ATTR { return has_most(task.leaf_most + i); },
              [&](std::int64_t leaf) HWY_ATTR { lowest = std::min(lowest, row_of(leaf)); });
        });
    return lowest;
  }

  // After the distances are set.
  HWY_INLINE void begin() const {
    for (std::int64_t leaf = 0; leaf < task.leaves.leaves(); ++leaf) {
      task.leaf_most[leaf] = most_of(task.distances + leaf * kLeaf, kLeaf);
      task.leaf_row[leaf] = -1;
    }
    for (std::int64_t group = 0; group < padded_groups(task.leaves.groups()); ++group)
      task.group_most[group] =
          group < task.leaves.groups() ? most_of(task.leaf_most + group * kGroup, kGroup) : Real(kNoDistance);
  }
};

template <class Real>
std::int64_t sample(const SampleTask<Real>& task, std::int64_t count, std::int32_t* samples) {
  const Sampling<Real> sampling{task};
  sampling.begin();
  const std::int64_t asks = std::max<std::int64_t>(Stop::kGrain / (task.leaves.count() + 1), 1);
  for (std::int64_t i = 1; i < count; ++i) {
    if (i % asks == 0 && task.stop.is_asked()) return i;
    const std::int32_t last = samples[i - 1];
    sampling.update(task.points + 3 * std::int64_t{last});
    samples[i] = sampling.next();
    if (samples[i] == last) return i + 1;
  }
  return count;
}

template <class Real>
std::int64_t step(const Real* to_last, Real* distances, std::int64_t count) {
  using L = Lanes<Real>;
  using V = typename L::V;
  const typename L::D d;
  using DI = hn::RebindToSigned<typename L::D>;
  using Int = hn::TFromD<DI>;
  const DI di;
  V most = hn::Set(d, Real(kNoDistance));
  auto block = hn::Zero(di), of_most = hn::Zero(di);
  const auto one = hn::Set(di, Int{1});
  std::int64_t j = 0;
  for (; j + L::kCount <= count; j += L::kCount) {
    const V is = hn::LoadU(d, distances + j), to = hn::LoadU(d, to_last + j);
    const V now = hn::IfThenElse(hn::Lt(to, is), to, is);
    hn::StoreU(now, d, distances + j);
    const auto is_greater = hn::Gt(now, most);
    most = hn::IfThenElse(is_greater, now, most);
    of_most = hn::IfThenElse(hn::RebindMask(di, is_greater), block, of_most);
    block = hn::Add(block, one);
  }
  const Real greatest = L::greatest(most);
  Real best = greatest;
  std::int64_t next = 0;
  if (greatest > Real(kNoDistance)) {
    alignas(64) Real values[L::kCount];
    alignas(64) Int blocks[L::kCount];
    hn::Store(most, d, values);
    hn::Store(of_most, di, blocks);
    next = count;
    for (std::int64_t lane = 0; lane < L::kCount; ++lane)
      if (values[lane] == greatest) next = std::min(next, std::int64_t{blocks[lane]} * L::kCount + lane);
  }
  for (; j < count; ++j) {
    if (to_last[j] < distances[j]) distances[j] = to_last[j];
    if (distances[j] > best) {
      best = distances[j];
      next = j;
    }
  }
  return next;
}

constexpr Kernels<SampleKernels> kSampleKernels = {{&sample<float>, &step<float>},
                                                   {&sample<double>, &step<double>}};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::points, Kernels<SampleKernels>, sample_kernels, kSampleKernels)
#endif
