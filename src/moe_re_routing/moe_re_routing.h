// The operators of this family as the doors call them: the functions of turnout/moe_re_routing.h with a Frame
// in place of the Context. And their plans.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/call.h"
#include "turnout/moe_re_routing.h"

namespace turnout::families::moe_re_routing {

using namespace core;

// Contiguous rows that move with the tokens and are not in the operator's signature. The caller has checked
// them.
struct MoreRows {
  const ConstTensor* from = nullptr;
  const Tensor* to = nullptr;
};
void moe_re_routing(const Frame& frame, const ConstTensor& tokens,
                    const ConstTensor& expert_token_num_per_rank, const ConstTensor* per_token_scales,
                    const Tensor& permute_tokens, const Tensor* permute_per_token_scales,
                    const Tensor& permute_token_idx, const Tensor& expert_token_num,
                    const MoeReRoutingParams& params, const MoreRows& more = {});
void moe_re_routing_inverse(const Frame& frame, const ConstTensor& permute_tokens,
                            const ConstTensor& permute_token_idx, const Tensor& tokens, TokenIdx idx_type);
void sort_chunks_by_idxs(const Frame& frame, const ConstTensor& input, const ConstTensor& split_sizes,
                         const ConstTensor& sorted_idxs, const ConstTensor* probs, const Tensor& output,
                         const Tensor* permuted_probs);

// How the rows of a tensor are moved: its bytes are read in order and cut into ranges.
struct RowMove {
  std::int64_t rows, row_bytes, bytes;
  bool stream;
  int threads;
  std::int64_t grain;  // bytes of a range

  // side_bytes: moved for each row beside its own bytes.
  RowMove(std::int64_t rows, std::int64_t row_bytes, std::int64_t side_bytes, int threads);
  const char* algorithm() const { return stream ? "runs, streamed" : "runs"; }
};

class ReRoutingPlan {
 public:
  // Scales and more rows may be absent.
  ReRoutingPlan(const Slot& tokens, const Slot& counts, const Slot& scales, const Slot& more, int threads);

  std::size_t scratch_bytes() const;

  struct Tensors {
    const ConstTensor &tokens, &counts;
    const ConstTensor* scales;  // or nullptr, like permute_scales
    const Tensor& permute_tokens;
    const Tensor* permute_scales;
    const Tensor &idx, &expert_token_num;
    MoreRows more;
  };
  // Refuses counts before anything is written outside of `scratch`.
  void run(Context& context, Call& call, const Tensors& tensors, const MoeReRoutingParams& params,
           Scratch& scratch) const;

 private:
  const std::int64_t ranks_, experts_, scale_bytes_, more_bytes_;
  const RowMove move_;
};

class InversePlan {
 public:
  InversePlan(const Slot& tokens, int threads);

  std::size_t scratch_bytes() const;
  // Refuses an index that is no permutation before anything is written outside of `scratch`.
  void run(Context& context, Call& call, const ConstTensor& permute_tokens,
           const ConstTensor& permute_token_idx, const Tensor& tokens, TokenIdx idx_type,
           Scratch& scratch) const;

 private:
  const RowMove move_;
};

}  // namespace turnout::families::moe_re_routing
