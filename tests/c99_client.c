/* A client in plain C99: two experts with two slots each and four tokens, one of them dropped; the pairs of
 * two sites under a kernel of three; and a lattice of one symbol and one frame with its gradients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <turnout/mluop/mlu_op.h>

enum { kSamples = 4, kCapacity = 2, kHidden = 3, kExperts = 2 };

static int check(mluOpStatus_t status, const char* what) {
  if (status == MLUOP_STATUS_SUCCESS) return 1;
  fprintf(stderr, "%s: %s, %s\n", what, mluOpGetErrorString(status), turnoutLastError());
  return 0;
}

static mluOpTensorDescriptor_t describe(mluOpDataType_t dtype, int rank, int rows, int columns) {
  mluOpTensorDescriptor_t desc = NULL;
  int shape[2];
  shape[0] = rows;
  shape[1] = columns;
  if (!check(mluOpCreateTensorDescriptor(&desc), "create")) return NULL;
  if (!check(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, dtype, rank, shape), "set")) return NULL;
  return desc;
}

static int find_pairs(mluOpHandle_t handle) {
  const int pad[3] = {0, 0, 1}, ones[3] = {1, 1, 1}, line[3] = {1, 1, 3}, pairs_shape[3] = {3, 2, 2};
  const int32_t sites[2 * 4] = {0, 0, 0, 0, 0, 0, 0, 1};
  const int32_t expected[3 * 2 * 2] = {0, 1, 1, 2, 0, 1, 0, 1, 1, -1, 0, -1};
  int32_t pairs[3 * 2 * 2], out[3 * 4], num[3];
  int count = 0, right = 0;
  size_t size = 0;
  void* workspace = NULL;
  mluOpSparseConvolutionDescriptor_t conv = NULL;
  mluOpTensorDescriptor_t sites_desc = describe(MLUOP_DTYPE_INT32, 2, 2, 4);
  mluOpTensorDescriptor_t pairs_desc = describe(MLUOP_DTYPE_INT32, 2, 0, 0);
  mluOpTensorDescriptor_t out_desc = describe(MLUOP_DTYPE_INT32, 2, 3, 4);
  mluOpTensorDescriptor_t num_desc = describe(MLUOP_DTYPE_INT32, 1, 3, 0);
  if (check(mluOpSetTensorDescriptorDim(pairs_desc, 3, pairs_shape), "set") &&
      check(mluOpCreateSparseConvolutionDescriptor(&conv), "create") &&
      check(mluOpSetSparseConvolutionDescriptor(conv, 5, 1, pad, ones, ones, line, line, line, 0, 0, 0),
            "set") &&
      check(mluOpGetIndicePairsWorkspaceSize(handle, conv, sites_desc, pairs_desc, out_desc, num_desc, &size),
            "mluOpGetIndicePairsWorkspaceSize") &&
      (workspace = malloc(size)) != NULL &&
      check(mluopGetIndicePairs(handle, conv, sites_desc, sites, workspace, size, pairs_desc, pairs, out_desc,
                                out, num_desc, num),
            "mluopGetIndicePairs") &&
      check(mluOpGetSparseConvolutionNumActOut(conv, &count), "mluOpGetSparseConvolutionNumActOut"))
    right = count == 3 && num[0] == 2 && num[1] == 2 && num[2] == 1 && out[2 * 4 + 3] == 2 &&
            memcmp(pairs, expected, sizeof(expected)) == 0;
  if (!right) fprintf(stderr, "the pairs are wrong\n");
  free(workspace);
  mluOpDestroyTensorDescriptor(sites_desc);
  mluOpDestroyTensorDescriptor(pairs_desc);
  mluOpDestroyTensorDescriptor(out_desc);
  mluOpDestroyTensorDescriptor(num_desc);
  return check(mluOpDestroySparseConvolutionDescriptor(conv), "destroy") && right;
}

static int is_near(float value, double expected) {
  return value - expected < 1e-6 && expected - value < 1e-6;
}

static int follow_lattice(mluOpHandle_t handle) {
  const int px_shape[3] = {1, 1, 2}, py_shape[3] = {1, 2, 1}, p_shape[3] = {1, 2, 2};
  const float px[2] = {-1.0f, -2.0f}, py[2] = {-0.5f, -0.25f};
  float p[4], ans[1], grad[1] = {1.0f}, px_grad[2], py_grad[2];
  int right = 0;
  size_t forward_size = 0, backward_size = 0;
  void* workspace = NULL;
  mluOpTensorDescriptor_t px_desc = describe(MLUOP_DTYPE_FLOAT, 2, 0, 0);
  mluOpTensorDescriptor_t py_desc = describe(MLUOP_DTYPE_FLOAT, 2, 0, 0);
  mluOpTensorDescriptor_t p_desc = describe(MLUOP_DTYPE_FLOAT, 2, 0, 0);
  mluOpTensorDescriptor_t ans_desc = describe(MLUOP_DTYPE_FLOAT, 1, 1, 0);
  if (check(mluOpSetTensorDescriptorDim(px_desc, 3, px_shape), "set") &&
      check(mluOpSetTensorDescriptorDim(py_desc, 3, py_shape), "set") &&
      check(mluOpSetTensorDescriptorDim(p_desc, 3, p_shape), "set") &&
      check(mluOpGetMutualInformationForwardWorkspaceSize(handle, px_desc, py_desc, NULL, p_desc, ans_desc,
                                                          &forward_size),
            "mluOpGetMutualInformationForwardWorkspaceSize") &&
      check(mluOpGetMutualInformationBackwardWorkspaceSize(handle, px_desc, py_desc, NULL, p_desc, ans_desc,
                                                           true, &backward_size),
            "mluOpGetMutualInformationBackwardWorkspaceSize") &&
      (workspace = malloc(forward_size + backward_size + 1)) != NULL &&
      check(mluOpMutualInformationForward(handle, px_desc, px, py_desc, py, NULL, NULL, p_desc, p, workspace,
                                          forward_size, ans_desc, ans),
            "mluOpMutualInformationForward") &&
      check(mluOpMutualInformationBackward(handle, px_desc, px, py_desc, py, NULL, NULL, p_desc, p, ans_desc,
                                           grad, true, workspace, backward_size, px_desc, px_grad, py_desc,
                                           py_grad),
            "mluOpMutualInformationBackward"))
    right = is_near(ans[0], -0.998071) && is_near(px_grad[0], 0.777300) && is_near(px_grad[1], 0.222700) &&
            is_near(py_grad[0], 0.222700) && is_near(py_grad[1], 0.777300) && is_near(grad[0], 1.0);
  if (!right) fprintf(stderr, "the lattice is wrong\n");
  free(workspace);
  mluOpDestroyTensorDescriptor(px_desc);
  mluOpDestroyTensorDescriptor(py_desc);
  mluOpDestroyTensorDescriptor(p_desc);
  mluOpDestroyTensorDescriptor(ans_desc);
  return right;
}

/* Three points in two voxels, and one in none. */
static int scatter_points(mluOpHandle_t handle) {
  const float feats[4] = {1.0f, 5.0f, 3.0f, 9.0f}, grads[2] = {10.0f, 20.0f};
  const float expected[4] = {0.0f, 20.0f, 10.0f, 0.0f};
  int32_t coors[4 * 3] = {0, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, -4};
  int32_t voxel_coors[2 * 3], map[4], counts[2], num[1];
  float voxel_feats[2], feats_grad[4], again[4];
  int right = 0;
  size_t forward_size = 0, backward_size = 0, same_size = 0;
  void* workspace = NULL;
  mluOpTensorDescriptor_t feats_desc = describe(MLUOP_DTYPE_FLOAT, 2, 4, 1);
  mluOpTensorDescriptor_t coors_desc = describe(MLUOP_DTYPE_INT32, 2, 4, 3);
  mluOpTensorDescriptor_t voxel_feats_desc = describe(MLUOP_DTYPE_FLOAT, 2, 2, 1);
  mluOpTensorDescriptor_t voxel_coors_desc = describe(MLUOP_DTYPE_INT32, 2, 2, 3);
  mluOpTensorDescriptor_t map_desc = describe(MLUOP_DTYPE_INT32, 1, 4, 0);
  mluOpTensorDescriptor_t counts_desc = describe(MLUOP_DTYPE_INT32, 1, 2, 0);
  mluOpTensorDescriptor_t num_desc = describe(MLUOP_DTYPE_INT32, 1, 1, 0);
  if (check(mluOpGetDynamicPointToVoxelForwardWorkspaceSize(handle, feats_desc, coors_desc, &forward_size),
            "mluOpGetDynamicPointToVoxelForwardWorkspaceSize") &&
      check(mluOpGetDynamicPointToVoxelBackwardWorkspaceSize(handle, MLUOP_REDUCE_DMAX, voxel_feats_desc,
                                                             feats_desc, voxel_feats_desc, map_desc,
                                                             counts_desc, num_desc, &backward_size),
            "mluOpGetDynamicPointToVoxelBackwardWorkspaceSize") &&
      check(mluOpGetDynamicScatterBackwardWorkspaceSize(handle, MLUOP_REDUCEMODE_MAX, feats_desc, &same_size),
            "mluOpGetDynamicScatterBackwardWorkspaceSize") &&
      (workspace = malloc(forward_size + backward_size)) != NULL &&
      check(mluOpDynamicPointToVoxelForward(handle, MLUOP_REDUCE_DMAX, feats_desc, feats, coors_desc, coors,
                                            workspace, forward_size, voxel_feats_desc, voxel_feats,
                                            voxel_coors_desc, voxel_coors, map_desc, map, counts_desc, counts,
                                            num_desc, num),
            "mluOpDynamicPointToVoxelForward") &&
      check(mluOpDynamicPointToVoxelBackward(handle, MLUOP_REDUCE_DMAX, voxel_feats_desc, grads, feats_desc,
                                             feats, voxel_feats_desc, voxel_feats, map_desc, map, counts_desc,
                                             counts, num_desc, num, workspace, backward_size, feats_desc,
                                             feats_grad),
            "mluOpDynamicPointToVoxelBackward") &&
      check(mluOpDynamicScatterBackward(handle, MLUOP_REDUCEMODE_MAX, voxel_feats_desc, grads, feats_desc,
                                        feats, voxel_feats_desc, voxel_feats, map_desc, map, counts_desc,
                                        counts, num_desc, num, workspace, same_size, feats_desc, again),
            "mluOpDynamicScatterBackward"))
    right = num[0] == 2 && map[0] == 0 && map[1] == 1 && map[2] == 0 && map[3] == -1 && counts[0] == 2 &&
            voxel_coors[3] == 2 && coors[9] == -1 && coors[10] == -1 &&
            memcmp(again, expected, sizeof(again)) == 0 &&
            memcmp(feats_grad, expected, sizeof(expected)) == 0;
  if (!right) fprintf(stderr, "the scattered points are wrong\n");
  free(workspace);
  mluOpDestroyTensorDescriptor(feats_desc);
  mluOpDestroyTensorDescriptor(coors_desc);
  mluOpDestroyTensorDescriptor(voxel_feats_desc);
  mluOpDestroyTensorDescriptor(voxel_coors_desc);
  mluOpDestroyTensorDescriptor(map_desc);
  mluOpDestroyTensorDescriptor(counts_desc);
  mluOpDestroyTensorDescriptor(num_desc);
  return right;
}

