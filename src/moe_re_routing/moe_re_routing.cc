// Plans of the MoE re-routing operators: which rows move together, and how their bytes are split into ranges.
#include "moe_re_routing/moe_re_routing.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "indices/indices.h"
#include "moe_re_routing/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "simd/copy.h"

namespace turnout {
namespace families::moe_re_routing {

using namespace core;
namespace {

// Input rows source .. source+count-1 become output rows target .. target+count-1.
struct Run {
  std::int64_t source, target, count;
};

std::byte* at(const Tensor& t, std::int64_t byte) { return static_cast<std::byte*>(t.data) + byte; }
const std::byte* at(const ConstTensor& t, std::int64_t byte) {
  return static_cast<const std::byte*>(t.data) + byte;
}

// Bytes per row; 0 for an absent tensor.
std::int64_t row_bytes_of(const Slot& t) {
  if (!t.present) return 0;
  return (t.rank == 2 ? t.shape[1] : 1) * size_of(t.dtype);
}

void copy_run(const Run& run, std::int64_t row_bytes, const ConstTensor& from, const Tensor& to) {
  std::memcpy(at(to, run.target * row_bytes), at(from, run.source * row_bytes),
              static_cast<std::size_t>(run.count * row_bytes));
}

// Moves every row of `from` to its target row of `to`. runs.find(row) returns a cursor at the run that
// contains `row`; cursor.advance() moves to the next run. side_work(run) is called exactly once for each row.
template <class Runs, class SideWork>
void move_rows(Context& context, const RowMove& move, const ConstTensor& from, const Tensor& to,
               const Runs& runs, const SideWork& side_work) {
  const std::int64_t row_bytes = move.row_bytes;
  const CopyKernels& copy = copy_kernels(context.isa());
  parallel_for(context, move.bytes, move.grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last_row = (end - 1) / row_bytes;
    for (auto cursor = runs.find(begin / row_bytes); cursor.run.source <= last_row; cursor.advance()) {
      const Run& run = cursor.run;
      // A row belongs to the range in which it starts.
      const std::int64_t first = std::max(run.source, (begin + row_bytes - 1) / row_bytes);
      const std::int64_t count = std::min(run.source + run.count, last_row + 1) - first;
      if (count > 0) side_work(Run{first, run.target + first - run.source, count});

      const std::int64_t low = std::max(run.source * row_bytes, begin);
      const std::int64_t high = std::min((run.source + run.count) * row_bytes, end);
      std::byte* target = at(to, low + (run.target - run.source) * row_bytes);
      if (move.stream) {
        copy.stream(target, at(from, low), high - low);
      } else {
        std::memcpy(target, at(from, low), static_cast<std::size_t>(high - low));
      }
    }
    if (move.stream) copy.finish();
  });
}

// The runs of moe_re_routing, in input order. Runs with adjacent targets are merged. An extra run that starts
// after the last row ends the list.
struct RunList {
  const Run* runs;
  std::int64_t count;

  struct Cursor {
    const Run* position;
    Run run;
    void advance() { run = *++position; }
  };
  Cursor find(std::int64_t row) const {
    const Run* after =
        std::upper_bound(runs, runs + count, row, [](std::int64_t r, const Run& x) { return r < x.source; });
    return {after - 1, *(after - 1)};
  }
};

// The runs of the inverse, found while rows are moved. target(row) is read once for each row, and neighbours
// with adjacent targets form one run. The index may have changed since it was checked, so a target out of
// range becomes the last row and no run extends beyond it: writes stay inside the output.
template <class Target>
struct IndexedRuns {
  Target& target;
  std::int64_t rows;
  std::int64_t longest;  // the most rows per run; a range never needs more

