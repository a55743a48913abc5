// Sparse convolution: pairs of input and output sites, and convolution and pooling along them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// One value per spatial dimension: {3, 3, 1}, or one integer for all of them: 3. Empty Dims mean the default
// of the field that they are assigned to.
class TURNOUT_API Dims {
 public:
  static constexpr int kMax = 4;

  Dims() = default;
  Dims(std::initializer_list<Size> values);  // throws Error(bad_param) if there are more than kMax
  template <std::integral Integer>
  Dims(Integer each)  // NOLINT: implicit by intent
      : values_{static_cast<std::int64_t>(each)}, count_(1), each_(true) {}
  Dims(const std::int64_t* values, int count);        // likewise
  static Dims filled(int count, std::int64_t value);  // likewise

  int count() const { return count_; }
  // Whether it was constructed from one integer: count() is 1 until the dimensions are known.
  bool is_each() const { return each_; }
  const std::int64_t* data() const { return values_; }
  std::int64_t operator[](int d) const { return values_[d]; }
  std::int64_t& operator[](int d) { return values_[d]; }

 private:
  std::int64_t values_[kMax] = {};
  int count_ = 0;
  bool each_ = false;
};

enum class ConvMode : std::uint8_t { sparse, submanifold, transposed };

// A given padding is used in submanifold mode too: the kernel is then off-centre unless the padding is
// kernel_size / 2 * dilation; see centred_on_sites().
struct IndicePairsParams {
  std::int64_t batch_size = 1;
  Dims spatial_shape;        // of the input
  Dims kernel_size;          // -1: the whole extent of the input, which gives one output
  Dims stride = {};          // default 1
  Dims padding = {};         // default 0; submanifold: kernel_size / 2 * dilation, for odd kernels only
  Dims dilation = {};        // default 1
  Dims output_shape = {};    // default: indice_pairs_output_shape()
  Dims output_padding = {};  // default 0; indice_pairs_output_shape() uses it for transposed
  ConvMode mode = ConvMode::sparse;
};

// Returns `params`, without its padding if the mode is submanifold: the kernel is then centred on its site,
// as in mmcv, spconv and the Python functions of this library.
TURNOUT_API IndicePairsParams centred_on_sites(const IndicePairsParams& params);

// sparse       floor((spatial_shape + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1
// submanifold  spatial_shape
// transposed   (spatial_shape - 1) stride - 2 padding + kernel_size + output_padding
// Does not check its arguments; IndicePairs does.
TURNOUT_API Dims indice_pairs_output_shape(const IndicePairsParams& params);

// Both steps of IndicePairs in one call, for results that are large enough. Returns num_act_out. Throws
// Error(bad_param) if out_indices has fewer rows than that.
TURNOUT_API std::int64_t get_indice_pairs(const ConstTensor& indices, const Tensor& out_indices,
                                          const Tensor& indice_pairs, const Tensor& indice_num,
                                          const IndicePairsParams& params, const Caller& caller = {});

// The pairs of a sparse convolution, in two steps because the number of outputs depends on the data:
//
//   IndicePairs pairs(indices, {.batch_size = 4, .spatial_shape = {41, 1440, 1440},
//                               .kernel_size = 3, .mode = ConvMode::submanifold});
//   ... allocate pairs.num_act_out() rows ...
//   pairs.write(out_indices, indice_pairs, indice_num);
//
// Input site i and output site o are a pair of kernel offset k (the last dimension fastest) if, in every
// dimension and within the output shape,
//   sparse, submanifold   i + padding - k dilation == o stride
//   transposed            o == i stride - padding + k dilation
// Sparse and transposed: every o of a pair is an output; outputs are numbered in ascending order of
// (n, x_0, ..). Submanifold: the outputs are the input sites, and pairs with any other o are dropped. If a
// site is repeated, all its rows are inputs and the last one is the output. A batch number or coordinate out
// of range is an error that names its row.
class TURNOUT_API IndicePairs {
 public:
  // indices [rows, 1 + dims] (n, x_0, .., x_{dims-1}), int32 or int64, dims 1 .. 4. The context must outlive
  // the object, and indices must stay valid until write(), which reads them again.
  IndicePairs(const ConstTensor& indices, const IndicePairsParams& params, const Caller& caller = {});
  ~IndicePairs();
  IndicePairs(const IndicePairs&) = delete;
  IndicePairs& operator=(const IndicePairs&) = delete;

  std::int64_t num_act_out() const;
  std::int64_t kernel_volume() const;
  const Dims& output_shape() const;

