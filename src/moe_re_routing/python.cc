// Python bindings of this family.
#include "doors/python/call.h"
#include "moe_re_routing/moe_re_routing.h"
#include "moe_re_routing/signature.h"

namespace turnout::families::moe_re_routing {

using namespace core;
using namespace doors;
namespace {

constexpr PythonFunction kReRouting{"moe_re_routing", kMoeReRouting};
constexpr PythonFunction kInverse{"moe_re_routing_inverse", kMoeReRoutingInverse, "tokens=out"};
constexpr PythonFunction kSortChunks{"sort_chunks_by_idxs", kSortChunksByIdxs};

nb::object re_routing(nb::handle tokens, nb::handle expert_token_num_per_rank, nb::handle per_token_scales,
                      nb::handle expert_token_num_type, nb::handle idx_type, nb::handle out,
                      bool torch_team) {
  PythonCall call(kReRouting, torch_team);
  const ConstTensor x = call.in(tokens);
  const ConstTensor counts = call.in(expert_token_num_per_rank);
  const std::optional<ConstTensor> scales = call.optional_in(per_token_scales);
  MoeReRoutingParams params;
  params.expert_token_num_type = call.choice<ExpertTokenNum>(expert_token_num_type);
  params.idx_type = call.choice<TokenIdx>(idx_type);
  const auto to = call.outs(out);
  const Tensor permuted = call.out(to[0], {x.shape[0], x.shape[1]});
  std::optional<Tensor> permuted_scales;
  if (scales) {
    permuted_scales = call.out(to[1], *scales);
  } else {
    call.no_out();
  }
  const Tensor idx = call.out(to[2], {x.shape[0]});
  const Tensor num = call.out(to[3], {counts.shape[1]});
  call.run([&](const Frame& frame) {
    moe_re_routing(frame, x, counts, scales ? &*scales : nullptr, permuted,
                   permuted_scales ? &*permuted_scales : nullptr, idx, num, params);
  });
  return call.result();
}

nb::object inverse(nb::handle permute_tokens, nb::handle permute_token_idx, nb::handle idx_type,
                   nb::handle out, bool torch_team) {
  PythonCall call(kInverse, torch_team);
  const ConstTensor x = call.in(permute_tokens);
  const ConstTensor idx = call.in(permute_token_idx);
  const auto type = call.choice<TokenIdx>(idx_type);
  const Tensor tokens = call.out(out, {x.shape[0], x.shape[1]});
  call.run([&](const Frame& frame) { moe_re_routing_inverse(frame, x, idx, tokens, type); });
  return call.result();
}

nb::object sort_chunks(nb::handle input, nb::handle split_sizes, nb::handle sorted_idxs, nb::handle probs,
                       nb::handle out, bool torch_team) {
  PythonCall call(kSortChunks, torch_team);
  const ConstTensor x = call.in(input);
  const ConstTensor sizes = call.in(split_sizes);
  const ConstTensor order = call.in(sorted_idxs);
  const std::optional<ConstTensor> p = call.optional_in(probs);
  const auto to = call.outs(out);
  const Tensor output = call.out(to[0], x);
  std::optional<Tensor> permuted_probs;
  if (p) {
    permuted_probs = call.out(to[1], *p);
  } else {
    call.no_out();
  }
  call.run([&](const Frame& frame) {
    sort_chunks_by_idxs(frame, x, sizes, order, p ? &*p : nullptr, output,
                        permuted_probs ? &*permuted_probs : nullptr);
  });
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
