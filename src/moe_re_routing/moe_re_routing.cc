// Plans of the MoE re-routing operators: which rows lie together, and how their bytes are cut into ranges.
#include "turnout/moe_re_routing.h"

#include <algorithm>
#include <cstring>

#include "indices/indices.h"
#include "moe_re_routing/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "simd/copy.h"

namespace turnout {
namespace {

using namespace core;
using namespace families::moe_re_routing;

// Input rows source .. source+count-1 become output rows target .. target+count-1.
struct Run {
  std::int64_t source, target, count;
};

std::byte* at(const Tensor& t, std::int64_t byte) { return static_cast<std::byte*>(t.data) + byte; }
const std::byte* at(const ConstTensor& t, std::int64_t byte) {
  return static_cast<const std::byte*>(t.data) + byte;
}

// Bytes of one row, whatever its dtype.
template <class AnyTensor>
std::int64_t row_bytes_of(const AnyTensor& t) {
  return (t.rank == 2 ? t.shape[1] : 1) * size_of(t.dtype);
}

// to[target of row] = from[row] for all rows, read in order and cut by bytes. runs.find(row) is a place whose
// `run` holds that input row, and whose advance() goes to the run behind it; with_rows(run) does what else
// there is to do, once for each row; that moves side_bytes more.
template <class Runs, class WithRows>
void move_rows(Context& context, Call& call, const ConstTensor& from, const Tensor& to, const Runs& runs,
               std::int64_t side_bytes, const WithRows& with_rows) {
  const std::int64_t row_bytes = row_bytes_of(to), bytes = to.shape[0] * row_bytes;
  const bool stream = bytes >= kStreamBytes;
  const bool parallel = bytes + to.shape[0] * side_bytes >= kParallelBytes;
  // Ranges are of the rows' own bytes, and smaller where much goes with a row.
  const std::int64_t range = std::max<std::int64_t>(1, kRangeBytes / (row_bytes + side_bytes)) * row_bytes;
  call.chose(stream ? "runs, streamed" : "runs", parallel ? context.threads() : 1);
  const CopyKernels& copy = copy_kernels(context.isa());
  const std::int64_t grain = parallel ? std::min(range, kRangeBytes) : bytes;
  parallel_for(context, bytes, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last_row = (end - 1) / row_bytes;
    for (auto place = runs.find(begin / row_bytes); place.run.source <= last_row; place.advance()) {
      const Run& run = place.run;
      // A row belongs to the range in which it starts.
      const std::int64_t first = std::max(run.source, (begin + row_bytes - 1) / row_bytes);
      const std::int64_t count = std::min(run.source + run.count, last_row + 1) - first;
      if (count > 0) with_rows(Run{first, run.target + first - run.source, count});

      const std::int64_t low = std::max(run.source * row_bytes, begin);
      const std::int64_t high = std::min((run.source + run.count) * row_bytes, end);
      std::byte* target = at(to, low + (run.target - run.source) * row_bytes);
      if (stream) {
        copy.stream(target, at(from, low), high - low);
      } else {
        std::memcpy(target, at(from, low), static_cast<std::size_t>(high - low));
      }
    }
    if (stream) copy.finish();
  });
}

// The runs of moe_re_routing: a list in input order, with neighbours merged, and one past the end.
struct RunList {
  const Run* runs;
  std::int64_t count;

  struct Place {
    const Run* position;
    Run run;
    void advance() { run = *++position; }
  };
  Place find(std::int64_t row) const {
    const Run* after =
        std::upper_bound(runs, runs + count, row, [](std::int64_t r, const Run& x) { return r < x.source; });
    return {after - 1, *(after - 1)};
  }
};

// The runs of the inverse: target(row) read as it goes, neighbours merged.
template <class Target>
struct IndexedRuns {
  Target& target;
  std::int64_t rows;
  std::int64_t longest;  // rows in one run at most: no need to look beyond a range

  struct Place {
    const IndexedRuns& all;
    Run run;
    void advance() { run = all.run_at(run.source + run.count); }
  };
  Place find(std::int64_t row) const { return {*this, run_at(row)}; }
  Run run_at(std::int64_t row) const {
    if (row >= rows) return {row, 0, 1};
    const std::int64_t first = target(row);
    std::int64_t count = 1;
    const std::int64_t end = std::min(rows, row + longest);
    while (row + count < end && target(row + count) == first + count) ++count;
    return {row, first, count};
  }
};

template <class Count>
RunList make_runs(const Count* counts, std::int64_t ranks, std::int64_t experts, std::int64_t rows, Run* runs,
                  std::int64_t* next_of_expert) {
  std::int64_t target = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    next_of_expert[e] = target;
    for (std::int64_t r = 0; r < ranks; ++r) target += counts[r * experts + e];
  }
  std::int64_t count = 0, source = 0;
  for (std::int64_t r = 0; r < ranks; ++r) {
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t here = counts[r * experts + e];
      if (here == 0) continue;
      if (count > 0 && runs[count - 1].target + runs[count - 1].count == next_of_expert[e]) {
        runs[count - 1].count += here;
      } else {
        runs[count++] = {source, next_of_expert[e], here};
      }
      next_of_expert[e] += here;
      source += here;
    }
  }
  runs[count] = {rows, 0, 1};
  return {runs, count};
}

template <class Count>
void write_expert_token_num(const Count* counts, std::int64_t ranks, std::int64_t experts,
                            ExpertTokenNum type, Count* expert_token_num) {
  std::int64_t sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (type == ExpertTokenNum::count) sum = 0;
    for (std::int64_t r = 0; r < ranks; ++r) sum += counts[r * experts + e];
    expert_token_num[e] = static_cast<Count>(sum);
  }
}

}  // namespace

