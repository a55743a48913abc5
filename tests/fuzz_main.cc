// A plain main for a fuzzer: one second of random inputs from a fixed seed, so that every test run runs it.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main() {
  constexpr unsigned kSeed = 20240607;
  std::mt19937 random(kSeed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::vector<std::uint8_t> bytes;
  long runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    bytes.resize(random() % 4096);
    for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%ld inputs, seed %u\n", runs, kSeed);
  return runs > 0 ? 0 : 1;
}
