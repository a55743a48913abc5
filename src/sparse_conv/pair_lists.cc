// Checks the pairs of a convolution and lists them by block of target rows: counts, prefix sums, placement.
#include "sparse_conv/pair_lists.h"

#include <algorithm>
#include <atomic>

#include "core/dtypes.h"
#include "core/grain.h"
#include "indices/indices.h"
#include "runtime/parallel.h"

namespace turnout::families::sparse_conv {

using namespace core;
namespace {

constexpr std::int64_t kLeastChunk = (16 << 10) / kGrainDivisor;  // the fewest pairs per chunk
constexpr std::string_view kChanged = " changed during the call, expected no other thread to write to it";

// Whether all n values are in 0 .. limit-1. The loop has no early exit, so that the compiler vectorizes it.
bool all_below(const std::int32_t* values, std::int64_t n, std::int64_t limit) {
  const auto most = static_cast<std::uint32_t>(std::min<std::int64_t>(limit, 0x80000000LL));
  std::uint32_t above = 0;
  for (std::int64_t i = 0; i < n; ++i) above |= static_cast<std::uint32_t>(values[i]) >= most;
  return above == 0;
}

bool never_descend(const std::int32_t* values, std::int64_t n) {
  std::uint32_t descents = 0;
  for (std::int64_t i = 1; i < n; ++i) descents |= values[i] < values[i - 1];
  return descents == 0;
}

// Calls f(k, count) for each offset. Counts are clamped to 0 .. columns, because they may have changed since
// they were checked.
template <class F>
void each_count(const ConstTensor& indice_num, std::int64_t columns, const F& f) {
  visit_index(indice_num.dtype, [&](auto type) {
    const auto* given = static_cast<const typename decltype(type)::type*>(indice_num.data);
    for (std::int64_t k = 0; k < indice_num.shape[0]; ++k)
      f(k, std::clamp<std::int64_t>(load_once(given + k), 0, columns));
  });
}

// Calls f(k, first, last) for each offset k that has pairs among begin .. end-1 in the numbering over all
// offsets. These are its pairs first .. last-1.
template <class F>
void each_range(const Pairs& pairs, std::int64_t begin, std::int64_t end, const F& f) {
  std::int64_t before = 0;
  for (std::int64_t k = 0; k < pairs.offsets && before < end; before += pairs.counts[k++]) {
    const std::int64_t first = std::max<std::int64_t>(begin - before, 0);
    const std::int64_t last = std::min(end - before, pairs.counts[k]);
    if (first < last) f(k, first, last);
  }
}

[[noreturn]] void refuse_pair(Call& call, const Pairs& pairs, std::int64_t position, const PairRows& from,
                              const PairRows& to) {
  each_range(pairs, position, position + 1, [&](std::int64_t k, std::int64_t j, std::int64_t) {
    const std::int64_t from_row = load_once(pairs.from(k) + j);
    const bool is_from = !in_range(from_row, from.rows);
    const PairRows& side = is_from ? from : to;
    const std::int64_t value = is_from ? from_row : load_once(pairs.to(k) + j);
    const std::string_view name = call.name(side.name);
    const std::string expected = side.rows == 0 ? concat("no pairs: ", name, " has no rows")
                                                : concat("0 .. ", side.rows - 1, ", the rows of ", name);
    call.refuse(concat(call.name("indice_pairs"), "[", k, "][", std::int64_t{side.side}, "][", j, "] is ",
                       value, ", expected ", expected));
  });
  call.refuse("a pair was rejected, but no invalid pair was found", ErrorCode::internal);
}

// The first pair among first .. last-1 of offset k with a row out of range; `last` if there is none.
std::int64_t first_bad(const Pairs& pairs, std::int64_t k, std::int64_t first, std::int64_t last) {
  if (k == pairs.identity) return last;
  const std::int32_t *from = pairs.from(k), *to = pairs.to(k);
  if (all_below(from + first, last - first, pairs.from_rows) &&
      all_below(to + first, last - first, pairs.to_rows))
    return last;
  for (std::int64_t j = first; j < last; ++j)
    if (!in_range(from[j], pairs.from_rows) || !in_range(to[j], pairs.to_rows)) return j;
  return last;  // the value out of range has changed in the meantime
}

}  // namespace

Pairs sum_pairs(const ConstTensor& indice_pairs, const ConstTensor& indice_num, const PairRows& from,
                const PairRows& to, bool subm) {
  Pairs pairs{.entries = static_cast<const std::int32_t*>(indice_pairs.data),
              .offsets = indice_num.shape[0],
              .columns = indice_pairs.shape[2],
              .from_side = from.side,
              .to_side = to.side,
              .from_rows = from.rows,
              .to_rows = to.rows};
  std::int64_t most = -1;
  each_count(indice_num, pairs.columns, [&](std::int64_t k, std::int64_t count) {
    pairs.total += count;
    if (!subm || count <= most) return;
    most = count;
    pairs.identity = k;
  });
  if (pairs.identity >= 0) pairs.total += to.rows - most;
  return pairs;
}

Pairs read_pairs(Call& call, const ConstTensor& indice_pairs, const ConstTensor& indice_num,
                 const PairRows& from, const PairRows& to, bool subm) {
  const std::int64_t columns = indice_pairs.shape[2];
  visit_index(indice_num.dtype, [&](auto type) {
    const auto* given = static_cast<const typename decltype(type)::type*>(indice_num.data);
    for (std::int64_t k = 0; k < indice_num.shape[0]; ++k)
      if (const std::int64_t count = load_once(given + k); count < 0 || count > columns)
        call.refuse(concat(call.name("indice_num"), "[", k, "] is ", count, ", expected 0 .. ", columns, ", ",
                           call.name("indice_pairs"), ".shape[2]"));
  });
  return sum_pairs(indice_pairs, indice_num, from, to, subm);
}

void keep_counts(Call& call, const ConstTensor& indice_num, Pairs& pairs, Scratch& scratch) {
  auto* counts = scratch.take<std::int64_t>(pairs.offsets);
  std::int64_t total = 0;
  each_count(indice_num, pairs.columns, [&](std::int64_t k, std::int64_t count) {
    counts[k] = k == pairs.identity ? pairs.to_rows : count;
    total += counts[k];
  });
  if (total != pairs.total) call.refuse(concat(call.name("indice_num"), kChanged));
  pairs.counts = counts;
}

void check_pairs(Context& context, Call& call, const Pairs& pairs, const PairRows& from, const PairRows& to) {
  std::atomic<std::int64_t> least{pairs.total};
  const std::int64_t grain = pairs.total * std::int64_t{8} >= kParallelBytes ? kLeastChunk : pairs.total;
  parallel_for(context, pairs.total, grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t position = begin;
    each_range(pairs, begin, end, [&](std::int64_t k, std::int64_t first, std::int64_t last) {
      const std::int64_t bad = first_bad(pairs, k, first, last);
      if (bad < last) keep_least(least, position + bad - first);
      position += last - first;
    });
  });
  if (least.load() < pairs.total) refuse_pair(call, pairs, least.load(), from, to);
}

