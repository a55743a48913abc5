// The C functions of this family, each with its order of checks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "bindings/mluop/call.h"
#include "boxes/signature.h"
#include "core/draft.h"
#include "runtime/caller.h"
#include "runtime/context.h"
#include "turnout/boxes.h"

namespace turnout::families::boxes {

using namespace core;
using namespace bindings;
namespace {

constexpr DTypes kFloat = dtypes(DType::f32), kInt = dtypes(DType::i32);

constexpr StepSpec kPointsInBoxesSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::dtypes},
    {Check::layout},
    {Check::shapes, ErrorCode::bad_param,
     "points.0 boxes.0 points_indices.0 points.1 points_indices.1 points.2 boxes.2 boxes.1"},
    {Check::contiguous, ErrorCode::not_supported},
    {Check::large, ErrorCode::not_supported, "points boxes"},
    {Check::any_empty},
    {Check::pointers},
    {Check::overlap}};

// The widths of lists without boxes are not checked.
constexpr StepSpec kBoxIouRotatedSteps[] = {{Check::present},
                                            {Check::dtypes},
                                            {Check::scalars, ErrorCode::bad_param, "mode"},
                                            {Check::ranks},
                                            {Check::shapes, ErrorCode::bad_param, "bbox1 bbox2 ious"},
                                            {Check::data, ErrorCode::bad_param, "width1 width2"},
                                            {Check::contiguous, ErrorCode::not_supported},
                                            {Check::outputs_empty},
                                            {Check::large, ErrorCode::not_supported},
                                            {Check::pointers},
                                            {Check::overlap}};

// result_num is a pointer without a descriptor, which is checked with the other pointers.
constexpr StepSpec kNmsRotatedSteps[] = {{Check::present, ErrorCode::bad_param, "boxes scores output"},
                                         {Check::dtypes},
                                         {Check::ranks},
                                         {Check::contiguous, ErrorCode::not_supported},
                                         {Check::shapes},
                                         {Check::rules},
                                         {Check::large, ErrorCode::not_supported, "boxes"},
                                         {Check::any_empty, ErrorCode::bad_param, "boxes"},
                                         {Check::pointers},
                                         {Check::workspace_null},
                                         {Check::overlap}};
constexpr StepSpec kNmsRotatedQuerySteps[] = {{Check::present}, {Check::data}};

// The operators lease their memory from the context.
constexpr ScratchBytes kNoScratch = {[](const Arguments&, const Positions&) { return std::size_t{0}; }};

constexpr std::int64_t kRotatedWidth = 5;

void check_width(const Arguments& arguments, const Positions& at) {
  const std::int64_t count = arguments.size(at[0]), width = arguments.size(at[1]);
  if (count > 0 && width != kRotatedWidth)
    arguments.fail(ErrorCode::bad_param,
                   concat(arguments.name(at[2]), ".shape[1] is ", width, ", expected ", kRotatedWidth));
}
constexpr DataCheck kWidth1 = {"width1", "bbox1.shape[1] is 5, unless there are no boxes", &check_width,
                               "count1 columns1 bbox1"};
constexpr DataCheck kWidth2 = {"width2", "bbox2.shape[1] is 5, unless there are no boxes", &check_width,
                               "count2 columns2 bbox2"};
constexpr DataCheck kWidth2OfAligned = {"width2", "bbox2.shape[1] is 5, unless there are no boxes",
                                        &check_width, "count1 columns2 bbox2"};

void check_rank(const Arguments& arguments, const Positions& at) {
  if (arguments.slot(at[0]).rank < 2)
    arguments.fail(ErrorCode::bad_param,
                   concat(arguments.name(at[0]), " has ", std::int64_t{arguments.slot(at[0]).rank},
                          " dimensions, expected 2 or more"));
}

constexpr ScalarSpec kModeOfC = choice("mode", "iou iof"), kAligned = flag("aligned");

}  // namespace

constexpr const Signature& kMluOpPointsInBoxes = signature([] {
  return Draft{"mluOpPointsInBoxes",
               "batch point_count box_count",
               {},
               {in("points", kFloat, "batch, point_count, 3"), in("boxes", kFloat, "batch, box_count, 7"),
                out("points_indices", kInt, "batch, point_count")},
               {},
               {},
               kPointsInBoxesSteps};
});

constexpr const Signature& kMluOpBoxIouRotated = signature([] {
  return Draft{"mluOpBoxIouRotated",
               "count1 columns1 count2 columns2",
               {kModeOfC, kAligned},
               {in("bbox1", kFloat, "count1, columns1"), in("bbox2", like("bbox1"), "count2, columns2"),
                out("ious", like("bbox1"), "count1, count2")},
               {},
               {kWidth1, kWidth2},
               kBoxIouRotatedSteps};
});
constexpr const Signature& kMluOpBoxIouRotatedAligned = signature([] {
  return Draft{"mluOpBoxIouRotated",
               "count1 columns1 columns2",
               {kModeOfC, kAligned},
               {in("bbox1", kFloat, "count1, columns1"), in("bbox2", like("bbox1"), "count1, columns2"),
                out("ious", like("bbox1"), "count1")},
               {},
               {kWidth1, kWidth2OfAligned},
               kBoxIouRotatedSteps};
});

constexpr const Signature& kMluOpGetNmsRotatedWorkspaceSize = signature([] {
  return Draft{"mluOpGetNmsRotatedWorkspaceSize",
               "count columns",
               {},
               {in("boxes", kAnyDType, "count, columns")},
               {},
               {{"rank", "boxes has 2 dimensions or more", &check_rank, "boxes"}},
               kNmsRotatedQuerySteps,
               kNoScratch};
});

