// One layer of a mixture of experts: tokens are copied to the buffers of their two experts, each expert
// computes, and the results are combined as weighted sums. Each expert here multiplies by its own number.
#include <turnout/turnout.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const std::size_t tokens = 4, hidden = 2, choices = 2, experts = 3, capacity = 4;
  const std::vector<float> input = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::int64_t> indices = {0, 2, 2, 1, 0, 1, 2, 0};  // [tokens, choices]: a router's top 2
  const std::vector<float> gates = {.75f, .25f, .5f, .5f, .5f, .5f, .75f, .25f};  // and their probabilities
  try {
    // The slot of each choice in the buffer of its expert.
    std::vector<std::int32_t> locations(tokens * choices);
    std::vector<std::int64_t> counts(experts);
    turnout::moe_locations(turnout::view(indices, {tokens, choices}), nullptr,
                           turnout::view(locations, {tokens, choices}), turnout::view(counts), experts);

    std::vector<float> buffers(experts * capacity * hidden);
    const auto routing = turnout::view(indices, {tokens, choices});
    const auto slots = turnout::view(locations, {tokens, choices});
    turnout::moe_dispatch(turnout::view(input, {tokens, hidden}), routing, slots, nullptr,
                          turnout::view(buffers, {experts, capacity, hidden}),
                          {.capacity = capacity, .num_experts = experts});

    const std::array<float, experts> factor = {1, 10, 100};
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i] *= factor[i / (capacity * hidden)];

    std::vector<float> output(tokens * hidden);
    turnout::moe_combine(turnout::view(buffers, {experts, capacity, hidden}), routing, slots,
                         turnout::view(gates, {tokens, choices}), turnout::view(output, {tokens, hidden}),
                         capacity);

    bool right = true;
    for (std::size_t t = 0; t < tokens; ++t) {
      const float expected =
          gates[2 * t] * factor[indices[2 * t]] + gates[2 * t + 1] * factor[indices[2 * t + 1]];
      std::printf("token %zu: [%g, %g] -> [%g, %g]\n", t, input[2 * t], input[2 * t + 1], output[2 * t],
                  output[2 * t + 1]);
      for (std::size_t h = 0; h < hidden; ++h)
        right &= std::abs(output[2 * t + h] - expected * input[2 * t + h]) < 1e-3f;
    }
    std::printf("tokens per expert: %lld, %lld, %lld\n", static_cast<long long>(counts[0]),
                static_cast<long long>(counts[1]), static_cast<long long>(counts[2]));
    return right ? 0 : 1;
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

// Output:
//   token 0: [1, 2] -> [25.75, 51.5]
//   token 1: [3, 4] -> [165, 220]
//   token 2: [5, 6] -> [27.5, 33]
//   token 3: [7, 8] -> [526.75, 602]
//   tokens per expert: 3, 2, 3
