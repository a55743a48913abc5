// The lattice forward, compiled once per instruction set.
//
// A strip is as many rows as a vector has lanes. It is walked along anti-diagonals: in step i lane j is at
// column i - j, so that what is above a cell is what the lane before had one step earlier, and what is left
// of it is what the same lane had. Rows are laid out for that in tiles: copied in, transposed in registers,
// and copied out. A step waits for the one before it, so four strips take turns.
//
// In float, lanes hold p minus an integer that follows them, so that a long lattice is as precise as a short
// one.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "core/context.h"
#include "core/dtypes.h"
#include "core/fp_environment.h"
#include "core/half.h"
#include "mutual_information/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mutual_information/forward_kernels.cc"
#include "core/simd.h"
//
#include "core/simd_math.h"

TURNOUT_ISA_BEGIN

constexpr int kSlots = 4;
constexpr std::int64_t kRebaseSteps = 16;

template <class Real>
constexpr Real kNone = -std::numeric_limits<Real>::infinity();

// log_add(x, y) is x where y is 15.94 (36.04) below it: log of the type's epsilon.
constexpr float kFar(float) { return 15.9423847198486328125f; }
constexpr double kFar(double) { return 36.0436533891171560; }

template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_add(D d, V x, V y) {
  const auto larger = hn::IfThenElse(hn::Lt(x, y), y, x);
  const auto distance = hn::Abs(hn::Sub(x, y));
  // Not so for NaN, which is also what two equal infinities give.
  const auto is_near = hn::Le(distance, hn::Set(d, kFar(hn::TFromD<D>())));
  return hn::Add(larger, hn::IfThenElseZero(is_near, log1p_exp_minus(distance)));
}

// One strip in work. T is the type of px and py.
template <class T>
struct Strip {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  using D = hn::ScalableTag<Real>;
  static constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(Real);
  static constexpr std::int64_t kSteps = 16 / sizeof(Real);  // that are transposed at a time: a 128-bit block
  static constexpr std::int64_t kBlocks = kLanes / kSteps;   // of a vector
  static constexpr std::int64_t kTile =
      2048 / HWY_MAX_BYTES;                     // steps: 2 KB, so that all stay in the first cache
  static constexpr std::int64_t kPad = kLanes;  // cells before the first of a row that is handed on

  // Row kSteps m + r of the strip, steps c .. c + kSteps - 1, lies at [r][c / kSteps][m]: a vector has one r
  // and c.
  using Tile = Real[kSteps][kTile / kSteps][kBlocks][kSteps];
  alignas(64) Tile px, py, p;

  bool is_live = false;
  std::int64_t row, strip;  // which: row of the batch
  LatticeBox box;
  std::int64_t first, rows;      // rows of the lattice: first .. first + rows - 1
  std::int64_t step, last_step;  // the next, and one past the last
  double base;                   // p - base is in the lanes
  const double* above;           // p of the row above the strip, from column t_begin on
  double* below;                 // p of the last row, for the next strip; nullptr: there is none
  hn::Vec<D> now, before;        // the last two steps
};

template <class T>
struct Engine {
  using S = Strip<T>;
  using Real = typename S::Real;
  using D = typename S::D;
  using V = hn::Vec<D>;

  const ForwardTask& task;
  Wave& wave;
  const LatticeTask& lattice;
  const std::int64_t p_columns;
  const std::int64_t off;
  const std::int64_t ring_row_bytes;
  S strips[kSlots];

  Engine(const ForwardTask& forward, Wave& shared)
      : task(forward),
        wave(shared),
        lattice(forward.lattice),
        p_columns(forward.lattice.frames + 1),
        off(forward.lattice.is_modified() ? 1 : 0),
        ring_row_bytes(row_bytes(forward.lattice)) {}

  static std::int64_t row_bytes(const LatticeTask& task) {
    const std::int64_t cells = task.frames + 1 + S::kPad + 2 * S::kLanes;
    return static_cast<std::int64_t>(padded(static_cast<std::size_t>(cells) * sizeof(double)));
  }
  static std::int64_t strip_count(std::int64_t symbols) { return (symbols + S::kLanes - 1) / S::kLanes; }

  Real* p_row(std::int64_t row, std::int64_t s) const {
    return static_cast<Real*>(task.p) + ((row - task.first_row) * (lattice.symbols + 1) + s) * p_columns;
  }
  // Handed on by a strip; the row above the first strip is that of strip -1.
  double* ring(std::int64_t row, std::int64_t strip) const {
    const std::int64_t place = (row - wave.row_begin) * wave.ring_rows + (strip + 1) % wave.ring_rows;
    return reinterpret_cast<double*>(wave.rings + place * ring_row_bytes) + S::kPad;
  }
  std::atomic<std::int32_t>& progress(std::int64_t row, std::int64_t strip) const {
    return wave.progress[(row - wave.row_begin) * wave.strips + strip];
  }

