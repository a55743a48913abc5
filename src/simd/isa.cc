// Detects the instruction sets of this CPU, and applies TURNOUT_ISA.
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
  static constexpr const char* kNames[core::kIsaCount] = {"sse4", "avx2", "avx512", "avx512_dl", "neon"};
  const auto i = static_cast<int>(isa);
  return i < core::kIsaCount ? kNames[i] : "best";
}

#if defined(__x86_64__)
namespace {
bool has_f16c() {  // clang 14's __builtin_cpu_supports does not know "f16c"
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
}  // namespace

bool is_supported(Isa isa) {
  if (static_cast<int>(isa) > TURNOUT_MOST_ISA) return false;
  __builtin_cpu_init();
  switch (isa) {
    case Isa::sse4:
      return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
             __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") &&
             __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes");
    case Isa::avx2:
      return is_supported(Isa::sse4) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c();
    case Isa::avx512:
      return is_supported(Isa::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
    case Isa::avx512_dl:
      return is_supported(Isa::avx512) && __builtin_cpu_supports("avx512vnni") &&
             __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vbmi") &&
             __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512bitalg") &&
             __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("gfni");
    default:
      return false;
  }
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

// The instruction set of that name; best: there is none.
Isa named(const char* word) {
  for (int i = 0; i < kIsaCount; ++i)
    if (std::strcmp(word, name_of(static_cast<Isa>(i))) == 0) return static_cast<Isa>(i);
  return Isa::best;
}

// The strongest that is supported, of sets 0 .. last.
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
      throw Error(ErrorCode::bad_param, std::string("TURNOUT_ISA is '") + word +
                                            "', expected one of sse4, avx2, avx512, avx512_dl, neon");
    cap = static_cast<int>(wanted);
  }
  if (const auto isa = strongest(cap)) return *isa;
  if (const auto isa = strongest(kIsaCount - 1)) return *isa;  // of another kind of CPU
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
                                            ", expected one that this CPU and this build have, at most " +
                                            name_of(best_isa()));
}

}  // namespace core
}  // namespace turnout
