// The rows of a cloud that are in a region around a position, lowest rows first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "points/kernels.h"

namespace turnout::families::points {

template <class Real>
class RegionSearch {
 public:
  static std::size_t bytes(std::int64_t most_points, std::int64_t room, int workers);
  // `room` rows of each position at most.
  RegionSearch(core::Scratch& scratch, std::int64_t most_points, std::int64_t room, int workers, Isa isa);

  // Takes a new cloud, for that many positions.
  void set(Context& context, const Real* points, std::int64_t count, std::int64_t positions);

  // What one thread finds, and whether comparing the first points has been worth it.
  struct Worker {
    Found found;
    std::uint64_t* bits;  // one for each point; 0 between calls
    std::int64_t tries = 0, wins = 0;
  };
  Worker worker(int number) const {
    return {{rows_ + found_room(search_room_) * number, 0, found_room(search_room_)},
            bits_ + words_ * number};
  }
  // Finds the rows of a position: found.rows[0 .. found.count - 1], in ascending order.
  void find(const Real* position, const Search<Real>& search, Worker& worker) const;
  // Only their number: found.count.
  void count(const Real* position, const Search<Real>& search, Worker& worker) const;

 private:
  static std::int64_t words_of(std::int64_t points) { return (points + 63) / 64; }
  // Finds at least search.room rows, or all, in any order, unless they are in order: returns whether.
  bool find_any(const Real* position, const Search<Real>& search, Worker& worker) const;
  void put_in_order(std::int64_t room, Worker& worker) const;
  bool scan(const Real* position, const Search<Real>& search, Worker& worker) const;

  const SearchKernels<Real>& kernels_;
  core::PointLeaves<Real> leaves_;
  Real* axes_[3];
  const std::int64_t search_room_;
  const std::int64_t words_;  // of a worker's bits
  std::int32_t* rows_;
  std::uint64_t* bits_;
  std::int64_t count_ = 0;
  bool has_leaves_ = false;
};

}  // namespace turnout::families::points
