// The common part of the two gradient kernels (from p and from odds). Included after simd.h, once per
// instruction set.
//
// Along a row, g[t] = u[t] + c[t] g[t+1], where u depends on the row below. These affine maps are composed in
// registers from the right. A strip has kStripRows rows. It is processed in chunks of columns from the right,
// and row by row upwards within a chunk, so that the next row finds the result of a row in the L1 cache.
#if defined(TURNOUT_ROW_STRIPS_PER_ISA) == defined(HWY_TARGET_TOGGLE)
#ifdef TURNOUT_ROW_STRIPS_PER_ISA
#undef TURNOUT_ROW_STRIPS_PER_ISA
#else
#define TURNOUT_ROW_STRIPS_PER_ISA
#endif

TURNOUT_ISA_BEGIN(families::mutual_information)

inline constexpr std::int64_t kStripRows = 16;
inline constexpr std::int64_t kChunk = 256;  // columns
// Progress of a strip that is done if it or a strip before it needs plain_gradients(); see Wave in kernels.h.
inline constexpr std::int64_t kGivenUp = std::numeric_limits<std::int64_t>::max();

// T is the type of px and py. Form is the derived class, which has
//   Watch watch(batch_row): the initial state of the check; if is_fine() is false after a strip, the lattice
//     is given up
//   Edge last_cell(row, t, below, watch): computes the cell in column t_end
//   Edge columns<has_symbols>(row, count, below, right, to, watch): computes `count` columns left of `right`
//   void finish(batch_row, box, start, is_fine): called when all strips of a lattice are done
// `below` is the result of the row below, `to` that of this row. The returned Edge is that of the leftmost
// column.
template <class T, class Form>
struct RowStrips {
  using Real = std::conditional_t<sizeof(T) == 8, double, float>;
  using D = hn::ScalableTag<Real>;
  using V = hn::Vec<D>;
  static constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(Real);

  const BackwardTask& task;
  Wave& wave;
  const LatticeTask& lattice;
  const std::int64_t off;
  const std::int64_t ring_row_bytes;

  // Pointers into one row of the lattice, at the first column of a chunk.
  struct Row {
    std::int64_t batch_row;
    const Real* cells;        // this row
    const Real* cells_below;  // the cells that symbols lead to; cells_below, px and px_grad need has_symbols
    const T *px, *py;
    T *px_grad, *py_grad;
    bool has_symbols;  // there is a row below
  };
  // The result of one cell.
  struct Edge {
    Real right;   // input of the cell on its left
    Real handed;  // input of the row above
  };

  RowStrips(const BackwardTask& backward, Wave& shared)
      : task(backward),
        wave(shared),
        lattice(backward.lattice),
        off(backward.lattice.is_modified() ? 1 : 0),
        ring_row_bytes(row_bytes(backward.lattice)) {}

  static std::int64_t row_bytes(const LatticeTask& task) {
    static_assert(kStripRows >= kLeastLanes && kLanes <= kMostLanes);
    const std::int64_t cells = gradient_row_cells(task.frames, kLanes);
    return static_cast<std::int64_t>(core::padded(static_cast<std::size_t>(cells) * sizeof(Real)));
  }