constexpr const Signature& kMluOpNmsRotated = signature([] {
  return Draft{"mluOpNmsRotated",
               "count columns",
               {real("iou_threshold")},
               {in("boxes", kFloat, "count, columns"), in("scores", like("boxes"), "count"),
                out("output", kInt, "count"), by_pointer(out("result_num", kInt, "1"))},
               {at_most("5", "columns"), at_most("columns", "6")},
               {},
               kNmsRotatedSteps};
});

namespace {

constexpr Renames kPointsInBoxesNames(kPointsInBoxes, kMluOpPointsInBoxes,
                                      "box_of_point=points_indices z= margin=");
constexpr Renames kBoxIouRotatedNames(kBoxIouRotated, kMluOpBoxIouRotated,
                                      "boxes_a=bbox1 boxes_b=bbox2 iou=ious");
constexpr Renames kNmsRotatedNames(kNmsRotated, kMluOpNmsRotated, "keep=output threshold=iou_threshold");

// The first five numbers of boxes that have six.
ConstTensor without_labels(Scratch& scratch, const Tensor& boxes) {
  if (boxes.shape[1] == kRotatedWidth) return boxes;
  auto* to = scratch.take<float>(boxes.shape[0] * kRotatedWidth);
  const auto* from = static_cast<const float*>(boxes.data);
  for (std::int64_t i = 0; i < boxes.shape[0]; ++i)
    std::copy_n(from + i * boxes.shape[1], kRotatedWidth, to + i * kRotatedWidth);
  return view(to, {boxes.shape[0], kRotatedWidth});
}

// Writes the numbers of the kept boxes and how many they are.
void write_kept(const std::int64_t* keep, std::int64_t kept, const Tensor& output, const Tensor& result_num) {
  auto* to = static_cast<std::int32_t*>(output.data);
  for (std::int64_t i = 0; i < kept; ++i) to[i] = static_cast<std::int32_t>(keep[i]);
  *static_cast<std::int32_t*>(result_num.data) = static_cast<std::int32_t>(kept);
}

}  // namespace

}  // namespace turnout::families::boxes

using namespace turnout;
using namespace turnout::core;
using namespace turnout::bindings;
using namespace turnout::families::boxes;

mluOpStatus_t mluOpPointsInBoxes(mluOpHandle_t handle, const mluOpTensorDescriptor_t points_desc,
                                 const void* points, const mluOpTensorDescriptor_t boxes_desc,
                                 const void* boxes, const mluOpTensorDescriptor_t points_indices_desc,
                                 void* points_indices) {
  return call(handle, kMluOpPointsInBoxes, kPointsInBoxesNames,
              {{points_desc, points}, {boxes_desc, boxes}, {points_indices_desc, points_indices}}, {},
              [&](const Caller& caller, const turnout::Tensor* t) {
                points_in_boxes(t[0], t[1], t[2], BoxZ::center, 1e-5, caller);
              });
}

mluOpStatus_t mluOpBoxIouRotated(mluOpHandle_t handle, const int mode, const bool aligned,
                                 const mluOpTensorDescriptor_t bbox1_desc, const void* bbox1,
                                 const mluOpTensorDescriptor_t bbox2_desc, const void* bbox2,
                                 const mluOpTensorDescriptor_t ious_desc, void* ious) {
  return call(handle, aligned ? kMluOpBoxIouRotatedAligned : kMluOpBoxIouRotated, kBoxIouRotatedNames,
              {{bbox1_desc, bbox1}, {bbox2_desc, bbox2}, {ious_desc, ious}}, {mode, aligned},
              [&](const Caller& caller, const turnout::Tensor* t) {
                if (aligned) {
                  box_iou_rotated_aligned(t[0], t[1], t[2], static_cast<IouMode>(mode), caller);
                } else {
                  box_iou_rotated(t[0], t[1], t[2], static_cast<IouMode>(mode), caller);
                }
              });
}

mluOpStatus_t mluOpGetNmsRotatedWorkspaceSize(mluOpHandle_t handle, const mluOpTensorDescriptor_t boxes_desc,
                                              size_t* workspace_size) {
  return query(handle, kMluOpGetNmsRotatedWorkspaceSize, {boxes_desc}, {}, workspace_size);
}

mluOpStatus_t mluOpNmsRotated(mluOpHandle_t handle, const float iou_threshold,
                              const mluOpTensorDescriptor_t boxes_desc, const void* boxes,
                              const mluOpTensorDescriptor_t scores_desc, const void* scores, void* workspace,
                              size_t workspace_size, const mluOpTensorDescriptor_t output_desc, void* output,
                              int32_t* result_num) {
  static constexpr std::int64_t kOne = 1;
  return call(handle, kMluOpNmsRotated, kNmsRotatedNames,
              {{boxes_desc, boxes},
               {scores_desc, scores},
               {output_desc, output},
               {nullptr, result_num, &kOne, DType::i32}},
              {iou_threshold},
              [&](const Caller& caller, const turnout::Tensor* t) {
                constexpr double kNoLimit = std::numeric_limits<double>::infinity();
                const double threshold = std::isnan(iou_threshold) ? kNoLimit : double{iou_threshold};
                const std::int64_t count = t[0].shape[0];
                Scratch scratch(caller.context(),
                                array_bytes<float>(count * kRotatedWidth) + array_bytes<std::int64_t>(count));
                const ConstTensor only_boxes = without_labels(scratch, t[0]);
                auto* keep = scratch.take<std::int64_t>(count);
                const std::int64_t kept =
                    nms_rotated(only_boxes, t[1], view(keep, {count}), threshold, caller);
                write_kept(keep, kept, t[2], t[3]);
              },
              {workspace, workspace_size});
}
