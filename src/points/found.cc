// Finds the lowest rows in a region: in the leaves near to it, or in the points in their own order.
#include <algorithm>
#include <bit>
#include <utility>

#include "core/padding.h"
#include "points/ball.h"
#include "runtime/parallel.h"

namespace turnout::families::points {

using namespace core;
namespace {

constexpr std::int64_t kSlack = 16;                    // elements that a kernel may read after the last one
constexpr std::int64_t kFewPoints = 512;               // are compared in their own order,
constexpr std::int64_t kFewQueries = 64;               // as are all points for so few positions
constexpr std::int64_t kCopied = kParallelBytes / 24;  // points that are worth a thread
constexpr std::int64_t kProbe = 256;                   // points that are compared before the leaves
constexpr std::int64_t kProbeEvery = 16;               // of the positions, where that rarely finds all

}  // namespace

void reduce(Found& found, std::int64_t room) {
  if (found.count <= room) return;
  std::nth_element(found.rows, found.rows + room, found.rows + found.count);
  found.count = room;
}

template <class Real>
std::size_t RegionSearch<Real>::bytes(std::int64_t most_points, std::int64_t room, int workers) {
  return PointLeaves<Real>::bytes(most_points) + 3 * array_bytes<Real>(most_points + kSlack) +
         array_bytes<std::int32_t>(found_room(std::min(room, most_points)) * workers) +
         array_bytes<std::uint64_t>(words_of(most_points) * workers);
}

template <class Real>
RegionSearch<Real>::RegionSearch(Scratch& scratch, std::int64_t most_points, std::int64_t room, int workers,
                                 Isa isa)
    : kernels_(search_kernels(isa).of<Real>()),
      leaves_(scratch, most_points),
      search_room_(std::min(room, most_points)),
      words_(words_of(most_points)) {
  for (Real*& axis : axes_) axis = scratch.take<Real>(most_points + kSlack);
  rows_ = scratch.take<std::int32_t>(found_room(search_room_) * workers);
  bits_ = scratch.take<std::uint64_t>(words_ * workers);
  std::fill_n(bits_, words_ * workers, std::uint64_t{0});
}

template <class Real>
void RegionSearch<Real>::set(Context& context, const Real* points, std::int64_t count,
                             std::int64_t positions) {
  count_ = count;
  parallel_for(context, count, kCopied, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i)
      for (int k = 0; k < 3; ++k) axes_[k][i] = points[3 * i + k];
  });
  for (Real* axis : axes_) std::fill_n(axis + count, kSlack, Real(0));
  has_leaves_ = count > kFewPoints && positions > kFewQueries;
  if (has_leaves_) leaves_.build(&context, points, count, LeafOrder::curve);
}

// Compares points in their own order as long as the region fills soon. Returns whether all rows are found.
template <class Real>
bool RegionSearch<Real>::scan(const Real* position, const Search<Real>& search, Worker& worker) const {
  Found& found = worker.found;
  const Real* const axes[] = {axes_[0], axes_[1], axes_[2]};
  const auto to = [&](std::int64_t first, std::int64_t last) {
    return kernels_.scan(axes, first, last, position, search, found) == count_ || found.count >= search.room;
  };
  if (!has_leaves_) {
    to(0, count_);
    return true;
  }
  if (worker.tries >= kProbeEvery && worker.wins * 4 < worker.tries && worker.tries++ % kProbeEvery != 0)
    return false;
  ++worker.tries;
  bool is_found = to(0, kProbe);
  if (!is_found && found.count > 0) {
    const std::int64_t expected = kProbe * search.room / found.count;
    if (expected <= count_ / 4) is_found = to(kProbe, std::min(count_, 2 * expected));
  }
  worker.wins += is_found;
  return is_found;
}

template <class Real>
bool RegionSearch<Real>::find_any(const Real* position, const Search<Real>& search, Worker& worker) const {
  Found& found = worker.found;
  found.count = 0;
  if (search.room == 0) return true;
  if (scan(position, search, worker)) {
    found.count = std::min(found.count, search.room);
    return true;
  }
  found.count = 0;
  kernels_.search(leaves_, position, search, found);
  return false;
}

// Many rows are marked as bits, which takes a fraction of the time of a sort.
template <class Real>
void RegionSearch<Real>::put_in_order(std::int64_t room, Worker& worker) const {
  Found& found = worker.found;
  const std::int64_t words = words_of(count_);
  if (found.count < words / 4) {
    reduce(found, room);
    std::sort(found.rows, found.rows + found.count);
    return;
  }
  for (std::int64_t i = 0; i < found.count; ++i)
    worker.bits[found.rows[i] / 64] |= std::uint64_t{1} << (found.rows[i] % 64);
  found.count = 0;
  for (std::int64_t w = 0; w < words; ++w)
    for (std::uint64_t bits = std::exchange(worker.bits[w], 0); bits != 0 && found.count < room;
         bits &= bits - 1)
      found.rows[found.count++] = static_cast<std::int32_t>(64 * w + std::countr_zero(bits));
}

template <class Real>
void RegionSearch<Real>::find(const Real* position, const Search<Real>& search, Worker& worker) const {
  if (!find_any(position, search, worker)) put_in_order(search.room, worker);
}

template <class Real>
void RegionSearch<Real>::count(const Real* position, const Search<Real>& search, Worker& worker) const {
  find_any(position, search, worker);
  worker.found.count = std::min(worker.found.count, search.room);
}

template class RegionSearch<float>;
template class RegionSearch<double>;

}  // namespace turnout::families::points
