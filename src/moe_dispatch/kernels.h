// The loops of this family over a range, once per instruction set.
#pragma once

#include <cstdint>

#include "core/isa.h"
#include "turnout/tensor.h"

namespace turnout::core {

struct DispatchTask {
  const void* gates;         // [choices * samples]
  const void* input;         // [samples, hidden]
  void* dispatch;            // [rows, hidden]
  const std::int64_t* last;  // [rows]: position in gates of the row's last writer, or -1
  std::int64_t samples;
  std::int64_t hidden;
  std::int64_t piece;           // elements of a row that are handled at once
  std::int64_t pieces_per_row;  // 1 unless rows are very long
  bool zero;                    // rows without a writer become zero
  bool stream;                  // stores bypass the cache
};

struct DispatchKernels {
  // Pieces begin .. end-1 of the output; piece p belongs to row p / pieces_per_row.
  using Rows = void (*)(const DispatchTask& task, std::int64_t begin, std::int64_t end);
  Rows (*rows)(DType token, DType gate);
  // Tokens first .. first+count-1 in order; rows[i] is the row of token first + i, or -1.
  using Tokens = void (*)(const DispatchTask& task, const std::int64_t* rows, std::int64_t first,
                          std::int64_t count);
  Tokens (*tokens)(DType token, DType gate);
};

const DispatchKernels& dispatch_kernels(Isa isa);

}  // namespace turnout::core
