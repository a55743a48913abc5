// The forward direction of the lattice, compiled once per instruction set.
//
// A strip has one row for each lane of a 256-bit vector. It is processed along anti-diagonals: in step i lane
// j is at column i - j. Each step depends on the one before it; four strips are interleaved to hide that
// latency. Wave in kernels.h explains how strips pass rows on, README.md the algorithm.
//
// In float, lanes hold p minus an integer base that follows the values, so that long lattices are as precise
// as short ones. The odds of a cell are a difference of two such values and have the same precision.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/dtypes.h"
#include "indices/indices.h"
#include "mutual_information/kernels.h"
#include "runtime/context.h"
#include "runtime/yield.h"
#include "simd/fp_environment.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mutual_information/forward_kernels.cc"
#include "simd/simd.h"
//
#include "mutual_information/strip.h"
#include "simd/math.h"

TURNOUT_ISA_BEGIN(families::mutual_information)

using namespace core;

constexpr int kSlots = kStripsInWork;
constexpr std::int64_t kDone = std::numeric_limits<std::int64_t>::max();  // progress of a finished strip
constexpr std::int64_t kPrefetchSteps = 48;                               // prefetch distance

// log_add(x, y) returns the larger operand if they differ by more than -log(epsilon of the type).
constexpr float kFar(float) { return 15.9423847198486328125f; }
constexpr double kFar(double) { return 36.0436533891171560; }

template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_add(D d, V x, V y) {
#if HWY_ARCH_X86
  const auto larger = hn::Max(y, x);  // MAXPS returns x unless y > x, like the line below
#else
  const auto larger = hn::IfThenElse(hn::Lt(x, y), y, x);
#endif
  const auto minus_distance = hn::Or(hn::Sub(x, y), hn::SignBit(d));
  // False if the distance is NaN, which includes two equal infinities.
  const auto is_near = hn::Ge(minus_distance, hn::Set(d, -kFar(hn::TFromD<D>())));
  return hn::Add(larger, hn::IfThenElseZero(is_near, log1p_exp(d, minus_distance)));
}

// Stored::odds, where x is the score of the symbol step, y that of the blank step, and p their log_add. As in
// log_add, a NaN in y counts as -inf.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V odds(D d, V x, V y, V p) {
  const auto none = hn::Set(d, kNone<hn::TFromD<D>>);
#if HWY_ARCH_X86
  y = hn::Max(y, none);  // MAXPS returns the second operand if one is NaN
#else
  y = hn::IfThenElse(hn::Eq(y, y), y, none);
#endif
  return hn::Add(hn::Sub(x, y), hn::Sub(p, p));  // p - p is 0, or NaN if p is not finite
}

template <class Real, bool kModified, Stored kStored>
struct Engine {
  using S = Strip<Real>;
  using D = typename S::D;
  using V = hn::Vec<D>;

  const ForwardTask& task;
  Wave& wave;
  const LatticeTask& lattice;
  const std::int64_t cell_columns;
  static constexpr std::int64_t off = kModified ? 1 : 0;
  const std::int64_t ring_row_bytes;
  const Input<Real> px, py;
  S strips[kSlots];

  Engine(const ForwardTask& forward, Wave& shared)
      : task(forward),
        wave(shared),
        lattice(forward.lattice),
        cell_columns(forward.lattice.frames + 1),
        ring_row_bytes(row_bytes(forward.lattice)),
        px{lattice.px, lattice.dtype, px_of(shared.row_begin), px_of(shared.row_end)},
        py{lattice.py, lattice.dtype, py_of(shared.row_begin), py_of(shared.row_end)} {}

  // The first element of a row of the batch.
  std::int64_t px_of(std::int64_t row) const { return row * lattice.symbols * lattice.columns; }
  std::int64_t py_of(std::int64_t row) const { return row * (lattice.symbols + 1) * lattice.frames; }

  static std::int64_t row_bytes(const LatticeTask& task) {
    static_assert(S::kLanes >= kLeastLanes && S::kPad <= kMostLanes);
    const std::int64_t cells = forward_row_cells(task.frames, S::kPad);
    return static_cast<std::int64_t>(padded(static_cast<std::size_t>(cells) * sizeof(double)));
  }

