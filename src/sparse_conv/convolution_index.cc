// Builds an index of pairs for use in later calls.
#include "core/dtypes.h"
#include "sparse_conv/pair_lists.h"
#include "sparse_conv/signature.h"
#include "sparse_conv/sparse_conv.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

struct Sides {
  PairRows from, to;
};
Sides sides_of(const IndiceConvolutionIndexParams& params) {
  return {{"features", params.inverse ? 1 : 0, params.rows},
          {"features_out", params.inverse ? 0 : 1, params.out_rows}};
}

}  // namespace

std::int64_t indice_convolution_index_size(const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                                           const IndiceConvolutionIndexParams& params, const Caller& caller) {
  Call call(caller, kIndiceConvolutionIndexSize, {indice_pairs, indice_num, Slot()},
            {params.rows, params.out_rows, params.inverse, params.subm});
  call.chose("counts", 1);
  const Sides sides = sides_of(params);
  const Pairs pairs = read_pairs(call, indice_pairs, indice_num, sides.from, sides.to, params.subm);
  return PairLists(pairs, PairsByRow::kKeptBits, 1).words();
}

void indice_convolution_index(const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                              const Tensor& index, const IndiceConvolutionIndexParams& params,
                              const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kIndiceConvolutionIndex, {indice_pairs, indice_num, index},
            {params.rows, params.out_rows, params.inverse, params.subm});
  const Sides sides = sides_of(params);
  Pairs pairs = read_pairs(call, indice_pairs, indice_num, sides.from, sides.to, params.subm);
  PairLists lists(pairs, PairsByRow::kKeptBits, context.threads());
  if (index.shape[0] != lists.words())
    call.refuse(concat(call.name("index"), ".shape[0] is ", index.shape[0], ", expected ", lists.words(),
                       " for ", pairs.total, " pairs and ", params.out_rows, " rows"));
  call.chose("blocks of rows", context.threads());
  Scratch& scratch = call.scratch(pairs.scratch_bytes() + lists.scratch_bytes());
  keep_counts(call, indice_num, pairs, scratch);
  lists.build(context, call, sides.from, sides.to, static_cast<std::int64_t*>(index.data), scratch);
}

}  // namespace families::sparse_conv

using namespace families::sparse_conv;

IndiceConvolutionIndex::IndiceConvolutionIndex(const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                                               const IndiceConvolutionIndexParams& params,
                                               const Caller& caller)
    : context_(caller.context()),
      indice_pairs_(indice_pairs),
      indice_num_(indice_num),
      params_(params),
      size_(indice_convolution_index_size(indice_pairs, indice_num, params, caller)) {}

void IndiceConvolutionIndex::write(const Tensor& index) const {
  indice_convolution_index(indice_pairs_, indice_num_, index, params_, context_);
}

}  // namespace turnout
