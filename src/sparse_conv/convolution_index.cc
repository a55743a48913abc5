// An index of pairs that is kept between calls.
#include "core/dtypes.h"
#include "sparse_conv/pair_lists.h"
#include "sparse_conv/signature.h"

namespace turnout {

using namespace core;
using namespace families::sparse_conv;

namespace {

struct Sides {
  PairRows from, to;
};
Sides sides_of(const IndiceConvolutionIndexParams& params) {
  return {{"features", params.inverse ? 1 : 0, params.rows},
          {"features_out", params.inverse ? 0 : 1, params.out_rows}};
}

}  // namespace

IndiceConvolutionIndex::IndiceConvolutionIndex(Context& context, const ConstTensor& indice_pairs,
                                               const ConstTensor& indice_num,
                                               const IndiceConvolutionIndexParams& params)
    : context_(context), indice_pairs_(indice_pairs), indice_num_(indice_num), params_(params) {
  Call call(context, kIndexOfPairs, {indice_pairs, indice_num, Slot()},
            {params.rows, params.out_rows, params.inverse, params.subm});
  const Sides sides = sides_of(params);
  const Pairs pairs =
      read_pairs(call, kIndexOfPairs.op, indice_pairs, indice_num, sides.from, sides.to, params.subm);
  size_ = PairLists(pairs, PairIndex::kKeptBits, 1).words();
}

void IndiceConvolutionIndex::write(const Tensor& index) const {
  constexpr const Signature& kOp = kIndiceConvolutionIndex;
  Call call(context_, kOp, {indice_pairs_, indice_num_, index},
            {params_.rows, params_.out_rows, params_.inverse, params_.subm});
  const Sides sides = sides_of(params_);
  Pairs pairs = read_pairs(call, kOp.op, indice_pairs_, indice_num_, sides.from, sides.to, params_.subm);
  PairLists lists(pairs, PairIndex::kKeptBits, context_.threads());
  call.check([&] {
    if (index.shape[0] != lists.words())
      throw Error(ErrorCode::bad_param,
                  concat(kOp.op, ": index.shape[0] is ", index.shape[0], ", expected ", lists.words(),
                         ", for ", pairs.total, " pairs to ", params_.out_rows, " rows"));
  });
  call.chose("blocks of rows", context_.threads());
  Scratch scratch = call.lease(pairs.scratch_bytes() + lists.scratch_bytes());
  keep_counts(call, kOp.op, indice_num_, pairs, scratch);
  lists.build(context_, call, kOp.op, sides.from, sides.to, static_cast<std::int64_t*>(index.data), scratch);
}

}  // namespace turnout