  Real* cells_row(std::int64_t row, std::int64_t s) const {
    return static_cast<Real*>(task.cells) +
           ((row - task.first_row) * (lattice.symbols + 1) + s) * cell_columns;
  }
  // The ring slot that a strip writes; strip -1 is the first row of the lattice.
  double* ring(std::int64_t row, std::int64_t strip) const {
    const std::int64_t place = (row - wave.row_begin) * wave.ring_rows + (strip + 1) % wave.ring_rows;
    return reinterpret_cast<double*>(wave.rings + place * ring_row_bytes) + S::kPad;
  }
  std::atomic<std::int64_t>& progress(std::int64_t row, std::int64_t strip) const {
    return wave.progress[(row - wave.row_begin) * wave.strips + strip];
  }

  // Computes p of row s_begin, which only blanks reach.
  void first_row(std::int64_t row, const LatticeBox& box) const {
    const std::int64_t blanks = py_of(row) + box.s_begin * lattice.frames;
    Real* cells = cells_row(row, box.s_begin);
    double* handed = ring(row, -1);
    std::fill_n(handed - S::kPad, S::kPad, kNone<double>);
    py.visit([&](const auto* elements) {
      double sum = 0;
      for (std::int64_t t = box.t_begin;; ++t) {
        const auto p = static_cast<Real>(sum);
        cells[t] = kStored == Stored::score ? p
                   : std::isfinite(p)       ? kNone<Real>
                                            : std::numeric_limits<Real>::quiet_NaN();
        handed[t - box.t_begin] = sum;
        if (t == box.t_end) {
          if (box.s_begin == box.s_end) static_cast<Real*>(task.ans)[row] = p;
          break;
        }
        sum += to_float(elements[blanks + t]);
        if (sum != sum) sum = kNone<double>;  // as log_add(-inf, NaN)
        if (std::isinf(static_cast<Real>(sum)))
          sum = static_cast<Real>(sum);  // once Real overflows, the rest of the row stays infinite
      }
    });
    std::fill_n(handed + (box.t_end - box.t_begin + 1), kBeyond, kNone<double>);
  }

  // Takes the next strip. Computes first rows and empty lattices on the way. Returns false at the end of the
  // wave.
  bool take(S& s) {
    for (;;) {
      const std::int64_t item = wave.next_item.fetch_add(1, std::memory_order_relaxed);
      const std::int64_t batch_rows = wave.row_end - wave.row_begin;
      // The first item of a lattice is its first row, the others are strips.
      if (item >= batch_rows * (wave.strips + 1) || lattice.stop.is_asked()) return false;
      s.row = wave.row_begin + item % batch_rows;
      s.strip = item / batch_rows - 1;
      s.box = box_of(lattice, s.row);
      if (s.strip < 0) {
        if (s.box.is_empty()) {
          static_cast<Real*>(task.ans)[s.row] = 0;
          continue;
        }
        first_row(s.row, s.box);
        progress(s.row, 0).store(1, std::memory_order_release);
        continue;
      }
      s.first = s.box.s_begin + 1 + s.strip * S::kLanes;
      if (s.box.is_empty() || s.first > s.box.s_end) continue;
      break;
    }
    const D d;
    s.is_live = true;
    s.rows = std::min(S::kLanes, s.box.s_end - s.first + 1);
    s.step = 0;
    s.last_step = s.box.t_end - s.box.t_begin + s.rows;
    s.base = 0;
    s.now = s.before = hn::Set(d, kNone<Real>);
    s.px = px_of(s.row) + (s.first - 1) * lattice.columns + s.box.t_begin;
    s.py = py_of(s.row) + s.first * lattice.frames + s.box.t_begin;
    s.cells = cells_row(s.row, s.first) + s.box.t_begin;
    s.above = ring(s.row, s.strip - 1);
    s.below = s.first + s.rows <= s.box.s_end ? ring(s.row, s.strip) : nullptr;
    return true;
  }

