// The plain double loop over each lattice, directly from the definition. loop_peer.py compiles it with
// -O3 -march=native. Threads may divide the batch.
#include <cmath>
#include <cstddef>
#include <limits>
#include <thread>
#include <vector>

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

float log_add(float x, float y) {
  if (x < y) return log_add(y, x);
  const float d = y - x;
  return d >= -15.9423847f ? x + std::log1p(std::exp(d)) : x;
}

float forward_one(std::ptrdiff_t symbols, std::ptrdiff_t frames, const float* px, const float* py, float* p) {
  const std::ptrdiff_t row = frames + 1;
  for (std::ptrdiff_t s = 0; s <= symbols; ++s) {
    for (std::ptrdiff_t t = 0; t <= frames; ++t) {
      if (s == 0 && t == 0) {
        p[0] = 0;
        continue;
      }
      const float symbol = s > 0 ? p[(s - 1) * row + t] + px[(s - 1) * row + t] : kNone;
      const float blank = t > 0 ? p[s * row + t - 1] + py[s * frames + t - 1] : kNone;
      p[s * row + t] = log_add(symbol, blank);
    }
  }
  return p[symbols * row + frames];
}

float safe_exp(float x) {
  const float y = std::exp(x);
  return std::isfinite(x) && std::isfinite(y) ? y : 0;
}

float clamped(float p) { return p < -1e30f ? -1e30f : p; }

void backward_one(std::ptrdiff_t symbols, std::ptrdiff_t frames, const float* px, const float* py,
                  const float* p, float ans_grad, float* px_grad, float* py_grad, float* g) {
  const std::ptrdiff_t row = frames + 1;
  for (std::ptrdiff_t s = symbols; s >= 0; --s) {
    for (std::ptrdiff_t t = frames; t >= 0; --t) {
      const float here = clamped(p[s * row + t]);
      float sum = s == symbols && t == frames ? ans_grad : 0;
      if (s < symbols) {
        const float term = safe_exp((here - clamped(p[(s + 1) * row + t])) + px[s * row + t]);
        sum += px_grad[s * row + t] = g[(s + 1) * row + t] * term;
      }
      if (t < frames) {
        const float term = safe_exp((here - clamped(p[s * row + t + 1])) + py[s * frames + t]);
        sum += py_grad[s * frames + t] = g[s * row + t + 1] * term;
      }
      g[s * row + t] = sum;
    }
  }
}

// Calls body(b) for each lattice of the batch. Each thread takes an equal share.
template <class Body>
void share(std::ptrdiff_t batch, int threads, const Body& body) {
  const auto part = [&](int i) {
    for (std::ptrdiff_t b = batch * i / threads; b < batch * (i + 1) / threads; ++b) body(b);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(part, i);
  part(0);
  for (std::thread& other : others) other.join();
}

}  // namespace

extern "C" void loop_forward(std::ptrdiff_t batch, std::ptrdiff_t symbols, std::ptrdiff_t frames,
                             const float* px, const float* py, float* p, float* ans, int threads) {
  const std::ptrdiff_t row = frames + 1;
  share(batch, threads, [&](std::ptrdiff_t b) {
    ans[b] = forward_one(symbols, frames, px + b * symbols * row, py + b * (symbols + 1) * frames,
                         p + b * (symbols + 1) * row);
  });
}

extern "C" void loop_backward(std::ptrdiff_t batch, std::ptrdiff_t symbols, std::ptrdiff_t frames,
                              const float* px, const float* py, const float* p, const float* ans_grad,
                              float* px_grad, float* py_grad, float* g, int threads) {
  const std::ptrdiff_t row = frames + 1;
  share(batch, threads, [&](std::ptrdiff_t b) {
    const std::ptrdiff_t x = b * symbols * row, y = b * (symbols + 1) * frames,
                         cell = b * (symbols + 1) * row;
    backward_one(symbols, frames, px + x, py + y, p + cell, ans_grad[b], px_grad + x, py_grad + y, g + cell);
  });
}
