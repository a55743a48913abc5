// The C functions of this family, each with its order of checks.
#include <algorithm>

#include "bindings/mluop/call.h"
#include "bindings/mluop/widen.h"
#include "core/draft.h"
#include "points/signature.h"
#include "runtime/caller.h"
#include "runtime/parallel.h"
#include "turnout/points.h"

namespace turnout::families::points {

using namespace core;
using namespace bindings;
namespace {

constexpr DTypes kHalfOrFloat = dtypes(DType::f16, DType::f32), kInt = dtypes(DType::i32);

constexpr StepSpec kBallQuerySteps[] = {{Check::scalars},
                                        {Check::handle},
                                        {Check::present},
                                        {Check::ranks},
                                        {Check::shapes, ErrorCode::bad_param,
                                         "new_xyz.0 xyz.0 idx.0 new_xyz.1 idx.1 new_xyz.2 xyz.2 idx.2 xyz.1"},
                                        {Check::contiguous, ErrorCode::not_supported},
                                        {Check::dtypes},
                                        {Check::large, ErrorCode::not_supported, "new_xyz idx xyz"},
                                        {Check::not_empty, ErrorCode::bad_param, "new_xyz"},
                                        {Check::any_empty, ErrorCode::bad_param, "xyz idx"},
                                        {Check::pointers},
                                        {Check::overlap}};

constexpr StepSpec kThreeNnQuerySteps[] = {{Check::present}, {Check::ranks}};
constexpr StepSpec kThreeNnSteps[] = {
    {Check::present, ErrorCode::bad_param, "known unknown dist2 idx"},
    {Check::ranks},
    {Check::shapes, ErrorCode::bad_param,
     "unknown.0 known.0 dist2.0 idx.0 unknown.1 dist2.1 idx.1 unknown.2 known.2 dist2.2 idx.2 known.1"},
    {Check::dtypes},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::large, ErrorCode::not_supported},
    {Check::not_empty, ErrorCode::bad_param, "unknown dist2 idx"},
    {Check::any_empty, ErrorCode::bad_param, "known"},
    {Check::workspace_null},
    {Check::pointers},
    {Check::overlap}};

// The operators lease their memory from the context.
constexpr ScratchBytes kNoScratch = {[](const Arguments&, const Positions&) { return std::size_t{0}; }};

// ball_query() finds no point with a radius of 0, which finds those at the query here. This is the least
// radius that finds them: its square is the least positive number.
constexpr float kOnlyAtZero = 3.8e-23f;

constexpr std::int64_t kRowGrain = 4096 / kGrainDivisor + 1;  // rows that a range copies

// Copies the rows of queries that have found a point. Those of other queries stay as they are.
void write_found_rows(Context& context, const std::int32_t* rows, const std::int32_t* found,
                      const Tensor& idx) {
  const std::int64_t nsample = idx.shape[2];
  auto* to = static_cast<std::int32_t*>(idx.data);
  parallel_for(context, idx.shape[0] * idx.shape[1], kRowGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t q = begin; q < end; ++q)
      if (found[q] > 0) std::copy_n(rows + q * nsample, nsample, to + q * nsample);
  });
}

}  // namespace

constexpr const Signature& kMluOpBallQuery = signature([] {
  return Draft{"mluOpBallQuery",
               "batch queries points",
               {real("min_radius", 0), real("max_radius", 0), scalar("nsample", 0)},
               {in("new_xyz", kHalfOrFloat, "batch, queries, 3"),
                in("xyz", like("new_xyz"), "batch, points, 3"), out("idx", kInt, "batch, queries, nsample")},
               {},
               {},
               kBallQuerySteps};
});

constexpr const Signature& kMluOpGetThreeNNForwardWorkspaceSize = signature([] {
  return Draft{"mluOpGetThreeNNForwardWorkspaceSize",
               "batch points",
               {},
               {in("known", kAnyDType, "batch, points, 3")},
               {},
               {},
               kThreeNnQuerySteps,
               kNoScratch};
});

