// The search for pairs over a range of sites, compiled once per instruction set. README.md defines the terms.
#pragma once

#include <cstdint>

#include "indices/rank.h"
#include "simd/isa.h"
#include "sparse_conv/geometry.h"

namespace turnout::families::sparse_conv {

// One window under one row offset: every site of the window's class tests the window's taps.
struct ProbeTask {
  const core::RankWord* words;  // [homes] the leaf of outputs that each home reaches
  const std::uint32_t* homes;   // of each position: where its window starts,
  const std::uint8_t* bits;     // and at which bit
  const std::int32_t* rows;     // the row of each position; nullptr: a position is its row
  const std::int32_t* row_of;   // the row of each rank; nullptr: a rank is its row
  const Tap* taps;
  std::int32_t tap_count;
  std::uint32_t mask;   // the bits of all taps
  std::int32_t* pairs;  // [taps of the row offset][2][row_count], indexed by Tap::k
  std::int64_t row_count;
  bool stream;  // stores of whole cache lines bypass the cache; the caller then calls CopyKernels::finish()
};

struct ProbeKernels {
  // Finds the pairs of positions begin .. end-1. Writes those of tap t from element at[t] of its two rows on,
  // and advances at[t].
  void (*probe)(const ProbeTask& task, std::int64_t begin, std::int64_t end, std::int64_t* at);
  // Sets to[0 .. count-1] = -1. `stream` as above.
  void (*fill)(std::int32_t* to, std::int64_t count, bool stream);
};

const ProbeKernels& probe_kernels(Isa isa);

}  // namespace turnout::families::sparse_conv
