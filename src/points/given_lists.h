// Lists of rows that a caller passes, copied and checked.
#pragma once

#include <cstdint>

#include "points/stacked.h"

namespace turnout::families::points {

// The list of query q is rows()[start(q)] .. rows()[start(q + 1) - 1].
class GivenLists {
 public:
  static std::size_t bytes(const ConstTensor& rows, const ConstTensor& starts) {
    return core::array_bytes<std::int32_t>(rows.shape[0]) + core::array_bytes<std::int64_t>(starts.shape[0]);
  }
  // Reads each element once. Rejects the call unless `starts` ascends from 0 to the number of rows, and each
  // row is one of the `points`.
  GivenLists(core::Call& call, core::Scratch& scratch, const ConstTensor& rows, const ConstTensor& starts,
             std::int64_t points);

  const std::int32_t* rows() const { return rows_; }
  std::int64_t start(std::int64_t query) const { return starts_[query]; }

 private:
  std::int32_t* rows_;
  std::int64_t* starts_;
};

}  // namespace turnout::families::points
