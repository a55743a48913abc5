// The operators of this family.
#include <algorithm>
#include <cmath>

#include "boxes/definition.h"
#include "boxes/signature.h"
#include "core/dtypes.h"
#include "registry.h"
#include "turnout/boxes.h"

namespace turnout::families::boxes {

using namespace core;
namespace {

// A new `keep` has room for max_keep boxes, but for no more than there are. Without max_keep, a given one
// says how many.
template <int kCount, int kMaxKeep>
std::unique_ptr<Prepared> find_max_keep(const Caller&, const Tensor* arguments, const ScalarValue*,
                                        std::int64_t* sizes) {
  constexpr int kKept = kNms.argument("keep");
  static_assert(kKept == kNms3d.argument("keep") && kKept == kNmsRotated.argument("keep"));
  std::int64_t& most = sizes[kMaxKeep];
  if (most == kUnknownExtent)
    most = arguments[kKept].is_absent() ? sizes[kCount] : arguments[kKept].shape[0];
  else if (most >= 0)
    most = std::min(most, sizes[kCount]);
  return nullptr;
}
constexpr auto* kFindMaxKeep = find_max_keep<kNms3d.size("count"), kNms3d.size("max_keep")>;
static_assert(kNms3d.size("count") == kNmsRotated.size("count") &&
              kNms3d.size("count") == kNms3dNormal.size("count"));
constexpr auto* kFindMaxKeepOfNms = find_max_keep<kNms.size("count"), kNms.size("max_keep")>;

// Makes most boxes of random numbers positive in size, and gives sizes to those that are all zero. `extents`
// are those columns; column 0 is x.
void fill_boxes(const Tensor& boxes, int first_extent, int extents) {
  if (boxes.is_absent() || boxes.rank < 2) return;
  const std::int64_t width = boxes.shape[boxes.rank - 1];
  std::int64_t count = 1;
  for (int d = 0; d + 1 < boxes.rank; ++d) count *= boxes.shape[d];
  visit_lane(boxes.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for (std::int64_t i = 0; i < count; ++i) {
      Real* box = static_cast<Real*>(boxes.data) + i * width;
      const bool is_zero = std::all_of(box, box + width, [](Real v) { return v == 0; });
      if (is_zero) box[0] = static_cast<Real>(i) / 2;
      for (int k = first_extent; k < first_extent + extents; ++k)
        if (is_zero || i % 8 != 7) box[k] = is_zero ? Real(2) : std::abs(box[k]);
    }
  });
}
void fill_bev_pairs(const Tensor* t) {
  fill_boxes(t[0], 3, 3);
  fill_boxes(t[1], 3, 3);
}
void fill_rotated_pairs(const Tensor* t) {
  fill_boxes(t[0], 2, 2);
  fill_boxes(t[1], 2, 2);
}
void fill_bev(const Tensor* t) { fill_boxes(t[0], 3, 3); }
void fill_rotated(const Tensor* t) { fill_boxes(t[0], 2, 2); }
void fill_boxes_of_points(const Tensor* t) { fill_boxes(t[1], 3, 3); }

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&boxes_overlap_bev>(kBoxesOverlapBev, "count_a=5 count_b=3",
                             {.definition = define<&definition::boxes_overlap_bev>,
                              .is_exact = true,
                              .prepare = fill_bev_pairs}),
      op<&boxes_overlap_bev_aligned>(kBoxesOverlapBevAligned, "count_a=5",
                                     {.definition = define<&definition::boxes_overlap_bev>,
                                      .is_exact = true,
                                      .prepare = fill_bev_pairs}),
      op<&boxes_iou_bev>(
          kBoxesIouBev, "count_a=5 count_b=3",
          {.definition = define<&definition::boxes_iou_bev>, .is_exact = true, .prepare = fill_bev_pairs}),
      op<&boxes_iou_bev_aligned>(
          kBoxesIouBevAligned, "count_a=5",
          {.definition = define<&definition::boxes_iou_bev>, .is_exact = true, .prepare = fill_bev_pairs}),
      op<&boxes_iou3d>(
          kBoxesIou3d, "count_a=5 count_b=3",
          {.definition = define<&definition::boxes_iou3d>, .is_exact = true, .prepare = fill_bev_pairs}),
      op<&boxes_iou3d_aligned>(
          kBoxesIou3dAligned, "count_a=5",
          {.definition = define<&definition::boxes_iou3d>, .is_exact = true, .prepare = fill_bev_pairs}),
      op<&box_iou_rotated>(kBoxIouRotated, "count_a=5 count_b=3",
                           {.definition = define<&definition::box_iou_rotated>,
                            .is_exact = true,
                            .prepare = fill_rotated_pairs}),
      op<&box_iou_rotated_aligned>(kBoxIouRotatedAligned, "count_a=5",
                                   {.definition = define<&definition::box_iou_rotated>,
                                    .is_exact = true,
                                    .prepare = fill_rotated_pairs}),
      op<&nms3d>(kNms3d, "threshold=0.25 count=6 max_keep=4",
                 {.definition = define<&definition::nms3d>,
                  .is_exact = true,
                  .prepare = fill_bev,
                  .find_sizes = kFindMaxKeep}),
      op<&nms3d_normal>(kNms3dNormal, "threshold=0.25 count=6 max_keep=4",
                        {.definition = define<&definition::nms3d_normal>,
                         .is_exact = true,
                         .prepare = fill_bev,
                         .find_sizes = kFindMaxKeep}),
      op<&nms_rotated>(kNmsRotated, "threshold=0.25 count=6 max_keep=4",
                       {.definition = define<&definition::nms_rotated>,
                        .is_exact = true,
                        .prepare = fill_rotated,
                        .find_sizes = kFindMaxKeep}),
      op<&nms>(kNms, "threshold=0.25 count=6 max_keep=4",
               {.definition = define<&definition::nms>,
                .is_exact = true,
                .prepare = fill_rotated,
                .find_sizes = kFindMaxKeepOfNms}),
      op<&points_in_boxes>(kPointsInBoxes, "batch=2 point_count=5 box_count=3",
                           {.definition = define<&definition::points_in_boxes>,
                            .is_exact = true,
                            .prepare = fill_boxes_of_points}),
      op<&points_in_boxes_all>(kPointsInBoxesAll, "batch=2 point_count=5 box_count=3",
                               {.definition = define<&definition::points_in_boxes_all>,
                                .is_exact = true,
                                .prepare = fill_boxes_of_points}),
  };
  return kOperators;
}

}  // namespace turnout::families::boxes