  // Whether the next kTurnSteps steps can run: the input slot has their columns, and the output slot is free.
  // Wave in kernels.h defines the values of progress.
  bool is_ready(const S& s) const {
    // This strip reuses a ring slot. Wait until the strip that read the slot's previous contents is done.
    const std::int64_t reader = s.strip - wave.ring_rows + 1;
    if (s.step == 0 && reader >= 0 && progress(s.row, reader).load(std::memory_order_acquire) != kDone)
      return false;
    if (s.strip == 0) return progress(s.row, 0).load(std::memory_order_acquire) > 0;
    const std::int64_t columns = s.box.t_end - s.box.t_begin + 1;
    const std::int64_t needed = std::min(s.step + kTurnSteps, columns) + S::kLanes - 1;
    return progress(s.row, s.strip - 1).load(std::memory_order_acquire) > needed;
  }

  // Software prefetches, because the hardware prefetcher does not track that many rows at once.
  void prefetch(const S& s) const {
    const std::int64_t ahead = s.step + kPrefetchSteps;
    if (ahead > s.box.t_end - s.box.t_begin) return;
    const std::byte *x = px.address(s.px + ahead), *y = py.address(s.py + ahead);
    const Real* cells = s.cells + ahead;
    for (std::int64_t lane = 0; lane < s.rows; ++lane) {
      hwy::Prefetch(x);
      hwy::Prefetch(y);
      hwy::Prefetch(cells);
      x += (lattice.columns - 1) * px.bytes();
      y += (lattice.frames - 1) * py.bytes();
      cells += cell_columns - 1;
    }
  }

  // Moves the base to the largest lane. If all lanes are -inf, it moves to the row above instead: a strip of
  // a pruned lattice may be unreachable for most of its steps, and the first reachable cells are then far
  // from its old base.
  HWY_INLINE void rebase(S& s) {
    if constexpr (sizeof(Real) == 8) return;
    const D d;
    const auto rows = hn::FirstN(d, static_cast<std::size_t>(s.rows));
    Real most = hn::GetLane(hn::MaxOfLanes(d, hn::IfThenElse(rows, s.now, hn::Set(d, kNone<Real>))));
    if (HWY_UNLIKELY(most == kNone<Real>)) {
      const double* above = s.above + s.step - off;
      most = static_cast<Real>(*std::max_element(above, above + S::kLanes) - s.base);
    }
    if (!(std::abs(most) > 2 && std::abs(most) < Real(1 << 22))) return;
    const Real by = std::nearbyint(most);
    s.base += by;
    s.now = hn::Sub(s.now, hn::Set(d, by));
    s.before = hn::Sub(s.before, hn::Set(d, by));
  }

  // Stores ans if these steps computed the last cell. The loop makes the index of `p` a constant, so that p
  // stays in registers.
  HWY_INLINE void take_ans(const S& s, const V (&p)[S::kLanes]) const {
    const std::int64_t at = s.box.t_end - s.box.t_begin + s.rows - 1 - s.step;
    if (HWY_LIKELY(!in_range(at, S::kLanes))) return;
    for (std::int64_t k = 0; k < S::kLanes; ++k) {
      if (k != at) continue;
      alignas(64) Real lanes[S::kLanes];
      hn::Store(p[k], D(), lanes);
      static_cast<Real*>(task.ans)[s.row] = lanes[s.rows - 1] + static_cast<Real>(s.base);
    }
  }

