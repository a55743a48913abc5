// The search for pairs over a range of sites, once per instruction set.
#pragma once

#include <cstdint>

#include "indices/rank.h"
#include "simd/isa.h"
#include "sparse_conv/geometry.h"

namespace turnout::families::sparse_conv {

using namespace core;

// One window under one row offset: all sites of its class look for the window's taps.
struct ProbeTask {
  const RankWord* words;       // what each home meets
  const std::uint32_t* homes;  // of the positions
  const std::uint8_t* bits;    // where their windows start
  const std::int32_t* rows;    // of the positions; nullptr: positions are rows
  const std::int32_t* row_of;  // of the ranks; nullptr: ranks are rows
  const Tap* taps;
  std::int32_t tap_count;
  std::uint32_t mask;   // of all taps
  std::int32_t* pairs;  // of the window's first kernel offset, k = 0: [..][2][row_count]
  std::int64_t row_count;
  bool stream;  // whole lines are stored past the cache; CopyKernels::finish() when done
};

struct ProbeKernels {
  // Positions begin .. end-1. The pairs of tap t are appended at[t] behind the start of its two rows.
  void (*probe)(const ProbeTask& task, std::int64_t begin, std::int64_t end, std::int64_t* at);
  // to[0 .. count-1] = -1, whole lines past the cache when `stream`; CopyKernels::finish() when done.
  void (*fill)(std::int32_t* to, std::int64_t count, bool stream);
};

const ProbeKernels& probe_kernels(Isa isa);

}  // namespace turnout::families::sparse_conv