static int voxelize(mluOpHandle_t handle) {
  const int voxels_shape[3] = {2, 2, 3};
  const float points[3 * 3] = {1.5f, 0, 0, 7.0f, 0, 0, 1.25f, 0.5f, 0}, voxel_size[3] = {1, 1, 1};
  const float range[6] = {0, 0, 0, 2, 2, 2};
  const float expected[2 * 2 * 3] = {1.5f, 0, 0, 1.25f, 0.5f, 0, 0, 0, 0, 0, 0, 0};
  float voxels[2 * 2 * 3];
  int32_t coors[2 * 3], num_points[2], num[1];
  int right = 0;
  size_t size = 0;
  void* workspace = NULL;
  mluOpTensorDescriptor_t points_desc = describe(MLUOP_DTYPE_FLOAT, 2, 3, 3);
  mluOpTensorDescriptor_t size_desc = describe(MLUOP_DTYPE_FLOAT, 1, 3, 0);
  mluOpTensorDescriptor_t range_desc = describe(MLUOP_DTYPE_FLOAT, 1, 6, 0);
  mluOpTensorDescriptor_t voxels_desc = describe(MLUOP_DTYPE_FLOAT, 2, 0, 0);
  mluOpTensorDescriptor_t coors_desc = describe(MLUOP_DTYPE_INT32, 2, 2, 3);
  mluOpTensorDescriptor_t num_points_desc = describe(MLUOP_DTYPE_INT32, 1, 2, 0);
  mluOpTensorDescriptor_t num_desc = describe(MLUOP_DTYPE_INT32, 1, 1, 0);
  if (check(mluOpSetTensorDescriptorDim(voxels_desc, 3, voxels_shape), "set") &&
      check(mluOpGetVoxelizationWorkspaceSize(handle, points_desc, size_desc, range_desc, 2, 2, 3, true,
                                              voxels_desc, coors_desc, num_points_desc, num_desc, &size),
            "mluOpGetVoxelizationWorkspaceSize") &&
      (workspace = malloc(size)) != NULL &&
      check(mluOpVoxelization(handle, points_desc, points, size_desc, voxel_size, range_desc, range, 2, 2, 3,
                              true, workspace, size, voxels_desc, voxels, coors_desc, coors, num_points_desc,
                              num_points, num_desc, num),
            "mluOpVoxelization"))
    right = num[0] == 1 && num_points[0] == 2 && num_points[1] == 0 && coors[2] == 1 &&
            memcmp(voxels, expected, sizeof(expected)) == 0;
  if (!right) fprintf(stderr, "the voxels are wrong\n");
  free(workspace);
  mluOpDestroyTensorDescriptor(points_desc);
  mluOpDestroyTensorDescriptor(size_desc);
  mluOpDestroyTensorDescriptor(range_desc);
  mluOpDestroyTensorDescriptor(voxels_desc);
  mluOpDestroyTensorDescriptor(coors_desc);
  mluOpDestroyTensorDescriptor(num_points_desc);
  mluOpDestroyTensorDescriptor(num_desc);
  return right;
}

