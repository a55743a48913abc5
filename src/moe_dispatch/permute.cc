// Plan of moe_token_permute: a stable sort by expert, then copies of rows.
#include <algorithm>
#include <numeric>
#include <utility>

#include "core/padding.h"
#include "indices/indices.h"
#include "indices/sort.h"
#include "moe_dispatch/signature.h"
#include "moe_dispatch/views.h"
#include "rows/rows.h"
#include "runtime/caller.h"
#include "turnout/moe_dispatch.h"

namespace turnout {
namespace families::moe_dispatch {

using namespace core;
namespace {

// Counting sort is used if the experts' numbers span at most this many values, or no more than the choices.
constexpr std::uint64_t kCounted = 1 << 16;

// place[q] = the position of choice q in the order of experts; ties keep their order.
template <class Index>
void sort_by_counting(const Index* experts, std::int64_t count, std::int64_t least, std::int64_t span,
                      std::int64_t* starts, std::int32_t* place) {
  std::fill_n(starts, span + 1, std::int64_t{0});
  // The experts are read twice. If one changes in between, its place is wrong but stays in bounds.
  const auto bin = [&](std::int64_t q) {
    const auto offset =
        static_cast<std::uint64_t>(load_once(experts + q)) - static_cast<std::uint64_t>(least);
    return static_cast<std::int64_t>(std::min(offset, static_cast<std::uint64_t>(span - 1)));
  };
  serial_for(0, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t q = begin; q < end; ++q) ++starts[bin(q) + 1];
  });
  std::partial_sum(starts, starts + span + 1, starts);
  serial_for(0, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t q = begin; q < end; ++q) place[q] = static_cast<std::int32_t>(starts[bin(q)]++);
  });
}

template <class Index>
void sort_experts(Call& call, const Index* experts, std::int64_t count, std::int32_t* place) {
  std::int64_t least = load_once(experts), most = least;
  serial_for(1, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t q = begin; q < end; ++q) {
      const std::int64_t expert = load_once(experts + q);
      least = std::min(least, expert);
      most = std::max(most, expert);
    }
  });
  const std::uint64_t span = static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
  if (span < std::max(kCounted, static_cast<std::uint64_t>(count))) {
    const auto values = static_cast<std::int64_t>(span) + 1;
    Scratch scratch = call.lease(array_bytes<std::int64_t>(values + 1));
    auto* starts = scratch.take<std::int64_t>(values + 1);
    return sort_by_counting(experts, count, least, values, starts, place);
  }
  Scratch scratch = call.lease(2 * array_bytes<std::int64_t>(count));
  auto* keys = scratch.take<std::int64_t>(count);
  auto* order = scratch.take<std::int64_t>(count);
  for (std::int64_t q = 0; q < count; ++q) keys[q] = load_once(experts + q);
  std::iota(order, order + count, std::int64_t{0});
  sort_by(order, order + count,
          [&](std::int64_t a, std::int64_t b) { return std::pair(keys[a], a) < std::pair(keys[b], b); });
  serial_for(0, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) place[order[p]] = static_cast<std::int32_t>(p);
  });
}

}  // namespace

}  // namespace families::moe_dispatch

using namespace families::moe_dispatch;

void moe_token_permute(const ConstTensor& tokens, const ConstTensor& indices, const Tensor& permuted_tokens,
                       const Tensor& sorted_indices, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kMoeTokenPermute, {tokens, indices, permuted_tokens, sorted_indices}, {});
  if (call.nothing_to_do()) return;
  auto* place = static_cast<std::int32_t*>(sorted_indices.data);
  const rows::Routing choices = with_choices_last(indices, nullptr, {1, permuted_tokens.shape[0]});
  visit_index(indices.dtype, [&](auto type) {
    const auto* experts = static_cast<const typename decltype(type)::type*>(indices.data);
    sort_experts(call, experts, choices.routed(), place);
  });
  if (permuted_tokens.shape[0] == 0 || tokens.shape[1] == 0) return;
  rows::Routing routing = choices;
  routing.indices = sorted_indices;
  rows::scatter_rows(context, call,
                     {.routing = routing,
                      .weights = nullptr,
                      .tokens = tokens,
                      .routed = permuted_tokens,
                      .zero = false,
                      .distinct = true});
}

}  // namespace turnout
