// One strip of the forward direction: loads and stores that convert between rows in memory and anti-diagonal
// steps in registers. Included after simd.h, once per instruction set.
#if defined(TURNOUT_STRIP_PER_ISA) == defined(HWY_TARGET_TOGGLE)
#ifdef TURNOUT_STRIP_PER_ISA
#undef TURNOUT_STRIP_PER_ISA
#else
#define TURNOUT_STRIP_PER_ISA
#endif

TURNOUT_ISA_BEGIN(families::mutual_information)

template <class Real>
constexpr Real kNone = -std::numeric_limits<Real>::infinity();

// px or py. 16-bit elements are converted to Real when they are loaded; a type parameter for them would
// double the size of the kernels.
template <class Real>
struct Input {
  const void* data;
  DType dtype;
  std::int64_t begin, end;  // the elements of the rows of this wave

  bool is_real() const { return sizeof(Real) == 8 || dtype == DType::f32; }
  const Real* reals() const { return static_cast<const Real*>(data); }
  std::int64_t bytes() const { return is_real() ? sizeof(Real) : sizeof(f16); }  // of one element
  const std::byte* address(std::int64_t i) const { return static_cast<const std::byte*>(data) + i * bytes(); }
  // Calls f with a pointer of the elements' type.
  template <class F>
  void visit(const F& f) const {
    if (HWY_LIKELY(is_real())) {
      f(reals());
    } else if (dtype == DType::f16) {
      f(static_cast<const f16*>(data));
    } else {
      f(static_cast<const bf16*>(data));
    }
  }
};

// The state of one strip.
template <class Real>
struct Strip {
  // 256 bits at most. With 512 bits a strip has 16 rows, whose values differ so much that rounding to float
  // loses 1.6 times the 1e-5 that README.md allows (MutualInformationPrecision in precision_test.cc).
  static constexpr std::int64_t kLanes = std::min<std::int64_t>(HWY_MAX_BYTES, 32) / sizeof(Real);
  using D = hn::CappedTag<Real, static_cast<std::size_t>(kLanes)>;
  using V = hn::Vec<D>;
  static constexpr std::int64_t kPad = kLanes;  // cells before the first one of a ring slot

  bool is_live = false;
  std::int64_t row, strip;  // row of the batch, number of the strip
  LatticeBox box;
  std::int64_t first, rows;  // first row in the lattice, number of rows
  std::int64_t px, py;  // inputs of lane 0: px of the row above it, py of its row; from column t_begin on
  Real* cells;          // the row of lane 0, from column t_begin on
  std::int64_t step, last_step;  // the next step, and the end of the steps
  double base;                   // lanes hold p - base
  const double* above;           // input slot of the ring: p of the row above, from column t_begin on
  double* below;                 // output slot: p of the last row; nullptr if no strip follows
  V now, before;                 // p of the last step, and of the one before

  // A square of kLanes x kLanes values is transposed in blocks of 128 bits, because interleaving works within
  // these. Loads and stores place the blocks of longer vectors.
  static constexpr std::int64_t kBlock = 16 / sizeof(Real);

  // Pointers to the rows of a square.
  template <class R>
  struct Rows {
    R* row[kLanes];
    HWY_INLINE Rows(R* corner, std::int64_t stride) {
      for (std::int64_t j = 0; j < kLanes; ++j) row[j] = corner + j * stride;
    }
  };
  // Loads the blocks at column k of rows j, j + kBlock, ..
  static HWY_INLINE V load_blocks(const Rows<const Real>& rows, std::int64_t j, std::int64_t k) {
    if constexpr (kLanes == kBlock) {
      return hn::LoadU(D(), rows.row[j] + k);
    } else {
      const hn::Half<D> half;
      return hn::Combine(D(), hn::LoadU(half, rows.row[j + kBlock] + k), hn::LoadU(half, rows.row[j] + k));
    }
  }
  static HWY_INLINE void store_blocks(V v, const Rows<Real>& rows, std::int64_t j, std::int64_t k) {
    if constexpr (kLanes == kBlock) {
      hn::StoreU(v, D(), rows.row[j] + k);
    } else {
      const hn::Half<D> half;
      hn::StoreU(hn::LowerHalf(half, v), half, rows.row[j] + k);
      hn::StoreU(hn::UpperHalf(half, v), half, rows.row[j + kBlock] + k);
    }
  }

