/* Computes the maximum over the points of each voxel, and its gradient, with the two functions that a point
 * cloud network calls in training. */
#include "example.h"

enum { POINTS = 4, CHANNELS = 2 };

int main(void) {
  const float feats[POINTS * CHANNELS] = {1, 5, 3, 2, 4, 4, 9, 9};
  int32_t coors[POINTS * 3] = {0, 0, 1, 0,  0,  1,
                               0, 2, 0, -1, -1, -1}; /* z, y, x; the last point has no voxel */
  float voxel_feats[POINTS * CHANNELS], grad_feats[POINTS * CHANNELS];
  float grad_voxel_feats[POINTS * CHANNELS] = {1, 1, 1, 1, 1, 1, 1, 1};
  int32_t voxel_coors[POINTS * 3], voxel_of[POINTS], count[POINTS], voxels[1];
  size_t size = 0;
  void* workspace;
  int i;
  mluOpHandle_t handle;
  mluOpTensorDescriptor_t feats_desc, coors_desc, points_desc, one_desc;
  OK(mluOpCreate(&handle));
  feats_desc = describe(MLUOP_DTYPE_FLOAT, 2, POINTS, CHANNELS, 0);
  coors_desc = describe(MLUOP_DTYPE_INT32, 2, POINTS, 3, 0);
  points_desc = describe(MLUOP_DTYPE_INT32, 1, POINTS, 0, 0);
  one_desc = describe(MLUOP_DTYPE_INT32, 1, 1, 0, 0);

  OK(mluOpGetDynamicPointToVoxelForwardWorkspaceSize(handle, feats_desc, coors_desc, &size));
  workspace = malloc(size + 1);
  OK(mluOpDynamicPointToVoxelForward(handle, MLUOP_REDUCE_DMAX, feats_desc, feats, coors_desc, coors,
                                     workspace, size, feats_desc, voxel_feats, coors_desc, voxel_coors,
                                     points_desc, voxel_of, points_desc, count, one_desc, voxels));
  free(workspace);
  for (i = 0; i < voxels[0]; ++i)
    printf("voxel (%d, %d, %d): count %d, maximum [%g, %g]\n", (int)voxel_coors[3 * i],
           (int)voxel_coors[3 * i + 1], (int)voxel_coors[3 * i + 2], (int)count[i], voxel_feats[CHANNELS * i],
           voxel_feats[CHANNELS * i + 1]);

  OK(mluOpGetDynamicScatterBackwardWorkspaceSize(handle, MLUOP_REDUCE_DMAX, feats_desc, &size));
  workspace = malloc(size + 1);
  OK(mluOpDynamicScatterBackward(handle, MLUOP_REDUCE_DMAX, feats_desc, grad_voxel_feats, feats_desc, feats,
                                 feats_desc, voxel_feats, points_desc, voxel_of, points_desc, count, one_desc,
                                 voxels, workspace, size, feats_desc, grad_feats));
  free(workspace);
  for (i = 0; i < POINTS; ++i)
    printf("point %d: gradient [%g, %g]\n", i, grad_feats[CHANNELS * i], grad_feats[CHANNELS * i + 1]);

  OK(mluOpDestroyTensorDescriptor(feats_desc));
  OK(mluOpDestroyTensorDescriptor(coors_desc));
  OK(mluOpDestroyTensorDescriptor(points_desc));
  OK(mluOpDestroyTensorDescriptor(one_desc));
  OK(mluOpDestroy(handle));
  return voxels[0] == 2 && voxel_feats[0] == 3 && voxel_feats[1] == 5 && grad_feats[0] == 0 &&
                 grad_feats[1] == 1 && grad_feats[2] == 1 && grad_feats[6] == 0
             ? 0
             : 1;
}

/* Output:
 *   voxel (0, 0, 1): count 2, maximum [3, 5]
 *   voxel (0, 2, 0): count 1, maximum [4, 4]
 *   point 0: gradient [0, 1]
 *   point 1: gradient [1, 0]
 *   point 2: gradient [1, 1]
 *   point 3: gradient [0, 0] */
