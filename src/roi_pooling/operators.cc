// The operators of this family.
#include <cmath>
#include <cstdint>

#include "core/dtypes.h"
#include "registry.h"
#include "roi_pooling/reference.h"
#include "roi_pooling/roiaware.h"
#include "roi_pooling/signature.h"
#include "turnout/roi_pooling.h"

namespace turnout::families::roi_pooling {

using namespace core;
namespace {

// Makes random boxes larger, so that they have points, and their extents positive.
void enlarge(const Tensor& boxes) {
  if (boxes.is_absent() || boxes.rank < 2 || boxes.shape[boxes.rank - 1] != 7) return;
  std::int64_t count = 1;
  for (int d = 0; d + 1 < boxes.rank; ++d) count *= boxes.shape[d];
  visit_lane(boxes.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    for (std::int64_t i = 0; i < count; ++i)
      for (int k = 3; k < 6; ++k) {
        Real& extent = static_cast<Real*>(boxes.data)[7 * i + k];
        extent = std::abs(extent) + 4;
      }
  });
}
void enlarge_rois(const Tensor* t) { enlarge(t[0]); }
void enlarge_rois_of_gradient(const Tensor* t) { enlarge(t[1]); }
void enlarge_boxes(const Tensor* t) { enlarge(t[2]); }

// roiaware_points after it has found the points.
class PreparedPoints : public Prepared {
 public:
  PreparedPoints(const Caller& caller, const Tensor* t, const ScalarValue* scalars)
      : lists_(list_points(caller.context(), t[0], t[1], size_of_cells(scalars), scalars[1].value,
                           to_enum<BoxZ>(scalars[2]), scalars[3].real)) {}

  std::int64_t pairs() const { return lists_.pairs(); }
  std::int64_t run(const Caller& caller, const Tensor* t, const ScalarValue* scalars) override {
    Call call(caller, kRoiawarePoints, {t[0], t[1], t[2], t[3]},
              {scalars[0], scalars[1], scalars[2], scalars[3]});
    const CellRule rule(size_of_cells(scalars), 0);
    return write_pairs(call, lists_, t[0].shape[0], rule.cells(), t[2], t[3]);
  }

 private:
  static std::span<const std::int64_t> size_of_cells(const ScalarValue* scalars) {
    return {scalars[0].values, static_cast<std::size_t>(scalars[0].value)};
  }
  const CellPoints lists_;
};

std::unique_ptr<Prepared> find_pairs(const Caller& caller, const Tensor* arguments,
                                     const ScalarValue* scalars, std::int64_t* sizes) {
  auto prepared = std::make_unique<PreparedPoints>(caller, arguments, scalars);
  sizes[kRoiawarePoints.size("pairs")] = prepared->pairs();
  return prepared;
}

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&roiaware_pool3d>(
          kRoiawarePool3d, "out_size=2 max_points=8 roi_count=3 point_count=9 channels=5",
          {.definition = define<&definition::roiaware_pool3d>, .is_exact = true, .prepare = enlarge_rois}),
      op<&roiaware_pool3d_backward>(
          kRoiawarePool3dBackward,
          "out_size=2 max_points=8 pool_method=1 roi_count=3 channels=5 point_count=9",
          {.definition = define<&definition::roiaware_pool3d_backward>,
           .is_exact = true,
           .prepare = enlarge_rois_of_gradient}),
      op<&roiaware_points>(kRoiawarePoints, "out_size=2 max_points=8 roi_count=3 point_count=9 pairs=24",
                           {.definition = define<&definition::roiaware_points>,
                            .is_exact = true,
                            .prepare = enlarge_rois,
                            .find_sizes = find_pairs}),
      op<&roipoint_pool3d>(
          kRoipointPool3d, "batch=2 point_count=9 channels=5 box_count=3 samples=4",
          {.definition = define<&definition::roipoint_pool3d>, .is_exact = true, .prepare = enlarge_boxes}),
  };
  return kOperators;
}

}  // namespace turnout::families::roi_pooling