struct PairLists::Run {
  std::int64_t offset, first, last;  // pairs first .. last-1
  std::int64_t position;             // of the first pair, in the numbering over all offsets
  std::uint8_t* ascending;
};

PairLists::PairLists(const Pairs& pairs, int block_bits, int threads)
    : pairs_(pairs),
      by_row_{pairs.to_rows, block_bits},
      blocks_(by_row_.blocks()),
      chunks_(threads == 1 ? 1 : std::clamp<std::int64_t>(pairs.total / kLeastChunk, 1, 4 * threads)) {}

std::size_t PairLists::scratch_bytes() const {
  return 2 * array_bytes<std::int64_t>(chunks_ * blocks_) +
         array_bytes<std::uint8_t>(chunks_ + pairs_.offsets);
}

template <class F>
void PairLists::each_run(std::int64_t chunk, const F& f) const {
  const std::int64_t size = pairs_.total / chunks_ + 1;
  const std::int64_t begin = std::min(chunk * size, pairs_.total);
  std::int64_t position = begin;
  each_range(pairs_, begin, std::min(begin + size, pairs_.total),
             [&](std::int64_t k, std::int64_t first, std::int64_t last) {
               f(Run{k, first, last, position, ascending_ + chunk + k});
               position += last - first;
             });
}

// Calls f(block, first, last) for pieces of the run that are in one block. If rows ascend, binary search
// finds the end of a piece. A piece is never empty, even if the rows change during the call.
template <class F>
void PairLists::each_block_of(const Run& run, const F& f) const {
  if (run.offset == pairs_.identity) {
    for (std::int64_t row = run.first; row < run.last;) {
      const std::int64_t block = row >> by_row_.block_bits,
                         end = std::min(by_row_.first_row(block + 1), run.last);
      f(block, row, end);
      row = end;
    }
    return;
  }
  const std::int32_t* to = pairs_.to(run.offset);
  const auto last_row = static_cast<std::uint32_t>(pairs_.to_rows - 1);
  for (std::int64_t j = run.first; j < run.last;) {
    const std::int64_t block = row_once(to + j, last_row) >> by_row_.block_bits;
    std::int64_t end = j + 1;
    if (*run.ascending) {
      const std::int64_t most = std::min(run.last, j + ListedPair::kMostRows);
      end = std::lower_bound(to + end, to + most, by_row_.first_row(block + 1)) - to;
    }
    f(block, j, end);
    j = end;
  }
}

