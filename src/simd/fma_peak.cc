// Independent chains of fused multiply-adds in registers, compiled once per instruction set.
#include "simd/fma_peak.h"

#include <algorithm>
#include <chrono>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/fma_peak.cc"
#include "simd/simd.h"

#ifndef TURNOUT_FMA_PEAK_ONCE
#define TURNOUT_FMA_PEAK_ONCE
namespace turnout::core {

// Returns the number of operations. The stored `keep` prevents the compiler from removing them.
struct PeakKernels {
  double (*chains)(std::int64_t rounds, void* keep);
};

}  // namespace turnout::core
#endif

TURNOUT_ISA_BEGIN(core)

double chains(std::int64_t rounds, void* keep) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.5f);
  // Equal chains would be computed once.
  const auto start = [&](double v) HWY_ATTR { return hn::Set(d, static_cast<float>(v)); };
  auto v0 = start(0), v1 = start(1), v2 = start(2), v3 = start(3), v4 = start(4), v5 = start(5),
       v6 = start(6), v7 = start(7), v8 = start(8), v9 = start(9);
  for (std::int64_t i = 0; i < rounds; ++i) {
    v0 = hn::MulAdd(v0, a, a);
    v1 = hn::MulAdd(v1, a, a);
    v2 = hn::MulAdd(v2, a, a);
    v3 = hn::MulAdd(v3, a, a);
    v4 = hn::MulAdd(v4, a, a);
    v5 = hn::MulAdd(v5, a, a);
    v6 = hn::MulAdd(v6, a, a);
    v7 = hn::MulAdd(v7, a, a);
    v8 = hn::MulAdd(v8, a, a);
    v9 = hn::MulAdd(v9, a, a);
  }
  const auto all = hn::Add(hn::Add(hn::Add(hn::Add(v0, v1), hn::Add(v2, v3)), hn::Add(v4, v5)),
                           hn::Add(hn::Add(v6, v7), hn::Add(v8, v9)));
  hn::StoreU(all, d, static_cast<float*>(keep));
  return static_cast<double>(rounds) * 20.0 * static_cast<double>(hn::Lanes(d));
}

constexpr PeakKernels kPeakKernels = {&chains};

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(core, PeakKernels, peak_kernels, kPeakKernels)

namespace turnout::core {

double fma_peak(Isa isa) {
  alignas(64) std::byte keep[64];
  const auto run = peak_kernels(isa).chains;
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const double operations = run(200'000, keep);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    best = std::max(best, operations / spent.count());
  }
  return best;
}

}  // namespace turnout::core
#endif
