// Checks an index that the caller kept from an earlier call.
#include "sparse_conv/kept_index.h"

#include <algorithm>
#include <atomic>

#include "runtime/parallel.h"

namespace turnout::families::sparse_conv {

using namespace core;
namespace {

// Whether all offsets and source rows are in range. Compares the largest ones; the loop computes them in
// 32-bit halves without an early exit, so that the compiler vectorizes it.
bool all_in_range(const ListedPair* begin, const ListedPair* end, std::int64_t offsets, std::int64_t rows) {
  constexpr std::ptrdiff_t kTogether = 8;
  std::uint32_t from[kTogether] = {}, upper[kTogether] = {};
  const ListedPair* pair = begin;
  for (; end - pair >= kTogether; pair += kTogether) {
    for (std::ptrdiff_t i = 0; i < kTogether; ++i) {
      from[i] = std::max(from[i], static_cast<std::uint32_t>(pair[i].from()));
      upper[i] = std::max(upper[i], pair[i].upper_half());
    }
  }
  bool in_range = std::all_of(pair, end, [&](const ListedPair& one) { return one.is_within(offsets, rows); });
  for (std::ptrdiff_t i = 0; i < kTogether; ++i)
    in_range &= from[i] < rows && ListedPair::offset_in(upper[i]) < offsets;
  return in_range || begin == end;
}

}  // namespace

std::size_t KeptIndex::scratch_bytes() const {
  return array_bytes<std::int64_t>(PairsByRow::words(pairs_.to_rows, PairsByRow::kKeptBits, 0));
}

PairsByRow KeptIndex::check(Context& context, Call& call, const PairRows& from, Scratch& scratch) const {
  PairsByRow by_row{pairs_.to_rows, PairsByRow::kKeptBits};
  const std::int64_t words = PairsByRow::words(by_row.row_count, by_row.block_bits, pairs_.total);
  const std::int64_t blocks = by_row.blocks();
  if (index_.shape[0] != words)
    call.refuse(concat(call.name("index"), ".shape[0] is ", index_.shape[0], ", expected ", words, " for ",
                       pairs_.total, " pairs and ", by_row.row_count, " rows"));
  const auto* given = static_cast<const std::int64_t*>(index_.data);
  auto* starts = scratch.take<std::int64_t>(blocks + 1);
  std::copy_n(given, blocks + 1, starts);
  by_row.starts = starts;
  by_row.list = reinterpret_cast<const ListedPair*>(given + blocks + 1);
  for (std::int64_t block = 0; block <= blocks; ++block) {
    const std::int64_t least = block == 0 ? 0 : block == blocks ? pairs_.total : starts[block - 1];
    const std::int64_t most = block == 0 ? 0 : pairs_.total;
    if (starts[block] < least || starts[block] > most)
      call.refuse(concat(call.name("index"), "[", block, "] is ", starts[block], ", expected ", least, " .. ",
                         most, " in an index for these pairs"));
  }

  std::atomic<std::int64_t> first_bad{pairs_.total};
  const std::int64_t grain = pairs_.total * std::int64_t{8} >= kParallelBytes ? 1 : blocks;
  parallel_for(context, blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t bad = first_out_of_range(by_row, block);
      if (bad < starts[block + 1]) keep_least(first_bad, bad);
    }
  });
  const std::int64_t bad = first_bad.load();
  if (bad < pairs_.total) refuse(call, by_row.list[bad], bad, from);
  return by_row;
}

// The position of the first pair of a block with an offset or row out of range; the end of the block's list
// if there is none.
std::int64_t KeptIndex::first_out_of_range(const PairsByRow& by_row, std::int64_t block) const {
  const ListedPair *begin = by_row.begin(block), *end = by_row.end(block);
  const std::int64_t rows = by_row.rows(block);
  bool in_range = all_in_range(begin, end, pairs_.offsets, pairs_.from_rows);
  if (rows < ListedPair::kMostRows)
    in_range &= std::all_of(begin, end, [&](const ListedPair& pair) { return pair.row() < rows; });
  if (in_range) return by_row.starts[block + 1];
  const ListedPair* first = std::find_if(begin, end, [&](const ListedPair& pair) {
    return !pair.is_within(pairs_.offsets, pairs_.from_rows) || pair.row() >= rows;
  });
  return first - by_row.list;
}

void KeptIndex::refuse(Call& call, const ListedPair& pair, std::int64_t position,
                       const PairRows& from) const {
  const std::int64_t word = PairsByRow::words(pairs_.to_rows, PairsByRow::kKeptBits, position);
  const std::string where = concat(call.name("index"), "[", word, "] has ");
  if (pair.offset() >= pairs_.offsets)
    call.refuse(concat(where, "offset ", pair.offset(), ", expected 0 .. ", pairs_.offsets - 1,
                       ", the offsets of ", call.name("filters")));
  if (pair.from() >= pairs_.from_rows)
    call.refuse(concat(where, "row ", pair.from(), ", expected 0 .. ", pairs_.from_rows - 1, ", the rows of ",
                       call.name(from.name)));
  call.refuse(concat(where, "a target row beyond the ", pairs_.to_rows, " rows of the result"));
}

}  // namespace turnout::families::sparse_conv
