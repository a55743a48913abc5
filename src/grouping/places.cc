// Reads and checks the indices and counts that a caller gives.
#include "grouping/places.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "indices/indices.h"
#include "runtime/parallel.h"

namespace turnout::families::grouping {

using namespace core;
namespace {

constexpr std::int64_t kGrain = (64 << 10) / kGrainDivisor;  // indices of a range
constexpr std::int64_t kCopied = 256;  // indices that are copied before they are checked

// Copies `count` values, which must be 0 .. rows-1, and adds `start` to each; others become -1. Returns
// whether there were others. Each value is read once, into a copy of which several are checked at a time.
template <class Index>
bool read_values(const Index* values, std::int64_t count, std::int64_t start, std::int64_t rows,
                 std::int32_t* to) {
  using Unsigned = std::make_unsigned_t<Index>;
  const auto limit = static_cast<Unsigned>(rows), offset = static_cast<Unsigned>(start);
  Unsigned any = 0;
  for (const Piece piece : pieces(0, count, kCopied)) {
    Index copy[kCopied];
    std::copy_n(values + piece.begin, piece.count, copy);
    std::int32_t* const its = to + piece.begin;
    for (std::int64_t i = 0; i < piece.count; ++i) {
      const auto value = static_cast<Unsigned>(copy[i]);
      const Unsigned stray = value < limit ? Unsigned{0} : ~Unsigned{0};
      any |= stray;
      its[i] = static_cast<std::int32_t>((value + offset) | stray);
    }
  }
  return any != 0;
}

// The same on all threads, for the values at begin .. end-1. Returns the first position with another value,
// or `end`.
template <class Index>
std::int64_t read_range(Context& context, const Index* values, std::int64_t begin, std::int64_t end,
                        std::int64_t start, std::int64_t rows, std::int32_t* to) {
  std::atomic<std::int64_t> bad{end};
  parallel_for(context, end - begin, kGrain, [&](std::int64_t first, std::int64_t last) {
    first += begin;
    last += begin;
    if (!read_values(values + first, last - first, start, rows, to + first)) return;
    const std::int64_t its = std::find(to + first, to + last, -1) - to;
    for (std::int64_t seen = bad.load(); its < seen && !bad.compare_exchange_weak(seen, its);) {
    }
  });
  return bad.load();
}

[[noreturn]] void refuse_index(Call& call, const ConstTensor& indices, std::int64_t position,
                               std::int64_t rows, const std::string& whose) {
  const std::int64_t value = visit_index(indices.dtype, [&](auto type) -> std::int64_t {
    return static_cast<const typename decltype(type)::type*>(indices.data)[position];
  });
  call.refuse(concat(element_text(call.name("indices"), indices, position), " is ", value, ", expected ",
                     rows > 0 ? concat("0 .. ", rows - 1) : "no indices, since there are no rows", whose));
}

// The value of counts[b], which must be 0 or more and at most what is left of `all`.
std::int64_t count_of(Call& call, std::string_view name, const ConstTensor& counts, std::int64_t b,
                      std::int64_t before, std::int64_t all, std::string_view of) {
  const std::int64_t count = visit_index(counts.dtype, [&](auto type) {
    return load_once(static_cast<const typename decltype(type)::type*>(counts.data) + b);
  });
  if (count < 0) call.refuse(concat(call.name(name), "[", b, "] is ", count, ", expected 0 or more"));
  if (count > all - before)
    call.refuse(concat(call.name(name), "[", b, "] is ", count, ", expected at most ", all - before,
                       ", the rows of ", of, " that the samples before it leave"));
  return count;
}

void expect_all(Call& call, std::string_view name, std::int64_t batch, std::int64_t sum, std::int64_t all,
                std::string_view of) {
  if (sum != all)
    call.refuse(concat("the ", call.name(name), " add up to ", sum, batch == 0 ? ", since batch is 0," : ",",
                       " expected ", all, ", the rows of ", of));
}

}  // namespace

bool read_indices(Call& call, const ConstTensor& indices, std::int64_t rows, Strays strays,
                  std::int32_t* to) {
  if (strays == Strays::refuse_if_rows && rows == 0) return false;
  const std::int64_t count = elements_from(indices, 0);
  return visit_index(indices.dtype, [&](auto type) {
    const auto* values = static_cast<const typename decltype(type)::type*>(indices.data);
    const std::int64_t stray = read_range(call.context(), values, 0, count, 0, rows, to);
    if (stray < count && strays != Strays::skip) refuse_index(call, indices, stray, rows, "");
    return stray < count;
  });
}

void read_stacked(Call& call, std::int64_t rows, const ConstTensor& counts, const ConstTensor& indices,
                  const ConstTensor& index_counts, const Starts& starts, std::int32_t* to) {
  const std::int64_t centers = indices.shape[0], samples = indices.shape[1];
  std::int64_t start = 0, center = 0;
  for (std::int64_t b = 0; b < counts.shape[0]; ++b) {
    const std::int64_t count = count_of(call, "counts", counts, b, start, rows, "features");
    const std::int64_t its = count_of(call, "index_counts", index_counts, b, center, centers, "indices");
    const std::int64_t begin = center * samples, end = (center + its) * samples;
    if (count == 0) {
      std::fill(to + begin, to + end, -1);
    } else {
      visit_index(indices.dtype, [&](auto type) {
        const auto* values = static_cast<const typename decltype(type)::type*>(indices.data);
        const std::int64_t bad = read_range(call.context(), values, begin, end, start, count, to);
        if (bad < end) refuse_index(call, indices, bad, count, concat(", the rows of sample ", b));
      });
    }
    starts.rows[b] = start;
    starts.centers[b] = center;
    start += count;
    center += its;
  }
  starts.rows[counts.shape[0]] = start;
  starts.centers[counts.shape[0]] = center;
  expect_all(call, "counts", counts.shape[0], start, rows, "features");
  expect_all(call, "index_counts", counts.shape[0], center, centers, "indices");
}

}  // namespace turnout::families::grouping
