// The search for pairs, compiled once per instruction set.
#include "sparse_conv/kernels.h"

#include <algorithm>
#include <cstring>

#define HWY_WANT_AVX3_DL  // for VPOPCNTD
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse_conv/kernels.cc"
#include "simd/simd.h"

TURNOUT_ISA_BEGIN(families::sparse_conv)

using namespace core;

using I32 = hn::RebindToSigned<U32>;

// Sites are searched kChunk at a time. Hits are buffered in the L1 cache; once there are kWaiting, whole
// cache lines are written.
constexpr std::int64_t kChunk = 256;
constexpr std::int64_t kWaiting = 256;
constexpr std::int64_t kLineValues = kLine / 4;
constexpr std::int64_t kSpare =
    HWY_MAX_BYTES / 4;  // a compressed vector is stored whole and may write this many extra elements

// A buffer for one row of the pairs.
struct Outlet {
  alignas(64) std::uint32_t waiting[kWaiting + kChunk + kLineValues + kSpare];
  std::int64_t count;
  std::uint32_t* to;

  // Writes the buffered values: whole cache lines, or all of them.
  void flush(bool all, bool stream) {
    const U32 d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto offset =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / sizeof(*to) % kLineValues);
    const std::int64_t head = std::min(count, (kLineValues - offset) % kLineValues);
    const std::int64_t lines = (count - head) / kLineValues * kLineValues;
    std::copy(waiting, waiting + head, to);
    std::int64_t j = head;
    if (stream) {
      for (; j < head + lines; j += lanes) hn::Stream(hn::LoadU(d, waiting + j), d, to + j);
    } else {
      for (; j < head + lines; j += lanes) hn::StoreU(hn::LoadU(d, waiting + j), d, to + j);
    }
    const std::int64_t rest = count - j;
    if (all) {
      std::copy(waiting + j, waiting + count, to + j);
    } else {
      std::copy(waiting + j, waiting + count, waiting);
    }
    to += j;
    count = rest;
  }
};

struct Hits {  // of one tap
  Outlet row, rank;
  std::int64_t found;       // row.count before this chunk
  std::int64_t translated;  // elements of rank.waiting that are already rows; the others are ranks

  void translate(const std::int32_t* row_of) {
    if (row_of != nullptr)
      for (std::int64_t j = translated; j < rank.count; ++j)
        rank.waiting[j] = static_cast<std::uint32_t>(row_of[rank.waiting[j]]);
  }
};

// Counts the set bits below `position`.
HWY_INLINE hn::Vec<U32> count_below(hn::Vec<U32> bits, hn::Vec<U32> position) {
  const U32 d;
  const auto below = hn::Sub(hn::Shl(hn::Set(d, 1u), position), hn::Set(d, 1u));
  return hn::PopulationCount(hn::And(bits, below));
}

// Finds the hits of positions begin .. end-1, which are whole vectors. kNeighbours > 0: the taps are the bits
// 0 .. kNeighbours-1 of the window, the common case; 0: any taps.
template <int kNeighbours>
void find_hits(const ProbeTask& task, std::int64_t begin, std::int64_t end, Hits* hits) {
  const U32 d;
  const hn::Rebind<std::uint8_t, U32> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* words = reinterpret_cast<const std::uint64_t*>(task.words);
  const auto* rows = reinterpret_cast<const std::uint32_t*>(task.rows);
  const auto mask = hn::Set(d, task.mask);
  const auto iota = hn::Iota(d, 0);  // outside the loop: Iota loads from memory
  const auto keep = [&](Hits& out, hn::Vec<U32> row, hn::Vec<U32> rank, hn::Mask<U32> hit) HWY_ATTR {
    hn::StoreU(compress(row, hit), d, out.row.waiting + out.row.count);
    hn::StoreU(compress(rank, hit), d, out.rank.waiting + out.rank.count);
    const auto count = static_cast<std::int64_t>(hn::CountTrue(d, hit));
    out.row.count += count;
    out.rank.count += count;
  };
  for (std::int64_t i = begin; i < end; i += lanes) {
    const Halves word = gather_halves(words, task.homes + i);
    const auto bits = word.low;
    const auto first = hn::PromoteTo(d, hn::LoadU(d8, task.bits + i));
    const auto window = hn::Shr(bits, first);
    if (hn::AllTrue(d, hn::Eq(hn::And(window, mask), hn::Zero(d)))) continue;
    auto rank = hn::Add(word.high, count_below(bits, first));
    const auto row =
        rows != nullptr ? hn::LoadU(d, rows + i) : hn::Add(iota, hn::Set(d, static_cast<std::uint32_t>(i)));
    if constexpr (kNeighbours > 0) {
      for (int t = 0; t < kNeighbours; ++t) {
        const auto hit = hn::TestBit(window, hn::Set(d, 1u << t));
        keep(hits[t], row, rank, hit);
        // The mask is -1 for a hit, so the rank of the next tap is one more.
        rank = hn::Sub(rank, hn::VecFromMask(d, hit));
      }
    } else {
      std::uint32_t counted = 0;  // bits of the window that `rank` includes
      for (std::int32_t t = 0; t < task.tap_count; ++t) {
        const std::uint32_t bit = 1u << task.taps[t].bit;
        const std::uint32_t between = (bit - 1) & ~counted;
        rank = hn::Add(rank, hn::PopulationCount(hn::And(window, hn::Set(d, between))));
        counted |= between;
        keep(hits[t], row, rank, hn::TestBit(window, hn::Set(d, bit)));
      }
    }
  }
}

