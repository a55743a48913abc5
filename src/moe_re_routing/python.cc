// Python bindings of this family.
#include "bindings/python/call.h"
#include "moe_re_routing/signature.h"
#include "turnout/moe_re_routing.h"

namespace turnout::families::moe_re_routing {

using namespace core;
using namespace bindings;
namespace {

constexpr PythonFunction kReRouting{"moe_re_routing", kMoeReRouting};
constexpr PythonFunction kInverse{"moe_re_routing_inverse", kMoeReRoutingInverse, "tokens=out"};
constexpr PythonFunction kSortChunks{"sort_chunks_by_idxs", kSortChunksByIdxs};

nb::object re_routing(nb::handle tokens, nb::handle expert_token_num_per_rank, nb::handle per_token_scales,
                      nb::handle expert_token_num_type, nb::handle idx_type, nb::handle out,
                      bool use_torch_threads) {
  PythonCall call(kReRouting, use_torch_threads);
  const ConstTensor x = call.in(tokens);
  const ConstTensor counts = call.in(expert_token_num_per_rank);
  const ConstTensor scales = call.optional_in(per_token_scales);
  MoeReRoutingParams params;
  params.expert_token_num_type = call.choice<ExpertTokenNum>(expert_token_num_type);
  params.idx_type = call.choice<TokenIdx>(idx_type);
  const auto to = call.outs(out);
  const Tensor permuted = call.out(to[0], {x.shape[0], x.shape[1]});
  const Tensor permuted_scales = scales.is_absent() ? call.no_out() : call.out(to[1], scales);
  const Tensor idx = call.out(to[2], {x.shape[0]});
  const Tensor num = call.out(to[3], {counts.shape[1]});
  call.run([&](const Caller& caller) {
    turnout::moe_re_routing(x, counts, scales, permuted, permuted_scales, idx, num, params, caller);
  });
  return call.result();
}

nb::object inverse(nb::handle permute_tokens, nb::handle permute_token_idx, nb::handle idx_type,
                   nb::handle out, bool use_torch_threads) {
  PythonCall call(kInverse, use_torch_threads);
  const ConstTensor x = call.in(permute_tokens);
  const ConstTensor idx = call.in(permute_token_idx);
  const auto type = call.choice<TokenIdx>(idx_type);
  const Tensor tokens = call.out(out, {x.shape[0], x.shape[1]});
  call.run([&](const Caller& caller) { moe_re_routing_inverse(x, idx, tokens, type, caller); });
  return call.result();
}

nb::object sort_chunks(nb::handle input, nb::handle split_sizes, nb::handle sorted_idxs, nb::handle probs,
                       nb::handle out, bool use_torch_threads) {
  PythonCall call(kSortChunks, use_torch_threads);
  const ConstTensor x = call.in(input);
  const ConstTensor sizes = call.in(split_sizes);
  const ConstTensor order = call.in(sorted_idxs);
  const ConstTensor p = call.optional_in(probs);
  const auto to = call.outs(out);
  const Tensor output = call.out(to[0], x);
  const Tensor permuted_probs = p.is_absent() ? call.no_out() : call.out(to[1], p);
  call.run(
      [&](const Caller& caller) { sort_chunks_by_idxs(x, sizes, order, p, output, permuted_probs, caller); });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  list_function(kReRouting);
  list_function(kInverse);
  list_function(kSortChunks);
  define(module, "moe_re_routing", &re_routing);
  define(module, "moe_re_routing_inverse", &inverse);
  define(module, "sort_chunks_by_idxs", &sort_chunks);
}

}  // namespace turnout::families::moe_re_routing