/* What clients that read the handle's members expect from MLU-OPS. */
struct vendor_view {
  int32_t device;
  cnrtQueue_t queue;
  int32_t arch;
  char device_name[64];
  int32_t cluster_num, core_num_per_cluster, nram_size, wram_size, sram_size;
  int32_t capability_cluster_num, capability_job_limit, clock_rate, l2cache_size, persisting_l2cache_maxsize;
  double memory_band_width;
  mluOpQuantizeRoundMode_t round_mode;
  mluOpAtomicsMode_t atomics_mode;
  int32_t job_num[6];
};

static int look_into(mluOpHandle_t handle) {
  const struct vendor_view* view = (const struct vendor_view*)handle;
  cnrtQueue_t queue = (cnrtQueue_t)&view, given = NULL;
  const int right =
      view->device == 0 && view->queue == NULL && view->arch == 592 &&
      strcmp(view->device_name, "CPU") == 0 && view->cluster_num == 1 && view->core_num_per_cluster >= 1 &&
      view->nram_size == 0 && view->wram_size == 0 && view->sram_size == 0 &&
      view->capability_cluster_num == 1 && view->capability_job_limit == 1 && view->clock_rate == 0 &&
      view->l2cache_size == 0 && view->persisting_l2cache_maxsize == 0 && view->memory_band_width == 0 &&
      view->round_mode == MLUOP_ROUND_HALF_TO_EVEN && view->atomics_mode == MLUOP_ATOMICS_NOT_ALLOWED &&
      view->job_num[0] == view->core_num_per_cluster && view->job_num[1] == 0 && view->job_num[5] == 0 &&
      check(mluOpSetQueue(handle, queue), "mluOpSetQueue") && view->queue == queue &&
      check(mluOpGetQueue(handle, &given), "mluOpGetQueue") && given == queue &&
      check(mluOpSetQueue(handle, NULL), "mluOpSetQueue") && view->queue == NULL &&
      check(mluOpSetQuantizeRoundMode(handle, MLUOP_ROUND_HALF_UP), "mluOpSetQuantizeRoundMode") &&
      view->round_mode == MLUOP_ROUND_HALF_UP &&
      check(mluOpSetAtomicsMode(handle, MLUOP_ATOMICS_ALLOWED), "mluOpSetAtomicsMode") &&
      view->atomics_mode == MLUOP_ATOMICS_ALLOWED;
  if (!right) fprintf(stderr, "the handle does not begin as clients expect\n");
  return right;
}

