// get_indice_pairs, in one step and in two.
#include "sparse_conv/sparse_conv.h"

#include <memory>
#include <new>

#include "runtime/call.h"
#include "sparse_conv/pair_writer.h"
#include "sparse_conv/parameters.h"
#include "sparse_conv/signature.h"

namespace turnout {
namespace families::sparse_conv {
namespace {

void write_pairs(Context& context, Call& call, const PairIndex& index, const ConstTensor& indices,
                 const Tensor& out_indices, const Tensor& indice_pairs, const Tensor& indice_num) {
  call.check([&] {
    if (out_indices.shape[0] < index.active())
      throw Error(ErrorCode::bad_param,
                  concat("get_indice_pairs: out_indices.shape[0] is ", out_indices.shape[0],
                         ", expected at least ", index.active(), " = num_act_out"));
  });
  call.uses_dl();
  const PairWriter writer(index, indices, context.threads());
  Scratch scratch = call.lease(writer.scratch_bytes());
  writer.run(context, out_indices, indice_pairs, indice_num, scratch);
}

const char* name_of_algorithm(const PairIndex& index) { return index.is_bitmap() ? "bitmap" : "sorted keys"; }

}  // namespace

std::int64_t get_indice_pairs(const Frame& frame, const ConstTensor& indices, const Tensor& out_indices,
                              const Tensor& indice_pairs, const Tensor& indice_num,
                              const IndicePairsParams& params) {
  const IndicePairsParams p = resolved(params);
  Call call(frame, kGetIndicePairs, {indices, out_indices, indice_pairs, indice_num}, scalars_of(p));
  check_given(call, params);
  if (call.nothing_to_do()) return 0;
  const PairIndexPlan plan(indices.shape[0], p);
  const PairIndex index(plan, frame.context, call, indices, call.scratch(plan.scratch_bytes()));
  call.chose(name_of_algorithm(index), frame.context.threads());
  write_pairs(frame.context, call, index, indices, out_indices, indice_pairs, indice_num);
  return index.active();
}

SitePairs::SitePairs(const Frame& frame, const ConstTensor& indices, const IndicePairsParams& params)
    : indices_(indices), params_(resolved(params)) {
  Call call(frame, kIndicePairsIndex, {indices, Slot(), Slot(), Slot()}, scalars_of(params_));
  check_given(call, params);
  const PairIndexPlan plan(indices.shape[0], params_);
  memory_.emplace(call.lease(plan.scratch_bytes()));
  index_.emplace(plan, frame.context, call, indices, *memory_);
  call.chose(name_of_algorithm(*index_), frame.context.threads());
}

void SitePairs::write(const Frame& frame, const Tensor& out_indices, const Tensor& indice_pairs,
                      const Tensor& indice_num) const {
  Call call(frame, kIndicePairsResult, {indices_, out_indices, indice_pairs, indice_num},
            scalars_of(params_));
  if (call.nothing_to_do()) return;
  call.chose(name_of_algorithm(*index_), frame.context.threads());
  write_pairs(frame.context, call, *index_, indices_, out_indices, indice_pairs, indice_num);
}

}  // namespace families::sparse_conv

std::int64_t get_indice_pairs(Context& context, const ConstTensor& indices, const Tensor& out_indices,
                              const Tensor& indice_pairs, const Tensor& indice_num,
                              const IndicePairsParams& params) {
  return families::sparse_conv::get_indice_pairs(context, indices, out_indices, indice_pairs, indice_num,
                                                 params);
}

struct TURNOUT_HIDDEN IndicePairs::State {
  Context& context;
  families::sparse_conv::SitePairs pairs;
};

IndicePairs::IndicePairs(Context& context, const ConstTensor& indices, const IndicePairsParams& params) {
  static_assert(sizeof(State) <= sizeof(memory_) && alignof(State) <= kAlignment);
  new (memory_) State{context, {context, indices, params}};
}
IndicePairs::~IndicePairs() { std::destroy_at(&state()); }

const IndicePairs::State& IndicePairs::state() const {
  return *std::launder(reinterpret_cast<const State*>(memory_));
}

std::int64_t IndicePairs::num_act_out() const { return state().pairs.num_act_out(); }
std::int64_t IndicePairs::kernel_volume() const { return state().pairs.kernel_volume(); }
const Dims& IndicePairs::output_shape() const { return state().pairs.output_shape(); }

void IndicePairs::write(const Tensor& out_indices, const Tensor& indice_pairs,
                        const Tensor& indice_num) const {
  state().pairs.write(state().context, out_indices, indice_pairs, indice_num);
}

}  // namespace turnout
