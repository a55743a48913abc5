// The kernels of this family: loops over a range of tokens, compiled once per instruction set.
#pragma once

#include <cstdint>

#include "simd/isa.h"
#include "turnout/tensor.h"

namespace turnout::families::moe_dispatch {

using namespace core;

struct DispatchTask {
  const void* gates;  // [choices, samples]
  const void* input;  // [samples, hidden]
  void* dispatch;     // [rows, hidden]
  std::int64_t samples;
  std::int64_t hidden;
  bool stream;  // use stores that bypass the cache
};

// Columns [first, first + count) of a row.
struct Columns {
  std::int64_t first, count;
};

struct DispatchKernels {
  // Copies tokens [token, token + tokens), each once per choice in [choice, choice + choices). The row of
  // `dispatch` for each copy is in rows[tokens][choices]; -1 means no copy.
  using Tokens = void (*)(const DispatchTask& task, const std::int64_t* rows, std::int64_t token,
                          std::int64_t tokens, std::int64_t choice, std::int64_t choices, Columns columns);
  Tokens (*tokens)(DType token, DType gate);
};

const DispatchKernels& dispatch_kernels(Isa isa);

}  // namespace turnout::families::moe_dispatch