  // The ring slot that the strip writes.
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
      return core::from_float<T>(v);
    }
  }

  // Computes g of kLanes cells, where `right` is g of the cell right of them, and `blank`, the part of g that
  // comes from the right. Factors are at most slightly above 1, so a product that underflows may be 0.
  struct Grads {
    V blank, g;
  };
  static HWY_INLINE Grads grads(V symbol, V factor, Real right) {
    // After the compositions, which include all maps to the right of a lane, g = b + a * right.
    auto a = factor, b = symbol;
    compose<1>(a, b);
    if constexpr (kLanes > 2) compose<2>(a, b);
    if constexpr (kLanes > 4) compose<4>(a, b);
    if constexpr (kLanes > 8) compose<8>(a, b);
    const auto carried = hn::Set(D(), right);
    const auto g = hn::MulAdd(a, carried, b);
    const auto next = hn::IfThenElse(last_lanes<1>(), carried, down<1>(g));
    return {hn::Mul(factor, next), g};
  }

  template <int kBy>
  static HWY_INLINE V down(V v) {  // lane i of the result is lane i + kBy of v
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

  // Sets the gradients outside the box to 0, for rows begin .. end-1 of the lattice.
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

  // Pointers into row s of a lattice, at column t.
  Row row_at(std::int64_t batch_row, std::int64_t s, const LatticeBox& box, std::int64_t t) const {
    const std::int64_t cell_columns = lattice.frames + 1;
    Row row{};
    row.batch_row = batch_row;
    row.cells = static_cast<const Real*>(task.cells) +
                ((batch_row - task.first_row) * (lattice.symbols + 1) + s) * cell_columns + t;
    row.py = static_cast<const T*>(lattice.py) + (batch_row * (lattice.symbols + 1) + s) * lattice.frames + t;
    row.py_grad = py_grad(batch_row, s) + t;
    row.has_symbols = s < box.s_end;
    if (row.has_symbols) {
      row.cells_below = row.cells + cell_columns + off;
      row.px = static_cast<const T*>(lattice.px) + (batch_row * lattice.symbols + s) * lattice.columns + t;
      row.px_grad = px_grad(batch_row, s) + t;
    }
    return row;
  }

  // Strip 0 has the last rows of the box.
  void run_strip(std::int64_t batch_row, std::int64_t strip, const LatticeBox& box) const {
    const Form& form = static_cast<const Form&>(*this);
    const std::int64_t last = box.s_end - strip * kStripRows,
                       first = std::max(box.s_begin, last - kStripRows + 1);
    const std::int64_t t_count = box.t_end - box.t_begin;                        // columns without the last
    Real* const handed = ring(batch_row, strip);                                 // output slot
    const Real* const below = strip > 0 ? ring(batch_row, strip - 1) : nullptr;  // input slot
    const std::int64_t chunks =
        t_count / kChunk + 1;  // the first one, at the right end, also has the last column
    // This strip reuses a ring slot. Wait until the strip that read its previous contents is done.
    if (strip >= wave.ring_rows) wait_for(batch_row, strip - wave.ring_rows + 1, chunks - 1);
    // Results of two rows of a chunk, used in turn, each with one more column at the right.
    Real buffers[2][kChunk + 1 + kLanes];
    Edge edges[kStripRows];  // for each row, the cell right of the chunk
    auto watch = form.watch(batch_row);
    bool is_fine = true;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t end = t_count - chunk * kChunk, begin = std::max<std::int64_t>(0, end - kChunk);
      const std::int64_t count = end - begin;
      if (strip > 0) is_fine = wait_for(batch_row, strip - 1, chunk) != kGivenUp;
      for (std::int64_t s = last; s >= first; --s) {
        const std::int64_t place = last - s;
        const Row row = row_at(batch_row, s, box, box.t_begin + begin);
        Real* to = s == first ? handed + begin : buffers[place % 2];
        const Real* from = place > 0 ? buffers[(place + 1) % 2] : below != nullptr ? below + begin : nullptr;
        if (chunk == 0) edges[place] = form.last_cell(row, count, from, watch);
        // In a modified lattice the row above reads one column further right. The ring slot has it already.
        if (chunk == 0 || s != first) to[count] = edges[place].handed;
        edges[place] = row.has_symbols
                           ? form.template columns<true>(row, count, from + off, edges[place], to, watch)
                           : form.template columns<false>(row, count, nullptr, edges[place], to, watch);
      }
      if (chunk < chunks - 1) publish(batch_row, strip, chunk + 1);
    }
    // The last chunk waited for the last chunk of the strip before, so all strips before this one are done.
    is_fine = is_fine && watch.is_fine();
    if (first == box.s_begin) form.finish(batch_row, box, edges[last - first], is_fine);
    publish(batch_row, strip, is_fine ? chunks : kGivenUp);
  }

  std::int64_t wait_for(std::int64_t row, std::int64_t strip, std::int64_t chunk) const {
    for (;;) {
      const std::int64_t done = progress(row, strip).load(std::memory_order_acquire);
      if (done > chunk) return done;
      core::yield_core();
    }
  }
  void publish(std::int64_t row, std::int64_t strip, std::int64_t chunks) const {
    progress(row, strip).store(chunks, std::memory_order_release);
  }

  void run() const {
    const std::int64_t rows = wave.row_end - wave.row_begin;
    for (;;) {
      const std::int64_t item = wave.next_item.fetch_add(1, std::memory_order_relaxed);
      if (item >= rows * wave.strips || lattice.stop.is_asked()) return;
      // Lattice by lattice, so that the threads work on consecutive strips of one lattice.
      const std::int64_t row = wave.row_begin + item / wave.strips, strip = item % wave.strips;
      const LatticeBox box = box_of(lattice, row);
      clear_outside(row, box, strip * kStripRows,
                    strip == wave.strips - 1 ? lattice.symbols + 1 : (strip + 1) * kStripRows);
      if (!box.is_empty() && box.s_end - strip * kStripRows >= box.s_begin) run_strip(row, strip, box);
    }
  }
};

template <template <class> class Form>
void run_rows(const BackwardTask& task, Wave& wave) {
  const core::FpEnvironment environment(core::Denormals::flushed);
  core::visit_float(task.lattice.dtype,
                    [&](auto type) { Form<typename decltype(type)::type>(task, wave).run(); });
}

constexpr std::int64_t row_strips(const LatticeTask& task) { return task.symbols / kStripRows + 1; }

TURNOUT_ISA_END
#endif  // per instruction set
