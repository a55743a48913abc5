// Differential fuzzer: compares every instruction set and thread count with the definition.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "fuzz.h"
#include "isas.h"
#include "moe_dispatch/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

template <class T, class Index, class Location>
void run(FuzzInput& in) {
  const std::int64_t choices = in.between(1, 3), samples = in.between(0, 24), hidden = in.between(0, 70);
  const MoeDispatchParams params{.capacity = in.between(0, 9),
                                 .num_experts = in.between(0, 6),
                                 .fill = in.flag() ? Fill::zero : Fill::keep};
  const std::int64_t rows = params.capacity * params.num_experts, routed = choices * samples;
  std::vector<float> gates(static_cast<std::size_t>(routed));
  std::vector<Index> indices(gates.size());
  std::vector<Location> locations(gates.size());
  std::vector<T> input(static_cast<std::size_t>(samples * hidden));
  std::vector<T> before(static_cast<std::size_t>(rows * hidden));
  for (std::size_t q = 0; q < gates.size(); ++q) {
    gates[q] = static_cast<float>(in.between(-100, 100)) * 0.25f;
    // Mostly around the legal range, occasionally any value.
    indices[q] = in.one_in(9) ? in.value<Index>() : static_cast<Index>(in.between(-1, params.num_experts));
    locations[q] =
        in.one_in(9) ? in.value<Location>() : static_cast<Location>(in.between(-1, params.capacity));
  }
  // Finite values, so that equal results have equal bits.
  for (auto* values : {&input, &before})
    for (T& v : *values) {
      const auto number = static_cast<float>(in.between(-1000, 1000));
      if constexpr (sizeof(T) == 2) {
        v = core::from_float<T>(number);
      } else {
        v = static_cast<T>(number);
      }
    }

  std::vector<T> expected = before;
  reference::moe_dispatch_forward(gates.data(), indices.data(), locations.data(), input.data(),
                                  expected.data(), choices, samples, hidden, params);
  for (Isa isa : supported_isas()) {
    for (int threads : {1, 2}) {
      Context context({.threads = threads, .isa = isa});
      std::vector<T> actual = before;
      moe_dispatch_forward(view(gates.data(), {choices, samples}), view(indices.data(), {choices, samples}),
                           view(locations.data(), {choices, samples}), view(input.data(), {samples, hidden}),
                           view(actual.data(), {rows, hidden}), params, context);
      if (!actual.empty() && std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(T)) != 0)
        std::abort();
    }
  }
}

// The gradients of moe_dispatch_forward for a routing [choices, samples]. Sums are exact, as above.
template <class T, class Index>
void run_gradients(FuzzInput& in, const reference::RoutingShape& shape, const std::vector<std::int64_t>& map,
                   const std::vector<T>& tokens, const std::vector<T>& routed_rows,
                   const std::vector<float>& gates, const std::vector<Index>& indices,
                   const std::vector<std::int32_t>& locations, const MoeBuffers& buffers,
                   std::int64_t hidden) {
  const std::int64_t samples = shape.samples, choices = shape.choices;
  std::vector<T> sums(tokens.size()), plain_sums(tokens.size());
  std::vector<double> products(gates.size()), sizes(gates.size());
  const float* no_gates = nullptr;
  reference::gather_rows(shape, map, gates.data(), routed_rows.data(), sums.data(), hidden);
  reference::gather_rows(shape, map, no_gates, routed_rows.data(), plain_sums.data(), hidden);
  reference::dot_rows(shape, map, tokens.data(), routed_rows.data(), products.data(), sizes.data(), hidden);
  const ConstTensor experts = view(indices.data(), {choices, samples});
  const ConstTensor slots = view(locations.data(), {choices, samples});
  const ConstTensor weights = view(gates.data(), {choices, samples});
  const ConstTensor input = view(tokens.data(), {samples, hidden});
  const ConstTensor dispatch = view(routed_rows.data(), {buffers.capacity * buffers.num_experts, hidden});
  const bool is_gated = in.flag();
  for (Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    std::vector<T> grad_input(tokens.size(), T{7});
    std::vector<float> grad_gates(gates.size(), 7);
    const Tensor to_input = view(grad_input.data(), {samples, hidden});
    const Tensor to_gates = view(grad_gates.data(), {choices, samples});
    const auto require_products = [&] {
      for (std::size_t q = 0; q < products.size(); ++q)
        require(static_cast<double>(grad_gates[q]) == products[q]);
    };
    moe_dispatch_backward_data(is_gated ? weights : nullptr, experts, slots, dispatch, to_input, buffers,
                               context);
    require(grad_input == (is_gated ? sums : plain_sums));
    moe_dispatch_backward_gate(experts, slots, input, dispatch, to_gates, buffers, context);
    require_products();
    std::fill(grad_gates.begin(), grad_gates.end(), 7.0f);
    moe_dispatch_backward(weights, experts, slots, input, dispatch, to_input, to_gates, buffers, context);
    require(grad_input == sums);
    require_products();
  }
}

