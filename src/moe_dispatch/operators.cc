// The registry entries of this family's operators.
#include <algorithm>

#include "moe_dispatch/reference.h"
#include "moe_dispatch/signature.h"
#include "registry.h"
#include "turnout/moe_dispatch.h"

namespace turnout::families::moe_dispatch {

using namespace core;
namespace {

// num_out_tokens is like the end of a Python slice: negative numbers count from the end. None and 0 mean all.
std::unique_ptr<Prepared> find_num_out_tokens(const Caller&, const Tensor*, const ScalarValue*,
                                              std::int64_t* sizes) {
  constexpr int kSamples = kMoeTokenPermute.size("samples"), kChoices = kMoeTokenPermute.size("choices");
  std::int64_t& rows = sizes[kMoeTokenPermute.size("num_out_tokens")];
  const std::int64_t choices = sizes[kSamples] * sizes[kChoices];
  const std::int64_t wanted = rows == kUnknownExtent ? 0 : rows;
  rows = wanted > 0 ? std::min(wanted, choices) : std::max<std::int64_t>(choices + wanted, 0);
  return nullptr;
}

}  // namespace

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {
      op<&moe_dispatch_forward>(kMoeDispatchForward,
                                "capacity=3 num_experts=2 fill=1 choices=2 samples=5 hidden=7",
                                {.definition = define<&definition::moe_dispatch_forward>}),
      op<&moe_dispatch_backward_data>(kMoeDispatchBackwardData,
                                      "capacity=3 num_experts=2 choices=2 samples=5 hidden=7",
                                      {.definition = define<&definition::moe_dispatch_backward_data>}),
      op<&moe_dispatch_backward_gate>(kMoeDispatchBackwardGate,
                                      "capacity=3 num_experts=2 choices=2 samples=5 hidden=7",
                                      {.definition = define<&definition::moe_dispatch_backward_gate>}),
      op<&moe_dispatch_backward>(kMoeDispatchBackward,
                                 "capacity=3 num_experts=2 choices=2 samples=5 hidden=7",
                                 {.definition = define<&definition::moe_dispatch_backward>}),
      op<&moe_locations>(kMoeLocations, "num_experts=4 samples=5 choices=2"),
      op<&turnout::moe_dispatch>(kMoeDispatch, "capacity=3 num_experts=2 samples=5 hidden=7 choices=2",
                                 {.definition = define<&definition::moe_dispatch>}),
      op<&moe_combine>(kMoeCombine, "capacity=3 experts=2 hidden=7 samples=5 choices=2",
                       {.definition = define<&definition::moe_combine>}),
      op<&moe_combine_backward>(kMoeCombineBackward, "capacity=3 samples=5 hidden=7 experts=2 choices=2",
                                {.definition = define<&definition::moe_combine_backward>}),
      op<&moe_token_permute>(kMoeTokenPermute, "samples=5 hidden=7 choices=2 num_out_tokens=5",
                             {.find_sizes = find_num_out_tokens}),
  };
  return kOperators;
}

}  // namespace turnout::families::moe_dispatch
