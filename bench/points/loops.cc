// Furthest point sampling as a plain loop that a compiler turns into vectors: all points for each sample.
#include <algorithm>
#include <cstdint>
#include <vector>

constexpr std::int64_t kBlock = 256;  // the row of the largest distance is looked for in one block

extern "C" void loops_sample(const float* xyz, std::int64_t count, std::int64_t samples, std::int32_t* idx) {
  std::vector<float> x(count), y(count), z(count), least(count, 1e10f);
  for (std::int64_t k = 0; k < count; ++k) {
    x[k] = xyz[3 * k];
    y[k] = xyz[3 * k + 1];
    z[k] = xyz[3 * k + 2];
  }
  std::int64_t last = 0;
  idx[0] = 0;
  for (std::int64_t i = 1; i < samples; ++i) {
    const float at[] = {x[last], y[last], z[last]};
    const float *px = x.data(), *py = y.data(), *pz = z.data();
    float* const to = least.data();
    float most = -1;
    std::int64_t block_of_most = 0;
    for (std::int64_t first = 0; first < count; first += kBlock) {
      const std::int64_t end = std::min(first + kBlock, count);
      float most_here = -1;
#pragma omp simd reduction(max : most_here)
      for (std::int64_t k = first; k < end; ++k) {
        const float dx = px[k] - at[0], dy = py[k] - at[1], dz = pz[k] - at[2];
        const float square = (dx * dx + dy * dy) + dz * dz, is = to[k];
        const float now = square < is ? square : is;
        to[k] = now;
        most_here = now > most_here ? now : most_here;
      }
      if (most_here > most) {
        most = most_here;
        block_of_most = first;
      }
    }
    for (last = block_of_most; to[last] != most;) ++last;
    idx[i] = static_cast<std::int32_t>(last);
  }
}
