// The inner loops of this family, compiled once per instruction set.
#pragma once

#include <cstdint>
#include <type_traits>

#include "indices/point_leaves.h"
#include "runtime/interrupt.h"
#include "simd/isa.h"

namespace turnout::families::points {

// A candidate of furthest point sampling must have a distance above this; without one, point 0 is next.
inline constexpr int kNoDistance = -1;

// One cloud of furthest point sampling, in leaves.
template <class Real>
struct SampleTask {
  const core::PointLeaves<Real>& leaves;
  const Real* points;  // rows of 3 numbers, in their own order
  // By point in the order of the leaves: the square of the distance from the nearest sample.
  Real* distances;
  // The largest distance of each leaf, and of each group.
  Real *leaf_most, *group_most;
  // The lowest row of a leaf that has its largest distance, or -1 if it is not known.
  std::int32_t* leaf_row;
  const core::Stop& stop;
};

// Points within a distance of a position.
enum class Region : std::uint8_t {
  ball,         // d2 < most, and d2 >= least or d2 == 0
  closed_ball,  // d2 <= most
  cube,         // |dx|, |dy| and |dz| <= most
};
template <class Real>
struct Search {
  Region region;
  Real least, most;   // squares, except for a cube
  std::int64_t room;  // of each position
};
// Rows that a search has found. The array has room for found_room() rows.
struct Found {
  std::int32_t* rows;
  std::int64_t count, capacity;
};
// At least twice as many as needed, so that reduce() is rare, and as many as a leaf and a vector may add.
constexpr std::int64_t found_room(std::int64_t room) { return 3 * room + 128; }
// Drops all but the `room` lowest rows.
void reduce(Found& found, std::int64_t room);

// The nearest points of several positions: for each of `count` levels, one element for each position.
template <class Real>
struct NearestRoom {
  using Row = std::conditional_t<sizeof(Real) == 4, std::int32_t, std::int64_t>;
  static constexpr std::int64_t kMostLanes = 64 / sizeof(Real);
  Real* distances;
  Row* rows;  // -1: no point
};

template <class Real>
struct SampleKernels {
  // Writes samples 1 .. count - 1, after samples[0], and returns how many are written. Fewer are written if
  // all others equal the last one, or if the call must end.
  std::int64_t (*sample)(const SampleTask<Real>& task, std::int64_t count, std::int32_t* samples);
  // Sets each distance to the lesser one of itself and of that to the last sample; returns the next sample.
  std::int64_t (*step)(const Real* to_last, Real* distances, std::int64_t count);
};

template <class Real>
struct SearchKernels {
  // Appends the rows that are in the region around `position`. Keeps the lowest
  // search.room rows and possibly others, in any order.
  void (*search)(const core::PointLeaves<Real>& leaves, const Real* position, const Search<Real>& search,
                 Found& found);
  // The same for rows first .. last - 1 of points in their own order, one array for each axis, in ascending
  // order, until search.room rows are found. Returns the row after the last one that was compared. Reads up
  // to 16 elements after row last - 1.
  std::int64_t (*scan)(const Real* const* axes, std::int64_t first, std::int64_t last, const Real* position,
                       const Search<Real>& search, Found& found);
};

template <class Real>
struct NearestKernels {
  // The `count` nearest points, by distance and row, of the `lanes` positions after the first one. Only
  // points with distances below `limit` are found; it is the distance of those that are missing.
  void (*nearest)(const core::PointLeaves<Real>& points, const core::PointLeaves<Real>& positions,
                  std::int64_t first, const NearestRoom<Real>& room, std::int64_t count, Real limit);
  std::int64_t lanes;
};

template <template <class> class Of>
struct Kernels {
  Of<float> f32;
  Of<double> f64;

  template <class Real>
  const Of<Real>& of() const {
    if constexpr (sizeof(Real) == 4) {
      return f32;
    } else {
      return f64;
    }
  }
};
const Kernels<SampleKernels>& sample_kernels(Isa isa);
const Kernels<SearchKernels>& search_kernels(Isa isa);
const Kernels<NearestKernels>& nearest_kernels(Isa isa);

}  // namespace turnout::families::points
