// Differential fuzzer: any routing, any shape; every instruction set and thread count equals the definition.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
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
    // Mostly around the legal range, now and then anything at all.
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
      moe_dispatch_forward(context, view(gates.data(), {choices, samples}),
                           view(indices.data(), {choices, samples}),
                           view(locations.data(), {choices, samples}), view(input.data(), {samples, hidden}),
                           view(actual.data(), {rows, hidden}), params);
      if (!actual.empty() && std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(T)) != 0)
        std::abort();
    }
  }
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  test::FuzzInput in(data, size);
  switch (in.between(0, 3)) {
    case 0:
      test::run<float, std::int32_t, std::int32_t>(in);
      break;
    case 1:
      test::run<double, std::int64_t, std::int64_t>(in);
      break;
    case 2:
      test::run<f16, std::int64_t, std::int32_t>(in);
      break;
    default:
      test::run<bf16, std::int32_t, std::int64_t>(in);
  }
  return 0;
}