  // p of row s_begin: blanks alone.
  void first_row(std::int64_t row, const LatticeBox& box) const {
    const T* py =
        static_cast<const T*>(lattice.py) + (row * (lattice.symbols + 1) + box.s_begin) * lattice.frames;
    Real* p = p_row(row, box.s_begin);
    double* handed = ring(row, -1);
    std::fill_n(handed - S::kPad, S::kPad, kNone<double>);
    double sum = 0;
    for (std::int64_t t = box.t_begin;; ++t) {
      p[t] = static_cast<Real>(sum);
      handed[t - box.t_begin] = sum;
      if (t == box.t_end) break;
      sum += to_float(py[t]);
      if (sum != sum) sum = kNone<double>;  // log_add(-inf, NaN)
    }
    std::fill_n(handed + (box.t_end - box.t_begin + 1), 2 * S::kLanes, kNone<double>);
  }

  // The next strip for a free slot. Whole rows of the batch with nothing to do are done here.
  bool take(S& s) {
    for (;;) {
      const std::int64_t item = wave.next_item.fetch_add(1, std::memory_order_relaxed);
      const std::int64_t batch_rows = wave.row_end - wave.row_begin;
      // Item 0 of a lattice is its first row, the others are strips.
      if (item >= batch_rows * (wave.strips + 1)) return false;
      s.row = wave.row_begin + item % batch_rows;
      s.strip = item / batch_rows - 1;
      s.box = box_of(lattice, s.row);
      if (s.strip < 0) {
        if (s.box.is_empty()) {
          static_cast<Real*>(task.ans)[s.row] = 0;
          continue;
        }
        first_row(s.row, s.box);
        if (s.box.s_begin == s.box.s_end)
          static_cast<Real*>(task.ans)[s.row] = p_row(s.row, s.box.s_end)[s.box.t_end];
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
    s.above = ring(s.row, s.strip - 1);
    s.below = s.first + s.rows <= s.box.s_end ? ring(s.row, s.strip) : nullptr;
    if (s.below != nullptr) std::fill_n(s.below - S::kPad, S::kPad, kNone<double>);
    return true;
  }

  // Whether the row above has what the next steps need. Progress of a strip: 1 when the first row is there,
  // then one more than the steps done.
  bool is_ready(const S& s) const {
    if (s.strip == 0) return progress(s.row, 0).load(std::memory_order_acquire) > 0;
    const std::int64_t columns = s.box.t_end - s.box.t_begin + 1;
    const std::int64_t needed = std::min(s.step + S::kSteps, columns) + S::kLanes - 1;
    return progress(s.row, s.strip - 1).load(std::memory_order_acquire) > needed;
  }

  // to[..] = row of px or py for lane `lane`, steps step .. : from[step - lane + shift], none outside the
  // row.
  void copy_in(typename S::Tile& tile, std::int64_t lane, const T* from, std::int64_t shift,
               std::int64_t size) {
    Real* to = &tile[lane % S::kSteps][0][lane / S::kSteps][0];
    constexpr std::int64_t kStride = S::kBlocks * S::kSteps;
    for (std::int64_t c = 0; c < S::kTile; c += S::kSteps, to += kStride) {
      const std::int64_t t = shift + c;
      if (t >= 0 && t + S::kSteps <= size) {
        if constexpr (std::is_same_v<T, Real>) {
          std::memcpy(to, from + t, S::kSteps * sizeof(Real));
        } else {
          for (std::int64_t k = 0; k < S::kSteps; ++k) to[k] = to_float(from[t + k]);
        }
      } else {
        for (std::int64_t k = 0; k < S::kSteps; ++k)
          to[k] = t + k >= 0 && t + k < size ? static_cast<Real>(to_float(from[t + k])) : kNone<Real>;
      }
    }
    // What the next tile copies is fetched meanwhile: so many rows are beyond what the hardware follows.
    constexpr std::int64_t kLine = 64 / sizeof(T);
    if (shift + 2 * S::kTile <= size && shift >= 0)
      for (std::int64_t c = 0; c < S::kTile; c += kLine) hwy::Prefetch(from + shift + S::kTile + c);
  }

  void load_tile(S& s) {
    const std::int64_t columns = s.box.t_end - s.box.t_begin + 1;
    for (std::int64_t lane = 0; lane < S::kLanes; ++lane) {
      const std::int64_t row =
          s.first + std::min(lane, s.rows - 1);  // lanes beyond the strip copy its last row
      const T* px = static_cast<const T*>(lattice.px) +
                    (s.row * lattice.symbols + row - 1) * lattice.columns + s.box.t_begin;
      const T* py = static_cast<const T*>(lattice.py) +
                    (s.row * (lattice.symbols + 1) + row) * lattice.frames + s.box.t_begin;
      // Step i is column i - lane: px is that of the column it comes from, py of the one before.
      copy_in(s.px, lane, px, s.step - lane - off, columns - off);
      copy_in(s.py, lane, py, s.step - lane - 1, columns - 1);
    }
  }

  void store_tile(S& s, std::int64_t first_step) {
    const std::int64_t columns = s.box.t_end - s.box.t_begin + 1;
    constexpr std::int64_t kStride = S::kBlocks * S::kSteps;
    for (std::int64_t lane = 0; lane < s.rows; ++lane) {
      Real* to = p_row(s.row, s.first + lane) + s.box.t_begin;
      const Real* from = &s.p[lane % S::kSteps][0][lane / S::kSteps][0];
      for (std::int64_t c = first_step; c < s.step; c += S::kSteps, from += kStride) {
        const std::int64_t t = c - lane;
        if (t >= 0 && t + S::kSteps <= columns) {
          std::memcpy(to + t, from, S::kSteps * sizeof(Real));
        } else {
          for (std::int64_t k = std::max<std::int64_t>(0, -t); k < std::min(S::kSteps, columns - t); ++k)
            to[t + k] = from[k];
        }
      }
    }
  }

  // Between rows and steps: transposes each 128-bit block.
  HWY_INLINE void transpose(V (&v)[S::kSteps]) const {
    const D d;
    if constexpr (S::kSteps == 2) {
      const V a = hn::InterleaveLower(d, v[0], v[1]), b = hn::InterleaveUpper(d, v[0], v[1]);
      v[0] = a;
      v[1] = b;
    } else {
      const hn::RepartitionToWide<D> dw;
      const auto a = hn::BitCast(dw, hn::InterleaveLower(d, v[0], v[1]));
      const auto b = hn::BitCast(dw, hn::InterleaveUpper(d, v[0], v[1]));
      const auto e = hn::BitCast(dw, hn::InterleaveLower(d, v[2], v[3]));
      const auto f = hn::BitCast(dw, hn::InterleaveUpper(d, v[2], v[3]));
      v[0] = hn::BitCast(d, hn::InterleaveLower(dw, a, e));
      v[1] = hn::BitCast(d, hn::InterleaveUpper(dw, a, e));
      v[2] = hn::BitCast(d, hn::InterleaveLower(dw, b, f));
      v[3] = hn::BitCast(d, hn::InterleaveUpper(dw, b, f));
    }
  }
  HWY_INLINE void load_steps(const typename S::Tile& tile, std::int64_t c, V (&v)[S::kSteps]) const {
    for (std::int64_t r = 0; r < S::kSteps; ++r) v[r] = hn::Load(D(), &tile[r][c / S::kSteps][0][0]);
    transpose(v);
  }

  void rebase(S& s) {
    if constexpr (sizeof(Real) == 8) return;
    const D d;
    const Real most = hn::GetLane(hn::MaxOfLanes(d, s.now));
    if (!(std::abs(most) > 8 && std::abs(most) < Real(1 << 22))) return;
    const Real by = std::nearbyint(most);
    s.base += by;
    s.now = hn::Sub(s.now, hn::Set(d, by));
    s.before = hn::Sub(s.before, hn::Set(d, by));
  }

  void finish(S& s) {
    if (s.first + s.rows > s.box.s_end)
      static_cast<Real*>(task.ans)[s.row] = p_row(s.row, s.box.s_end)[s.box.t_end];
    s.is_live = false;
  }

  // kSteps steps of all slots. Those without work run along on what they have.
  void run_steps(unsigned active) {
    const D d;
    alignas(64) V xs[kSlots][S::kSteps], ys[kSlots][S::kSteps];
    alignas(64) Real above[kSlots][S::kSteps];
    V now[kSlots], before[kSlots];
    for (int q = 0; q < kSlots; ++q) {
      S& s = strips[q];
      now[q] = s.now;
      before[q] = s.before;
      const std::int64_t c = s.step % S::kTile;
      load_steps(s.px, c, xs[q]);
      load_steps(s.py, c, ys[q]);
      for (std::int64_t k = 0; k < S::kSteps; ++k)
        above[q][k] =
            (active >> q & 1) != 0 ? static_cast<Real>(s.above[s.step + k - off] - s.base) : Real(0);
    }
    const auto up_one = hn::SetTableIndices(d, kUpOne.data());
    const auto first_lane = hn::FirstN(d, 1);
    for (std::int64_t k = 0; k < S::kSteps; ++k) {
      for (int q = 0; q < kSlots; ++q) {
        const V up = hn::IfThenElse(first_lane, hn::Set(d, above[q][k]),
                                    hn::TableLookupLanes(off == 0 ? now[q] : before[q], up_one));
        const V next = log_add(d, hn::Add(up, xs[q][k]), hn::Add(now[q], ys[q][k]));
        before[q] = now[q];
        now[q] = next;
        xs[q][k] = next;
      }
    }
    for (int q = 0; q < kSlots; ++q) {
      S& s = strips[q];
      if ((active >> q & 1) == 0) continue;
      s.now = now[q];
      s.before = before[q];
      transpose(xs[q]);
      const V base = hn::Set(d, static_cast<Real>(s.base));
      const std::int64_t c = s.step % S::kTile / S::kSteps;
      for (std::int64_t r = 0; r < S::kSteps; ++r) hn::Store(hn::Add(xs[q][r], base), d, &s.p[r][c][0][0]);
      if (s.below != nullptr) {
        alignas(64) Real last[S::kLanes];
        hn::Store(xs[q][S::kSteps - 1], d, last);
        for (std::int64_t k = 0; k < S::kSteps; ++k)
          s.below[s.step + k - (S::kLanes - 1)] =
              s.base + static_cast<double>(last[S::kLanes - S::kSteps + k]);
      }
      s.step += S::kSteps;
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
    const D d;
    for (S& s : strips) {
      s.now = s.before = hn::Set(d, kNone<Real>);
      s.step = 0;
      std::memset(s.px, 0, sizeof(s.px));
      std::memset(s.py, 0, sizeof(s.py));
    }
    for (;;) {
      unsigned active = 0, live = 0;
      for (int q = 0; q < kSlots; ++q) {
        S& s = strips[q];
        if (!s.is_live && more) more = take(s);
        if (!s.is_live) continue;
        live |= 1u << q;
        if (!is_ready(s)) continue;
        active |= 1u << q;
        if (s.step % S::kTile == 0) load_tile(s);
        if (s.step % kRebaseSteps == 0) rebase(s);
      }
      if (live == 0) return;
      if (active == 0) {
        std::this_thread::yield();
        continue;
      }
      run_steps(active);
      for (int q = 0; q < kSlots; ++q) {
        S& s = strips[q];
        if ((active >> q & 1) == 0) continue;
        const bool is_done = s.step >= s.last_step;
        if (is_done || s.step % S::kTile == 0) store_tile(s, (s.step - 1) / S::kTile * S::kTile);
        if (is_done && s.below != nullptr)
          std::fill_n(s.below + (s.box.t_end - s.box.t_begin + 1), 2 * S::kLanes, kNone<double>);
        const std::int64_t done = is_done ? std::numeric_limits<std::int32_t>::max() : s.step + 1;
        progress(s.row, s.strip).store(static_cast<std::int32_t>(done), std::memory_order_release);
        if (is_done) finish(s);
      }
    }
  }
};

void run(const ForwardTask& task, Wave& wave) {
  const FpEnvironment environment(Denormals::flushed);
  visit_float(task.lattice.dtype, [&](auto type) {
    Engine<typename decltype(type)::type> engine(task, wave);
    engine.run();
  });
}

std::int64_t strips(const LatticeTask& task) {
  const std::int64_t lanes = HWY_MAX_BYTES / (task.dtype == DType::f64 ? 8 : 4);
  return std::max<std::int64_t>(1, (task.symbols + lanes - 1) / lanes);
}

std::int64_t ring_row_bytes(const LatticeTask& task) {
  return task.dtype == DType::f64 ? Engine<double>::row_bytes(task) : Engine<float>::row_bytes(task);
}

constexpr ForwardKernels kForwardKernels = {{&strips, &ring_row_bytes, kSlots}, &run};

TURNOUT_ISA_END

#if HWY_ONCE
namespace turnout::core {

const ForwardKernels& forward_kernels(Isa isa) {
  static constexpr KernelTable<ForwardKernels> kTable = TURNOUT_KERNEL_TABLE(kForwardKernels);
  return *kTable[static_cast<std::size_t>(isa)];
}

}  // namespace turnout::core
#endif
