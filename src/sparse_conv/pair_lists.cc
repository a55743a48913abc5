// The pairs of a convolution, checked and in the order of the rows they are added to.
#include "sparse_conv/pair_lists.h"

#include <algorithm>
#include <atomic>

#include "core/dtypes.h"
#include "indices/indices.h"
#include "runtime/parallel.h"

namespace turnout::families::sparse_conv {
namespace {

constexpr std::int64_t kLeastChunk = 16 << 10;  // pairs that are worth a range of their own
constexpr std::string_view kChanged = " changed during the call, expected memory that nobody writes to";

// Whether all of 0 .. n-1 are below the limit. One loop without exits, which the compiler makes vectors of.
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

std::uint32_t clamped(std::int32_t value, std::uint32_t last) {
  return std::min(static_cast<std::uint32_t>(value), last);
}

// Calls f(k, count) for each offset. What the caller may have written since the check is brought into range.
template <class F>
void each_count(const ConstTensor& indice_num, std::int64_t columns, const F& f) {
  visit_index(indice_num.dtype, [&](auto type) {
    const auto* given = static_cast<const typename decltype(type)::type*>(indice_num.data);
    for (std::int64_t k = 0; k < indice_num.shape[0]; ++k)
      f(k, std::clamp<std::int64_t>(given[k], 0, columns));
  });
}

// Calls f(k, first, last) for the pairs first .. last-1 of each offset k that has some of the pairs begin ..
// end-1, numbered over all offsets.
template <class F>
void each_range(const Pairs& pairs, std::int64_t begin, std::int64_t end, const F& f) {
  std::int64_t before = 0;
  for (std::int64_t k = 0; k < pairs.offsets && before < end; before += pairs.counts[k++]) {
    const std::int64_t first = std::max<std::int64_t>(begin - before, 0);
    const std::int64_t last = std::min(end - before, pairs.counts[k]);
    if (first < last) f(k, first, last);
  }
}

[[noreturn]] void refuse_pair(std::string_view op, const Pairs& pairs, std::int64_t position,
                              const PairRows& from, const PairRows& to) {
  each_range(pairs, position, position + 1, [&](std::int64_t k, std::int64_t j, std::int64_t) {
    const bool is_from = !in_range(pairs.from(k)[j], from.rows);
    const PairRows& side = is_from ? from : to;
    const std::int64_t value = is_from ? pairs.from(k)[j] : pairs.to(k)[j];
    const std::string expected = side.rows == 0 ? concat("no pairs: ", side.name, " has no rows")
                                                : concat("0 .. ", side.rows - 1, ", the rows of ", side.name);
    throw Error(ErrorCode::bad_param, concat(op, ": indice_pairs[", k, "][", std::int64_t{side.side}, "][", j,
                                             "] is ", value, ", expected ", expected));
  });
  throw Error(ErrorCode::internal, concat(op, ": a pair was refused that is not there"));
}

// The first pair among first .. last-1 of offset k that names a row that is not there; `last` if none does.
std::int64_t first_bad(const Pairs& pairs, std::int64_t k, std::int64_t first, std::int64_t last) {
  if (k == pairs.identity) return last;
  const std::int32_t *from = pairs.from(k), *to = pairs.to(k);
  if (all_below(from + first, last - first, pairs.from_rows) &&
      all_below(to + first, last - first, pairs.to_rows))
    return last;
  for (std::int64_t j = first; j < last; ++j)
    if (!in_range(from[j], pairs.from_rows) || !in_range(to[j], pairs.to_rows)) return j;
  return last;  // what was out of range has changed since
}

// The least value that any thread has seen.
void keep_least(std::atomic<std::int64_t>& least, std::int64_t value) {
  std::int64_t seen = least.load(std::memory_order_relaxed);
  while (value < seen && !least.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
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

Pairs read_pairs(Call& call, std::string_view op, const ConstTensor& indice_pairs,
                 const ConstTensor& indice_num, const PairRows& from, const PairRows& to, bool subm) {
  const std::int64_t columns = indice_pairs.shape[2];
  call.check([&] {
    visit_index(indice_num.dtype, [&](auto type) {
      const auto* given = static_cast<const typename decltype(type)::type*>(indice_num.data);
      for (std::int64_t k = 0; k < indice_num.shape[0]; ++k)
        if (const std::int64_t count = given[k]; count < 0 || count > columns)
          throw Error(ErrorCode::bad_param, concat(op, ": indice_num[", k, "] is ", count, ", expected 0 .. ",
                                                   columns, ", indice_pairs.shape[2]"));
    });
  });
  return sum_pairs(indice_pairs, indice_num, from, to, subm);
}

void keep_counts(Call& call, std::string_view op, const ConstTensor& indice_num, Pairs& pairs,
                 Scratch& scratch) {
  auto* counts = scratch.take<std::int64_t>(pairs.offsets);
  std::int64_t total = 0;
  each_count(indice_num, pairs.columns, [&](std::int64_t k, std::int64_t count) {
    counts[k] = k == pairs.identity ? pairs.to_rows : count;
    total += counts[k];
  });
  call.check([&] {
    if (total != pairs.total) throw Error(ErrorCode::bad_param, concat(op, ": indice_num", kChanged));
  });
  pairs.counts = counts;
}

void check_pairs(Context& context, Call& call, std::string_view op, const Pairs& pairs, const PairRows& from,
                 const PairRows& to) {
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
  if (least.load() == pairs.total) return;
  call.check([&] { refuse_pair(op, pairs, least.load(), from, to); });
}

struct PairLists::Run {
  std::int64_t offset, first, last;  // pairs first .. last-1
  std::int64_t position;             // of the first, over all offsets
  std::uint8_t* ascending;
};

PairLists::PairLists(const Pairs& pairs, int block_bits, int threads)
    : pairs_(pairs),
      index_{pairs.to_rows, block_bits},
      blocks_(index_.blocks()),
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

// Calls f(block, first, last) for pieces of the run that are in one block. Ascending rows are cut by
// bisection; a piece is never empty, even if rows that were ascending have changed.
template <class F>
void PairLists::each_block_of(const Run& run, const F& f) const {
  if (run.offset == pairs_.identity) {
    for (std::int64_t row = run.first; row < run.last;) {
      const std::int64_t block = row >> index_.block_bits,
                         end = std::min(index_.first_row(block + 1), run.last);
      f(block, row, end);
      row = end;
    }
    return;
  }
  const std::int32_t* to = pairs_.to(run.offset);
  const auto last_row = static_cast<std::uint32_t>(pairs_.to_rows - 1);
  for (std::int64_t j = run.first; j < run.last;) {
    const std::int64_t block = clamped(to[j], last_row) >> index_.block_bits;
    std::int64_t end = j + 1;
    if (*run.ascending) {
      const std::int64_t most = std::min(run.last, j + ListedPair::kMostRows);
      end = std::lower_bound(to + end, to + most, index_.first_row(block + 1)) - to;
    }
    f(block, j, end);
    j = end;
  }
}

// How many pairs each block has. A pair that names no row lowers `bad` to its position.
void PairLists::count(std::int64_t chunk, std::atomic<std::int64_t>& bad) {
  std::int64_t* counts = next_ + chunk * blocks_;
  std::fill_n(counts, blocks_, 0);
  each_run(chunk, [&](const Run& run) {
    const std::int64_t at = first_bad(pairs_, run.offset, run.first, run.last);
    if (at < run.last) return keep_least(bad, run.position + at - run.first);
    *run.ascending = run.offset == pairs_.identity ||
                     never_descend(pairs_.to(run.offset) + run.first, run.last - run.first);
    each_block_of(run, [&](std::int64_t block, std::int64_t first, std::int64_t last) {
      counts[block] += last - first;
    });
  });
}

// Copies the pairs to where the counts say. What the caller may have changed since cannot lead beyond the
// rows, nor beyond the room; false: it does not fill the room.
bool PairLists::place(std::int64_t chunk) {
  std::int64_t* next = next_ + chunk * blocks_;
  const std::int64_t* ends = ends_ + chunk * blocks_;
  const auto last_from = static_cast<std::uint32_t>(std::max<std::int64_t>(pairs_.from_rows - 1, 0));
  each_run(chunk, [&](const Run& run) {
    const bool is_identity = run.offset == pairs_.identity;
    const std::int32_t *from = pairs_.from(run.offset), *to = pairs_.to(run.offset);
    each_block_of(run, [&](std::int64_t block, std::int64_t first, std::int64_t last) {
      const auto first_of_block = static_cast<std::uint32_t>(index_.first_row(block));
      const auto last_of_block = static_cast<std::uint32_t>(index_.rows(block) - 1);
      const std::int64_t count = std::min(last - first, ends[block] - next[block]);
      ListedPair* list = list_ + next[block];
      if (is_identity) {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto row = static_cast<std::uint32_t>(first + i);
          list[i] = {run.offset, row - first_of_block, row};
        }
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          const std::uint32_t row = static_cast<std::uint32_t>(to[first + i]) - first_of_block;
          list[i] = {run.offset, std::min(row, last_of_block), clamped(from[first + i], last_from)};
        }
      }
      next[block] += count;
    });
  });
  return std::equal(next, next + blocks_, ends);
}

PairIndex PairLists::build(Context& context, Call& call, std::string_view op, const PairRows& from,
                           const PairRows& to, std::int64_t* words, Scratch& scratch) {
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
  if (bad.load() < pairs_.total) call.check([&] { refuse_pair(op, pairs_, bad.load(), from, to); });

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
  if (!is_whole.load())
    call.check([&] { throw Error(ErrorCode::bad_param, concat(op, ": indice_pairs", kChanged)); });
  index_.starts = starts;
  index_.list = list_;
  return index_;
}

// -- an index that was kept ---------------------------------------------------------------------------------

namespace {

// Whether all pairs name one of the offsets, and one of the rows. The largest of each tells; in halves of 32
// bits, of which the compiler makes vectors.
bool all_within(const ListedPair* begin, const ListedPair* end, std::int64_t offsets, std::int64_t rows) {
  constexpr std::ptrdiff_t kTogether = 8;
  std::uint32_t from[kTogether] = {}, upper[kTogether] = {};
  const ListedPair* pair = begin;
  for (; end - pair >= kTogether; pair += kTogether) {
    for (std::ptrdiff_t i = 0; i < kTogether; ++i) {
      from[i] = std::max(from[i], static_cast<std::uint32_t>(pair[i].from()));
      upper[i] = std::max(upper[i], pair[i].upper_half());
    }
  }
  bool within = std::all_of(pair, end, [&](const ListedPair& one) { return one.is_within(offsets, rows); });
  for (std::ptrdiff_t i = 0; i < kTogether; ++i)
    within &= from[i] < rows && ListedPair::offset_in(upper[i]) < offsets;
  return within;
}

}  // namespace

std::size_t KeptIndex::scratch_bytes() const {
  return array_bytes<std::int64_t>(PairIndex::words(pairs_.to_rows, PairIndex::kKeptBits, 0));
}

PairIndex KeptIndex::check(Context& context, Call& call, std::string_view op, const PairRows& from,
                           Scratch& scratch) const {
  PairIndex index{pairs_.to_rows, PairIndex::kKeptBits};
  const std::int64_t words = PairIndex::words(index.row_count, index.block_bits, pairs_.total);
  const std::int64_t blocks = index.blocks();
  call.check([&] {
    if (index_.shape[0] != words)
      throw Error(ErrorCode::bad_param,
                  concat(op, ": index.shape[0] is ", index_.shape[0], ", expected ", words, ", for ",
                         pairs_.total, " pairs to ", index.row_count, " rows"));
  });
  const auto* given = static_cast<const std::int64_t*>(index_.data);
  auto* starts = scratch.take<std::int64_t>(blocks + 1);
  std::copy_n(given, blocks + 1, starts);
  index.starts = starts;
  index.list = reinterpret_cast<const ListedPair*>(given + blocks + 1);
  call.check([&] {
    for (std::int64_t block = 0; block <= blocks; ++block) {
      const std::int64_t least = block == 0 ? 0 : starts[block - 1], most = block == 0 ? 0 : pairs_.total;
      if (starts[block] < least || starts[block] > most || (block == blocks && starts[block] != most))
        throw Error(ErrorCode::bad_param,
                    concat(op, ": index[", block, "] is ", starts[block], ", expected ",
                           block == blocks ? most : least, block == 0 || block == blocks ? "" : " or more",
                           ": an index that indice_convolution_index() made"));
    }
  });

  std::atomic<std::int64_t> least{pairs_.total};
  const std::int64_t grain = pairs_.total * std::int64_t{8} >= kParallelBytes ? 1 : blocks;
  parallel_for(context, blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t bad = first_outside(index, block);
      if (bad < starts[block + 1]) keep_least(least, bad);
    }
  });
  if (least.load() < pairs_.total)
    call.check([&] { refuse(op, index.list[least.load()], least.load(), from); });
  return index;
}

