// Implements ingroup_indices: ranks within groups.
#include <algorithm>
#include <bit>

#include "core/dtypes.h"
#include "dynamic_scatter/segment_signature.h"
#include "indices/indices.h"
#include "runtime/call.h"
#include "runtime/interrupt.h"
#include "turnout/segments.h"

namespace turnout {

using namespace core;
using namespace families::dynamic_scatter;

namespace {

// Counts by group in a hash table with open addressing, because group numbers may be far above the rows.
class Counts {
 public:
  static std::int64_t size(std::int64_t rows) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * rows + 2)));
  }
  Counts(std::int64_t* keys, std::int64_t* counts, std::int64_t slots)
      : keys_(keys),
        counts_(counts),
        mask_(static_cast<std::uint64_t>(slots) - 1),
        shift_(64 - std::popcount(mask_)) {
    serial_for(0, slots, [&](std::int64_t begin, std::int64_t end) {
      std::fill(keys + begin, keys + end, std::int64_t{-1});
    });
  }
  // How often the group was passed before.
  std::int64_t next(std::int64_t group) {
    constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15;  // 2^64 / the golden ratio
    for (std::uint64_t slot = static_cast<std::uint64_t>(group) * kSpread >> shift_;;
         slot = (slot + 1) & mask_) {
      if (keys_[slot] == group) return ++counts_[slot];
      if (keys_[slot] >= 0) continue;
      keys_[slot] = group;
      return counts_[slot] = 0;
    }
  }

 private:
  std::int64_t* const keys_;
  std::int64_t* const counts_;
  const std::uint64_t mask_;
  const int shift_;  // to the highest bits of a product, which depend on all bits of a group
};

}  // namespace

void ingroup_indices(const ConstTensor& groups, const Tensor& out, const Caller& caller) {
  Call call(caller, kIngroupIndices, {groups, out}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t rows = groups.shape[0];
  auto* to = static_cast<std::int64_t*>(out.data);
  visit_index(groups.dtype, [&](auto type) {
    const auto* values = static_cast<const typename decltype(type)::type*>(groups.data);
    // Ranks are written to memory of the call first, because a negative group must leave the result as it is.
    std::int64_t most = -1;
    serial_for(0, rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (values[i] < 0)
          call.refuse(
              concat(call.name("groups"), "[", i, "] is ", std::int64_t{values[i]}, ", expected 0 or more"));
        most = std::max<std::int64_t>(most, values[i]);
      }
    });
    if (most < 4 * rows + 1024) {
      call.chose("table", 1);
      auto* counts = call.scratch(array_bytes<std::int32_t>(most + 1)).take<std::int32_t>(most + 1);
      std::fill_n(counts, most + 1, 0);
      serial_for(0, rows, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t group = load_once(values + i);  // may have changed
          to[i] = in_range(group, most + 1) ? counts[group]++ : 0;
        }
      });
      return;
    }
    call.chose("hash table", 1);
    const std::int64_t slots = Counts::size(rows);
    Scratch& scratch = call.scratch(2 * array_bytes<std::int64_t>(slots));
    auto* keys = scratch.take<std::int64_t>(slots);
    Counts counts(keys, scratch.take<std::int64_t>(slots), slots);
    serial_for(0, rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t group = load_once(values + i);
        to[i] = group < 0 ? 0 : counts.next(group);
      }
    });
  });
}

}  // namespace turnout
