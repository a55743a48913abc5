// Prints the instruction sets that the tests of this build run on this CPU, and those that the CPU lacks, one
// line each: "ran sse4 avx2" and "not avx512 avx512_dl". tools/instruction_sets.py reads the output.
#include <cstdio>
#include <string>

#include "isas.h"

int main() {
#if defined(__x86_64__)
  constexpr int kFirst = static_cast<int>(turnout::Isa::sse4), kLast = TURNOUT_MOST_ISA;
#else
  constexpr int kFirst = static_cast<int>(turnout::Isa::neon), kLast = kFirst;
#endif
  std::string ran, not_run;
  for (turnout::Isa isa : turnout::test::supported_isas()) ran += std::string(" ") + name_of(isa);
  for (int i = kFirst; i <= kLast; ++i)
    if (const auto isa = static_cast<turnout::Isa>(i); !is_supported(isa))
      not_run += std::string(" ") + name_of(isa);
  std::printf("ran%s\nnot%s\n", ran.c_str(), not_run.c_str());
  return ran.empty() ? 1 : 0;
}