  // Transposes within blocks: exchanges lane i of r[k] with lane k of r[i].
  static HWY_INLINE void transpose_blocks(V (&r)[kBlock]) {
    const D d;
    if constexpr (kBlock == 2) {
      const V low = hn::InterleaveLower(d, r[0], r[1]);
      r[1] = hn::InterleaveUpper(d, r[0], r[1]);
      r[0] = low;
    } else {
      const hn::RepartitionToWide<D> dw;
      const auto a = hn::BitCast(dw, hn::InterleaveLower(d, r[0], r[1]));
      const auto b = hn::BitCast(dw, hn::InterleaveUpper(d, r[0], r[1]));
      const auto e = hn::BitCast(dw, hn::InterleaveLower(d, r[2], r[3]));
      const auto f = hn::BitCast(dw, hn::InterleaveUpper(d, r[2], r[3]));
      r[0] = hn::BitCast(d, hn::InterleaveLower(dw, a, e));
      r[1] = hn::BitCast(d, hn::InterleaveUpper(dw, a, e));
      r[2] = hn::BitCast(d, hn::InterleaveLower(dw, b, f));
      r[3] = hn::BitCast(d, hn::InterleaveUpper(dw, b, f));
    }
  }

  // v[k] = element k of each row; row j begins at corner + j * stride.
  static HWY_INLINE void load_square(const Real* corner, std::int64_t stride, V (&v)[kLanes]) {
    const Rows<const Real> square(corner, stride);
    for (std::int64_t k = 0; k < kLanes; k += kBlock) {
      V r[kBlock];
      for (std::int64_t j = 0; j < kBlock; ++j) r[j] = load_blocks(square, j, k);
      transpose_blocks(r);
      for (std::int64_t j = 0; j < kBlock; ++j) v[k + j] = r[j];
    }
  }
  // The inverse: stores v + base. last_row receives the last row without `base`.
  static HWY_INLINE void store_square(const V (&v)[kLanes], V base, const Rows<Real>& square,
                                      Real (&last_row)[kLanes]) {
    for (std::int64_t k = 0; k < kLanes; k += kBlock) {
      V r[kBlock];
      for (std::int64_t j = 0; j < kBlock; ++j) r[j] = v[k + j];
      transpose_blocks(r);
      for (std::int64_t j = 0; j < kBlock; ++j) store_blocks(hn::Add(r[j], base), square, j, k);
      store_last_block(r[kBlock - 1], last_row + k);
    }
  }
  // Stores only the last row of the transposed square.
  static HWY_INLINE void store_last_row(const V (&v)[kLanes], Real (&last_row)[kLanes]) {
    for (std::int64_t k = 0; k < kLanes; k += kBlock) {
      V r[kBlock];
      for (std::int64_t j = 0; j < kBlock; ++j) r[j] = v[k + j];
      transpose_blocks(r);
      store_last_block(r[kBlock - 1], last_row + k);
    }
  }
  static HWY_INLINE void store_last_block(V v, Real* to) {
    alignas(64) Real blocks[kLanes];
    hn::Store(v, D(), blocks);
    std::copy_n(blocks + kLanes - kBlock, kBlock, to);
  }

