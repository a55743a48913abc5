// Sums all paths through a small lattice in log space, and computes how likely a path takes each step: the
// gradients are probabilities.
#include <turnout/turnout.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const std::size_t batch = 1, symbols = 2, frames = 3;
  // Every step has probability 1/2.
  const float half = std::log(0.5f);
  const std::vector<float> px(batch * symbols * (frames + 1), half), py(batch * (symbols + 1) * frames, half);
  std::vector<float> ans(batch), px_grad(px.size()), py_grad(py.size());
  try {
    turnout::mutual_information_forward_backward(
        turnout::view(px, {batch, symbols, frames + 1}), turnout::view(py, {batch, symbols + 1, frames}),
        nullptr, turnout::view(ans), turnout::view(px_grad, {batch, symbols, frames + 1}),
        turnout::view(py_grad, {batch, symbols + 1, frames}));
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  // There are 10 orders of 2 symbols and 3 blanks, each with probability (1/2)^5.
  std::printf("log-probability %.4f, expected %.4f\n", ans[0], std::log(10.0 / 32));
  float steps = 0;
  for (std::size_t s = 0; s < symbols; ++s) {
    std::printf("symbol %zu, probability of each frame:", s);
    for (std::size_t t = 0; t <= frames; ++t) std::printf(" %.2f", px_grad[s * (frames + 1) + t]);
    std::printf("\n");
  }
  for (const float g : px_grad) steps += g;
  const bool right = std::abs(ans[0] - std::log(10.f / 32)) < 1e-5f && std::abs(steps - 2) < 1e-5f;
  return right ? 0 : 1;
}

// Output:
//   log-probability -1.1632, expected -1.1632
//   symbol 0, probability of each frame: 0.40 0.30 0.20 0.10
//   symbol 1, probability of each frame: 0.10 0.20 0.30 0.40
