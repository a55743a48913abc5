// The C functions of this family, for the tests that treat all C functions alike.
#include "c_registry.h"

namespace turnout::families::boxes {

using namespace core;

// Defined in c_api.cc.
extern const Signature& kMluOpPointsInBoxes;
extern const Signature& kMluOpBoxIouRotated;
extern const Signature& kMluOpBoxIouRotatedAligned;
extern const Signature& kMluOpGetNmsRotatedWorkspaceSize;
extern const Signature& kMluOpNmsRotated;

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpPointsInBoxes,
       .invoke = c_invoke<&mluOpPointsInBoxes>,
       .example = "batch=2 point_count=5 box_count=3"},
      {.signature = &kMluOpBoxIouRotated,
       .invoke = c_invoke<&mluOpBoxIouRotated>,
       .example = "mode=1 aligned=0 count1=3 columns1=5 count2=4 columns2=5",
       .data_faults = {"columns1=4 count1=3", "columns2=6 count2=4"},
       .pinned = "columns1 columns2"},
      {.signature = &kMluOpBoxIouRotatedAligned,
       .invoke = c_invoke<&mluOpBoxIouRotated>,
       .example = "mode=0 aligned=1 count1=3 columns1=5 columns2=5",
       .data_faults = {"columns1=6 count1=3", "columns2=4 count1=3"},
       .pinned = "columns1 columns2",
       .variant = "Aligned"},
      {.signature = &kMluOpGetNmsRotatedWorkspaceSize,
       .invoke = c_invoke<&mluOpGetNmsRotatedWorkspaceSize>,
       .example = "count=4 columns=5",
       .data_faults = {"boxes.rank=-1"}},
      {.signature = &kMluOpNmsRotated,
       .invoke =
           [](mluOpHandle_t handle, Descriptors d, void* const* data, Scalars s, const Workspace& w) {
             // result_num has no descriptor; it is absent if the descriptor that represents it is.
             return mluOpNmsRotated(handle, static_cast<float>(s[0].real), d[0], data[0], d[1], data[1],
                                    w.data, w.size, d[2], data[2],
                                    d[3] == nullptr ? nullptr : static_cast<std::int32_t*>(data[3]));
           },
       .example = "iou_threshold=0.5 count=4 columns=5",
       .query = c_query<&mluOpGetNmsRotatedWorkspaceSize>},
  };
  return kOperators;
}

}  // namespace turnout::families::boxes
