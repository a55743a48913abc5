// The definition of each operator of this family: serial, readable, one point at a time, in the numbers' own
// type. The operators have its bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace turnout::reference {

template <class Real>
Real square_distance(const Real* p, const Real* q) {
  const Real dx = p[0] - q[0], dy = p[1] - q[1], dz = p[2] - q[2];
  return (dx * dx + dy * dy) + dz * dz;
}

// `distances` has an element for each point; to_last(k, last) is a square of a distance.
template <class Real, class ToLast>
std::vector<std::int64_t> furthest_points(std::vector<Real>& distances, std::int64_t samples,
                                          const ToLast& to_last) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < samples; ++i) {
    if (i == 0) {
      chosen.push_back(0);
      continue;
    }
    Real most = -1;
    std::int64_t next = 0;
    for (std::size_t k = 0; k < distances.size(); ++k) {
      const Real square = to_last(static_cast<std::int64_t>(k), chosen.back());
      if (square < distances[k]) distances[k] = square;
      if (distances[k] > most) {
        most = distances[k];
        next = static_cast<std::int64_t>(k);
      }
    }
    chosen.push_back(next);
  }
  return chosen;
}

// The first `room` points, by ascending row, that has(d2, point) is true for.
template <class Real, class Has>
std::vector<std::int64_t> first_points(const Real* points, std::int64_t count, const Real* query,
                                       std::int64_t room, const Has& has) {
  std::vector<std::int64_t> found;
  for (std::int64_t k = 0; k < count && static_cast<std::int64_t>(found.size()) < room; ++k)
    if (has(square_distance(points + 3 * k, query), points + 3 * k)) found.push_back(k);
  return found;
}

template <class Real>
bool is_in_ball(Real square, Real radius, Real min_radius) {
  return square < radius * radius && (square >= min_radius * min_radius || square == 0);
}

template <class Real>
bool is_in_cube(const Real* p, const Real* query, Real radius) {
  for (int k = 0; k < 3; ++k)
    if (!(std::abs(p[k] - query[k]) <= radius)) return false;
  return true;
}

// The cell of a point in the cube around a query, -1 outside. Only the cell is limited, not k in each axis.
template <class Real>
std::int64_t cell_of_cube(const Real* p, const Real* query, Real radius, const std::int64_t* grid) {
  if (!is_in_cube(p, query, radius)) return -1;
  std::int64_t cell = 0;
  for (int k = 0; k < 3; ++k) {
    const Real place = std::floor((p[k] - query[k] + radius) / (radius * 2 / static_cast<Real>(grid[k])));
    cell = cell * grid[k];
    for (std::int64_t below = 1; below <= grid[k] && place >= static_cast<Real>(below); ++below) ++cell;
  }
  return std::min(cell, grid[0] * grid[1] * grid[2] - 1);
}

// The k nearest points by distance and row: pairs of both, only of those with d2 < limit.
template <class Real>
std::vector<std::pair<Real, std::int64_t>> nearest_points(const Real* points, std::int64_t count,
                                                          const Real* query, std::int64_t k, Real limit) {
  std::vector<std::pair<Real, std::int64_t>> all;
  for (std::int64_t i = 0; i < count; ++i) {
    const Real square = square_distance(points + 3 * i, query);
    if (square < limit) all.emplace_back(square, i);
  }
  std::sort(all.begin(), all.end());
  if (static_cast<std::int64_t>(all.size()) > k) all.resize(static_cast<std::size_t>(k));
  return all;
}

}  // namespace turnout::reference
