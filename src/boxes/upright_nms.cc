// Non-maximum suppression of boxes whose edges are parallel to the axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "boxes/kernels.h"
#include "boxes/signature.h"
#include "boxes/upright.h"
#include "boxes/visits.h"
#include "core/dtypes.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "turnout/boxes.h"

namespace turnout {
namespace families::boxes {

using namespace core;
namespace {

constexpr std::int64_t kVisited = kGrainDivisor > 1 ? 16 : 256;   // boxes of a block
constexpr std::int64_t kPairGrain = (256 << 10) / kGrainDivisor;  // pairs that a range compares

// Kernels load whole vectors. Those of a range must not be in another thread's, which writes.
constexpr std::int64_t whole_vectors(std::int64_t boxes) {
  return (boxes / UprightBoxes<float>::kPadding + 1) * UprightBoxes<float>::kPadding;
}

// Suppresses the boxes first .. last-1 that overlap box i.
void suppress(const Kernels& kernels, const UprightBoxes<float>& boxes, const UprightRule<float>& rule,
              std::int64_t i, std::int64_t first, std::int64_t last) {
  kernels.suppress(boxes, rule, i, first, last);
}
void suppress(const Kernels&, const UprightBoxes<double>& boxes, const UprightRule<double>& rule,
              std::int64_t i, std::int64_t first, std::int64_t last) {
  using Real = double;
  const Real x1 = boxes.x1[i], y1 = boxes.y1[i], x2 = boxes.x2[i], y2 = boxes.y2[i], area = boxes.area[i];
  const bool has_least = rule.least > 0;
  for (std::int64_t j = first; j < last; ++j) {
    const Real width =
        (boxes.x2[j] < x2 ? boxes.x2[j] : x2) - (boxes.x1[j] > x1 ? boxes.x1[j] : x1) + rule.offset;
    const Real height =
        (boxes.y2[j] < y2 ? boxes.y2[j] : y2) - (boxes.y1[j] > y1 ? boxes.y1[j] : y1) + rule.offset;
    const Real inter = (width > 0 ? width : Real(0)) * (height > 0 ? height : Real(0));
    const Real both = area + boxes.area[j] - inter;
    const Real by = has_least && !(both > rule.least) ? rule.least : both;
    if (inter / by > rule.threshold) boxes.is_suppressed[j] = ~std::uint32_t{0};
  }
}

template <class Real>
std::int64_t keep_upright(Context& context, const UprightBoxes<Real>& boxes, std::int64_t count,
                          const UprightRule<Real>& rule, std::int64_t most, std::int64_t* kept) {
  const Kernels& its_kernels = kernels(context.isa());
  std::int64_t found = 0;
  for (std::int64_t first = 0; first < count && found < most;) {
    throw_if_interrupted();
    const std::int64_t last = std::min(first + kVisited, count);
    std::int64_t block[kVisited];
    std::int64_t in_block = 0;
    for (std::int64_t i = first; i < last && found < most; ++i) {
      if (boxes.is_suppressed[i] != 0) continue;
      kept[found++] = boxes.visit[i];
      block[in_block++] = i;
      suppress(its_kernels, boxes, rule, i, i + 1, last);
    }
    if (found == most) break;
    parallel_for(context, count - last, whole_vectors(kPairGrain / (in_block + 1)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t k = 0; k < in_block; ++k)
                     suppress(its_kernels, boxes, rule, block[k], last + begin, last + end);
                 });
    first = last;
    std::int64_t to = first;
    for (std::int64_t i = first; i < count; ++i)
      if (boxes.is_suppressed[i] == 0) boxes.move(i, to++);
    std::fill(boxes.is_suppressed + first, boxes.is_suppressed + to, 0u);
    count = to;
  }
  return found;
}

// fill(boxes, i, box): the numbers of one box.
template <class Fill>
std::int64_t keep_boxes(Call& call, const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                        double threshold, double offset, double least, const Fill& fill) {
  call.chose("row by row", call.context().threads());
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const std::int64_t count = boxes.shape[0], width = boxes.shape[1];
  return visit_lane(boxes.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    Scratch& scratch = call.scratch(visits_bytes(count, scores) + UprightBoxes<Real>::bytes(count));
    const std::int32_t* visits = visits_of(scratch, count, scores);
    const UprightBoxes<Real> sorted(scratch, count);
    const auto* from = static_cast<const Real*>(boxes.data);
    serial_for(0, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        fill(sorted, i, from + visits[i] * width);
        sorted.visit[i] = visits[i];
        sorted.is_suppressed[i] = 0;
      }
    });
    const UprightRule<Real> rule{static_cast<Real>(offset), static_cast<Real>(least),
                                 static_cast<Real>(static_cast<float>(threshold))};
    return keep_upright(call.context(), sorted, count, rule, keep.shape[0],
                        static_cast<std::int64_t*>(keep.data));
  });
}

}  // namespace
}  // namespace families::boxes

using namespace families::boxes;

std::int64_t nms3d_normal(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                          double threshold, const Caller& caller) {
  Call call(caller, kNms3dNormal, {boxes, scores, keep}, {threshold});
  if (call.nothing_to_do()) return 0;
  return keep_boxes(
      call, boxes, scores, keep, threshold, 0, 1e-8, [](const auto& to, auto i, const auto* box) {
        using Real = std::remove_cvref_t<decltype(*box)>;
        to.x1[i] = box[0] - box[3] / 2;
        to.x2[i] = box[0] + box[3] / 2;
        to.y1[i] = box[1] - box[4] / 2;
        to.y2[i] = box[1] + box[4] / 2;
        to.area[i] = box[3] * box[4];
        if (std::isnan(to.x1[i]) || std::isnan(to.x2[i]) || std::isnan(to.y1[i]) || std::isnan(to.y2[i])) {
          // A box with NaN has the IoU 0: it shares nothing, and has an area.
          to.x1[i] = to.y1[i] = std::numeric_limits<Real>::infinity();
          to.x2[i] = to.y2[i] = -std::numeric_limits<Real>::infinity();
          to.area[i] = 0;
        }
      });
}

std::int64_t nms(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep, double threshold,
                 std::int64_t offset, const Caller& caller) {
  Call call(caller, kNms, {boxes, scores, keep}, {threshold, offset});
  if (call.nothing_to_do()) return 0;
  return keep_boxes(call, boxes, scores, keep, threshold, static_cast<double>(offset), 0,
                    [&](const auto& to, auto i, const auto* box) {
                      using Real = std::remove_cvref_t<decltype(*box)>;
                      to.x1[i] = box[0];
                      to.y1[i] = box[1];
                      to.x2[i] = box[2];
                      to.y2[i] = box[3];
                      to.area[i] = (box[2] - box[0] + static_cast<Real>(offset)) *
                                   (box[3] - box[1] + static_cast<Real>(offset));
                    });
}

}  // namespace turnout
