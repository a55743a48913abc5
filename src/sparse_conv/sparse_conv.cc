// Implements get_indice_pairs and IndicePairs.
#include "sparse_conv/sparse_conv.h"

#include <memory>
#include <new>

#include "runtime/call.h"
#include "sparse_conv/pair_writer.h"
#include "sparse_conv/parameters.h"
#include "sparse_conv/signature.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

void write_pairs(Context& context, Call& call, const PairIndex& index, const ConstTensor& indices,
                 const Tensor& out_indices, const Tensor& indice_pairs, const Tensor& indice_num) {
  if (out_indices.shape[0] < index.active())
    call.refuse(concat(call.name("out_indices"), ".shape[0] is ", out_indices.shape[0],
                       ", expected at least ", index.active(), " = num_act_out"));
  call.uses(Isa::avx512_dl);
  const PairWriter writer(index, indices, context.threads());
  Scratch scratch = call.lease(writer.scratch_bytes());
  writer.run(context, out_indices, indice_pairs, indice_num, scratch);
}

const char* name_of_algorithm(const PairIndex& index) { return index.is_bitmap() ? "bitmap" : "sorted keys"; }

}  // namespace

SitePairs::SitePairs(const ConstTensor& indices, const IndicePairsParams& params, const Caller& caller)
    : indices_(indices), params_(resolved(params)) {
  Call call(caller, kIndicePairsIndex, {indices, Slot(), Slot(), Slot()}, scalars_of(params_));
  check_given(call, params);
  const PairIndexPlan plan(indices.shape[0], params_);
  memory_.emplace(call.lease(plan.scratch_bytes()));
  index_.emplace(plan, caller.context(), call, indices, *memory_);
  call.chose(name_of_algorithm(*index_), caller.context().threads());
}

void SitePairs::write(const Tensor& out_indices, const Tensor& indice_pairs, const Tensor& indice_num,
                      const Caller& caller) const {
  Call call(caller, kIndicePairsResult, {indices_, out_indices, indice_pairs, indice_num},
            scalars_of(params_));
  if (call.nothing_to_do()) return;
  call.chose(name_of_algorithm(*index_), caller.context().threads());
  write_pairs(caller.context(), call, *index_, indices_, out_indices, indice_pairs, indice_num);
}

}  // namespace families::sparse_conv

using namespace families::sparse_conv;

std::int64_t get_indice_pairs(const ConstTensor& indices, const Tensor& out_indices,
                              const Tensor& indice_pairs, const Tensor& indice_num,
                              const IndicePairsParams& params, const Caller& caller) {
  const IndicePairsParams p = resolved(params);
  Call call(caller, kGetIndicePairs, {indices, out_indices, indice_pairs, indice_num}, scalars_of(p));
  check_given(call, params);
  if (call.nothing_to_do()) return 0;
  const PairIndexPlan plan(indices.shape[0], p);
  const PairIndex index(plan, caller.context(), call, indices, call.scratch(plan.scratch_bytes()));
  call.chose(name_of_algorithm(index), caller.context().threads());
  write_pairs(caller.context(), call, index, indices, out_indices, indice_pairs, indice_num);
  return index.active();
}

struct TURNOUT_HIDDEN IndicePairs::State {
  Context& context;
  SitePairs pairs;
};

IndicePairs::IndicePairs(const ConstTensor& indices, const IndicePairsParams& params, const Caller& caller) {
  static_assert(sizeof(State) <= sizeof(memory_) && alignof(State) <= kAlignment);
  new (memory_) State{caller.context(), {indices, params, caller}};
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
  state().pairs.write(out_indices, indice_pairs, indice_num, state().context);
}

}  // namespace turnout
