// Groups points by ranks of bits: the number of a voxel is the rank of its cell among the cells with points.
//
// Most cells of the box are empty, so there are two levels. The first has a bit for each block of 64 cells.
// The second has the 64 bits of each block that has points, and of no other. The rank of a cell takes two
// popcounts. Several threads mark bits in separate tables, which are then combined.
//
// A box is accepted only if the first level has at most kWords words per point. The second level has one word
// per occupied block, so at most one per point. A table of kWords * points words is therefore enough for the
// first level of one thread, and for the second level of kWords threads. group_by_cells() uses more threads
// only if the levels are small enough for their tables to fit.
//
// Points in no voxel get a separate cell after all others, number `cells`. They need no branch in any loop,
// and have the last rank, so the voxels keep the numbers 0, 1, .. This cell may be in the same block as real
// cells, which does not affect ranks.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/dtypes.h"
#include "dynamic_scatter/grouping.h"
#include "indices/bits.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
namespace {

// Words of a level per point. With more, the table costs more than a sort.
constexpr std::int64_t kWords = 2;
// At most 2^26 - 1 blocks are occupied, so numbers of second-level cells fit 32 bits.
constexpr std::int64_t kMaxCellPoints = std::int64_t{1} << 26;

// Threads write to whole cache lines of their own.
constexpr std::int64_t kWordsOfLine = 64 / sizeof(std::uint64_t);
constexpr std::int64_t in_lines(std::int64_t words) {
  return (words + kWordsOfLine - 1) / kWordsOfLine * kWordsOfLine;
}

// Words of the first level, with one more cell than the box, for points in no voxel.
std::int64_t words_of_blocks(const Packing& packing) {
  return BitRanks::words_for(static_cast<std::int64_t>(packing.cells / 64) + 1);
}

// The number of a point's cell: the weighted sum of its coordinates, modulo 2^32. Coordinates that have
// changed since the packing was made may give any sum; sums beyond the last cell become `none`, so that every
// cell has its bit in the tables.
template <class Index, int kDims>
struct CellOf {
  std::uint32_t weight[kDims], least = 0, none;

  explicit CellOf(const Packing& packing) : none(static_cast<std::uint32_t>(packing.cells)) {
    for (int d = 0; d < kDims; ++d) {
      weight[d] = static_cast<std::uint32_t>(packing.weight[d]);
      least += static_cast<std::uint32_t>(packing.least[d]) * weight[d];
    }
  }
  std::uint32_t operator()(const Index* row) const {
    Index any = 0;
    std::uint32_t cell = 0 - least;
    for (int d = 0; d < kDims; ++d) {
      const Index coordinate = row[d];
      any |= coordinate;
      cell += static_cast<std::uint32_t>(coordinate) * weight[d];
    }
    return any < 0 ? none : std::min(cell, none);
  }
};

// First level: writes the cell of each of the points begin .. end-1 and marks its block. Here and below,
// loops read local copies, because the compiler knows that stores cannot change them.
template <class Index, int kDims>
void mark_blocks(const ConstTensor& coors, const Packing& packing, std::int64_t begin, std::int64_t end,
                 std::uint32_t* cells, BitRanks blocks) {
  const CellOf<Index, kDims> cell_of(packing);
  const Index* row = static_cast<const Index*>(coors.data) + begin * kDims;
  for (std::int64_t x = begin; x < end; ++x, row += kDims) {
    const std::uint32_t cell = cell_of(row);
    cells[x] = cell;
    blocks.mark(cell / 64);
  }
}
template <class Index>
constexpr decltype(&mark_blocks<Index, 1>) kMarkBlocks[] = {&mark_blocks<Index, 1>, &mark_blocks<Index, 2>,
                                                            &mark_blocks<Index, 3>, &mark_blocks<Index, 4>};

// Second level: renumbers cells within occupied blocks only, rank(block) * 64 + cell % 64, and marks them.
void mark_cells(std::int64_t begin, std::int64_t end, std::uint32_t* cells, BitRanks blocks,
                BitRanks marked) {
  for (std::int64_t x = begin; x < end; ++x) {
    const std::uint32_t cell = blocks.rank(cells[x] / 64) * 64 + cells[x] % 64;
    cells[x] = cell;
    marked.mark(cell);
  }
}

// The ranks of the cells are the voxels, except `none`. Writes the map and counts the points of each voxel.
void count_points(std::int64_t begin, std::int64_t end, const std::uint32_t* cells, BitRanks marked,
                  std::int32_t none, std::int32_t* map, std::int32_t* counts) {
  for (std::int64_t x = begin; x < end; ++x) {
    const auto rank = static_cast<std::int32_t>(marked.rank(cells[x]));
    const std::int32_t voxel = rank == none ? -1 : rank;
    map[x] = voxel;
    ++counts[voxel];
  }
}

// Combines the consecutive tables of all parts into the first, and counts the bits before each word. Returns
// the number of bits that are set.
std::int64_t number(BitRanks ranks, std::int64_t words, std::int64_t parts) {
  const std::int64_t stride = in_lines(words);
  std::uint32_t sum = 0;
  for (std::int64_t w = 0; w < words; ++w) {
    std::uint64_t bits = ranks.bits[w];
    for (std::int64_t part = 1; part < parts; ++part) bits |= ranks.bits[part * stride + w];
    ranks.bits[w] = bits;
    ranks.before[w] = sum;
    sum += static_cast<std::uint32_t>(std::popcount(bits));
  }
  return sum;
}

}  // namespace

