// Computes the RNN-T loss of one utterance and the gradient of its logits: from logits to the steps of the
// lattice, through the lattice forward and backward, and from the steps' gradients to those of the logits.
#include <turnout/turnout.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const std::size_t frames = 4, symbols = 2, classes = 3, positions = symbols + 1;
  const std::vector<std::int32_t> text = {1, 2};  // class 0 is the blank
  // Logits that favour "1 at frame 1, 2 at frame 3".
  std::vector<float> logits(frames * positions * classes, 0.f);
  const auto at = [&](std::size_t t, std::size_t s, std::size_t c) -> float& {
    return logits[(t * positions + s) * classes + c];
  };
  for (std::size_t t = 0; t < frames; ++t) {
    at(t, 0, t == 1 ? 1 : 0) = 3;
    at(t, 1, t == 3 ? 2 : 0) = 3;
    at(t, 2, 0) = 3;
  }
  std::vector<float> px(symbols * (frames + 1)), py(positions * frames), normalizer(frames * positions);
  std::vector<float> px_grad(px.size()), py_grad(py.size()), ans(1), logits_grad(logits.size());
  std::vector<std::int64_t> nan_at(1);
  const turnout::ConstTensor logits_view = turnout::view(logits, {1, frames, positions, classes});
  const auto px_view = turnout::view(px, {1, symbols, frames + 1});
  const auto py_view = turnout::view(py, {1, positions, frames});
  const auto normalizer_view = turnout::view(normalizer, {1, frames, positions});
  try {
    turnout::rnnt_logprobs_joint_forward(logits_view, turnout::view(text, {1, symbols}), nullptr, px_view,
                                         py_view, normalizer_view, turnout::view(nan_at), 0);
    turnout::mutual_information_forward_backward(px_view, py_view, nullptr, turnout::view(ans),
                                                 turnout::view(px_grad, {1, symbols, frames + 1}),
                                                 turnout::view(py_grad, {1, positions, frames}));
    turnout::rnnt_logprobs_joint_backward(logits_view, turnout::view(text, {1, symbols}), nullptr,
                                          normalizer_view, turnout::view(px_grad, {1, symbols, frames + 1}),
                                          turnout::view(py_grad, {1, positions, frames}),
                                          turnout::view(logits_grad, {1, frames, positions, classes}), 0);
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  std::printf("loss %.4f\n", -ans[0]);
  for (std::size_t s = 0; s < symbols; ++s) {
    std::printf("symbol %d, probability of each frame:", text[s]);
    for (std::size_t t = 0; t < frames; ++t) std::printf(" %.2f", px_grad[s * (frames + 1) + t]);
    std::printf("\n");
  }
  // The gradient of each normalised distribution sums to zero.
  float worst = 0;
  for (std::size_t row = 0; row < frames * positions; ++row) {
    float sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += logits_grad[row * classes + c];
    worst = std::max(worst, std::abs(sum));
  }
  return px_grad[1] > 0.5f && px_grad[(frames + 1) + 3] > 0.5f && worst < 1e-5f ? 0 : 1;
}

// Output:
//   loss 0.4195
//   symbol 1, probability of each frame: 0.05 0.95 0.00 0.00
//   symbol 2, probability of each frame: 0.00 0.04 0.05 0.91
