// The steps of IndicePairs and of IndiceConvolutionIndex, each with a Caller, as the bindings call them.
#pragma once

#include <optional>

#include "runtime/caller.h"
#include "sparse_conv/index.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

// The implementation of IndicePairs. The context must outlive it.
class SitePairs {
 public:
  SitePairs(const ConstTensor& indices, const IndicePairsParams& params, const Caller& caller);

  std::int64_t num_act_out() const { return index_->active(); }
  std::int64_t kernel_volume() const { return index_->geometry().kernel_volume; }
  const Dims& output_shape() const { return params_.output_shape; }
  void write(const Tensor& out_indices, const Tensor& indice_pairs, const Tensor& indice_num,
             const Caller& caller) const;

 private:
  const ConstTensor indices_;
  const IndicePairsParams params_;
  std::optional<core::Scratch> memory_;
  std::optional<PairIndex> index_;  // in memory_, and in leased memory whose size depends on the data
};

// Returns the size of the index; writes the index.
std::int64_t indice_convolution_index_size(const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                                           const IndiceConvolutionIndexParams& params, const Caller& caller);
void indice_convolution_index(const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                              const Tensor& index, const IndiceConvolutionIndexParams& params,
                              const Caller& caller);

}  // namespace turnout::families::sparse_conv