  // Loads kLanes steps of one input: lane j of v[k] is input[from + j * stride + t] with
  // t = step + k - j + shift, or -inf unless 0 <= t < size.
  HWY_INLINE void load_steps(const Input<Real>& input, std::int64_t from, std::int64_t stride,
                             std::int64_t shift, std::int64_t size, V (&v)[kLanes]) const {
    const std::int64_t corner = step + shift;
    // Fast path: if the whole square is within the array, load it. Elements outside of a row, and lanes
    // beyond the strip, then read neighbouring rows; the former are replaced below.
    if (HWY_LIKELY(input.is_real()) && HWY_LIKELY(from + corner >= input.begin) &&
        HWY_LIKELY(input.end - from >= corner + (kLanes - 1) * (stride - 1) + kLanes)) {
      load_square(input.reals() + (from + corner), stride - 1, v);
      if (HWY_LIKELY(corner >= kLanes - 1 && corner + kLanes <= size)) return;
      const D d;
      const hn::RebindToSigned<D> di;
      using Index = hn::TFromD<decltype(di)>;
      // Distances to both ends of the row, clamped so that they fit Index.
      const auto left_of = hn::Set(di, static_cast<Index>(std::min(corner, kLanes)));
      const auto right_of = hn::Set(di, static_cast<Index>(std::clamp(size - corner, -kLanes, 2 * kLanes)));
      for (std::int64_t k = 0; k < kLanes; ++k) {
        const auto ahead = hn::Sub(hn::Set(di, static_cast<Index>(k)), hn::Iota(di, 0));  // of the corner
        const auto is_inside =
            hn::And(hn::Gt(hn::Add(ahead, left_of), hn::Set(di, Index{-1})), hn::Gt(right_of, ahead));
        v[k] = hn::IfThenElse(hn::RebindMask(d, is_inside), v[k], hn::Set(d, kNone<Real>));
      }
      return;
    }
    alignas(64) Real square[kLanes * kLanes];
    convert_square(input, from + corner, stride - 1, corner, size, square);
    load_square(square, kLanes, v);
  }
  // The same square element by element, for any type and position. Not inline, because the code would be
  // copied into each loop of steps.
  HWY_NOINLINE void convert_square(const Input<Real>& input, std::int64_t place, std::int64_t stride,
                                   std::int64_t corner, std::int64_t size, Real* square) const {
    std::fill_n(square, kLanes * kLanes, kNone<Real>);
    input.visit([&](const auto* elements) {
      for (std::int64_t lane = 0; lane < rows; ++lane) {
        const std::int64_t t = corner - lane;
        const std::int64_t begin = std::max<std::int64_t>(0, -t), end = std::min(kLanes, size - t);
        for (std::int64_t k = begin; k < end; ++k)
          square[lane * kLanes + k] = static_cast<Real>(core::to_float(elements[place + lane * stride + k]));
      }
    });
  }

  // The inverse: stores v + base_of_all.
  HWY_INLINE void store_steps(const V (&v)[kLanes], Real base_of_all, std::int64_t cell_columns,
                              Real (&last_row)[kLanes]) const {
    const V all_base = hn::Set(D(), base_of_all);
    const std::int64_t columns = box.t_end - box.t_begin + 1;
    Real* const corner = cells + step;
    if (HWY_LIKELY(step >= kLanes - 1 && step + kLanes <= columns)) {
      Rows<Real> square(corner, cell_columns - 1);
      if (HWY_LIKELY(rows == kLanes)) {
        store_square(v, all_base, square, last_row);
        return;
      }
      Real spare[kLanes];  // lanes beyond the strip are stored here
      std::fill(square.row + rows, square.row + kLanes, &spare[0]);
      store_square(v, all_base, square, last_row);
      return;
    }
    alignas(64) Real buffer[kLanes * kLanes];
    store_square(v, all_base, Rows<Real>(buffer, kLanes), last_row);
    for (std::int64_t lane = 0; lane < rows; ++lane) {
      const std::int64_t t = step - lane;
      const std::int64_t begin = std::max<std::int64_t>(0, -t), end = std::min(kLanes, columns - t);
      if (begin < end)
        core::copy_short(corner + lane * (cell_columns - 1) + begin, buffer + lane * kLanes + begin,
                         (end - begin) * std::int64_t{sizeof(Real)});
    }
  }

  // load_above() reads the row above lane 0 from the input slot, store_below() writes the row of the last
  // lane to the output slot. Slots hold p in double, without a base.
  using Wide = hn::CappedTag<double, 4>;
  HWY_INLINE void load_above(std::int64_t off, Real (&to)[kLanes]) const {
    const double* from = above + step - off;
    if constexpr (sizeof(Real) == 8) {
      for (std::int64_t k = 0; k < kLanes; ++k) to[k] = from[k] - base;
    } else {
      const Wide dw;
      const hn::Rebind<Real, Wide> d;
      const auto wide_base = hn::Set(dw, base);
      for (std::size_t k = 0; k < kLanes; k += hn::Lanes(dw))
        hn::StoreU(hn::DemoteTo(d, hn::Sub(hn::LoadU(dw, from + k), wide_base)), d, to + k);
    }
  }
  HWY_INLINE void store_below(const Real (&last_row)[kLanes]) const {
    double* to = below + step - (kLanes - 1);
    if constexpr (sizeof(Real) == 8) {
      for (std::int64_t k = 0; k < kLanes; ++k) to[k] = base + last_row[k];
    } else {
      const Wide dw;
      const hn::Rebind<Real, Wide> d;
      const auto wide_base = hn::Set(dw, base);
      for (std::size_t k = 0; k < kLanes; k += hn::Lanes(dw))
        hn::StoreU(hn::Add(wide_base, hn::PromoteTo(dw, hn::LoadU(d, last_row + k))), dw, to + k);
    }
  }
};

TURNOUT_ISA_END
#endif  // per instruction set
