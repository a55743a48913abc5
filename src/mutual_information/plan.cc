// Divides a batch among threads, and the scratch memory among waves.
#include "mutual_information/plan.h"

#include <atomic>
#include <initializer_list>
#include <new>

#include "core/grain.h"
#include "core/saturate.h"
#include "core/signature.h"

namespace turnout::families::mutual_information {

using namespace core;
namespace {

// With fewer cells, a second thread does not pay off.
constexpr std::int64_t kParallelCells = (std::int64_t{1} << 17) / kGrainDivisor;
// Rows of the batch that one thread takes; their strips hide each other's latency in the forward direction.
constexpr std::int64_t kGroupRows = 4;

using Progress = std::atomic<std::int64_t>;

// Saturates; an allocation of such a size fails.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (std::int64_t factor : factors) result = saturating_product(result, factor);
  return result;
}
std::size_t bytes_of(std::initializer_list<std::int64_t> factors) {
  return padded(static_cast<std::size_t>(std::min(product(factors), kSizeMax / 16)));
}

}  // namespace

LatticePlan::LatticePlan(std::int64_t batch, std::int64_t symbols, std::int64_t frames, int threads,
                         std::int64_t kept_cell_bytes)
    : batch_(batch) {
  const std::int64_t cells = product({batch, symbols + 1, frames + 1});
  const std::int64_t groups = (batch + kGroupRows - 1) / kGroupRows;
  const bool parallel = cells >= kParallelCells;
  const bool together = parallel && groups < 2 * threads;
  rows_ = together ? batch : std::min(batch, kGroupRows);
  workers_ = parallel && !together ? threads : 1;
  together_ = together ? threads : 1;
  // One row more than strips in progress, or one for each strip and one for the first row.
  ring_rows_ = std::min(std::int64_t{together_} * kStripsInWork + 1, most_strips(symbols) + 1);
  const auto row_bytes = static_cast<std::int64_t>(bytes_of({most_row_cells(frames), sizeof(double)}));
  ring_bytes_ = bytes_of({rows_, ring_rows_, row_bytes});
  wave_bytes_ = ring_bytes_ + bytes_of({rows_, most_strips(symbols), sizeof(Progress)});
  cell_bytes_ = bytes_of({rows_, symbols + 1, frames + 1, kept_cell_bytes});
}

std::size_t LatticePlan::scratch_bytes() const {
  return bytes_of({batch_, 4, sizeof(std::int64_t)}) +
         bytes_of({static_cast<std::int64_t>(wave_bytes_), workers_}) +
         bytes_of({static_cast<std::int64_t>(cell_bytes_), workers_});
}

LatticePlan::Memory LatticePlan::take(Scratch& scratch) const {
  return {scratch.take<std::int64_t>(batch_ * 4),
          scratch.take<std::byte>(static_cast<std::int64_t>(wave_bytes_) * workers_),
          scratch.take<std::byte>(static_cast<std::int64_t>(cell_bytes_) * workers_)};
}

void LatticePlan::start(Wave& wave, std::int64_t strips, std::int64_t w, std::byte* memory) const {
  wave.row_begin = w * rows_;
  wave.row_end = std::min(batch_, wave.row_begin + rows_);
  wave.strips = strips;
  wave.ring_rows = ring_rows_;
  wave.rings = memory;
  wave.progress = reinterpret_cast<Progress*>(memory + ring_bytes_);
  for (std::int64_t i = 0; i < rows_ * strips; ++i) new (wave.progress + i) Progress(0);
  wave.next_item = 0;
}

}  // namespace turnout::families::mutual_information
