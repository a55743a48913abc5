// Plans of the re-routing operators, and a variant of moe_re_routing for CANN that also moves weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/call.h"
#include "turnout/moe_re_routing.h"

namespace turnout::families::moe_re_routing {

// moe_re_routing, which also moves the rows of `weights`, if given, to `permute_weights`. The operator's
// Signature lacks them, so the caller must check that they are contiguous and have as many rows as tokens.
void re_route(const ConstTensor& tokens, const ConstTensor& expert_token_num_per_rank,
              const ConstTensor& per_token_scales, const ConstTensor& weights, const Tensor& permute_tokens,
              const Tensor& permute_per_token_scales, const Tensor& permute_token_idx,
              const Tensor& expert_token_num, const Tensor& permute_weights, const MoeReRoutingParams& params,
              const Caller& caller);

// How the rows of a tensor are moved: its bytes are read in order and split into ranges.
struct RowMove {
  std::int64_t rows, row_bytes, bytes;
  bool stream;
  int threads;
  std::int64_t grain;  // bytes per range

  // side_bytes: bytes moved per row in addition to the row itself.
  RowMove(std::int64_t rows, std::int64_t row_bytes, std::int64_t side_bytes, int threads);
  const char* algorithm() const { return stream ? "runs, streamed" : "runs"; }
};

class ReRoutingPlan {
 public:
  // Scales and weights may be absent.
  ReRoutingPlan(const core::Slot& tokens, const core::Slot& counts, const core::Slot& scales,
                const core::Slot& weights, int threads);

  std::size_t scratch_bytes() const;

  struct Tensors {
    const ConstTensor &tokens, &counts, &scales, &weights;
    const Tensor &permute_tokens, &permute_scales, &idx, &expert_token_num, &permute_weights;
  };
  // Checks the counts before it writes anything except `scratch`.
  void run(Context& context, core::Call& call, const Tensors& tensors, const MoeReRoutingParams& params,
           core::Scratch& scratch) const;

 private:
  const std::int64_t ranks_, experts_, scale_bytes_, weight_bytes_;
  const RowMove move_;
};

class InversePlan {
 public:
  InversePlan(const core::Slot& tokens, int threads);

  std::size_t scratch_bytes() const;
  // Checks that the index is a permutation before it writes anything except `scratch`.
  void run(Context& context, core::Call& call, const ConstTensor& permute_tokens,
           const ConstTensor& permute_token_idx, const Tensor& tokens, TokenIdx idx_type,
           core::Scratch& scratch) const;

 private:
  void move_short_rows(Context& context, const std::byte* from, const std::int64_t* position, bool gather,
                       std::byte* to) const;
  const RowMove move_;
};

}  // namespace turnout::families::moe_re_routing
