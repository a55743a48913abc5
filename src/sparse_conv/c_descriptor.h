// The definition of the sparse-convolution descriptor of the C interface.
#pragma once

#include "turnout/mluop/mlu_op.h"
#include "turnout/sparse_conv.h"

struct mluOpSparseConvolutionStruct {
  static constexpr int kDims = 3;

  // Zeros until the first Set, which the checks of an operator reject like other bad values.
  turnout::IndicePairsParams params{.batch_size = 0,
                                    .spatial_shape = turnout::Dims::filled(kDims, 0),
                                    .kernel_size = turnout::Dims::filled(kDims, 0),
                                    .stride = turnout::Dims::filled(kDims, 0),
                                    .padding = turnout::Dims::filled(kDims, 0),
                                    .dilation = turnout::Dims::filled(kDims, 0),
                                    .output_shape = turnout::Dims::filled(kDims, 0)};
  int num_act_out = 0;  // of the last call that succeeded
};
