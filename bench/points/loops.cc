// Furthest point sampling as a plain loop that a compiler turns into vectors: all points for each sample.
#include <cstdint>
#include <vector>

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
    float most = -1;
    for (std::int64_t k = 0; k < count; ++k) {
      const float dx = x[k] - at[0], dy = y[k] - at[1], dz = z[k] - at[2];
      const float square = (dx * dx + dy * dy) + dz * dz;
      least[k] = square < least[k] ? square : least[k];
      most = least[k] > most ? least[k] : most;
    }
    for (last = 0; least[last] != most;) ++last;
    idx[i] = static_cast<std::int32_t>(last);
  }
}
