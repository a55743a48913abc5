// Computes the expert block of a mixture in one call: each token passes through its two experts, which are
// small gated networks, and gets the weighted sum of their results.
#include <turnout/turnout.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const std::size_t tokens = 3, hidden = 2, choices = 2, experts = 2, inner = 1;
  const std::vector<float> input = {1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> ids = {0, 1, 1, 0, 0, 2};  // expert 2 does not exist: adds nothing
  const std::vector<float> weights = {.75f, .25f, .5f, .5f, 1, 1};
  // Expert 0 multiplies the first column with the second, expert 1 the second with itself.
  const std::vector<float> w13 = {1, 0, 0, 1, 0, 1, 0, 1};  // [experts, 2 inner, hidden]: gate row, up row
  const std::vector<float> w2 = {1, 0, 0, 1};               // [experts, hidden, inner]
  try {
    std::vector<float> output(tokens * hidden);
    turnout::moe_experts(
        turnout::view(input, {tokens, hidden}), turnout::view(ids, {tokens, choices}),
        turnout::view(weights, {tokens, choices}), turnout::view(w13, {experts, 2 * inner, hidden}),
        turnout::view(w2, {experts, hidden, inner}), nullptr, nullptr,
        turnout::view(output, {tokens, hidden}), {.activation = turnout::ExpertActivation::relu});

    const std::vector<float> expected = {.75f * 1 * 2, .25f * 2 * 2, .5f * 3 * 4, .5f * 4 * 4, 5 * 6, 0};
    bool right = true;
    for (std::size_t i = 0; i < output.size(); ++i) {
      std::printf("token %zu, column %zu: %g\n", i / hidden, i % hidden, output[i]);
      right &= std::abs(output[i] - expected[i]) < 1e-5f;
    }
    return right ? 0 : 1;
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

// Output:
//   token 0, column 0: 1.5
//   token 0, column 1: 1
//   token 1, column 0: 6
//   token 1, column 1: 8
//   token 2, column 0: 30
//   token 2, column 1: 0
