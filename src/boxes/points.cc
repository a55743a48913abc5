// Points in boxes: each point is compared with the boxes that are listed for its cell of a grid.
#include <algorithm>

#include "boxes/signature.h"
#include "core/dtypes.h"
#include "indices/box_grid.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "turnout/boxes.h"

namespace turnout {
namespace families::boxes {

using namespace core;
namespace {

// Points of a range: without a grid, each is compared with all boxes.
constexpr std::int64_t point_grain(std::int64_t boxes) {
  return std::clamp<std::int64_t>((std::int64_t{4} << 20) / (boxes + 1) / kGrainDivisor, 16, 8 << 10);
}

// With fewer points, preparing the boxes takes longer than comparing the points with them.
constexpr std::int64_t kFewPoints = 4, kFewBoxes = 1 << 16;

// Calls write(first point of the batch element, boxes, points, first, last) for ranges of points.
template <class Write>
void for_points(Call& call, const ConstTensor& points, const ConstTensor& boxes, BoxZ z, double margin,
                std::int64_t grain, const Write& write) {
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const int batched = points.rank - 2;
  const std::int64_t batch = batched != 0 ? points.shape[0] : 1;
  const std::int64_t point_count = points.shape[batched], box_count = boxes.shape[batched];
  visit_lane(points.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto points_of = [&](std::int64_t b) {
      return static_cast<const Real*>(points.data) + b * point_count * 3;
    };
    const auto boxes_of = [&](std::int64_t b) {
      return static_cast<const Real*>(boxes.data) + b * box_count * 7;
    };
    const bool z_is_bottom = z == BoxZ::bottom;
    const auto wide = static_cast<float>(margin);
    if (point_count <= kFewPoints && box_count <= kFewBoxes) {
      call.chose("box by box", call.context().threads());
      return parallel_for(call.context(), batch, grain / kFewPoints + 1,
                          [&](std::int64_t begin, std::int64_t end) {
                            for (std::int64_t b = begin; b < end; ++b)
                              write(b * point_count, BoxList<Real>{boxes_of(b), box_count, z_is_bottom, wide},
                                    points_of(b), 0, point_count);
                          });
    }
    call.chose("grid", call.context().threads());
    BoxGrid<Real> grid(call.scratch(BoxGrid<Real>::bytes(box_count)), box_count);
    for (std::int64_t b = 0; b < batch; ++b) {
      grid.set(boxes_of(b), point_count, z_is_bottom, wide);
      parallel_for(call.context(), point_count, grain, [&](std::int64_t begin, std::int64_t end) {
        write(b * point_count, grid, points_of(b), begin, end);
      });
    }
  });
}

}  // namespace
}  // namespace families::boxes

using namespace families::boxes;

void points_in_boxes(const ConstTensor& points, const ConstTensor& boxes, const Tensor& box_of_point, BoxZ z,
                     double margin, const Caller& caller) {
  Call call(caller, kPointsInBoxes, {points, boxes, box_of_point}, {z, margin});
  if (call.nothing_to_do()) return;
  auto* to = static_cast<std::int32_t*>(box_of_point.data);
  for_points(call, points, boxes, z, margin, point_grain(boxes.shape[boxes.rank - 2]),
             [&](std::int64_t base, const auto& of, const auto* point, std::int64_t begin, std::int64_t end) {
               for (std::int64_t m = begin; m < end; ++m) {
                 std::int32_t first = -1;
                 of.for_boxes_of(point + 3 * m, [&](std::int32_t n) {
                   first = n;
                   return false;
                 });
                 to[base + m] = first;
               }
             });
}

void points_in_boxes_all(const ConstTensor& points, const ConstTensor& boxes, const Tensor& is_inside, BoxZ z,
                         double margin, const Caller& caller) {
  Call call(caller, kPointsInBoxesAll, {points, boxes, is_inside}, {z, margin});
  if (call.nothing_to_do()) return;
  auto* to = static_cast<std::int32_t*>(is_inside.data);
  const std::int64_t box_count = is_inside.shape[is_inside.rank - 1];
  for_points(call, points, boxes, z, margin, kParallelBytes / (4 * box_count) + 1,
             [&](std::int64_t base, const auto& of, const auto* point, std::int64_t begin, std::int64_t end) {
               for (std::int64_t m = begin; m < end; ++m) {
                 std::int32_t* row = to + (base + m) * box_count;
                 std::fill_n(row, box_count, 0);
                 of.for_boxes_of(point + 3 * m, [&](std::int32_t n) {
                   row[n] = 1;
                   return true;
                 });
               }
             });
}

}  // namespace turnout
