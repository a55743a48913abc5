// The lattice of one or several rows of the batch, once per instruction set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mutual_information/ring.h"
#include "simd/isa.h"
#include "turnout/tensor.h"

namespace turnout::families::mutual_information {

using namespace core;

// The tensors of a call. Real is double for f64, else float.
struct LatticeTask {
  const void* px;
  const void* py;
  const std::int64_t* boundary;  // within the lattice, and nobody else's to change; nullptr: none
  DType dtype;                   // of px, py and the gradients
  std::int64_t symbols, frames, columns;

  bool is_modified() const { return columns == frames; }
};

// The part of a lattice between its boundaries, inclusive.
struct LatticeBox {
  std::int64_t s_begin, t_begin, s_end, t_end;
  bool is_empty() const { return s_begin > s_end || t_begin > t_end; }
};
inline LatticeBox box_of(const LatticeTask& task, std::int64_t row) {
  if (task.boundary == nullptr) return {0, 0, task.symbols, task.frames};
  const std::int64_t* b = task.boundary + 4 * row;
  return {b[0], b[1], b[2], b[3]};
}

// What the forward direction stores of each cell.
enum class Stored : std::uint8_t {
  score,  // p
  odds,   // the logarithm of the symbol's share over the blank's; NaN where p is not finite
};

// Where each operator's own arguments are.
struct ForwardTask {
  LatticeTask lattice;
  void* cells;             // Real [.., symbols + 1, frames + 1]
  std::int64_t first_row;  // of the batch, that `cells` begins with
  void* ans;               // Real [batch]
  Stored stored = Stored::score;
};
struct BackwardTask {
  LatticeTask lattice;
  const void* cells;  // as above; p for BackwardKernels, odds for FlowKernels
  std::int64_t first_row;
  void* px_grad;
  void* py_grad;
  void* ans_grad = nullptr;  // Real [batch]; not for FlowKernels, where it is 1
  bool overwrite_ans_grad = false;
};

// Rows of the batch that one or several threads work on. An item is a strip of rows of one lattice; items are
// taken in order, and wait for what the strip before them in the same lattice has done. That one was taken
// earlier, by a thread that runs, so nobody waits for ever.
struct Wave {
  std::int64_t row_begin, row_end;      // of the batch
  std::int64_t strips;                  // of a lattice, at most
  std::int64_t ring_rows;               // more than strips of a lattice that are in work at the same time
  std::byte* rings;                     // what strips hand on, ring_rows of each lattice
  std::atomic<std::int64_t>* progress;  // [rows, strips], from 0
  std::atomic<std::int64_t> next_item{0};
};

struct WaveKernels {
  std::int64_t (*strips)(const LatticeTask& task);  // of a lattice, at most
};
struct ForwardKernels : WaveKernels {
  void (*run)(const ForwardTask& task, Wave& wave);  // each worker calls it once
};
// The gradients from p.
struct BackwardKernels : WaveKernels {
  void (*run)(const BackwardTask& task, Wave& wave);
};
// The gradients from odds.
struct FlowKernels : WaveKernels {
  void (*run)(const BackwardTask& task, Wave& wave);
};

const ForwardKernels& forward_kernels(Isa isa);
const BackwardKernels& backward_kernels(Isa isa);
const FlowKernels& flow_kernels(Isa isa);

// The gradients of one row of the batch from any p, NaN and infinities included: the recursion cell by cell,
// in the rounding of Real and nothing else, so with the same bits on every instruction set. `g` has memory
// for frames + 1 cells. ans_grad is overwritten if the task says so. Gradients outside the box are not
// written.
void plain_gradients(const BackwardTask& task, std::int64_t row, const LatticeBox& box, void* g);

}  // namespace turnout::families::mutual_information
