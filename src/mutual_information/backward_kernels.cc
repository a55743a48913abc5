// The gradients of the lattice, compiled once per instruction set.
//
// Along a row, g[t] = u[t] + c[t] g[t+1] with u from the row below: a chain of affine maps, composed in
// registers from the right. A strip is a few rows, taken in chunks of columns from the right, row by row
// upwards, so that what a row hands to the next is still in the first cache.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <thread>
#include <type_traits>

#include "core/dtypes.h"
#include "mutual_information/kernels.h"
#include "runtime/context.h"
#include "simd/fp_environment.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mutual_information/backward_kernels.cc"
#include "simd/simd.h"
//
#include "simd/math.h"

TURNOUT_ISA_BEGIN(families::mutual_information)

constexpr std::int64_t kStripRows = 16;
constexpr std::int64_t kChunk = 256;  // columns

template <class Real>
constexpr Real kLeast = Real(-1e30);  // what unreachable cells count as

template <class T>
struct Engine {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  using D = hn::ScalableTag<Real>;
  using V = hn::Vec<D>;
  static constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(Real);

  const BackwardTask& task;
  Wave& wave;
  const LatticeTask& lattice;
  const std::int64_t off;
  const std::int64_t ring_row_bytes;

  // One row of the lattice, from some column on.
  struct Row {
    const Real* p;        // this row
    const Real* p_below;  // where a symbol leads to; with px and px_grad only where there is a row below
    const T *px, *py;
    T *px_grad, *py_grad;
    bool has_symbols;  // there is a row below
  };
  // N cells in registers, or in memory padded to that.
  struct Cells {
    V p, p_right, p_below, px, py, g_below;
  };

  Engine(const BackwardTask& backward, Wave& shared)
      : task(backward),
        wave(shared),
        lattice(backward.lattice),
        off(backward.lattice.is_modified() ? 1 : 0),
        ring_row_bytes(row_bytes(backward.lattice)) {}

  static std::int64_t row_bytes(const LatticeTask& task) {
    return static_cast<std::int64_t>(
        padded(static_cast<std::size_t>(task.frames + 2 + kLanes) * sizeof(Real)));
  }

  // g of the upper row of a strip, handed on; the row below the last is that of strip -1, and never read.
  Real* ring(std::int64_t row, std::int64_t strip) const {
    const std::int64_t place = (row - wave.row_begin) * wave.ring_rows + strip % wave.ring_rows;
    return reinterpret_cast<Real*>(wave.rings + place * ring_row_bytes);
  }
  std::atomic<std::int64_t>& progress(std::int64_t row, std::int64_t strip) const {
    return wave.progress[(row - wave.row_begin) * wave.strips + strip];
  }

  static HWY_INLINE V load(const T* from) {
    if constexpr (std::is_same_v<T, Real>) {
      return hn::LoadU(D(), from);
    } else {
      return widen(from);
    }
  }
  static HWY_INLINE void store(V v, T* to) {
    if constexpr (std::is_same_v<T, Real>) {
      hn::StoreU(v, D(), to);
    } else {
      hn::StoreU(narrow(T{}, v), U16(), &to->bits);
    }
  }
  static T rounded(Real v) {
    if constexpr (std::is_same_v<T, double>) {
      return v;
    } else {
      return from_float<T>(v);
    }
  }

  // safe_exp(from + step - to) of cells that are clamped: where both are, in the order that gives exactly 0.
  static HWY_INLINE V term(V from, V step, V to, bool any_least) {
    auto argument = hn::Add(hn::Sub(from, to), step);
    if (HWY_UNLIKELY(any_least)) {
      const auto least = hn::Set(D(), kLeast<Real>);
      const auto both = hn::And(hn::Eq(from, least), hn::Eq(to, least));
      argument = hn::IfThenElse(both, hn::Sub(hn::Add(from, step), to), argument);
    }
    return bounded_exp(D(), argument);
  }
  static HWY_INLINE bool has_least(V p) { return !hn::AllFalse(D(), hn::Eq(p, hn::Set(D(), kLeast<Real>))); }
  static HWY_INLINE V clamped(V p) {
    const auto least = hn::Set(D(), kLeast<Real>);
#if HWY_ARCH_X86
    return hn::Max(least, p);  // NaN stays: the instruction gives its second operand
#else
    return hn::IfThenElse(hn::Lt(p, least), least, p);
#endif
  }
  static Real term(Real from, Real step, Real to) {
    return hn::GetLane(term(hn::Set(D(), from), hn::Set(D(), step), hn::Set(D(), to), true));
  }
  static Real clamped(Real p) { return p < kLeast<Real> ? kLeast<Real> : p; }

