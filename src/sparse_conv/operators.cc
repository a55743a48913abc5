// The registry entries of this family.
#include <memory>
#include <optional>

#include "registry.h"
#include "sparse_conv/parameters.h"
#include "sparse_conv/pool_signature.h"
#include "sparse_conv/signature.h"
#include "sparse_conv/sparse_conv.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;
namespace {

// A call of a binding. The number of outputs depends on the sites; the index that counts them also writes the
// results.
class PreparedPairs : public Prepared {
 public:
  PreparedPairs(const ConstTensor& indices, const IndicePairsParams& params)
      : indices_(indices), params_(params) {}

  void find_sizes(const Caller& caller, const Tensor* t, std::int64_t* sizes) override {
    pairs_.emplace(indices_, params_, caller);
    // A given out_indices may have more rows than outputs; write() throws if it has fewer.
    const Tensor& out_indices = t[kIndicePairsCall.argument("out_indices")];
    sizes[kIndicePairsCall.size("num_act_out")] =
        out_indices.rank == 2 ? out_indices.shape[0] : pairs_->num_act_out();
  }
  std::int64_t run(const Caller& caller, const Tensor* t, const ScalarValue*) override {
    pairs_->write(t[1], t[2], t[3], caller);
    return pairs_->num_act_out();
  }

 private:
  const ConstTensor indices_;
  const IndicePairsParams params_;
  std::optional<SitePairs> pairs_;
};

Dims to_dims(const ScalarValue& scalar) { return {scalar.values, static_cast<int>(scalar.value)}; }

std::unique_ptr<Prepared> prepare_pairs(const Caller&, const Tensor* t, const ScalarValue* s,
                                        std::int64_t* sizes) {
  IndicePairsParams params = read_spelled(kIndicePairsCall.op, {.spatial_shape = to_dims(s[1]),
                                                                .kernel_size = to_dims(s[2]),
                                                                .stride = to_dims(s[3]),
                                                                .padding = to_dims(s[4]),
                                                                .dilation = to_dims(s[5]),
                                                                .output_padding = to_dims(s[6]),
                                                                .subm = s[7].value != 0,
                                                                .transpose = s[8].value != 0});
  params.batch_size = s[0].value;
  sizes[kIndicePairsCall.size("kernel_volume")] = checked_kernel_volume(kIndicePairsCall.op, params);
  return std::make_unique<PreparedPairs>(t[0], params);
}

// Finds the number of words of the index of indice_convolution_index.
std::unique_ptr<Prepared> find_index_size(const Caller& caller, const Tensor* t, const ScalarValue* s,
                                          std::int64_t* sizes) {
  sizes[kIndiceConvolutionIndex.size("words")] = indice_convolution_index_size(
      t[0], t[1],
      {.rows = s[0].value, .out_rows = s[1].value, .inverse = s[2].value != 0, .subm = s[3].value != 0},
      caller);
  return nullptr;
}

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      // C and C++ use a given output shape and padding, which callers of the bindings cannot pass. Calls of
      // all interfaces are recorded and replayed in this form. It lacks output_padding, which the output
      // shape already includes.
      {&kGetIndicePairs,
       [](const Caller& caller, const Tensor* t, const ScalarValue* s) {
         get_indice_pairs(t[0], t[1], t[2], t[3],
                          {.batch_size = s[0].value,
                           .spatial_shape = to_dims(s[1]),
                           .kernel_size = to_dims(s[2]),
                           .stride = to_dims(s[3]),
                           .padding = to_dims(s[4]),
                           .dilation = to_dims(s[5]),
                           .output_shape = to_dims(s[6]),
                           .mode = to_enum<ConvMode>(s[7])},
                          caller);
       },
       "batch_size=2 spatial_shape=4 kernel_size=3 stride=1 padding=1 dilation=1 output_shape=4 mode=0 "
       "rows=5 dims=3 out_rows=9",
       {.find_sizes = prepare_pairs, .spelled = &kIndicePairsCall}},
      op<&indice_convolution_forward>(kIndiceConvolutionForward,
                                      "inverse=0 subm=0 num_act_in=5 in_channels=3 offsets=4 out_channels=2 "
                                      "columns=6 words=2 num_act_out=7"),
      op<&indice_convolution_backward_data>(kIndiceConvolutionBackwardData,
                                            "inverse=0 subm=0 num_act_in=5 in_channels=3 offsets=4 "
                                            "out_channels=2 columns=6 words=2 num_act_out=7"),
      op<&indice_convolution_backward_filter>(
          kIndiceConvolutionBackwardFilter,
          "inverse=0 subm=0 num_act_in=5 in_channels=3 offsets=4 out_channels=2 columns=6 num_act_out=7"),
      op<&indice_convolution_index>(kIndiceConvolutionIndex,
                                    "rows=5 out_rows=7 inverse=0 subm=0 offsets=4 columns=6 words=2",
                                    {.find_sizes = find_index_size}),
      op<&indice_max_pool_forward>(kIndiceMaxPoolForward,
                                   "init=0 num_act_in=5 channels=3 offsets=4 columns=6 num_act_out=7"),
      op<&indice_max_pool_backward>(kIndiceMaxPoolBackward,
                                    "num_act_in=5 channels=3 offsets=4 columns=6 num_act_out=7"),
      op<&indice_avg_pool_forward>(kIndiceAvgPoolForward,
                                   "num_act_in=5 channels=3 offsets=4 columns=6 num_act_out=7"),
      op<&indice_avg_pool_backward>(kIndiceAvgPoolBackward,
                                    "num_act_in=5 channels=3 offsets=4 columns=6 num_act_out=7"),
      op<&global_max_pool_forward>(kGlobalMaxPoolForward, "rows=5 channels=3 columns=4 batch_size=2"),
      op<&global_max_pool_backward>(kGlobalMaxPoolBackward, "rows=5 channels=3 columns=4 batches=2"),
      op<&global_avg_pool_forward>(kGlobalAvgPoolForward, "rows=5 channels=3 columns=4 batch_size=2"),
      op<&global_avg_pool_backward>(kGlobalAvgPoolBackward, "rows=5 channels=3 columns=4 batches=2"),
  };
  return kOperators;
}

}  // namespace turnout::families::sparse_conv