  // Computes kLanes steps of `count` strips. Unused entries up to kWidth compute on zeros; their results are
  // discarded.
  template <int kWidth>
  HWY_INLINE void run_steps(S* const* active, int count) {
    const D d;
    alignas(64) V xs[kWidth][S::kLanes], ys[kWidth][S::kLanes];
    alignas(64) Real above[kWidth][S::kLanes];
    V now[kWidth], before[kWidth];
    for (int q = 0; q < count; ++q) {
      S& s = *active[q];
      rebase(s);
      now[q] = s.now;
      before[q] = s.before;
      // In step i a lane is at column i - lane. It needs px of the column that its symbol comes from, and py
      // of the column before.
      const std::int64_t columns = s.box.t_end - s.box.t_begin + 1;
      s.load_steps(px, s.px, lattice.columns, -off, columns - off, xs[q]);
      s.load_steps(py, s.py, lattice.frames, -1, columns - 1, ys[q]);
      s.load_above(off, above[q]);
    }
    for (int q = count; q < kWidth; ++q) {
      now[q] = before[q] = hn::Zero(d);
      for (std::int64_t k = 0; k < S::kLanes; ++k) {
        xs[q][k] = ys[q][k] = hn::Zero(d);
        above[q][k] = 0;
      }
    }
    const auto up_one = hn::SetTableIndices(d, kUpOne.data());
    const auto first_lane = hn::FirstN(d, 1);
    for (std::int64_t k = 0; k < S::kLanes; ++k) {
      for (int q = 0; q < kWidth; ++q) {
        const V up = hn::IfThenElse(first_lane, hn::Set(d, above[q][k]),
                                    hn::TableLookupLanes(kModified ? before[q] : now[q], up_one));
        const V x = hn::Add(up, xs[q][k]), y = hn::Add(now[q], ys[q][k]);
        const V next = log_add(d, x, y);
        if constexpr (kModified) before[q] = now[q];
        now[q] = next;
        // The inputs of this step are no longer needed; the arrays now hold its results.
        xs[q][k] = next;
        if constexpr (kStored == Stored::odds) ys[q][k] = odds(d, x, y, next);
      }
    }
    for (int q = 0; q < count; ++q) {
      S& s = *active[q];
      s.now = now[q];
      s.before = before[q];
      alignas(64) Real last_row[S::kLanes];  // p of the last row, without the base
      if constexpr (kStored == Stored::score) {
        s.store_steps(xs[q], static_cast<Real>(s.base), cell_columns, last_row);
      } else {
        s.store_steps(ys[q], Real(0), cell_columns, last_row);
        s.store_last_row(xs[q], last_row);
      }
      if (s.below != nullptr) {
        s.store_below(last_row);
      } else {
        take_ans(s, xs[q]);
      }
      s.step += S::kLanes;
    }
  }

  static constexpr auto kUpOne = [] {
    std::array<hn::TFromD<hn::RebindToSigned<D>>, S::kLanes> lanes{};
    for (std::int64_t i = 1; i < S::kLanes; ++i)
      lanes[i] = static_cast<hn::TFromD<hn::RebindToSigned<D>>>(i - 1);
    return lanes;
  }();

  void run() {
    bool more = true;
    for (;;) {
      S* active[kSlots];
      int count = 0;
      bool is_any_live = false;
      for (S& s : strips) {
        if (!s.is_live && more) more = take(s);
        if (!s.is_live) continue;
        is_any_live = true;
        if (!is_ready(s)) continue;
        active[count++] = &s;
        if (s.step == 0 && s.below != nullptr) std::fill_n(s.below - S::kPad, S::kPad, kNone<double>);
        prefetch(s);
      }
      if (!is_any_live) return;
      if (count == 0) {
        yield_core();
        continue;
      }
      for (std::int64_t done = 0; done < kTurnSteps; done += S::kLanes) {
        if (count > kSlots / 2) {
          run_steps<kSlots>(active, count);
        } else {
          run_steps<kSlots / 2>(active, count);
        }
      }
      for (int q = 0; q < count; ++q) {
        S& s = *active[q];
        const bool is_done = s.step >= s.last_step;
        if (is_done && s.below != nullptr)
          std::fill_n(s.below + (s.box.t_end - s.box.t_begin + 1), kBeyond, kNone<double>);
        const std::int64_t done = is_done ? kDone : s.step + 1;
        progress(s.row, s.strip).store(done, std::memory_order_release);
        if (is_done) s.is_live = false;
      }
    }
  }
};

void run(const ForwardTask& task, Wave& wave) {
  const FpEnvironment environment(Denormals::flushed);
  visit_lane(task.lattice.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto with = [&](auto is_modified) {
      constexpr bool kModified = decltype(is_modified)::value;
      if (task.stored == Stored::score) {
        Engine<Real, kModified, Stored::score>(task, wave).run();
      } else {
        Engine<Real, kModified, Stored::odds>(task, wave).run();
      }
    };
    if (task.lattice.is_modified()) {
      with(std::true_type());
    } else {
      with(std::false_type());
    }
  });
}

std::int64_t strips(const LatticeTask& task) {
  const std::int64_t lanes = task.dtype == DType::f64 ? Strip<double>::kLanes : Strip<float>::kLanes;
  return std::max<std::int64_t>(1, (task.symbols + lanes - 1) / lanes);
}

constexpr ForwardKernels kForwardKernels = {{&strips}, &run};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::mutual_information, ForwardKernels, forward_kernels, kForwardKernels)
#endif
