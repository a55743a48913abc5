// Prefetching of rows, and conversion of elements to the lanes they are computed in, for reductions and
// gradients. Included once per instruction set, after simd.h.
#if defined(TURNOUT_ROWS_PER_ISA) == defined(HWY_TARGET_TOGGLE)
#ifdef TURNOUT_ROWS_PER_ISA
#undef TURNOUT_ROWS_PER_ISA
#else
#define TURNOUT_ROWS_PER_ISA
#endif

TURNOUT_ISA_BEGIN(families::dynamic_scatter)

// The rows of a voxel's points are scattered in memory, so they are prefetched. Keep about kBytesAhead bytes
// of prefetches in flight; of a longer row, prefetch only its start.
inline constexpr std::int64_t kBytesAhead = 8 << 10;
inline constexpr std::int64_t kMostAhead = 32;  // rows
struct Ahead {
  std::int64_t bytes, rows;
  explicit Ahead(std::int64_t row_bytes)
      : bytes(std::clamp<std::int64_t>(row_bytes, 1, kBytesAhead)),
        rows(std::clamp<std::int64_t>(kBytesAhead / bytes, 2, kMostAhead)) {}
};
HWY_INLINE void fetch_ends(const void* from, std::int64_t bytes) {
  fetch_line(from);
  fetch_line(static_cast<const char*>(from) + bytes - 1);
}
// Prefetches the rows of order[from + ahead.rows .. from + ahead.rows + count), by fetch or fetch_ends.
template <class T, class Fetch>
HWY_INLINE void fetch_rows(const T* rows, const VoxelGroups& groups, std::int64_t channels,
                           const Ahead& ahead, std::int64_t from, std::int64_t count,
                           const Fetch& fetch_row) {
  const std::int64_t end = std::min(from + ahead.rows + count, groups.grouped());
  for (std::int64_t i = from + ahead.rows; i < end; ++i)
    fetch_row(rows + groups.order[i] * channels, ahead.bytes);
}

// 16-bit floats are computed in float, other types as they are.
using core::HWY_NAMESPACE::widen;
template <class T>
requires(sizeof(T) > 2) HWY_INLINE hn::Vec<hn::ScalableTag<T>> widen(const T* from) {
  return hn::LoadU(hn::ScalableTag<T>(), from);
}
template <class T, class V>
HWY_INLINE void store_rounded(V v, T* to) {
  if constexpr (sizeof(T) == 2) {
    hn::StoreU(narrow(T{}, v), U16(), &to->bits);
  } else {
    hn::StoreU(v, hn::ScalableTag<T>(), to);
  }
}
template <class T>
HWY_INLINE typename Block<T>::Lane lane_of(T v) {
  if constexpr (sizeof(T) == 2) {
    return core::to_float(v);
  } else {
    return v;
  }
}
template <class T, class Lane>
T rounded(Lane v) {
  if constexpr (sizeof(T) == 2) {
    return core::from_float<T>(v);
  } else {
    return v;
  }
}

TURNOUT_ISA_END
#endif  // per instruction set
