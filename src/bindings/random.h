// Random numbers for the calls that compare operators with their definitions.
#pragma once

#include <cstdint>

namespace turnout::bindings {

// Where random numbers come from: a seed, or the bytes of a fuzzer.
class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t next() = 0;

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }
};

class SeededRandom : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() override {  // splitmix64
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace turnout::bindings