  // out_indices [num_act_out or more, 1 + dims], dtype of indices: the outputs in order, then rows of -1.
  // indice_pairs [kernel_volume, 2, rows] int32: for each k the pairs in ascending order of the input row,
  // [k][0] the input rows and [k][1] the output rows, then -1. indice_num [kernel_volume] int32: the number
  // of pairs for each k.
  void write(const Tensor& out_indices, const Tensor& indice_pairs, const Tensor& indice_num) const;

  struct State;

 private:
  const State& state() const;

  // The State is stored in the object, so that constructing one allocates nothing.
  static constexpr std::size_t kAlignment = 8;
  alignas(kAlignment) std::byte memory_[2048];
};

struct IndiceConvolutionParams {
  bool inverse = false;  // use the pairs of an earlier convolution from its outputs to its inputs
  bool subm = false;     // a submanifold convolution: the centre offset maps every row to itself
};

// With i = indice_pairs[k][0][j] and o = indice_pairs[k][1][j], exchanged if `inverse`:
//   features_out = 0
//   for k, for j < indice_num[k]:  features_out[o] += features[i] filters[k]
//   features_out += bias                                                      if given
//
// features [rows, in_channels], features_out [out_rows, out_channels], bias [out_channels] or nullptr, all
// f32, f64, f16 or bf16. filters [offsets, in_channels, out_channels] or [k.., in_channels, out_channels] of
// that dtype with any strides, as long as the kernel dimensions are contiguous among themselves: a view of
// [out, k.., in] needs no copy. indice_pairs [offsets, 2, columns] int32; indice_num [offsets] int32 or
// int64, 0 .. columns. A pair with a row out of range is an error that names its k and j. Entries from
// indice_num[k] on are not read. Equal output rows are summed. Output rows without a pair are 0, or the bias.
//
// subm: features_out has as many rows as features; the offset with the most pairs (the first one of equals)
// maps every row to itself, and its pairs are not read. Without repeated sites this does not change the
// result.
//
// index: from an IndiceConvolutionIndex of the same pairs, or nullptr; it saves the time to build one.
//
// Sums are in f32 (f64 for f64). Each product of a row with a matrix is a chain of fused multiply-adds that
// starts at 0 and proceeds in ascending channel. The products are added in ascending k, then j, then the bias
// is added, and the sum is rounded once. The README of the family has the order for few channels and for
// bf16. Results are bit-identical for any thread count.
TURNOUT_API void indice_convolution_forward(const ConstTensor& features, const ConstTensor& filters,
                                            const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                                            const ConstTensor& bias, const ConstTensor& index,
                                            const Tensor& features_out,
                                            const IndiceConvolutionParams& params = {},
                                            const Caller& caller = {});

// The gradient with respect to features; output_grad is that of features_out:
//   input_grad = 0
//   for k, for j < indice_num[k]:  input_grad[i] += output_grad[o] transpose(filters[k])
// Otherwise as indice_convolution_forward(), with inputs and outputs exchanged.
TURNOUT_API void indice_convolution_backward_data(const ConstTensor& output_grad, const ConstTensor& filters,
                                                  const ConstTensor& indice_pairs,
                                                  const ConstTensor& indice_num, const ConstTensor& index,
                                                  const Tensor& input_grad,
                                                  const IndiceConvolutionParams& params = {},
                                                  const Caller& caller = {});

struct IndiceConvolutionIndexParams {
  std::int64_t rows = 0;               // of features
  std::int64_t out_rows = 0;           // of features_out
  bool inverse = false, subm = false;  // of the convolution
};

// An index of the pairs by output row, to keep between convolutions along the same pairs. A convolution
// without an index builds one in each call, which takes up to a fifth of its time. Results are bit-identical
// with and without it. It is built in two steps, because its size depends on indice_num:
//
//   IndiceConvolutionIndex by_row(indice_pairs, indice_num, {.rows = 100, .out_rows = 50});
//   ... memory for by_row.size() int64 ...
//   by_row.write(index);
//   indice_convolution_forward(features, filters, indice_pairs, indice_num, bias, index, features_out);
//
// indice_convolution_backward_data() takes the index of the opposite direction: `inverse` negated, `rows` of
// output_grad, `out_rows` of input_grad. One index works for any number of channels, dtype and number of
// threads. An index with a row or an offset out of range is an error; the index of other pairs of the same
// size gives the results for those pairs. Its contents are not documented and may differ between releases.
class TURNOUT_API IndiceConvolutionIndex {
 public:
  // The tensors and the context must stay valid until write().
  IndiceConvolutionIndex(const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                         const IndiceConvolutionIndexParams& params, const Caller& caller = {});

  std::int64_t size() const { return size_; }
  // index [size] int64. A pair with a row out of range is an error that names its k and j.
  void write(const Tensor& index) const;

