// The definition of each operator of this family: serial, readable, one point at a time, in the numbers' own
// type. The operators have its bits.
#pragma once

#include <cstdint>
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

}  // namespace turnout::reference
