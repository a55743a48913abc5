/* A client in plain C99: two experts with two slots each, four tokens, one of them dropped; the pairs of two
 * sites under a kernel of three; and a lattice of one symbol and one frame with its gradients. */
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
  if (!right) fprintf(stderr, "the pairs are not what they should be\n");
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
  if (!right) fprintf(stderr, "the lattice is not what it should be\n");
  free(workspace);
  mluOpDestroyTensorDescriptor(px_desc);
  mluOpDestroyTensorDescriptor(py_desc);
  mluOpDestroyTensorDescriptor(p_desc);
  mluOpDestroyTensorDescriptor(ans_desc);
  return right;
}

int main(void) {
  const float gates[kSamples] = {0.5f, 2.0f, 1.0f, -1.0f};
  const int32_t indices[kSamples] = {1, 0, 0, 1};
  const int32_t locations[kSamples] = {0, 1, 2, 0}; /* token 2 has no slot; token 3 takes that of token 0 */
  const float input[kSamples * kHidden] = {2, 4, 6, 1, 2, 3, 7, 7, 7, 1, 0, -8};
  float dispatch[kExperts * kCapacity * kHidden] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  const float expected[kExperts * kCapacity * kHidden] = {9, 9, 9, 2, 4, 6, -1, -0.0f, 8, 9, 9, 9};
  mluOpHandle_t handle = NULL;
  mluOpTensorDescriptor_t token = describe(MLUOP_DTYPE_FLOAT, 1, kSamples, 0);
  mluOpTensorDescriptor_t route = describe(MLUOP_DTYPE_INT32, 1, kSamples, 0);
  mluOpTensorDescriptor_t tokens = describe(MLUOP_DTYPE_FLOAT, 2, kSamples, kHidden);
  mluOpTensorDescriptor_t buffers = describe(MLUOP_DTYPE_FLOAT, 2, kExperts * kCapacity, kHidden);
  if (!check(mluOpCreate(&handle), "mluOpCreate")) return 1;
  if (!check(mluOpMoeDispatchForward(handle, token, gates, route, indices, route, locations, tokens, input,
                                     kSamples, kCapacity, kHidden, kExperts, buffers, dispatch),
             "mluOpMoeDispatchForward"))
    return 1;
  if (memcmp(dispatch, expected, sizeof(expected)) != 0) {
    fprintf(stderr, "dispatch is not what it should be\n");
    return 1;
  }
  if (mluOpMoeDispatchForward(handle, NULL, gates, route, indices, route, locations, tokens, input, kSamples,
                              kCapacity, kHidden, kExperts, buffers, dispatch) != MLUOP_STATUS_BAD_PARAM ||
      strstr(turnoutLastError(), "gates") == NULL) {
    fprintf(stderr, "a missing descriptor was not refused by name: %s\n", turnoutLastError());
    return 1;
  }
  if (!find_pairs(handle) || !follow_lattice(handle)) return 1;
  mluOpDestroyTensorDescriptor(token);
  mluOpDestroyTensorDescriptor(route);
  mluOpDestroyTensorDescriptor(tokens);
  mluOpDestroyTensorDescriptor(buffers);
  return check(mluOpDestroy(handle), "mluOpDestroy") ? 0 : 1;
}
