// Python bindings of this family.
#include "bindings/python/call.h"
#include "core/saturate.h"
#include "moe_dispatch/signature.h"
#include "runtime/caller.h"
#include "turnout/moe_dispatch.h"

namespace turnout::families::moe_dispatch {

using namespace core;
using namespace bindings;
namespace {

// Not a separate operator: moe_combine with other argument names and a flat index.
constexpr PythonFunction kUnpermute{
    "moe_token_unpermute", kMoeCombine,
    "expert_output=permuted_tokens indices=sorted_indices locations= gates=probs output=out capacity="};

nb::object unpermute(nb::handle permuted_tokens, nb::handle sorted_indices, nb::handle probs, nb::handle out,
                     bool use_torch_threads) {
  PythonCall call(kUnpermute, use_torch_threads);
  const ConstTensor d = call.in(permuted_tokens);
  ConstTensor i = call.in(sorted_indices);
  call.optional_in(nb::none());  // locations
  const ConstTensor g = call.optional_in(probs);
  // probs are [samples, choices], but the index is flat.
  if (g.rank == 2 && i.rank == 1 && i.shape[0] == saturating_product(g.shape[0], g.shape[1]))
    i = ConstTensor(i.data, i.dtype, {g.shape[0], g.shape[1]});
  const Tensor to = call.out(out, {i.rank > 0 ? i.shape[0] : 0, d.rank > 0 ? d.shape[d.rank - 1] : 0});
  call.run([&](const Caller& caller) { moe_combine(d, i, nullptr, g, to, 1, caller); });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  list_function(kUnpermute);
  define(module, "moe_token_unpermute", &unpermute);
}

}  // namespace turnout::families::moe_dispatch