// Counts the pairs of each block. A pair with a row out of range lowers `bad` to its position.
void PairLists::count(std::int64_t chunk, std::atomic<std::int64_t>& bad) {
  std::int64_t* counts = next_ + chunk * blocks_;
  std::fill_n(counts, blocks_, 0);
  each_run(chunk, [&](const Run& run) {
    if (stop_.is_asked()) return;
    const std::int64_t at = first_bad(pairs_, run.offset, run.first, run.last);
    if (at < run.last) return keep_least(bad, run.position + at - run.first);
    *run.ascending = run.offset == pairs_.identity ||
                     never_descend(pairs_.to(run.offset) + run.first, run.last - run.first);
    each_block_of(run, [&](std::int64_t block, std::int64_t first, std::int64_t last) {
      counts[block] += last - first;
    });
  });
}

// Copies the pairs to the positions that follow from the counts. The caller's pairs may have changed since
// they were counted: rows are clamped, and no block gets more pairs than were counted. Returns false if a
// block gets fewer.
bool PairLists::place(std::int64_t chunk) {
  std::int64_t* next = next_ + chunk * blocks_;
  const std::int64_t* ends = ends_ + chunk * blocks_;
  const auto last_from = static_cast<std::uint32_t>(std::max<std::int64_t>(pairs_.from_rows - 1, 0));
  each_run(chunk, [&](const Run& run) {
    if (stop_.is_asked()) return;
    const bool is_identity = run.offset == pairs_.identity;
    const std::int32_t *from = pairs_.from(run.offset), *to = pairs_.to(run.offset);
    each_block_of(run, [&](std::int64_t block, std::int64_t first, std::int64_t last) {
      const auto first_of_block = static_cast<std::uint32_t>(by_row_.first_row(block));
      const auto last_of_block = static_cast<std::uint32_t>(by_row_.rows(block) - 1);
      const std::int64_t count = std::min(last - first, ends[block] - next[block]);
      ListedPair* list = list_ + next[block];
      if (is_identity) {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto row = static_cast<std::uint32_t>(first + i);
          list[i] = {run.offset, row - first_of_block, row};
        }
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto row = static_cast<std::uint32_t>(load_once(to + first + i)) - first_of_block;
          list[i] = {run.offset, std::min(row, last_of_block), row_once(from + first + i, last_from)};
        }
      }
      next[block] += count;
    });
  });
  return std::equal(next, next + blocks_, ends);
}

PairsByRow PairLists::build(Context& context, Call& call, const PairRows& from, const PairRows& to,
                            std::int64_t* words, Scratch& scratch) {
  next_ = scratch.take<std::int64_t>(chunks_ * blocks_);
  ends_ = scratch.take<std::int64_t>(chunks_ * blocks_);
  ascending_ = scratch.take<std::uint8_t>(chunks_ + pairs_.offsets);
  const auto each_chunk = [&](const auto& work) {
    parallel_for(context, chunks_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = begin; chunk < end; ++chunk) work(chunk);
    });
  };
  std::atomic<std::int64_t> bad{pairs_.total};
  each_chunk([&](std::int64_t chunk) { count(chunk, bad); });
  if (bad.load() < pairs_.total) refuse_pair(call, pairs_, bad.load(), from, to);

  std::int64_t* starts = words;
  list_ = reinterpret_cast<ListedPair*>(words + blocks_ + 1);
  std::int64_t next = 0;
  for (std::int64_t block = 0; block < blocks_; ++block) {
    starts[block] = next;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const std::int64_t at = chunk * blocks_ + block;
      ends_[at] = next + next_[at];
      next_[at] = next;
      next = ends_[at];
    }
  }
  starts[blocks_] = next;
  std::atomic<bool> is_whole{true};
  each_chunk([&](std::int64_t chunk) {
    if (!place(chunk)) is_whole.store(false);
  });
  if (!is_whole.load()) call.refuse(concat(call.name("indice_pairs"), kChanged));
  by_row_.starts = starts;
  by_row_.list = list_;
  return by_row_;
}

}  // namespace turnout::families::sparse_conv