// moe_locations in the order of tokens, or by priorities, some of which are equal or NaN.
template <class T, class Index>
void run_locations(FuzzInput& in, const std::vector<Index>& indices, std::int64_t samples,
                   std::int64_t choices, std::int64_t num_experts) {
  const bool by_priority = in.flag();
  std::vector<double> priority(static_cast<std::size_t>(samples));
  for (double& p : priority)
    p = in.one_in(9) ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(in.between(-3, 3));
  std::vector<T> given(priority.begin(), priority.end());
  std::vector<std::int32_t> expected(indices.size()), actual(indices.size(), 7);
  std::vector<std::int64_t> expected_counts(static_cast<std::size_t>(num_experts)),
      counts(expected_counts.size(), 7);
  reference::moe_locations(indices.data(), by_priority ? priority.data() : nullptr, expected.data(),
                           expected_counts.data(), samples, choices, num_experts);
  const ConstTensor order = view(given.data(), {samples});
  for (int threads : {1, 2}) {
    Context context({.threads = threads});
    moe_locations(view(indices.data(), {samples, choices}), by_priority ? order : nullptr,
                  view(actual.data(), {samples, choices}), view(counts.data(), {num_experts}), num_experts,
                  context);
    require(actual == expected && counts == expected_counts);
  }
}

// Weighted sums, dot products, dispatch and permute of a routing [samples, choices].
template <class T, class Index>
void run_movements(FuzzInput& in) {
  const std::int64_t samples = in.between(0, 12), choices = in.between(1, 70), hidden = in.between(0, 40);
  const MoeBuffers buffers{.capacity = in.between(0, 5), .num_experts = in.between(0, 4)};
  const std::int64_t rows = buffers.capacity * buffers.num_experts, routed = choices * samples;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  std::vector<float> gates(size(routed));
  std::vector<Index> indices(size(routed));
  std::vector<std::int32_t> locations(size(routed));
  std::vector<T> tokens(size(samples * hidden)), routed_rows(size(rows * hidden));
  for (float& gate : gates) gate = static_cast<float>(in.between(-8, 8)) * 0.25f;
  for (Index& index : indices)
    index = in.one_in(9) ? in.value<Index>() : static_cast<Index>(in.between(-1, buffers.num_experts));
  for (std::int32_t& location : locations)
    location = static_cast<std::int32_t>(in.between(-1, buffers.capacity));
  // Small integers, so that every order of additions gives the same sum.
  for (auto* values : {&tokens, &routed_rows})
    for (T& v : *values) v = static_cast<T>(in.between(-8, 8));

  const reference::RoutingShape shape{samples, choices, false};
  const auto map = reference::rows_of(indices.data(), locations.data(), routed, buffers);
  std::vector<T> sums(tokens.size()), scattered(routed_rows.size()), actual_sums(tokens.size()),
      actual_rows(routed_rows.size());
  std::vector<double> products(size(routed)), sizes(size(routed));
  std::vector<float> actual_products(size(routed));
  reference::gather_rows(shape, map, gates.data(), routed_rows.data(), sums.data(), hidden);
  reference::scatter_rows(shape, map, gates.data(), tokens.data(), scattered.data(), rows, hidden);
  reference::dot_rows(shape, map, tokens.data(), routed_rows.data(), products.data(), sizes.data(), hidden);
  std::vector<std::int32_t> order(size(routed)), actual_order(size(routed));
  reference::sort_experts(indices.data(), order.data(), routed);
  const ConstTensor slots = view(locations.data(), {samples, choices});
  const ConstTensor weights = view(gates.data(), {samples, choices});
  const ConstTensor experts = view(indices.data(), {samples, choices});
  for (Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    moe_combine(view(routed_rows.data(), {rows, hidden}), experts, slots, weights,
                view(actual_sums.data(), {samples, hidden}), buffers.capacity, context);
    moe_combine_backward(view(tokens.data(), {samples, hidden}), view(routed_rows.data(), {rows, hidden}),
                         experts, slots, weights, view(actual_rows.data(), {rows, hidden}),
                         view(actual_products.data(), {samples, choices}), buffers.capacity, context);
    if (actual_sums != sums || actual_rows != scattered) std::abort();
    for (std::size_t q = 0; q < products.size(); ++q)
      if (static_cast<double>(actual_products[q]) != products[q]) std::abort();
    moe_token_permute(view(tokens.data(), {samples, hidden}), experts,
                      Tensor(nullptr, dtype_of<T>, {0, hidden}), view(actual_order.data(), {routed}),
                      context);
    if (actual_order != order) std::abort();
    std::fill(actual_rows.begin(), actual_rows.end(), T{7});
    moe_dispatch(view(tokens.data(), {samples, hidden}), experts, slots, weights,
                 view(actual_rows.data(), {rows, hidden}), buffers, context);
    require(actual_rows == scattered);
  }
  run_gradients<T>(in, {samples, choices, true}, map, tokens, routed_rows, gates, indices, locations, buffers,
                   hidden);
  run_locations<T>(in, indices, samples, choices, buffers.num_experts);
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  test::FuzzInput in(data, size);
  switch (in.between(0, 5)) {
    case 0:
      test::run<float, std::int32_t, std::int32_t>(in);
      break;
    case 1:
      test::run<double, std::int64_t, std::int64_t>(in);
      break;
    case 2:
      test::run<f16, std::int64_t, std::int32_t>(in);
      break;
    case 3:
      test::run_movements<float, std::int32_t>(in);
      break;
    case 4:
      test::run_movements<double, std::int64_t>(in);
      break;
    default:
      test::run<bf16, std::int32_t, std::int64_t>(in);
  }
  return 0;
}
