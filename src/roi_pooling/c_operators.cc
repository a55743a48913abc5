// The C functions of this family, for the tests that treat all C functions alike. The deprecated spellings
// only forward.
#include "c_registry.h"

namespace turnout::families::roi_pooling {

using namespace core;

// Defined in c_api.cc.
extern const Signature& kMluOpGetRoiAwarePool3dForwardWorkspaceSize;
extern const Signature& kMluOpRoiAwarePool3dForward;
extern const Signature& kMluOpRoiAwarePool3dBackward;
extern const Signature& kMluOpGetRoiPointPool3dWorkspaceSize;
extern const Signature& kMluOpRoiPointPool3d;

namespace {
// boxes_num and pts_num are large enough that their product exceeds its limit before a tensor exceeds its
// own.
constexpr std::string_view kRoiAwareForwardExample =
    "pool_method=0 boxes_num=8 pts_num=100 channels=2 max_pts_each_voxel=4 out_x=2 out_y=3 out_z=1";
constexpr std::string_view kRoiPointExample =
    "batch_size=2 pts_num=6 boxes_num=3 feature_in_len=4 sampled_pts_num=5";
}  // namespace

std::span<const COperator> c_operators() {
  static const COperator kOperators[] = {
      {.signature = &kMluOpGetRoiAwarePool3dForwardWorkspaceSize,
       .invoke = c_invoke<&mluOpGetRoiAwarePool3dForwardWorkspaceSize>,
       .example = "boxes_num=3 pts_num=9 channels=5"},
      {.signature = &kMluOpRoiAwarePool3dForward,
       .invoke = c_invoke<&mluOpRoiAwarePool3dForward>,
       .example = kRoiAwareForwardExample,
       .query = c_query<&mluOpGetRoiAwarePool3dForwardWorkspaceSize>},
      {.signature = &kMluOpRoiAwarePool3dBackward,
       .invoke = c_invoke<&mluOpRoiAwarePool3dBackward>,
       .example =
           "pool_method=1 boxes_num=3 out_x=2 out_y=3 out_z=4 channels=5 max_pts_each_voxel=4 pts_num=9"},
      {.signature = &kMluOpGetRoiPointPool3dWorkspaceSize,
       .invoke = c_invoke<&mluOpGetRoiPointPool3dWorkspaceSize>,
       .example = kRoiPointExample},
      {.signature = &kMluOpRoiPointPool3d,
       .invoke = c_invoke<&mluOpRoiPointPool3d>,
       .example = kRoiPointExample,
       .query = c_query<&mluOpGetRoiPointPool3dWorkspaceSize>},
  };
  return kOperators;
}

}  // namespace turnout::families::roi_pooling
