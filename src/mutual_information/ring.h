// Sizes that kernels and plans share: the rows that strips of a lattice pass to each other, and their rings.
#pragma once

#include <algorithm>
#include <cstdint>

namespace turnout::families::mutual_information {

// Bounds of the lanes of a vector of float or double, over all instruction sets. Plans use them, so that the
// size of their memory depends only on shapes.
inline constexpr std::int64_t kLeastLanes = 2, kMostLanes = 16;

// The most strips that one thread computes at the same time. A ring has more rows than that.
inline constexpr int kStripsInWork = 4;

// Steps of a forward strip between two checks of progress, and between prefetches.
inline constexpr std::int64_t kTurnSteps = 16;
// Cells after the last one of a row that a forward strip may read.
inline constexpr std::int64_t kBeyond = 2 * kTurnSteps;

// Cells of the row that a strip passes on: in the forward direction with `pad` cells before the first one,
// for the gradients with room for one vector after the last one.
constexpr std::int64_t forward_row_cells(std::int64_t frames, std::int64_t pad) {
  return frames + 1 + pad + kBeyond;
}
constexpr std::int64_t gradient_row_cells(std::int64_t frames, std::int64_t lanes) {
  return frames + 2 + lanes;
}

// Upper bounds for every kernel and instruction set.
constexpr std::int64_t most_row_cells(std::int64_t frames) {
  return std::max(forward_row_cells(frames, kMostLanes), gradient_row_cells(frames, kMostLanes));
}
constexpr std::int64_t most_strips(std::int64_t symbols) { return symbols / kLeastLanes + 1; }

}  // namespace turnout::families::mutual_information