  struct Cursor {
    const IndexedRuns& all;
    Run run;
    void advance() { run = all.run_at(run.source + run.count); }
  };
  Cursor find(std::int64_t row) const { return {*this, run_at(row)}; }
  Run run_at(std::int64_t row) const {
    if (row >= rows) return {row, 0, 1};
    const std::int64_t given = target(row), first = in_range(given, rows) ? given : rows - 1;
    const std::int64_t most = std::min(longest, rows - row);
    std::int64_t count = 1;
    while (count < most && target(row + count) == first + count && first + count < rows) ++count;
    return {row, first, count};
  }
};

// The non-empty (rank, expert) blocks in input order, and the number of tokens of each expert. Without rows
// there are no blocks and no memory for them.
struct Blocks {
  Run* runs = nullptr;  // [ranks * experts + 1]; the target is the expert until place_blocks()
  std::int64_t count = 0;
  std::int64_t* tokens_of_expert = nullptr;
};

// Reads each count once, checks it and keeps it. Counts must be 0 or more and sum to `rows`.
template <class Count>
void read_counts(Call& call, const Count* counts, std::int64_t ranks, std::int64_t experts, std::int64_t rows,
                 Blocks& blocks) {
  const auto refuse = [&](const std::string& what) {
    call.refuse(concat(call.name("expert_token_num_per_rank"), what, " rows of ", call.name("tokens")));
  };
  if (rows > 0) std::fill_n(blocks.tokens_of_expert, experts, std::int64_t{0});
  std::int64_t sum = 0;
  for (std::int64_t r = 0; r < ranks; ++r) {
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t count = load_once(counts + r * experts + e);
      if (count < 0)
        call.refuse(concat(call.name("expert_token_num_per_rank"), "[", r, ", ", e, "] is ", count,
                           ", expected 0 or more"));
      if (count > rows - sum)
        refuse(concat("[", r, ", ", e, "] is ", count, ", expected at most ", rows - sum,
                      ", the remainder of the ", rows));
      if (count == 0 || blocks.runs == nullptr) continue;  // without rows there is no list
      blocks.runs[blocks.count++] = {sum, e, count};
      blocks.tokens_of_expert[e] += count;
      sum += count;
    }
  }
  if (sum != rows) refuse(concat(" sums to ", sum, ", expected the ", rows));
}

template <class Count>
void write_expert_token_num(const Blocks& blocks, std::int64_t experts, ExpertTokenNum type,
                            Count* expert_token_num) {
  std::int64_t sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    sum = blocks.tokens_of_expert[e] + (type == ExpertTokenNum::count ? 0 : sum);
    expert_token_num[e] = static_cast<Count>(sum);
  }
}

// Assigns target rows to each block and merges neighbours, in place. Overwrites tokens_of_expert.
RunList place_blocks(const Blocks& blocks, std::int64_t experts, std::int64_t rows) {
  std::int64_t* next_of_expert = blocks.tokens_of_expert;
  std::exclusive_scan(next_of_expert, next_of_expert + experts, next_of_expert, std::int64_t{0});
  Run* runs = blocks.runs;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < blocks.count; ++i) {
    const Run block = runs[i];
    const std::int64_t target =
        std::exchange(next_of_expert[block.target], next_of_expert[block.target] + block.count);
    if (count > 0 && runs[count - 1].target + runs[count - 1].count == target) {
      runs[count - 1].count += block.count;
    } else {
      runs[count++] = {block.source, target, block.count};
    }
  }
  runs[count] = {rows, 0, 1};
  return {runs, count};
}

}  // namespace

RowMove::RowMove(std::int64_t row_count, std::int64_t bytes_of_row, std::int64_t side_bytes, int most_threads)
    : rows(row_count),
      row_bytes(std::max<std::int64_t>(1, bytes_of_row)),  // empty rows are never moved
      bytes(rows * row_bytes),
      stream(is_streamed(bytes)) {
  const bool parallel = bytes + rows * side_bytes >= kParallelBytes;
  threads = parallel ? most_threads : 1;
  // A range counts only the bytes of rows, so it is smaller if rows have many side bytes.
  const std::int64_t range = std::max<std::int64_t>(1, kRangeBytes / (row_bytes + side_bytes)) * row_bytes;
  grain = parallel ? std::min(range, kRangeBytes) : bytes;
}

