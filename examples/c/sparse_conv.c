/* Computes a submanifold convolution of three voxels: the index pairs, then the convolution. The filter is
 * all ones, so each output counts the voxels near its site. */
#include "example.h"

enum { SITES = 3, OFFSETS = 27 };

int main(void) {
  const int32_t sites[SITES * 4] = {0, 4, 4, 4, 0, 4, 4, 5, 0, 9, 9, 9}; /* batch, z, y, x */
  const int pad[3] = {1, 1, 1}, ones[3] = {1, 1, 1}, space[3] = {16, 16, 16}, kernel[3] = {3, 3, 3};
  int32_t pairs[OFFSETS * 2 * SITES], out_sites[SITES * 4], num[OFFSETS];
  int64_t host_num[OFFSETS];
  float features[SITES] = {1, 1, 1}, filters[OFFSETS], result[SITES];
  size_t size = 0;
  void* workspace;
  int i, outputs = 0;
  mluOpHandle_t handle;
  mluOpSparseConvolutionDescriptor_t conv;
  mluOpTensorDescriptor_t sites_desc, pairs_desc, num_desc, features_desc, filters_desc;
  mluOpTensorDescriptor_t result_desc;
  OK(mluOpCreate(&handle));
  OK(mluOpCreateSparseConvolutionDescriptor(&conv));
  OK(mluOpSetSparseConvolutionDescriptor(conv, 5, 1, pad, ones, ones, space, kernel, space, 1, 0, 0));
  sites_desc = describe(MLUOP_DTYPE_INT32, 2, SITES, 4, 0);
  pairs_desc = describe(MLUOP_DTYPE_INT32, 3, OFFSETS, 2, SITES);
  num_desc = describe(MLUOP_DTYPE_INT32, 1, OFFSETS, 0, 0);
  features_desc = describe(MLUOP_DTYPE_FLOAT, 2, SITES, 1, 0);
  result_desc = describe(MLUOP_DTYPE_FLOAT, 2, SITES, 1, 0);
  {
    const int shape[5] = {3, 3, 3, 1, 1}; /* z, y, x, channels in, channels out */
    OK(mluOpCreateTensorDescriptor(&filters_desc));
    OK(mluOpSetTensorDescriptor(filters_desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 5, shape));
  }

  OK(mluOpGetIndicePairsWorkspaceSize(handle, conv, sites_desc, pairs_desc, sites_desc, num_desc, &size));
  workspace = malloc(size + 1);
  OK(mluOpGetIndicePairs(handle, conv, sites_desc, sites, workspace, size, pairs_desc, pairs, sites_desc,
                         out_sites, num_desc, num));
  OK(mluOpGetSparseConvolutionNumActOut(conv, &outputs));
  free(workspace);

  for (i = 0; i < OFFSETS; ++i) {
    filters[i] = 1;
    host_num[i] = num[i];
  }
  OK(mluOpGetIndiceConvolutionForwardWorkspaceSize(handle, features_desc, filters_desc, pairs_desc,
                                                   result_desc, host_num, outputs, 0, 1, &size));
  workspace = malloc(size + 1);
  OK(mluOpIndiceConvolutionForward(handle, features_desc, features, filters_desc, filters, pairs_desc, pairs,
                                   host_num, outputs, 0, 1, workspace, size, result_desc, result));
  free(workspace);
  for (i = 0; i < SITES; ++i)
    printf("site (%d, %d, %d): voxels within one step: %g\n", (int)out_sites[4 * i + 1],
           (int)out_sites[4 * i + 2], (int)out_sites[4 * i + 3], result[i]);

  OK(mluOpDestroyTensorDescriptor(sites_desc));
  OK(mluOpDestroyTensorDescriptor(pairs_desc));
  OK(mluOpDestroyTensorDescriptor(num_desc));
  OK(mluOpDestroyTensorDescriptor(features_desc));
  OK(mluOpDestroyTensorDescriptor(filters_desc));
  OK(mluOpDestroyTensorDescriptor(result_desc));
  OK(mluOpDestroySparseConvolutionDescriptor(conv));
  OK(mluOpDestroy(handle));
  return result[0] == 2 && result[1] == 2 && result[2] == 1 ? 0 : 1;
}

/* Output:
 *   site (4, 4, 4): voxels within one step: 2
 *   site (4, 4, 5): voxels within one step: 2
 *   site (9, 9, 9): voxels within one step: 1 */
