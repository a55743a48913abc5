// Detects the instruction sets of this CPU and applies TURNOUT_ISA.
#include "simd/isa.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "turnout/error.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace turnout {

const char* name_of(Isa isa) {
  static constexpr const char* kNames[core::kIsaCount] = {"sse4",      "avx2",        "avx512",
                                                          "avx512_dl", "avx512_bf16", "neon"};
  const auto i = static_cast<int>(isa);
  return i < core::kIsaCount ? kNames[i] : "best";
}

#if defined(__x86_64__)
namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros if the CPU does not have the leaf.
Registers cpuid(unsigned leaf, unsigned part = 0) {
  Registers r;
  __get_cpuid_count(leaf, part, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// The registers that the system saves on a thread switch. Only for CPUs with OSXSAVE.
unsigned saved_registers() {
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

constexpr bool has(unsigned value, unsigned bits) { return (value & bits) == bits; }

// The last set that this CPU has and whose registers the system saves; -1 if it lacks even the first. Uses
// cpuid and xgetbv, because __builtin_cpu_supports needs a runtime library that not every toolchain links.
int detect() {
  constexpr unsigned kSavesYmm = 0x06, kSavesZmm = 0xe6;
  const Registers basic = cpuid(1), extended = cpuid(7);
  if (!has(basic.ecx, bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_PCLMUL | bit_AES)) return -1;
  if (!has(basic.ecx, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C) ||
      !has(extended.ebx, bit_AVX2 | bit_BMI | bit_BMI2) || !has(saved_registers(), kSavesYmm))
    return static_cast<int>(Isa::sse4);
  if (!has(extended.ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD) ||
      !has(saved_registers(), kSavesZmm))
    return static_cast<int>(Isa::avx2);
  if (!has(extended.ecx, bit_AVX512VNNI | bit_VPCLMULQDQ | bit_AVX512VBMI | bit_AVX512VBMI2 |
                             bit_AVX512BITALG | bit_AVX512VPOPCNTDQ | bit_GFNI | bit_VAES))
    return static_cast<int>(Isa::avx512);
  constexpr unsigned kBf16 = 1u << 5;
  return static_cast<int>(has(cpuid(7, 1).eax, kBf16) ? Isa::avx512_bf16 : Isa::avx512_dl);
}

}  // namespace

bool is_supported(Isa isa) {
  static const int last = detect();  // once: under a hypervisor cpuid takes microseconds
  const int i = static_cast<int>(isa);
  return i <= last && i <= TURNOUT_MOST_ISA;
}
#else
bool is_supported(Isa isa) { return isa == Isa::neon; }
#endif

namespace core {
namespace {

const char* wanted_word() {
  const char* word = std::getenv("TURNOUT_ISA");
  return word == nullptr || *word == '\0' ? nullptr : word;
}

// The instruction set of that name; Isa::best if there is none.
Isa named(const char* word) {
  for (int i = 0; i < kIsaCount; ++i)
    if (std::strcmp(word, name_of(static_cast<Isa>(i))) == 0) return static_cast<Isa>(i);
  return Isa::best;
}

// The strongest supported one of sets 0 .. last.
std::optional<Isa> strongest(int last) {
  for (int i = last; i >= 0; --i)
    if (is_supported(static_cast<Isa>(i))) return static_cast<Isa>(i);
  return std::nullopt;
}

}  // namespace

Isa best_isa() {
  int cap = kIsaCount - 1;
  if (const char* word = wanted_word()) {
    const Isa wanted = named(word);
    if (wanted == Isa::best)
      throw Error(ErrorCode::bad_param,
                  std::string("TURNOUT_ISA is '") + word +
                      "', expected one of sse4, avx2, avx512, avx512_dl, avx512_bf16, neon");
    cap = static_cast<int>(wanted);
  }
  if (const auto isa = strongest(cap)) return *isa;
  if (const auto isa = strongest(kIsaCount - 1)) return *isa;  // the cap is of another architecture
  throw Error(ErrorCode::not_supported,
              "turnout: this CPU lacks SSE4.2, POPCNT, PCLMUL or AES, expected x86-64-v2 with AES or newer");
}

std::string isa_note() {
  const char* word = wanted_word();
  if (word == nullptr || named(word) == Isa::best || is_supported(named(word))) return "";
  return std::string("TURNOUT_ISA is ") + word +
         ", which this CPU or this build lacks: " + name_of(best_isa()) + " is used";
}

Isa resolve_isa(Isa wanted) {
  if (wanted == Isa::best) return best_isa();
  if (is_supported(wanted)) return wanted;
  throw Error(ErrorCode::not_supported, std::string("Options.isa is ") + name_of(wanted) +
                                            ", expected one that this CPU and this build support, at most " +
                                            name_of(best_isa()));
}

}  // namespace core
}  // namespace turnout
