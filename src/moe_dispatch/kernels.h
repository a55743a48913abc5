// The loops of this family over a range, once per instruction set.
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
  bool stream;  // stores bypass the cache
};

// Columns first .. first+count-1 of a row.
struct Columns {
  std::int64_t first, count;
};

struct DispatchKernels {
  // Tokens token .. token+tokens-1, choices choice .. choice+choices-1: the row of each, -1 for none, is in
  // rows[tokens][choices].
  using Tokens = void (*)(const DispatchTask& task, const std::int64_t* rows, std::int64_t token,
                          std::int64_t tokens, std::int64_t choice, std::int64_t choices, Columns columns);
  Tokens (*tokens)(DType token, DType gate);
};

const DispatchKernels& dispatch_kernels(Isa isa);

}  // namespace turnout::families::moe_dispatch
