// Builds an index of pairs that is kept between calls.
#include "core/dtypes.h"
#include "sparse_conv/pair_lists.h"
#include "sparse_conv/signature.h"
#include "sparse_conv/sparse_conv.h"

namespace turnout {
namespace families::sparse_conv {
namespace {

struct Sides {
  PairRows from, to;
};
Sides sides_of(const IndiceConvolutionIndexParams& params) {
  return {{"features", params.inverse ? 1 : 0, params.rows},
          {"features_out", params.inverse ? 0 : 1, params.out_rows}};
}

}  // namespace

std::int64_t indice_convolution_index_size(const Frame& frame, const ConstTensor& indice_pairs,
                                           const ConstTensor& indice_num,
                                           const IndiceConvolutionIndexParams& params) {
  Call call(frame, kIndiceConvolutionIndexSize, {indice_pairs, indice_num, Slot()},
            {params.rows, params.out_rows, params.inverse, params.subm});
  call.chose("counts", 1);
  const Sides sides = sides_of(params);
  const Pairs pairs = read_pairs(call, kIndiceConvolutionIndexSize.op, indice_pairs, indice_num, sides.from,
                                 sides.to, params.subm);
  return PairLists(pairs, PairsByRow::kKeptBits, 1).words();
}

void indice_convolution_index(const Frame& frame, const ConstTensor& indice_pairs,
                              const ConstTensor& indice_num, const Tensor& index,
                              const IndiceConvolutionIndexParams& params) {
  constexpr const Signature& kOp = kIndiceConvolutionIndex;
  Context& context = frame.context;
  Call call(frame, kOp, {indice_pairs, indice_num, index},
            {params.rows, params.out_rows, params.inverse, params.subm});
  const Sides sides = sides_of(params);
  Pairs pairs = read_pairs(call, kOp.op, indice_pairs, indice_num, sides.from, sides.to, params.subm);
  PairLists lists(pairs, PairsByRow::kKeptBits, context.threads());
  call.check([&] {
    if (index.shape[0] != lists.words())
      throw Error(ErrorCode::bad_param,
                  concat(kOp.op, ": index.shape[0] is ", index.shape[0], ", expected ", lists.words(),
                         " for ", pairs.total, " pairs and ", params.out_rows, " rows"));
  });
  call.chose("blocks of rows", context.threads());
  Scratch& scratch = call.scratch(pairs.scratch_bytes() + lists.scratch_bytes());
  keep_counts(call, kOp.op, indice_num, pairs, scratch);
  lists.build(context, call, kOp.op, sides.from, sides.to, static_cast<std::int64_t*>(index.data), scratch);
}

}  // namespace families::sparse_conv

IndiceConvolutionIndex::IndiceConvolutionIndex(Context& context, const ConstTensor& indice_pairs,
                                               const ConstTensor& indice_num,
                                               const IndiceConvolutionIndexParams& params)
    : context_(context),
      indice_pairs_(indice_pairs),
      indice_num_(indice_num),
      params_(params),
      size_(families::sparse_conv::indice_convolution_index_size(context, indice_pairs, indice_num, params)) {
}

void IndiceConvolutionIndex::write(const Tensor& index) const {
  families::sparse_conv::indice_convolution_index(context_, indice_pairs_, indice_num_, index, params_);
}

}  // namespace turnout