using FindHits = void (*)(const ProbeTask& task, std::int64_t begin, std::int64_t end, Hits* hits);
FindHits pick_find_hits(const ProbeTask& task) {
  for (std::int32_t t = 0; t < task.tap_count; ++t)
    if (task.taps[t].bit != t) return &find_hits<0>;
  constexpr FindHits kOf[] = {&find_hits<0>, &find_hits<1>, &find_hits<2>, &find_hits<3>};
  return task.tap_count < 4 ? kOf[task.tap_count] : &find_hits<0>;
}

// The same for the last positions, which do not fill a vector.
void find_last_hits(const ProbeTask& task, std::int64_t begin, std::int64_t end, Hits* hits) {
  for (std::int64_t i = begin; i < end; ++i) {
    const RankWord& word = task.words[task.homes[i]];
    for (std::int32_t t = 0; t < task.tap_count; ++t) {
      const std::uint32_t bit = task.bits[i] + static_cast<std::uint32_t>(task.taps[t].bit);
      if ((word.bits >> bit & 1) == 0) continue;
      Hits& out = hits[t];
      out.row.waiting[out.row.count++] = static_cast<std::uint32_t>(task.rows != nullptr ? task.rows[i] : i);
      out.rank.waiting[out.rank.count++] = word.rank(bit);
    }
  }
}

void probe(const ProbeTask& task, std::int64_t begin, std::int64_t end, std::int64_t* at) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(U32()));
  const FindHits find = pick_find_hits(task);
  Hits hits[kMaxWidth];
  for (std::int32_t t = 0; t < task.tap_count; ++t) {
    std::int32_t* in = task.pairs + std::int64_t{task.taps[t].k} * 2 * task.row_count + at[t];
    hits[t].row.to = reinterpret_cast<std::uint32_t*>(in);
    hits[t].rank.to = reinterpret_cast<std::uint32_t*>(in + task.row_count);
    hits[t].row.count = hits[t].rank.count = 0;
  }
  for (std::int64_t i = begin; i < end; i += kChunk) {
    for (std::int32_t t = 0; t < task.tap_count; ++t) {
      hits[t].found = hits[t].row.count;
      hits[t].translated = hits[t].rank.count;
    }
    const std::int64_t count = std::min(kChunk, end - i), whole = count / lanes * lanes;
    find(task, i, i + whole, hits);
    find_last_hits(task, i + whole, i + count, hits);
    const bool is_last = i + kChunk >= end;
    for (std::int32_t t = 0; t < task.tap_count; ++t) {
      at[t] += hits[t].row.count - hits[t].found;
      hits[t].translate(task.row_of);
      if (!is_last && hits[t].row.count < kWaiting) continue;
      hits[t].row.flush(is_last, task.stream);
      hits[t].rank.flush(is_last, task.stream);
    }
  }
}

void fill(std::int32_t* to, std::int64_t count, bool stream) {
  const I32 d;
  const auto value = hn::Set(d, -1);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  if (stream) {
    const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / 4 % kLineValues);
    for (; j < std::min(count, (kLineValues - misaligned) % kLineValues); ++j) to[j] = -1;
    for (; j + kLineValues <= count; j += kLineValues)
      for (std::int64_t b = 0; b < kLineValues; b += lanes) hn::Stream(value, d, to + j + b);
  }
  for (; j + lanes <= count; j += lanes) hn::StoreU(value, d, to + j);
  for (; j < count; ++j) to[j] = -1;
}

constexpr ProbeKernels kProbeKernels = {&probe, &fill};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::sparse_conv, ProbeKernels, probe_kernels, kProbeKernels)
#endif