  // What kLanes cells get from below, and the factor of what they get from the right.
  struct Terms {
    V symbol, factor;
  };
  template <bool kHasSymbols>
  static HWY_INLINE Terms terms(const Cells& cell) {
    const auto p = clamped(cell.p);
    const bool any_least = has_least(p);
    return {kHasSymbols ? hn::Mul(cell.g_below, term(p, cell.px, clamped(cell.p_below), any_least))
                        : hn::Zero(D()),
            term(p, cell.py, clamped(cell.p_right), any_least)};
  }

  // g of kLanes cells whose right neighbour has g = right, and what they get from the right.
  struct Grads {
    V blank, g;
  };
  static HWY_INLINE Grads grads(const Terms& of, Real right) {
    const D d;
    // g = b + a * right, for each lane the composition of its map and all to the right of it.
    auto a = of.factor, b = of.symbol;
    compose<1>(a, b);
    if constexpr (kLanes > 2) compose<2>(a, b);
    if constexpr (kLanes > 4) compose<4>(a, b);
    if constexpr (kLanes > 8) compose<8>(a, b);
    const auto carried = hn::Set(d, right);
    auto g = hn::MulAdd(a, carried, b);
    // Products beyond the type's range say nothing about the sum, which may well be within it.
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Lt(a, hn::Set(d, std::numeric_limits<Real>::max()))))) {
      alignas(64) Real us[kLanes], cs[kLanes], gs[kLanes];
      hn::Store(of.symbol, d, us);
      hn::Store(of.factor, d, cs);
      for (std::int64_t i = kLanes; i-- > 0;) right = gs[i] = us[i] + cs[i] * right;
      g = hn::Load(d, gs);
    }
    const auto next = hn::IfThenElse(last_lanes<1>(), carried, down<1>(g));
    return {hn::Mul(of.factor, next), g};
  }

  template <int kBy>
  static HWY_INLINE V down(V v) {  // lane i has lane i + kBy
    static constexpr auto kLanesDown = [] {
      std::array<hn::TFromD<hn::RebindToSigned<D>>, kLanes> lanes{};
      for (std::int64_t i = 0; i < kLanes; ++i)
        lanes[i] = static_cast<hn::TFromD<hn::RebindToSigned<D>>>(std::min(i + kBy, kLanes - 1));
      return lanes;
    }();
    return hn::TableLookupLanes(v, hn::SetTableIndices(D(), kLanesDown.data()));
  }
  template <int kBy>
  static HWY_INLINE hn::Mask<D> last_lanes() {
    return hn::Not(hn::FirstN(D(), static_cast<std::size_t>(kLanes - kBy)));
  }
  template <int kBy>
  static HWY_INLINE void compose(V& a, V& b) {
    const D d;
    const auto beyond = last_lanes<kBy>();
    b = hn::MulAdd(a, hn::IfThenZeroElse(beyond, down<kBy>(b)), b);
    a = hn::Mul(a, hn::IfThenElse(beyond, hn::Set(d, Real(1)), down<kBy>(a)));
  }

  // `count` columns of a row, all left of t_end, at most kChunk; g_below[t] is that of the cell a symbol
  // leads to. Writes the gradients and g, returns g[0]. Exponentials first, for all columns: they wait for
  // nothing.
  template <bool kHasSymbols>
  Real columns(const Row& row, std::int64_t count, const Real* g_below, Real right, Real* g) const {
    const D d;
    alignas(64) Real symbols[kChunk + kLanes], factors[kChunk + kLanes];
    const std::int64_t first = count % kLanes;
    for (std::int64_t t = first; t < count; t += kLanes) {
      Cells cell;
      cell.p = hn::LoadU(d, row.p + t);
      cell.p_right = hn::LoadU(d, row.p + t + 1);
      cell.py = load(row.py + t);
      if constexpr (kHasSymbols) {
        cell.p_below = hn::LoadU(d, row.p_below + t);
        cell.px = load(row.px + t);
        cell.g_below = hn::LoadU(d, g_below + t);
      }
      const Terms of = terms<kHasSymbols>(cell);
      if constexpr (kHasSymbols) store(of.symbol, row.px_grad + t);
      hn::Store(of.symbol, d, symbols + (t - first));
      hn::Store(of.factor, d, factors + (t - first));
    }
    for (std::int64_t t = count - kLanes; t >= first; t -= kLanes) {
      const Terms of{hn::Load(d, symbols + (t - first)), hn::Load(d, factors + (t - first))};
      const Grads to = grads(of, right);
      store(to.blank, row.py_grad + t);
      hn::StoreU(to.g, d, g + t);
      right = hn::GetLane(to.g);
    }
    return first > 0 ? few_columns<kHasSymbols>(row, first, g_below, right, g) : right;
  }

  // Fewer than kLanes columns: in the upper lanes of vectors.
  template <bool kHasSymbols>
  Real few_columns(const Row& row, std::int64_t count, const Real* g_below, Real right, Real* g) const {
    const D d;
    const std::int64_t skip = kLanes - count;
    alignas(64) Real in[6][kLanes] = {};
    const auto copy = [&](Real* to, const auto* from) {
      for (std::int64_t i = 0; i < count; ++i) to[skip + i] = to_float(from[i]);
    };
    copy(in[0], row.p);
    copy(in[1], row.p + 1);
    copy(in[2], row.py);
    if constexpr (kHasSymbols) {
      copy(in[3], row.p_below);
      copy(in[4], row.px);
      copy(in[5], g_below);
    }
    const Cells cell{hn::Load(d, in[0]), hn::Load(d, in[1]), hn::Load(d, in[3]),
                     hn::Load(d, in[4]), hn::Load(d, in[2]), hn::Load(d, in[5])};
    const Terms of = terms<kHasSymbols>(cell);
    const Grads to = grads(of, right);
    alignas(64) Real out[3][kLanes];
    hn::Store(of.symbol, d, out[0]);
    hn::Store(to.blank, d, out[1]);
    hn::Store(to.g, d, out[2]);
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (kHasSymbols) row.px_grad[i] = rounded(out[0][skip + i]);
      row.py_grad[i] = rounded(out[1][skip + i]);
      g[i] = out[2][skip + i];
    }
    return out[2][skip];
  }

  static void clear(T* begin, T* end) {
    if (begin < end)
      std::memset(static_cast<void*>(begin), 0, static_cast<std::size_t>(end - begin) * sizeof(T));
  }

  T* px_grad(std::int64_t row, std::int64_t s) const {
    return static_cast<T*>(task.px_grad) + (row * lattice.symbols + s) * lattice.columns;
  }
  T* py_grad(std::int64_t row, std::int64_t s) const {
    return static_cast<T*>(task.py_grad) + (row * (lattice.symbols + 1) + s) * lattice.frames;
  }

  // Gradients of rows begin .. end-1 of a lattice that lie outside its box.
  void clear_outside(std::int64_t batch_row, const LatticeBox& box, std::int64_t begin,
                     std::int64_t end) const {
    for (std::int64_t s = begin; s < end; ++s) {
      const bool inside = !box.is_empty() && s >= box.s_begin && s <= box.s_end;
      if (s < lattice.symbols) {
        T* row = px_grad(batch_row, s);
        const bool has_symbols = inside && s < box.s_end;
        clear(row, row + (has_symbols ? box.t_begin : lattice.columns));
        if (has_symbols) clear(row + std::max(box.t_begin, box.t_end + 1 - off), row + lattice.columns);
      }
      T* row = py_grad(batch_row, s);
      clear(row, row + (inside ? box.t_begin : lattice.frames));
      if (inside) clear(row + box.t_end, row + lattice.frames);
    }
  }

  // Row s of a lattice, from column t on.
  Row row_at(std::int64_t batch_row, std::int64_t s, const LatticeBox& box, std::int64_t t) const {
    const std::int64_t p_columns = lattice.frames + 1;
    Row row{};
    row.p = static_cast<const Real*>(task.p) +
            ((batch_row - task.first_row) * (lattice.symbols + 1) + s) * p_columns + t;
    row.py = static_cast<const T*>(lattice.py) + (batch_row * (lattice.symbols + 1) + s) * lattice.frames + t;
    row.py_grad = py_grad(batch_row, s) + t;
    row.has_symbols = s < box.s_end;
    if (row.has_symbols) {
      row.p_below = row.p + p_columns + off;
      row.px = static_cast<const T*>(lattice.px) + (batch_row * lattice.symbols + s) * lattice.columns + t;
      row.px_grad = px_grad(batch_row, s) + t;
    }
    return row;
  }

  // Strip 0 has the last rows of the box.
  void run_strip(std::int64_t batch_row, std::int64_t strip, const LatticeBox& box) const {
    const std::int64_t last = box.s_end - strip * kStripRows,
                       first = std::max(box.s_begin, last - kStripRows + 1);
    const std::int64_t t_count = box.t_end - box.t_begin;                        // columns but the last
    Real* const handed = ring(batch_row, strip);                                 // by this strip
    const Real* const below = strip > 0 ? ring(batch_row, strip - 1) : nullptr;  // by the one before
    const std::int64_t chunks = t_count / kChunk + 1;  // the first from the right has the last column too
    // The place of the row that this strip hands on was another's: whoever read that one is done.
    if (strip >= wave.ring_rows) wait_for(batch_row, strip - wave.ring_rows + 1, chunks - 1);
    // g of two rows of a chunk and of the column right of it.
    Real buffers[2][kChunk + 1 + kLanes];
    Real rights[kStripRows];  // g of each row right of the chunk
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t end = t_count - chunk * kChunk, begin = std::max<std::int64_t>(0, end - kChunk);
      const std::int64_t count = end - begin;
      if (strip > 0) wait_for(batch_row, strip - 1, chunk);
      for (std::int64_t s = last; s >= first; --s) {
        const std::int64_t place = last - s;
        const Row row = row_at(batch_row, s, box, box.t_begin + begin);
        Real* g = s == first ? handed + begin : buffers[place % 2];
        const Real* g_below = place > 0          ? buffers[(place + 1) % 2]
                              : below != nullptr ? below + begin
                                                 : nullptr;
        if (chunk == 0) {
          Real last_g = 0;
          if (!row.has_symbols) {
            last_g = ans_grad(batch_row);
          } else if (off == 0) {
            last_g = g_below[count] *
                     term(clamped(row.p[count]), to_float(row.px[count]), clamped(row.p_below[count]));
            row.px_grad[count] = rounded(last_g);
          }
          g[count] = last_g;
          rights[place] = last_g;
        } else if (s != first) {
          g[count] = rights[place];  // modified rows above look one column to the right
        }
        rights[place] = row.has_symbols ? columns<true>(row, count, g_below + off, rights[place], g)
                                        : columns<false>(row, count, nullptr, rights[place], g);
      }
      publish(batch_row, strip, chunk + 1);
    }
    if (first == box.s_begin && task.overwrite_ans_grad)
      static_cast<Real*>(task.ans_grad)[batch_row] = rights[last - first];
  }

  Real ans_grad(std::int64_t batch_row) const {
    return task.ans_grad == nullptr ? Real(1) : static_cast<const Real*>(task.ans_grad)[batch_row];
  }
  void wait_for(std::int64_t row, std::int64_t strip, std::int64_t chunk) const {
    while (progress(row, strip).load(std::memory_order_acquire) <= chunk) std::this_thread::yield();
  }
  void publish(std::int64_t row, std::int64_t strip, std::int64_t chunks) const {
    progress(row, strip).store(chunks, std::memory_order_release);
  }

  void run() const {
    const std::int64_t rows = wave.row_end - wave.row_begin;
    for (;;) {
      const std::int64_t item = wave.next_item.fetch_add(1, std::memory_order_relaxed);
      if (item >= rows * wave.strips) return;
      // Lattice by lattice: threads that work together follow each other up the same one.
      const std::int64_t row = wave.row_begin + item / wave.strips, strip = item % wave.strips;
      const LatticeBox box = box_of(lattice, row);
      clear_outside(row, box, strip * kStripRows,
                    strip == wave.strips - 1 ? lattice.symbols + 1 : (strip + 1) * kStripRows);
      if (!box.is_empty() && box.s_end - strip * kStripRows >= box.s_begin) run_strip(row, strip, box);
    }
  }
};

void run(const BackwardTask& task, Wave& wave) {
  const FpEnvironment environment(Denormals::flushed);
  visit_float(task.lattice.dtype,
              [&](auto type) { Engine<typename decltype(type)::type>(task, wave).run(); });
}

std::int64_t strips(const LatticeTask& task) { return task.symbols / kStripRows + 1; }

constexpr BackwardKernels kBackwardKernels = {{&strips}, &run};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::mutual_information, BackwardKernels, backward_kernels, kBackwardKernels)
#endif