 private:
  Context& context_;
  ConstTensor indice_pairs_, indice_num_;
  IndiceConvolutionIndexParams params_;
  std::int64_t size_;
};

// The gradient with respect to filters:
//   filters_grad[k] = sum over j < indice_num[k] of  transpose(features[i]) output_grad[o]
// filters_grad [offsets or k.., in_channels, out_channels], contiguous; 0 for an offset without pairs. Each
// element is summed over 512 pairs at a time, a chain of fused multiply-adds that starts at 0, and these sums
// are added in order.
TURNOUT_API void indice_convolution_backward_filter(const ConstTensor& features,
                                                    const ConstTensor& output_grad,
                                                    const ConstTensor& indice_pairs,
                                                    const ConstTensor& indice_num, const Tensor& filters_grad,
                                                    const IndiceConvolutionParams& params = {},
                                                    const Caller& caller = {});

// The start value of a maximum: 0, so that windows of negative numbers give 0, or the lowest finite number.
enum class PoolInit : std::uint8_t { zero, lowest };

// features_out = init; for k, for j < indice_num[k], each channel:
//   features_out[o] = features[i]  where features[i] > features_out[o]
// NaN is ignored. features [rows, channels], features_out [out_rows, channels]; pairs as above.
TURNOUT_API void indice_max_pool_forward(const ConstTensor& features, const ConstTensor& indice_pairs,
                                         const ConstTensor& indice_num, const Tensor& features_out,
                                         PoolInit init = PoolInit::zero, const Caller& caller = {});

// input_grad = 0; for k, for j < indice_num[k], each channel:
//   input_grad[i] += output_grad[o]  where features[i] == features_out[o]
// Every input that equals the maximum gets the gradient; NaN equals nothing. Sums are in f32 (f64 for f64),
// in this order, and rounded once.
TURNOUT_API void indice_max_pool_backward(const ConstTensor& features, const ConstTensor& features_out,
                                          const ConstTensor& output_grad, const ConstTensor& indice_pairs,
                                          const ConstTensor& indice_num, const Tensor& input_grad,
                                          const Caller& caller = {});

// The mean of each window over its pairs, or 0 without a pair:
//   features_out[o] = the sum of features[i] over its pairs, in ascending k, then j, / their number
// Sums and quotients are in f32 (f64 for f64) and rounded once.
TURNOUT_API void indice_avg_pool_forward(const ConstTensor& features, const ConstTensor& indice_pairs,
                                         const ConstTensor& indice_num, const Tensor& features_out,
                                         const Caller& caller = {});

// The gradient of indice_avg_pool_forward: input_grad = 0;  input_grad[i] += output_grad[o] / the number of
// pairs of o.
TURNOUT_API void indice_avg_pool_backward(const ConstTensor& output_grad, const ConstTensor& indice_pairs,
                                          const ConstTensor& indice_num, const Tensor& input_grad,
                                          const Caller& caller = {});

// Pooling of whole batch elements. indices [rows, columns], int32 or int64: column 0 is the batch number of a
// row, 0 .. batch_size-1; the other columns are not read. features [rows, channels], features_out
// [batch_size, channels].
//
// Each channel of features_out[b] is the largest feature of the rows of b, or 0 without rows. NaN is ignored;
// if all are NaN, the maximum is -infinity. A maximum of zero is +0.
TURNOUT_API void global_max_pool_forward(const ConstTensor& features, const ConstTensor& indices,
                                         const Tensor& features_out, const Caller& caller = {});

// Its gradient: with b the batch number of row i,
//   input_grad[i] = output_grad[b] where features[i] == features_out[b], otherwise 0
// Every input that equals the maximum gets the gradient.
TURNOUT_API void global_max_pool_backward(const ConstTensor& features, const ConstTensor& features_out,
                                          const ConstTensor& output_grad, const ConstTensor& indices,
                                          const Tensor& input_grad, const Caller& caller = {});

// The mean of the rows of each batch element; 0 without rows. Rows of an element are summed 512 at a time,
// and these sums are added in order. Within 512 rows, row i is added to s[i % 8], and the sum is
// ((s[0]+s[1]) + (s[2]+s[3])) + ((s[4]+s[5]) + (s[6]+s[7])). Sums and quotients are in f32 (f64 for f64) and
// rounded once.
TURNOUT_API void global_avg_pool_forward(const ConstTensor& features, const ConstTensor& indices,
                                         const Tensor& features_out, const Caller& caller = {});

// Its gradient: input_grad[i] = output_grad[b] / the number of rows of b.
TURNOUT_API void global_avg_pool_backward(const ConstTensor& output_grad, const ConstTensor& indices,
                                          const Tensor& input_grad, const Caller& caller = {});

}  // namespace turnout