constexpr const Signature& kMluOpThreeNNForward = signature([] {
  return Draft{
      "mluOpThreeNNForward",
      "batch queries points",
      {},
      {in("unknown", kHalfOrFloat, "batch, queries, 3"), in("known", like("unknown"), "batch, points, 3"),
       out("dist2", like("unknown"), "batch, queries, 3"), out("idx", kInt, "batch, queries, 3")},
      {},
      {},
      kThreeNnSteps};
});

namespace {
constexpr Renames kBallQueryNames(kBallQuery, kMluOpBallQuery, "radius=max_radius found=");
constexpr Renames kThreeNnNames(kThreeNn, kMluOpThreeNNForward, "");
}  // namespace

}  // namespace turnout::families::points

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::points;

mluOpStatus_t mluOpBallQuery(mluOpHandle_t handle, const mluOpTensorDescriptor_t new_xyz_desc,
                             const void* new_xyz, const mluOpTensorDescriptor_t xyz_desc, const void* xyz,
                             const float min_radius, const float max_radius, const int nsample,
                             const mluOpTensorDescriptor_t idx_desc, void* idx) {
  return call(handle, kMluOpBallQuery, kBallQueryNames,
              {{new_xyz_desc, new_xyz}, {xyz_desc, xyz}, {idx_desc, idx}}, {min_radius, max_radius, nsample},
              [&](const Caller& caller, const turnout::Tensor* t) {
                Context& context = caller.context();
                const std::int64_t batch = t[2].shape[0], queries = t[2].shape[1];
                Scratch scratch(context, widened_bytes({t[0], t[1]}) +
                                             array_bytes<std::int32_t>(batch * queries * nsample) +
                                             array_bytes<std::int32_t>(batch * queries));
                const turnout::Tensor from = widened(context, scratch, t[0]);
                const turnout::Tensor cloud = widened(context, scratch, t[1]);
                auto* rows = scratch.take<std::int32_t>(batch * queries * nsample);
                auto* found = scratch.take<std::int32_t>(batch * queries);
                ball_query(cloud, from, view(rows, {batch, queries, nsample}), view(found, {batch, queries}),
                           std::max(max_radius, kOnlyAtZero), min_radius, caller);
                write_found_rows(context, rows, found, t[2]);
              });
}

mluOpStatus_t mluOpGetThreeNNForwardWorkspaceSize(mluOpHandle_t handle,
                                                  const mluOpTensorDescriptor_t known_desc,
                                                  size_t* workspace_size) {
  return query(handle, kMluOpGetThreeNNForwardWorkspaceSize, {known_desc}, {}, workspace_size);
}

mluOpStatus_t mluOpThreeNNForward(mluOpHandle_t handle, const mluOpTensorDescriptor_t unknown_desc,
                                  const void* unknown, const mluOpTensorDescriptor_t known_desc,
                                  const void* known, void* workspace, const size_t workspace_size,
                                  const mluOpTensorDescriptor_t dist2_desc, void* dist2,
                                  const mluOpTensorDescriptor_t idx_desc, void* idx) {
  return call(handle, kMluOpThreeNNForward, kThreeNnNames,
              {{unknown_desc, unknown}, {known_desc, known}, {dist2_desc, dist2}, {idx_desc, idx}}, {},
              [&](const Caller& caller, const turnout::Tensor* t) {
                Context& context = caller.context();
                Scratch scratch(context, widened_bytes({t[0], t[1], t[2]}));
                const turnout::Tensor from = widened(context, scratch, t[0]);
                const turnout::Tensor cloud = widened(context, scratch, t[1]);
                const turnout::Tensor distances = widened_result(scratch, t[2]);
                three_nn(from, cloud, distances, t[3], caller);
                round_result(context, distances, t[2]);
              },
              {workspace, workspace_size});
}
