// Plan of moe_locations: one counting pass over the choices.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/padding.h"
#include "indices/indices.h"
#include "indices/sort.h"
#include "moe_dispatch/signature.h"
#include "moe_dispatch/views.h"
#include "runtime/call.h"
#include "runtime/caller.h"
#include "simd/half.h"
#include "turnout/moe_dispatch.h"

namespace turnout {
namespace families::moe_dispatch {

using namespace core;
namespace {

// A key whose ascending order is the descending order of the numbers. -0 and 0 are equal, NaN is last.
template <class Bits, class Number>
Bits descending_key(Number number) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1), kAll = static_cast<Bits>(~Bits{0});
  if (std::isnan(number)) return kAll;
  const auto bits = std::bit_cast<Bits>(number + Number{0});
  const Bits ascending = bits & kSign ? static_cast<Bits>(~bits) : bits | kSign;
  return static_cast<Bits>(~ascending);
}

constexpr std::size_t ranking_bytes(std::int64_t samples) { return 2 * array_bytes<std::uint64_t>(samples); }

// Returns the tokens by descending priority; ties keep their order. Uses ranking_bytes() of scratch memory
// and reads each priority once.
const std::uint64_t* rank_tokens(const ConstTensor& priority, Scratch& scratch) {
  const std::int64_t samples = priority.shape[0];
  auto* first = scratch.take<std::uint64_t>(samples);
  auto* second = scratch.take<std::uint64_t>(samples);
  if (priority.dtype == DType::f64) {
    const auto* from = static_cast<const double*>(priority.data);
    for (std::int64_t i = 0; i < samples; ++i) first[i] = descending_key<std::uint64_t>(from[i]);
    std::iota(second, second + samples, std::uint64_t{0});
    sort_by(second, second + samples, [&](std::uint64_t a, std::uint64_t b) {
      return std::pair(first[a], a) < std::pair(first[b], b);
    });
    return second;
  }
  visit_float(priority.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = static_cast<const T*>(priority.data);
    serial_for(0, samples, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto number = static_cast<float>(to_float(from[i]));
        first[i] = std::uint64_t{descending_key<std::uint32_t>(number)} << 32 | static_cast<std::uint64_t>(i);
      }
    });
  });
  std::uint64_t* sorted = sort_bits(SortArrays{first, second}, samples, 32, 32).sorted;
  for (std::int64_t i = 0; i < samples; ++i) sorted[i] &= 0xFFFFFFFFu;
  return sorted;
}

}  // namespace

}  // namespace families::moe_dispatch

using namespace families::moe_dispatch;

void moe_locations(const ConstTensor& indices, const ConstTensor& priority, const Tensor& locations,
                   const Tensor& counts, std::int64_t num_experts, const Caller& caller) {
  Call call(caller, kMoeLocations, {indices, priority, locations, counts}, {num_experts});
  if (call.nothing_to_do()) return;
  call.chose(priority.is_absent() ? "in order" : "by priority", 1);
  const std::int64_t tokens = indices.shape[0], choices = indices.rank == 1 ? 1 : indices.shape[1];
  const std::uint64_t* order = nullptr;
  if (!priority.is_absent()) order = rank_tokens(priority, call.scratch(ranking_bytes(tokens)));
  auto* next = static_cast<std::int64_t*>(counts.data);
  auto* to = static_cast<std::int32_t*>(locations.data);
  std::fill_n(next, num_experts, std::int64_t{0});
  visit_index(indices.dtype, [&](auto type) {
    const auto* experts = static_cast<const typename decltype(type)::type*>(indices.data);
    for (std::int64_t k = 0; k < choices; ++k) {
      // Captures by value, so that the compiler knows that stores cannot change the captures.
      const auto take_slot = [=](std::int64_t token) {
        const std::int64_t q = token * choices + k, expert = load_once(experts + q);
        to[q] = in_range(expert, num_experts) ? static_cast<std::int32_t>(next[expert]++) : -1;
      };
      serial_for(0, tokens, [=](std::int64_t begin, std::int64_t end) {
        if (order == nullptr) {
          for (std::int64_t token = begin; token < end; ++token) take_slot(token);
        } else {
          for (std::int64_t p = begin; p < end; ++p) take_slot(static_cast<std::int64_t>(order[p]));
        }
      });
    }
  });
}

}  // namespace turnout
