// The registry entries of this family.
#include <algorithm>
#include <iterator>

#include "dynamic_scatter/dynamic_scatter.h"
#include "dynamic_scatter/example.h"
#include "dynamic_scatter/segment_reference.h"
#include "dynamic_scatter/segment_signature.h"
#include "registry.h"
#include "turnout/segments.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
namespace {

// Limits max_voxels to the number of points, unless the caller gives a result, which has max_voxels rows.
std::unique_ptr<Prepared> limit_max_voxels(const Caller&, const Tensor* arguments, const ScalarValue*,
                                           std::int64_t* sizes) {
  constexpr int kRows = kVoxelizeHard.size("rows"), kMaxVoxels = kVoxelizeHard.size("max_voxels");
  constexpr int kResults[] = {kVoxelizeHard.argument("voxels"), kVoxelizeHard.argument("coors"),
                              kVoxelizeHard.argument("num_points_per_voxel")};
  if (std::all_of(std::begin(kResults), std::end(kResults), [&](int i) { return arguments[i].is_absent(); }))
    sizes[kMaxVoxels] = std::min(sizes[kMaxVoxels], sizes[kRows]);
  return nullptr;
}

// dynamic_scatter_forward after it has found the points of each voxel.
class PreparedForward : public Prepared {
 public:
  PreparedForward(const ConstTensor& coors, const Caller& caller) : index_(coors, caller) {}

  std::int64_t voxels() const { return index_.voxels(); }
  std::int64_t run(const Caller& caller, const Tensor* t, const ScalarValue* scalars) override {
    index_.scatter(t[0], t[2], t[3], t[4], t[5], to_enum<Reduce>(scalars[0]), caller);
    return index_.voxels();
  }

 private:
  const PointIndex index_;
};

std::unique_ptr<Prepared> find_voxels(const Caller& caller, const Tensor* arguments, const ScalarValue*,
                                      std::int64_t* sizes) {
  auto prepared =
      std::make_unique<PreparedForward>(arguments[kDynamicScatterForward.argument("coors")], caller);
  sizes[kDynamicScatterForward.size("voxels")] = prepared->voxels();
  return prepared;
}

// Finds the number of groups that the index names, unless the caller or a given result determines it.
std::unique_ptr<Prepared> find_dim_size(const Caller& caller, const Tensor* arguments, const ScalarValue*,
                                        std::int64_t* sizes) {
  constexpr int kDimSize = kScatterSum.size("dim_size"), kIndex = kScatterSum.argument("index");
  static_assert(kDimSize == kScatterMean.size("dim_size") && kDimSize == kScatterMax.size("dim_size"));
  static_assert(kIndex == kScatterMean.argument("index") && kIndex == kScatterMax.argument("index"));
  if (sizes[kDimSize] == kUnknownExtent) sizes[kDimSize] = scatter_dim_size(arguments[kIndex], caller);
  return nullptr;
}

static_assert(kScatterSum.size("dim_size") == kScatterMin.size("dim_size") &&
              kScatterSum.argument("index") == kScatterMin.argument("index"));

// The rows of gather_csr end with the last segment, unless the caller or a given result determines them.
std::unique_ptr<Prepared> find_rows(const Caller&, const Tensor* arguments, const ScalarValue*,
                                    std::int64_t* sizes) {
  std::int64_t& rows = sizes[kGatherCsr.size("rows")];
  const Tensor& indptr = arguments[kGatherCsr.argument("indptr")];
  if (rows == kUnknownExtent)
    rows = visit_index(indptr.dtype, [&](auto type) -> std::int64_t {
      return static_cast<const typename decltype(type)::type*>(indptr.data)[indptr.shape[0] - 1];
    });
  return nullptr;
}

// Random numbers in ascending order, as indptr must be.
template <int argument>
void sort_indptr(const Tensor* arguments) {
  const Tensor& indptr = arguments[argument];
  visit_index(indptr.dtype, [&](auto type) {
    auto* values = static_cast<typename decltype(type)::type*>(indptr.data);
    std::sort(values, values + indptr.shape[0]);
  });
}

}  // namespace

std::span<const Operator> operators() {
  static constexpr auto kFillMap = [](const Tensor* t) { fill_map(t[0], t[3], t[5]); };
  static constexpr Operator kOperators[] = {
      op<&voxelize>(kVoxelize, "voxel_size=1 point_cloud_range=0,0,0,4,4,4 rows=5 features=4"),
      op<&voxelize_hard>(
          kVoxelizeHard,
          "voxel_size=1 point_cloud_range=0,0,0,4,4,4 rows=5 features=4 max_points=2 max_voxels=3",
          {.find_sizes = limit_max_voxels}),
      op<&dynamic_scatter_forward>(kDynamicScatterForward,
                                   "reduce_type=2 points=5 channels=7 dims=3 voxels=4",
                                   {.find_sizes = find_voxels}),
      op<&dynamic_scatter_backward>(kDynamicScatterBackward, "reduce_type=0 voxels=4 channels=7 points=5",
                                    {.prepare = kFillMap}),
      op<&scatter_sum>(kScatterSum, "rows=5 channels=7 dim_size=4", {.find_sizes = find_dim_size}),
      op<&scatter_mean>(kScatterMean, "rows=5 channels=7 dim_size=4", {.find_sizes = find_dim_size}),
      op<&scatter_max>(kScatterMax, "rows=5 channels=7 dim_size=4",
                       {.definition = define<&definition::scatter_max>, .find_sizes = find_dim_size}),
      op<&scatter_sum_backward>(kScatterSumBackward, "dim_size=4 channels=7 rows=5"),
      op<&scatter_mean_backward>(kScatterMeanBackward, "dim_size=4 channels=7 rows=5"),
      op<&scatter_max_backward>(kScatterMaxBackward, "dim_size=4 channels=7 rows=5"),
      op<&scatter_min>(kScatterMin, "rows=5 channels=7 dim_size=4",
                       {.definition = define<&definition::scatter_min>, .find_sizes = find_dim_size}),
      op<&segment_csr>(kSegmentCsr, "rows=5 channels=7 segments=3",
                       {.definition = define<&definition::segment_csr>, .prepare = sort_indptr<1>}),
      op<&gather_csr>(kGatherCsr, "segments=3 channels=7 rows=5",
                      {.definition = define<&definition::gather_csr>,
                       .prepare = sort_indptr<1>,
                       .find_sizes = find_rows}),
      op<&ingroup_indices>(kIngroupIndices, "rows=5", {.definition = define<&definition::ingroup_indices>}),
      op<&bev_pool>(kBevPool, "rows=5 channels=7 batch=2 depth=2 height=3 width=3",
                    {.definition = define<&definition::bev_pool>}),
      op<&bev_pool_backward>(kBevPoolBackward, "batch=2 channels=7 depth=2 height=3 width=3 rows=5",
                             {.definition = define<&definition::bev_pool_backward>}),
  };
  return kOperators;
}

}  // namespace turnout::families::dynamic_scatter