int main(void) {
  const float gates[kSamples] = {0.5f, 2.0f, 1.0f, -1.0f};
  const int32_t indices[kSamples] = {1, 0, 0, 1};
  const int32_t locations[kSamples] = {0, 1, 2, 0}; /* token 2 has no slot; token 3 takes token 0's */
  const float input[kSamples * kHidden] = {2, 4, 6, 1, 2, 3, 7, 7, 7, 1, 0, -8};
  float dispatch[kExperts * kCapacity * kHidden] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  const float expected[kExperts * kCapacity * kHidden] = {9, 9, 9, 2, 4, 6, -1, -0.0f, 8, 9, 9, 9};
  mluOpHandle_t handle = NULL;
  mluOpTensorDescriptor_t token = describe(MLUOP_DTYPE_FLOAT, 1, kSamples, 0);
  mluOpTensorDescriptor_t route = describe(MLUOP_DTYPE_INT32, 1, kSamples, 0);
  mluOpTensorDescriptor_t tokens = describe(MLUOP_DTYPE_FLOAT, 2, kSamples, kHidden);
  mluOpTensorDescriptor_t buffers = describe(MLUOP_DTYPE_FLOAT, 2, kExperts * kCapacity, kHidden);
  if (!check(mluOpCreate(&handle), "mluOpCreate") || !look_into(handle)) return 1;
  if (!check(mluOpMoeDispatchForward(handle, token, gates, route, indices, route, locations, tokens, input,
                                     kSamples, kCapacity, kHidden, kExperts, buffers, dispatch),
             "mluOpMoeDispatchForward"))
    return 1;
  if (memcmp(dispatch, expected, sizeof(expected)) != 0) {
    fprintf(stderr, "dispatch is wrong\n");
    return 1;
  }
  if (mluOpMoeDispatchForward(handle, NULL, gates, route, indices, route, locations, tokens, input, kSamples,
                              kCapacity, kHidden, kExperts, buffers, dispatch) != MLUOP_STATUS_BAD_PARAM ||
      strstr(turnoutLastError(), "gates") == NULL) {
    fprintf(stderr, "the message does not name the missing descriptor: %s\n", turnoutLastError());
    return 1;
  }
  if (!find_pairs(handle) || !follow_lattice(handle) || !scatter_points(handle) || !voxelize(handle))
    return 1;
  mluOpDestroyTensorDescriptor(token);
  mluOpDestroyTensorDescriptor(route);
  mluOpDestroyTensorDescriptor(tokens);
  mluOpDestroyTensorDescriptor(buffers);
  return check(mluOpDestroy(handle), "mluOpDestroy") ? 0 : 1;
}