ReRoutingPlan::ReRoutingPlan(const Slot& tokens, const Slot& counts, const Slot& scales, const Slot& weights,
                             int threads)
    : ranks_(counts.shape[0]),
      experts_(counts.shape[1]),
      scale_bytes_(row_bytes_of(scales)),
      weight_bytes_(row_bytes_of(weights)),
      move_(tokens.shape[0], row_bytes_of(tokens), scale_bytes_ + weight_bytes_, threads) {}

std::size_t ReRoutingPlan::scratch_bytes() const {
  if (move_.rows == 0) return 0;  // no block has a token
  return array_bytes<Run>(ranks_ * experts_ + 1) + array_bytes<std::int64_t>(experts_);
}

std::size_t re_routing_scratch(const Arguments& arguments, const Positions& at) {
  return ReRoutingPlan(arguments.slot(at[0]), arguments.slot(at[1]), arguments.slot(at[2]), {},
                       arguments.threads())
      .scratch_bytes();
}

void ReRoutingPlan::run(Context& context, Call& call, const Tensors& t, const MoeReRoutingParams& params,
                        Scratch& scratch) const {
  Blocks blocks;
  if (move_.rows > 0) {
    blocks.runs = scratch.take<Run>(ranks_ * experts_ + 1);
    blocks.tokens_of_expert = scratch.take<std::int64_t>(experts_);
  }
  visit_index(t.counts.dtype, [&](auto type) {
    using Count = typename decltype(type)::type;
    const auto* counts = static_cast<const Count*>(t.counts.data);
    read_counts(call, counts, ranks_, experts_, move_.rows, blocks);
    auto* num = static_cast<Count*>(t.expert_token_num.data);
    if (move_.rows == 0) {
      std::fill_n(num, experts_, Count{0});
    } else {
      write_expert_token_num(blocks, experts_, params.expert_token_num_type, num);
    }
  });
  if (move_.rows == 0) return;
  const RunList runs = place_blocks(blocks, experts_, move_.rows);

  call.chose(move_.algorithm(), move_.threads);
  auto* idx = static_cast<std::int32_t*>(t.idx.data);
  move_rows(context, move_, t.tokens, t.permute_tokens, runs, [&](const Run& run) {
    const bool gather = params.idx_type == TokenIdx::gather;
    auto* first = idx + (gather ? run.target : run.source);
    auto value = static_cast<std::int32_t>(gather ? run.source : run.target);
    for (std::int64_t k = 0; k < run.count; ++k) first[k] = value++;
    if (scale_bytes_ > 0) copy_run(run, scale_bytes_, t.scales, t.permute_scales);
    if (weight_bytes_ > 0) copy_run(run, weight_bytes_, t.weights, t.permute_weights);
  });
}

// Finding a row by its index takes as long as moving about this many bytes.
constexpr std::int64_t kIndexBytes = 48;

InversePlan::InversePlan(const Slot& tokens, int threads)
    : move_(tokens.shape[0], row_bytes_of(tokens), kIndexBytes, threads) {}

std::size_t InversePlan::scratch_bytes() const { return array_bytes<std::int64_t>(move_.rows); }

// Looking for runs takes longer than moving a few bytes. `position` is the inverse of the caller's index.
void InversePlan::move_short_rows(Context& context, const std::byte* from, const std::int64_t* position,
                                  bool gather, std::byte* to) const {
  const std::int64_t bytes = move_.row_bytes;
  parallel_for(context, move_.rows, std::max<std::int64_t>(1, move_.grain / bytes),
               [&](std::int64_t begin, std::int64_t end) {
                 with_row_copy(bytes, [&](const auto& copy) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     const std::int64_t other = position[row];
                     copy(to + (gather ? row : other) * bytes, from + (gather ? other : row) * bytes);
                   }
                 });
               });
}

