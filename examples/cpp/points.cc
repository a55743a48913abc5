// Samples of a cloud that cover it, and the points around each of them.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <turnout/turnout.h>

int main() {
  constexpr std::int64_t kPoints = 16384, kSamples = 1024, kNeighbours = 16;
  std::mt19937 random(0);
  std::uniform_real_distribution<float> at(0, 10);
  std::vector<float> xyz(kPoints * 3), centres;
  for (float& v : xyz) v = at(random);

  std::vector<std::int32_t> samples(kSamples);
  turnout::furthest_point_sample(turnout::view(xyz, {kPoints, 3}), nullptr, turnout::view(samples));
  for (const std::int32_t row : samples)
    centres.insert(centres.end(), xyz.begin() + 3 * row, xyz.begin() + 3 * row + 3);

  std::vector<std::int32_t> idx(kSamples * kNeighbours), found(kSamples);
  turnout::ball_query(turnout::view(xyz, {kPoints, 3}), turnout::view(centres, {kSamples, 3}),
                      turnout::view(idx, {kSamples, kNeighbours}), turnout::view(found), 0.6);
  std::int64_t all = 0;
  for (const std::int32_t count : found) all += count;
  std::printf("%lld samples have %.1f neighbours on average\n", static_cast<long long>(kSamples),
              static_cast<double>(all) / kSamples);
  return all >= kSamples ? 0 : 1;  // each sample is its own neighbour
}
