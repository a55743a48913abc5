// Work on PyTorch's own threads. Threads of our own would compete with torch's, which spin for milliseconds
// after each torch operator: a copy takes 1,230 us on two threads of our own and 535 us on two of torch's.
#pragma once

#include <cstdint>

#include "turnout/context.h"

namespace turnout::core {

// Functions of libtorch_cpu's stable C interface; they return 0 for success.
struct TorchFunctions {
  using Range = void (*)(std::int64_t begin, std::int64_t end, void* context);
  int (*parallel_for)(std::int64_t begin, std::int64_t end, std::int64_t grain, Range range, void* context);
  int (*get_num_threads)(std::uint32_t* threads);
};

// From now on torch_context() works on torch's threads. Called once, with the GIL held.
void use_torch_threads(const TorchFunctions& functions);

// The context of calls from turnout.torch; the default one when torch's functions were not found.
Context& torch_context();

std::int64_t torch_runs();  // how often torch's threads were used, for the tests

}  // namespace turnout::core