void InversePlan::run(Context& context, Call& call, const ConstTensor& permute_tokens,
                      const ConstTensor& permute_token_idx, const Tensor& tokens, TokenIdx idx_type,
                      Scratch& scratch) const {
  const bool is_short = move_.row_bytes <= kShortRow && !move_.stream;
  call.chose(is_short ? "row by row" : move_.algorithm(), move_.threads);
  auto* position = scratch.take<std::int64_t>(move_.rows);
  visit_index(permute_token_idx.dtype, [&](auto type) {
    const auto* idx = static_cast<const typename decltype(type)::type*>(permute_token_idx.data);
    invert_permutation(call, "permute_token_idx", idx, move_.rows, position);
    if (is_short)
      return move_short_rows(context, static_cast<const std::byte*>(permute_tokens.data), position,
                             idx_type == TokenIdx::gather, static_cast<std::byte*>(tokens.data));
    const std::int64_t longest = std::max<std::int64_t>(1, kRangeBytes / move_.row_bytes);
    const auto move = [&](const auto& target) {
      move_rows(context, move_, permute_tokens, tokens,
                IndexedRuns<decltype(target)>{target, move_.rows, longest}, [](const Run&) {});
    };
    if (idx_type == TokenIdx::gather) {
      move([&](std::int64_t row) -> std::int64_t { return load_once(idx + row); });
    } else {
      move([&](std::int64_t row) { return position[row]; });
    }
  });
}

void re_route(const ConstTensor& tokens, const ConstTensor& expert_token_num_per_rank,
              const ConstTensor& per_token_scales, const ConstTensor& weights, const Tensor& permute_tokens,
              const Tensor& permute_per_token_scales, const Tensor& permute_token_idx,
              const Tensor& expert_token_num, const Tensor& permute_weights, const MoeReRoutingParams& params,
              const Caller& caller) {
  Context& context = caller.context();
  // Without scales, their output is ignored.
  Call call(caller, kMoeReRouting,
            {tokens, expert_token_num_per_rank, per_token_scales, permute_tokens,
             per_token_scales.is_absent() ? Slot() : Slot(permute_per_token_scales), permute_token_idx,
             expert_token_num},
            {params.expert_token_num_type, params.idx_type});
  if (call.nothing_to_do()) return;
  const ReRoutingPlan plan(tokens, expert_token_num_per_rank, per_token_scales, weights, context.threads());
  plan.run(context, call,
           {tokens, expert_token_num_per_rank, per_token_scales, weights, permute_tokens,
            permute_per_token_scales, permute_token_idx, expert_token_num, permute_weights},
           params, call.scratch(plan.scratch_bytes()));
}

}  // namespace families::moe_re_routing

using namespace families::moe_re_routing;

void moe_re_routing(const ConstTensor& tokens, const ConstTensor& expert_token_num_per_rank,
                    const ConstTensor& per_token_scales, const Tensor& permute_tokens,
                    const Tensor& permute_per_token_scales, const Tensor& permute_token_idx,
                    const Tensor& expert_token_num, const MoeReRoutingParams& params, const Caller& caller) {
  re_route(tokens, expert_token_num_per_rank, per_token_scales, nullptr, permute_tokens,
           permute_per_token_scales, permute_token_idx, expert_token_num, nullptr, params, caller);
}

void moe_re_routing_inverse(const ConstTensor& permute_tokens, const ConstTensor& permute_token_idx,
                            const Tensor& tokens, TokenIdx idx_type, const Caller& caller) {
  Call call(caller, kMoeReRoutingInverse, {permute_tokens, permute_token_idx, tokens}, {idx_type});
  if (call.nothing_to_do()) return;
  const InversePlan plan(tokens, caller.context().threads());
  plan.run(caller.context(), call, permute_tokens, permute_token_idx, tokens, idx_type,
           call.scratch(plan.scratch_bytes()));
}

}  // namespace turnout