bool fits_cells(const Packing& packing, std::int64_t points) {
  return (packing.cells > 0 || packing.valid == 0) && packing.cells < (std::uint64_t{1} << 32) - 1 &&
         points < kMaxCellPoints && words_of_blocks(packing) <= kWords * points;
}

std::size_t cells_bytes(std::int64_t points) {
  if (points >= kMaxCellPoints) return 0;
  return 2 * array_bytes<std::uint32_t>(points) + array_bytes<std::uint64_t>(kWords * points) +
         array_bytes<std::uint32_t>(kWords * points) + array_bytes<std::uint64_t>(kWords * points) +
         array_bytes<std::int32_t>(CountTables::size(points, kMaxParts));
}

VoxelGroups group_by_cells(Context& context, const ConstTensor& coors, const Packing& packing,
                           const GroupMemory& to, Scratch& passing) {
  const std::int64_t points = coors.shape[0], words = words_of_blocks(packing);
  const std::int64_t worth = std::min(
      {points / point_grain(points), kWords * points / in_lines(words), std::int64_t{context.threads()}});
  const Chunks chunks(points, std::clamp<std::int64_t>(worth, 1, kMaxParts));
  const Stop stop;
  auto* cells = passing.take<std::uint32_t>(points);

  const BitRanks blocks{passing.take<std::uint64_t>(kWords * points),
                        passing.take<std::uint32_t>(kWords * points)};
  const auto mark_blocks_of = visit_index(coors.dtype, [&](auto type) -> decltype(&mark_blocks<int, 1>) {
    return kMarkBlocks<typename decltype(type)::type>[coors.shape[1] - 1];
  });
  chunks.run(context, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
    const BitRanks own{blocks.bits + part * in_lines(words), nullptr};
    std::fill_n(own.bits, words, std::uint64_t{0});
    static_cast<void>(stop.blocks(begin, end, [&](std::int64_t first, std::int64_t last) {
      mark_blocks_of(coors, packing, first, last, cells, own);
    }));
  });
  const std::int64_t full_blocks = number(blocks, words, chunks.parts);

  const BitRanks marked{passing.take<std::uint64_t>(kWords * points), passing.take<std::uint32_t>(points)};
  const Chunks marking(points,
                       std::clamp<std::int64_t>(kWords * points / in_lines(full_blocks), 1, chunks.parts));
  marking.run(context, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
    const BitRanks own{marked.bits + part * in_lines(full_blocks), nullptr};
    std::fill_n(own.bits, full_blocks, std::uint64_t{0});
    static_cast<void>(stop.blocks(begin, end, [&](std::int64_t first, std::int64_t last) {
      mark_cells(first, last, cells, blocks, own);
    }));
  });
  const std::int64_t ranks = number(marked, full_blocks, marking.parts);
  const std::int64_t voxels =
      packing.valid < points ? ranks - 1 : ranks;  // the last rank may be that of points in no voxel

  const CountTables tables{voxels, passing.take<std::int32_t>(CountTables::size(voxels, chunks.parts))};
  chunks.run(context, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
    std::int32_t* counts = tables.clear(part);
    static_cast<void>(stop.blocks(begin, end, [&](std::int64_t first, std::int64_t last) {
      count_points(first, last, cells, marked, static_cast<std::int32_t>(voxels), to.map, counts);
    }));
  });
  put_in_order(context, chunks, tables, to.map, to.starts, to.order);
  return {points, voxels, to.map, to.order, to.starts, "ranked cells"};
}

}  // namespace turnout::families::dynamic_scatter
