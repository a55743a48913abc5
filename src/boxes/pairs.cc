// Overlaps of all pairs of two lists of boxes, or of the pairs with equal numbers.
#include <algorithm>
#include <cmath>

#include "boxes/kernels.h"
#include "boxes/near.h"
#include "boxes/pair_kinds.h"
#include "boxes/signature.h"
#include "core/dtypes.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "turnout/boxes.h"

namespace turnout {
namespace families::boxes {

using namespace core;
namespace {

constexpr std::int64_t kBoxGrain = 512 / kGrainDivisor + 1;      // boxes whose sines a range computes
constexpr std::int64_t kPairGrain = (32 << 10) / kGrainDivisor;  // pairs that a range looks at

template <class Kind>
struct PreparedBoxes {
  using Real = typename Kind::Real;
  typename Kind::Box* box;
  Reaches<Real> reaches;

  static std::size_t bytes(std::int64_t count) {
    return array_bytes<typename Kind::Box>(count) + Reaches<Real>::bytes(count);
  }
  PreparedBoxes(Context& context, Scratch& scratch, const ConstTensor& boxes)
      : box(scratch.take<typename Kind::Box>(boxes.shape[0])), reaches(scratch, boxes.shape[0]) {
    const std::int64_t width = boxes.shape[1];
    const auto* from = static_cast<const Real*>(boxes.data);
    parallel_for(context, boxes.shape[0], kBoxGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        box[i] = typename Kind::Box(from + i * width);
        Kind::set_reach(reaches, i, from + i * width);
      }
    });
  }
};

// result[i, j] = compare(box i of a, box j of b), which is 0 for boxes that are far apart.
template <class Kind, class Compare>
void compare_all(Call& call, const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& result,
                 const Compare& compare) {
  using Real = typename Kind::Real;
  Context& context = call.context();
  const std::int64_t rows = boxes_a.shape[0], columns = boxes_b.shape[0];
  Scratch& scratch = call.scratch(PreparedBoxes<Kind>::bytes(rows) + PreparedBoxes<Kind>::bytes(columns));
  const PreparedBoxes<Kind> a(context, scratch, boxes_a), b(context, scratch, boxes_b);
  auto* to = static_cast<Real*>(result.data);
  const Kernels& its_kernels = kernels(context.isa());
  const Stop stop;
  parallel_for(context, rows, kPairGrain / columns + 1, [&](std::int64_t begin, std::int64_t end) {
    std::int32_t found[kNearRoom];
    Real results[kNearBlock];
    for (std::int64_t i = begin; i < end; ++i) {
      Real* row = to + i * columns;
      std::fill_n(row, columns, Real(0));
      for (std::int64_t first = 0; first < columns; first += kNearBlock) {
        if (first > 0 && stop.is_asked()) return;
        const std::int64_t count = find_near<Kind::kWithSides>(its_kernels, a.reaches, i, b.reaches, first,
                                                               std::min(first + kNearBlock, columns), found);
        Kind::compare(
            its_kernels, a.box[i], a.reaches.is_plain(i), b.box, found, count,
            [&](std::int64_t k) { return b.reaches.is_plain(found[k]); }, compare, results);
        for (std::int64_t k = 0; k < count; ++k) row[found[k]] = results[k];
      }
    }
  });
}

// result[i] = compare(box i of a, box i of b)
template <class Kind, class Compare>
void compare_aligned(Call& call, const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& result,
                     const Compare& compare) {
  using Real = typename Kind::Real;
  using Box = typename Kind::Box;
  const std::int64_t width = boxes_a.shape[1];
  const auto *a = static_cast<const Real*>(boxes_a.data), *b = static_cast<const Real*>(boxes_b.data);
  auto* to = static_cast<Real*>(result.data);
  parallel_for(call.context(), boxes_a.shape[0], kBoxGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Box own(a + i * width), other(b + i * width);
      if constexpr (Kind::kHasOverlap) {
        to[i] = compare(own, other, overlap_of(own, other));
      } else {
        to[i] = compare(own, other);
      }
    }
  });
}

template <template <class> class Kind, class Compare>
void compare_boxes(const Caller& caller, const Signature& signature, const ConstTensor& boxes_a,
                   const ConstTensor& boxes_b, const Tensor& result,
                   std::initializer_list<ScalarValue> scalars, const Compare& compare) {
  Call call(caller, signature, {boxes_a, boxes_b, result}, scalars);
  if (call.nothing_to_do()) return;
  call.chose(result.rank == 2 ? "near pairs" : "pair by pair", call.context().threads());
  visit_lane(boxes_a.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    if (result.rank == 2) {
      compare_all<Kind<Real>>(call, boxes_a, boxes_b, result, compare);
    } else {
      compare_aligned<Kind<Real>>(call, boxes_a, boxes_b, result, compare);
    }
  });
}

constexpr auto kOverlapOf = [](const auto&, const auto&, auto overlap) { return overlap; };
constexpr auto kIouOf = [](const auto& a, const auto& b, auto overlap) { return iou_of(a, b, overlap); };
constexpr auto kIou3dOf = [](const auto& a, const auto& b, auto overlap) { return iou3d_of(a, b, overlap); };

}  // namespace
}  // namespace families::boxes

using namespace families::boxes;

void boxes_overlap_bev(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& overlap,
                       const Caller& caller) {
  compare_boxes<BevKind>(caller, kBoxesOverlapBev, boxes_a, boxes_b, overlap, {}, kOverlapOf);
}
void boxes_overlap_bev_aligned(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& overlap,
                               const Caller& caller) {
  compare_boxes<BevKind>(caller, kBoxesOverlapBevAligned, boxes_a, boxes_b, overlap, {}, kOverlapOf);
}
void boxes_iou_bev(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou,
                   const Caller& caller) {
  compare_boxes<BevKind>(caller, kBoxesIouBev, boxes_a, boxes_b, iou, {}, kIouOf);
}
void boxes_iou_bev_aligned(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou,
                           const Caller& caller) {
  compare_boxes<BevKind>(caller, kBoxesIouBevAligned, boxes_a, boxes_b, iou, {}, kIouOf);
}
void boxes_iou3d(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou,
                 const Caller& caller) {
  compare_boxes<BevKind>(caller, kBoxesIou3d, boxes_a, boxes_b, iou, {}, kIou3dOf);
}
void boxes_iou3d_aligned(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou,
                         const Caller& caller) {
  compare_boxes<BevKind>(caller, kBoxesIou3dAligned, boxes_a, boxes_b, iou, {}, kIou3dOf);
}

void box_iou_rotated(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou, IouMode mode,
                     const Caller& caller) {
  compare_boxes<RotatedKind>(caller, kBoxIouRotated, boxes_a, boxes_b, iou, {mode},
                             [&](const auto& a, const auto& b) { return iou_of(a, b, mode); });
}
void box_iou_rotated_aligned(const ConstTensor& boxes_a, const ConstTensor& boxes_b, const Tensor& iou,
                             IouMode mode, const Caller& caller) {
  compare_boxes<RotatedKind>(caller, kBoxIouRotatedAligned, boxes_a, boxes_b, iou, {mode},
                             [&](const auto& a, const auto& b) { return iou_of(a, b, mode); });
}

}  // namespace turnout
