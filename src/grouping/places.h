// Reads and checks the indices and counts that a caller gives.
#pragma once

#include <cstdint>

#include "core/padding.h"
#include "runtime/call.h"
#include "turnout/tensor.h"

namespace turnout::families::grouping {

// What a call does with indices that are not the number of a row.
enum class Strays : std::uint8_t {
  refuse,
  refuse_if_rows,  // without rows, the indices are not read
  skip,
};

// Copies `indices`, whose values are 0 .. rows-1, or -1 if they are skipped. Returns whether there are some
// to skip. Each value is read once, so the copy has the values that were checked even if the caller's memory
// changes.
bool read_indices(core::Call& call, const ConstTensor& indices, std::int64_t rows, Strays strays,
                  std::int32_t* to);

// The first row and the first center of each sample, with the numbers of rows and centers at the end.
struct Starts {
  std::int64_t* rows;
  std::int64_t* centers;

  static std::size_t bytes(std::int64_t batch) { return 2 * core::array_bytes<std::int64_t>(batch + 1); }
  Starts(core::Scratch& scratch, std::int64_t batch)
      : rows(scratch.take<std::int64_t>(batch + 1)), centers(scratch.take<std::int64_t>(batch + 1)) {}
};

// Copies the indices [centers, samples] of stacked samples as rows of all samples: -1 in a sample without
// rows. Refuses the call if the counts do not add up to the rows or centers.
void read_stacked(core::Call& call, std::int64_t rows, const ConstTensor& counts, const ConstTensor& indices,
                  const ConstTensor& index_counts, const Starts& starts, std::int32_t* to);

// The product of the extents from dimension `first` on.
template <class Data>
std::int64_t elements_from(const BasicTensor<Data>& tensor, int first) {
  std::int64_t count = 1;
  for (int d = first; d < tensor.rank; ++d) count *= tensor.shape[d];
  return count;
}

}  // namespace turnout::families::grouping
