// Differential fuzzer: any counts and any index. A valid call matches the definition; any other fails and
// writes nothing.
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "isas.h"
#include "moe_re_routing/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

template <class Count>
void run(FuzzInput& in) {
  const std::int64_t ranks = in.between(1, 6), experts = in.between(1, 6), hidden = in.between(1, 150);
  const std::int64_t scale_width = in.between(0, 3);
  std::vector<Count> counts(static_cast<std::size_t>(ranks * experts));
  for (Count& c : counts) c = in.one_in(3) ? Count{0} : static_cast<Count>(in.between(0, 6));
  std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const bool legal = !in.one_in(8);
  if (!legal) {
    const auto i = static_cast<std::size_t>(in.between(0, ranks * experts - 1));
    const Count before = counts[i];
    counts[i] = in.flag() ? in.value<Count>() : static_cast<Count>(-1);
    if (counts[i] == before) return;
  }
  const MoeReRoutingParams params{in.flag() ? ExpertTokenNum::count : ExpertTokenNum::cumsum,
                                  in.flag() ? TokenIdx::gather : TokenIdx::scatter};
  std::vector<std::uint8_t> tokens(static_cast<std::size_t>(rows * hidden));
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(rows * scale_width));
  for (auto* values : {&tokens, &scales})
    for (std::uint8_t& v : *values) v = in.value<std::uint8_t>();
  std::vector<std::uint8_t> expected(tokens.size(), 7), expected_scales(scales.size(), 7);
  std::vector<std::int32_t> expected_idx(static_cast<std::size_t>(rows), 7);
  std::vector<Count> expected_num(static_cast<std::size_t>(experts), 7);
  if (legal)
    reference::moe_re_routing(
        reinterpret_cast<const char*>(tokens.data()), hidden, counts.data(), ranks, experts,
        reinterpret_cast<const char*>(scales.data()), scale_width, reinterpret_cast<char*>(expected.data()),
        reinterpret_cast<char*>(expected_scales.data()), expected_idx.data(), expected_num.data(), params);
  for (Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    std::vector<std::uint8_t> permuted(tokens.size(), 7), permuted_scales(scales.size(), 7),
        back(tokens.size());
    std::vector<std::int32_t> idx(expected_idx.size(), 7);
    std::vector<Count> num(expected_num.size(), 7);
    const ConstTensor scales_in = view(scales.data(), {rows, scale_width});
    const Tensor scales_out = view(permuted_scales.data(), {rows, scale_width});
    bool refused = false;
    try {
      moe_re_routing(view(tokens.data(), {rows, hidden}), view(counts.data(), {ranks, experts}),
                     scale_width > 0 ? scales_in : nullptr, view(permuted.data(), {rows, hidden}), scales_out,
                     view(idx.data(), {rows}), view(num.data(), {experts}), params, context);
    } catch (const Error&) {
      refused = true;
    }
    require(refused == !legal);
    require(permuted == expected && permuted_scales == expected_scales && idx == expected_idx &&
            num == expected_num);
    if (!legal) continue;
    moe_re_routing_inverse(view(permuted.data(), {rows, hidden}), view(idx.data(), {rows}),
                           view(back.data(), {rows, hidden}), params.idx_type, context);
    require(back == tokens);
  }
}

// Chunks in any order, some of them empty. A call with an invalid size or position fails and writes nothing.
template <class Index>
void run_chunks(FuzzInput& in) {
  const std::int64_t chunks = in.between(1, 12), hidden = in.between(1, 150);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(chunks)), order(sizes.size());
  for (std::int64_t& size : sizes) size = in.one_in(3) ? 0 : in.between(0, 6);
  const std::int64_t rows = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::int64_t i = chunks - 1; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(in.between(0, i))]);
  const bool with_probs = in.flag(), legal = !in.one_in(8);
  std::vector<Index> given_sizes(sizes.begin(), sizes.end()), given_order(order.begin(), order.end());
  if (!legal) {
    Index& one = (in.flag() ? given_sizes : given_order)[static_cast<std::size_t>(in.between(0, chunks - 1))];
    const Index before = one;
    one = in.flag() ? in.value<Index>() : static_cast<Index>(in.between(-1, chunks));
    if (one == before) return;
  }
  std::vector<std::uint8_t> input(static_cast<std::size_t>(rows * hidden)),
      probs(static_cast<std::size_t>(rows));
  for (auto* values : {&input, &probs})
    for (std::uint8_t& v : *values) v = in.value<std::uint8_t>();
  std::vector<std::uint8_t> expected(input.size(), 7), expected_probs(probs.size(), 7);
  const auto define = [&](const auto& from, auto& to, std::int64_t width) {
    reference::sort_chunks_by_idxs(reinterpret_cast<const char*>(from.data()), sizes.data(), order.data(),
                                   chunks, width, reinterpret_cast<char*>(to.data()));
  };
  if (legal) define(input, expected, hidden);
  if (legal && with_probs) define(probs, expected_probs, 1);
  const ConstTensor from_probs = view(probs.data(), {rows});
  for (Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    std::vector<std::uint8_t> output(input.size(), 7), output_probs(probs.size(), 7);
    const Tensor to_probs = view(output_probs.data(), {rows});
    bool refused = false;
    try {
      sort_chunks_by_idxs(view(input.data(), {rows, hidden}), view(given_sizes.data(), {chunks}),
                          view(given_order.data(), {chunks}), with_probs ? from_probs : nullptr,
                          view(output.data(), {rows, hidden}), with_probs ? to_probs : nullptr, context);
    } catch (const Error&) {
      refused = true;
    }
    require(refused == !legal || rows == 0);
    require(output == expected && output_probs == expected_probs);
  }
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::test::FuzzInput in(data, size);
  switch (in.between(0, 3)) {
    case 0:
      turnout::test::run<std::int32_t>(in);
      break;
    case 1:
      turnout::test::run<std::int64_t>(in);
      break;
    case 2:
      turnout::test::run_chunks<std::int32_t>(in);
      break;
    default:
      turnout::test::run_chunks<std::int64_t>(in);
  }
  return 0;
}