// The list of runs, and where each expert's next run goes. Nothing for no rows.
std::size_t families::moe_re_routing::moe_re_routing_scratch(std::int64_t rows, std::int64_t ranks,
                                                             std::int64_t experts) {
  if (rows == 0) return 0;
  return padded(static_cast<std::size_t>(ranks * experts + 1) * sizeof(Run)) +
         padded(static_cast<std::size_t>(experts) * sizeof(std::int64_t));
}

void families::moe_re_routing::check_counts(const Arguments& arguments) {
  const Slot& slot = arguments.slot(kArgument<kMoeReRouting, "expert_token_num_per_rank">);
  const std::int64_t rows = arguments.size(kSize<kMoeReRouting, "rows">);
  const std::int64_t ranks = slot.shape[0], experts = slot.shape[1];
  visit_index(slot.dtype, [&](auto type) {
    const auto* counts = static_cast<const typename decltype(type)::type*>(slot.data);
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < ranks * experts; ++i) {
      const std::int64_t count = counts[i];
      if (count >= 0 && count <= rows - sum) {
        sum += count;
        continue;
      }
      const std::string where =
          concat("expert_token_num_per_rank[", i / experts, ", ", i % experts, "] is ", count);
      if (count < 0) arguments.fail(ErrorCode::bad_param, concat(where, ", expected 0 or more"));
      arguments.fail(ErrorCode::bad_param,
                     concat(where, ", expected at most ", rows - sum,
                            ", what the counts before it leave of the ", rows, " rows of tokens"));
    }
    if (sum != rows)
      arguments.fail(ErrorCode::bad_param, concat("expert_token_num_per_rank sums to ", sum,
                                                  ", expected the ", rows, " rows of tokens"));
  });
}

void moe_re_routing(Context& context, const ConstTensor& tokens, const ConstTensor& expert_token_num_per_rank,
                    const ConstTensor* per_token_scales, const Tensor& permute_tokens,
                    const Tensor* permute_per_token_scales, const Tensor& permute_token_idx,
                    const Tensor& expert_token_num, const MoeReRoutingParams& params) {
  const bool scaled = per_token_scales != nullptr;
  const bool has_scale_output = scaled && permute_per_token_scales != nullptr;
  Call call(
      context, kMoeReRouting,
      {tokens, expert_token_num_per_rank, scaled ? Slot(*per_token_scales) : Slot(), permute_tokens,
       has_scale_output ? Slot(*permute_per_token_scales) : Slot(), permute_token_idx, expert_token_num},
      {params.expert_token_num_type, params.idx_type});
  if (call.nothing_to_do()) return;

  const std::int64_t ranks = expert_token_num_per_rank.shape[0], experts = expert_token_num_per_rank.shape[1];
  const std::int64_t rows = tokens.shape[0];
  Scratch& scratch = call.scratch(moe_re_routing_scratch(rows, ranks, experts));
  const RunList runs = visit_index(expert_token_num_per_rank.dtype, [&](auto type) -> RunList {
    using Count = typename decltype(type)::type;
    const auto* counts = static_cast<const Count*>(expert_token_num_per_rank.data);
    write_expert_token_num(counts, ranks, experts, params.expert_token_num_type,
                           static_cast<Count*>(expert_token_num.data));
    if (rows == 0) return {};
    auto* run_memory = scratch.take<Run>(ranks * experts + 1);
    return make_runs(counts, ranks, experts, rows, run_memory, scratch.take<std::int64_t>(experts));
  });
  if (rows == 0) return;

  auto* idx = static_cast<std::int32_t*>(permute_token_idx.data);
  const std::int64_t scale_bytes = scaled ? row_bytes_of(*per_token_scales) : 0;
  move_rows(context, call, tokens, permute_tokens, runs, scale_bytes, [&](const Run& run) {
    const bool gather = params.idx_type == TokenIdx::gather;
    auto* first = idx + (gather ? run.target : run.source);
    auto value = static_cast<std::int32_t>(gather ? run.source : run.target);
    for (std::int64_t k = 0; k < run.count; ++k) first[k] = value++;
    if (scale_bytes > 0)
      std::memcpy(at(*permute_per_token_scales, run.target * scale_bytes),
                  at(*per_token_scales, run.source * scale_bytes),
                  static_cast<std::size_t>(run.count * scale_bytes));
  });
}

void moe_re_routing_inverse(Context& context, const ConstTensor& permute_tokens,
                            const ConstTensor& permute_token_idx, const Tensor& tokens, TokenIdx idx_type) {
  Call call(context, kMoeReRoutingInverse, {permute_tokens, permute_token_idx, tokens}, {idx_type});
  if (call.nothing_to_do()) return;
  const std::int64_t rows = tokens.shape[0];
  auto* position =
      call.scratch(static_cast<std::size_t>(rows) * sizeof(std::int64_t)).take<std::int64_t>(rows);
  visit_index(permute_token_idx.dtype, [&](auto type) {
    const auto* idx = static_cast<const typename decltype(type)::type*>(permute_token_idx.data);
    call.check([&] { invert_permutation("moe_re_routing_inverse: permute_token_idx", idx, rows, position); });
    const std::int64_t longest = std::max<std::int64_t>(1, kRangeBytes / row_bytes_of(tokens));
    const auto move = [&](const auto& target) {
      move_rows(context, call, permute_tokens, tokens, IndexedRuns<decltype(target)>{target, rows, longest},
                0, [](const Run&) {});
    };
    if (idx_type == TokenIdx::gather) {
      move([&](std::int64_t row) -> std::int64_t { return idx[row]; });
    } else {
      move([&](std::int64_t row) { return position[row]; });
    }
  });
}

}  // namespace turnout
