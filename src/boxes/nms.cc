// Non-maximum suppression of rotated boxes. Boxes are visited in blocks. Within a block the boxes suppress
// each other in turn; those that stay then suppress the later boxes, which threads share, and boxes that are
// left move together. Each box is compared with the kept boxes in their order until one suppresses it.
#include <algorithm>
#include <cmath>

#include "boxes/kernels.h"
#include "boxes/near.h"
#include "boxes/pair_kinds.h"
#include "boxes/signature.h"
#include "boxes/visits.h"
#include "core/dtypes.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "turnout/boxes.h"

namespace turnout {
namespace families::boxes {

using namespace core;
namespace {

constexpr std::int64_t kBoxGrain = 512 / kGrainDivisor + 1;       // boxes whose sines a range computes
constexpr std::int64_t kVisited = kGrainDivisor > 1 ? 16 : 256;   // boxes of a block
constexpr std::int64_t kPairGrain = (128 << 10) / kGrainDivisor;  // pairs that a range looks at

constexpr struct {
  template <class Real>
  Real operator()(const BevBox<Real>& a, const BevBox<Real>& b, Real overlap) const {
    return iou_of(a, b, overlap);
  }
  template <class Real>
  Real operator()(const RotatedBox<Real>& a, const RotatedBox<Real>& b) const {
    return iou_of(a, b, IouMode::iou);
  }
} kIou;

// Kernels load whole vectors. Those of a range must not be in another thread's, which writes.
constexpr std::int64_t whole_vectors(std::int64_t boxes) {
  return (boxes / Reaches<float>::kPadding + 1) * Reaches<float>::kPadding;
}

template <class Kind>
class RotatedNms {
 public:
  using Real = typename Kind::Real;
  using Box = typename Kind::Box;

  static std::size_t bytes(std::int64_t count) {
    return array_bytes<Box>(count) + Reaches<Real>::bytes(count) + array_bytes<std::int32_t>(count) +
           array_bytes<bool>(count);
  }
  RotatedNms(Context& context, Scratch& scratch, const ConstTensor& boxes, const std::int32_t* visits,
             float threshold)
      : context_(context),
        kernels_(kernels(context.isa())),
        count_(boxes.shape[0]),
        threshold_(threshold),
        box_(scratch.take<Box>(count_)),
        reaches_(scratch, count_),
        visit_(scratch.take<std::int32_t>(count_)),
        is_suppressed_(scratch.take<bool>(count_)) {
    const auto* from = static_cast<const Real*>(boxes.data);
    parallel_for(context, count_, kBoxGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Real* box = from + visits[i] * std::int64_t{Kind::kNumbers};
        box_[i] = Box(box);
        Kind::set_reach(reaches_, i, box);
        // Then boxes that share nothing suppress each other, too.
        if (threshold < 0) reaches_.always_clip(i);
        visit_[i] = static_cast<std::int32_t>(i);
        is_suppressed_[i] = false;
      }
    });
  }

  // Writes the visits of the kept boxes, `most` at most, and returns how many they are.
  std::int64_t run(std::int64_t most, std::int64_t* kept) {
    std::int64_t found = 0;
    for (std::int64_t first = 0; first < count_ && found < most;) {
      throw_if_interrupted();
      const std::int64_t last = std::min(first + kVisited, count_);
      std::int64_t block[kVisited];
      std::int64_t in_block = 0;
      for (std::int64_t i = first; i < last && found < most; ++i) {
        if (is_suppressed_[i]) continue;
        kept[found++] = visit_[i];
        block[in_block++] = i;
        suppress(i, i + 1, last);
      }
      if (found == most) break;
      const Stop stop;
      parallel_for(context_, count_ - last, whole_vectors(kPairGrain / (in_block + 1)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t k = 0; k < in_block; ++k) {
                       if (k % 16 == 15 && stop.is_asked()) return;
                       suppress(block[k], last + begin, last + end);
                     }
                   });
      first = last;
      move_together(first);
    }
    return found;
  }

 private:
  // Suppresses the boxes first .. last-1 that overlap box i.
  void suppress(std::int64_t i, std::int64_t first, std::int64_t last) {
    std::int32_t found[kNearRoom], visits[kNearBlock];
    Real ious[kNearBlock];
    for (; first < last; first += kNearBlock) {
      const std::int64_t near = find_near<Kind::kWithSides>(kernels_, reaches_, i, reaches_, first,
                                                            std::min(first + kNearBlock, last), found);
      std::int64_t count = 0;
      for (std::int64_t k = 0; k < near; ++k) {
        if (is_suppressed_[found[k]]) continue;
        found[count] = found[k];
        visits[count++] = visit_[found[k]];
      }
      Kind::compare(
          kernels_, box_[visit_[i]], reaches_.is_plain(i), box_, visits, count,
          [&](std::int64_t k) { return reaches_.is_plain(found[k]); }, kIou, ious);
      for (std::int64_t k = 0; k < count; ++k) {
        if (!(ious[k] > threshold_)) continue;
        is_suppressed_[found[k]] = true;
        reaches_.remove(found[k]);
      }
    }
  }

  // Moves the boxes from `first` on that are not suppressed to the front of these.
  void move_together(std::int64_t first) {
    std::int64_t to = first;
    for (std::int64_t i = first; i < count_; ++i) {
      if (is_suppressed_[i]) continue;
      reaches_.move(i, to);
      visit_[to] = visit_[i];
      ++to;
    }
    std::fill(is_suppressed_ + first, is_suppressed_ + to, false);
    count_ = to;
  }

  Context& context_;
  const Kernels& kernels_;
  std::int64_t count_;  // how many are left
  const float threshold_;
  Box* const box_;  // by visit
  const Reaches<Real> reaches_;
  std::int32_t* const visit_;
  bool* const is_suppressed_;
};

template <template <class> class Kind>
std::int64_t keep_boxes(const Caller& caller, const Signature& signature, const ConstTensor& boxes,
                        const ConstTensor& scores, const Tensor& keep, double threshold) {
  Call call(caller, signature, {boxes, scores, keep}, {threshold});
  if (call.nothing_to_do()) return 0;
  call.chose("near pairs", call.context().threads());
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const std::int64_t count = boxes.shape[0];
  return visit_lane(boxes.dtype, [&](auto type) {
    using Nms = RotatedNms<Kind<typename decltype(type)::type>>;
    Scratch& scratch = call.scratch(visits_bytes(count, scores) + Nms::bytes(count));
    const std::int32_t* visits = visits_of(scratch, count, scores);
    auto* kept = static_cast<std::int64_t*>(keep.data);
    const std::int64_t found =
        Nms(call.context(), scratch, boxes, visits, static_cast<float>(threshold)).run(keep.shape[0], kept);
    for (std::int64_t i = 0; i < found; ++i) kept[i] = visits[kept[i]];
    return found;
  });
}

}  // namespace
}  // namespace families::boxes

using namespace families::boxes;

std::int64_t nms3d(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep, double threshold,
                   const Caller& caller) {
  return keep_boxes<BevKind>(caller, kNms3d, boxes, scores, keep, threshold);
}

std::int64_t nms_rotated(const ConstTensor& boxes, const ConstTensor& scores, const Tensor& keep,
                         double threshold, const Caller& caller) {
  return keep_boxes<RotatedKind>(caller, kNmsRotated, boxes, scores, keep, threshold);
}

}  // namespace turnout