// The first pair of a block that names an offset or a row that is not there; the end of the block if none
// does.
std::int64_t KeptIndex::first_outside(const PairIndex& index, std::int64_t block) const {
  const ListedPair *begin = index.begin(block), *end = index.end(block);
  const std::int64_t rows = index.rows(block);
  bool outside = !all_within(begin, end, pairs_.offsets, pairs_.from_rows);
  if (rows < ListedPair::kMostRows)
    outside |= std::any_of(begin, end, [&](const ListedPair& pair) { return pair.row() >= rows; });
  if (!outside) return index.starts[block + 1];
  const ListedPair* first = std::find_if(begin, end, [&](const ListedPair& pair) {
    return !pair.is_within(pairs_.offsets, pairs_.from_rows) || pair.row() >= rows;
  });
  return first - index.list;
}

void KeptIndex::refuse(std::string_view op, const ListedPair& pair, std::int64_t position,
                       const PairRows& from) const {
  const std::int64_t word = PairIndex::words(pairs_.to_rows, PairIndex::kKeptBits, position);
  const std::string where = concat(op, ": index[", word, "] names ");
  const auto fail = [&](const char* what, std::int64_t is, std::int64_t limit, std::string_view of) {
    throw Error(ErrorCode::bad_param,
                concat(where, what, " ", is, ", expected 0 .. ", limit - 1, ", the ", what, "s of ", of));
  };
  if (pair.offset() >= pairs_.offsets) fail("offset", pair.offset(), pairs_.offsets, "filters");
  if (pair.from() >= pairs_.from_rows) fail("row", pair.from(), pairs_.from_rows, from.name);
  throw Error(ErrorCode::bad_param,
              concat(where, "a row beyond the ", pairs_.to_rows, " rows of the result"));
}

}  // namespace turnout::families::sparse_conv
