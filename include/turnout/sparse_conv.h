// Sparse convolution: the pairs of input and output sites for each kernel offset.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "turnout/context.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

// One value per spatial dimension. Empty Dims stand for the default of the field they are assigned to.
class TURNOUT_API Dims {
 public:
  static constexpr int kMax = 4;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(values.begin(), static_cast<int>(values.size())) {}
  Dims(const std::int64_t* values, int count);  // throws Error(bad_param) if count > kMax
  static Dims filled(int count, std::int64_t value);  // likewise

  int count() const { return count_; }
  const std::int64_t* data() const { return values_; }
  std::int64_t operator[](int d) const { return values_[d]; }
  std::int64_t& operator[](int d) { return values_[d]; }

 private:
  std::int64_t values_[kMax] = {};
  int count_ = 0;
};

enum class ConvMode : std::uint8_t { sparse, submanifold, transposed };

// A padding that is given is obeyed in submanifold mode too, and the kernel then lies beside its site unless
// the padding is kernel_size / 2 * dilation. (From Python a padding is ignored there, as mmcv and spconv do.)
struct IndicePairsParams {
  std::int64_t batch_size = 1;
  Dims spatial_shape;        // of the input
  Dims kernel_size;          // -1: the whole extent of the input, which gives one output
  Dims stride = {};          // default 1
  Dims padding = {};         // default 0; submanifold: kernel_size / 2 * dilation, for odd kernels only
  Dims dilation = {};        // default 1
  Dims output_shape = {};    // default: indice_pairs_output_shape()
  Dims output_padding = {};  // default 0; used by indice_pairs_output_shape() for transposed
  ConvMode mode = ConvMode::sparse;
};

// sparse       floor((spatial_shape + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1
// submanifold  spatial_shape
// transposed   (spatial_shape - 1) stride - 2 padding + kernel_size + output_padding
// Does not check its arguments; IndicePairs does.
TURNOUT_API Dims indice_pairs_output_shape(const IndicePairsParams& params);

// Both steps of IndicePairs in one call, for results with room for all outputs. Returns num_act_out. Throws
// Error(bad_param), and writes nothing, if out_indices has fewer rows.
TURNOUT_API std::int64_t get_indice_pairs(Context& context, const ConstTensor& indices,
                                          const Tensor& out_indices, const Tensor& indice_pairs,
                                          const Tensor& indice_num, const IndicePairsParams& params);
inline std::int64_t get_indice_pairs(const ConstTensor& indices, const Tensor& out_indices,
                                     const Tensor& indice_pairs, const Tensor& indice_num,
                                     const IndicePairsParams& params) {
  return get_indice_pairs(default_context(), indices, out_indices, indice_pairs, indice_num, params);
}

// The pairs of a sparse convolution, in two steps because the number of outputs depends on the data:
//
//   IndicePairs pairs(context, indices, {.batch_size = 4, .spatial_shape = {41, 1440, 1440},
//                                        .kernel_size = {3, 3, 3}, .mode = ConvMode::submanifold});
//   ... room for pairs.num_act_out() rows ...
//   pairs.write(out_indices, indice_pairs, indice_num);
//
// Input site i, kernel offset k (the last dimension fastest) and output site o are a pair when, in every
// dimension and within the output shape,
//   sparse, submanifold   i + padding - k dilation == o stride
//   transposed            o == i stride - padding + k dilation
// Sparse and transposed: every o of a pair is an output; outputs are numbered in ascending order of
// (n, x_0, ..). Submanifold: the outputs are the input sites, and pairs with any other o are dropped. If
// sites are equal, all of them are inputs and the last one is the output. A batch number or coordinate out of
// range is an error that names its row.
class TURNOUT_API IndicePairs {
 public:
  // indices [rows, 1 + dims] (n, x_0, .., x_{dims-1}), int32 or int64, dims 1 .. 4. The context must outlive
  // the object, and indices must stay valid until write(), which reads them again.
  IndicePairs(Context& context, const ConstTensor& indices, const IndicePairsParams& params);
  IndicePairs(const ConstTensor& indices, const IndicePairsParams& params)
      : IndicePairs(default_context(), indices, params) {}
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

  struct TURNOUT_HIDDEN State;

 private:
  friend std::int64_t get_indice_pairs(Context& context, const ConstTensor& indices,
                                       const Tensor& out_indices, const Tensor& indice_pairs,
                                       const Tensor& indice_num, const IndicePairsParams& params);
  explicit IndicePairs(State* state) : state_(state) {}
  State* state_;
};

}  // namespace turnout
