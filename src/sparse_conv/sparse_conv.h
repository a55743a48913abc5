// The operators of this family as the doors call them: the functions of turnout/sparse_conv.h with a Frame in
// place of the Context.
#pragma once

#include <optional>

#include "runtime/frame.h"
#include "sparse_conv/index.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;

std::int64_t get_indice_pairs(const Frame& frame, const ConstTensor& indices, const Tensor& out_indices,
                              const Tensor& indice_pairs, const Tensor& indice_num,
                              const IndicePairsParams& params);

// The inside of an IndicePairs. The context must outlive it.
class SitePairs {
 public:
  SitePairs(const Frame& frame, const ConstTensor& indices, const IndicePairsParams& params);

  std::int64_t num_act_out() const { return index_->active(); }
  std::int64_t kernel_volume() const { return index_->geometry().kernel_volume; }
  const Dims& output_shape() const { return params_.output_shape; }
  void write(const Frame& frame, const Tensor& out_indices, const Tensor& indice_pairs,
             const Tensor& indice_num) const;

 private:
  const ConstTensor indices_;
  const IndicePairsParams params_;
  std::optional<Scratch> memory_;
  std::optional<PairIndex> index_;  // in memory_, and in memory of its own whose size depends on the data
};

void indice_convolution_forward(const Frame& frame, const ConstTensor& features, const ConstTensor& filters,
                                const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                                const ConstTensor* bias, const Tensor& features_out,
                                const IndiceConvolutionParams& params);
void indice_convolution_backward_data(const Frame& frame, const ConstTensor& output_grad,
                                      const ConstTensor& filters, const ConstTensor& indice_pairs,
                                      const ConstTensor& indice_num, const Tensor& input_grad,
                                      const IndiceConvolutionParams& params);
void indice_convolution_backward_filter(const Frame& frame, const ConstTensor& features,
                                        const ConstTensor& output_grad, const ConstTensor& indice_pairs,
                                        const ConstTensor& indice_num, const Tensor& filters_grad,
                                        const IndiceConvolutionParams& params);

// The size that the index will have, and the index.
std::int64_t indice_convolution_index_size(const Frame& frame, const ConstTensor& indice_pairs,
                                           const ConstTensor& indice_num,
                                           const IndiceConvolutionIndexParams& params);
void indice_convolution_index(const Frame& frame, const ConstTensor& indice_pairs,
                              const ConstTensor& indice_num, const Tensor& index,
                              const IndiceConvolutionIndexParams& params);

void indice_max_pool_forward(const Frame& frame, const ConstTensor& features, const ConstTensor& indice_pairs,
                             const ConstTensor& indice_num, const Tensor& features_out, PoolInit init);
void indice_max_pool_backward(const Frame& frame, const ConstTensor& features,
                              const ConstTensor& features_out, const ConstTensor& output_grad,
                              const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                              const Tensor& input_grad);
void indice_avg_pool_forward(const Frame& frame, const ConstTensor& features, const ConstTensor& indice_pairs,
                             const ConstTensor& indice_num, const Tensor& features_out);
void indice_avg_pool_backward(const Frame& frame, const ConstTensor& output_grad,
                              const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                              const Tensor& input_grad);

void global_max_pool_forward(const Frame& frame, const ConstTensor& features, const ConstTensor& indices,
                             const Tensor& features_out);
void global_max_pool_backward(const Frame& frame, const ConstTensor& features,
                              const ConstTensor& features_out, const ConstTensor& output_grad,
                              const ConstTensor& indices, const Tensor& input_grad);
void global_avg_pool_forward(const Frame& frame, const ConstTensor& features, const ConstTensor& indices,
                             const Tensor& features_out);
void global_avg_pool_backward(const Frame& frame, const ConstTensor& output_grad, const ConstTensor& indices,
                              const Tensor& input_grad);

}  // namespace turnout::families::sparse_conv
