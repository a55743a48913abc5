// Kernels that compute one or several lattices of the batch, compiled once per instruction set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mutual_information/ring.h"
#include "runtime/interrupt.h"
#include "simd/isa.h"
#include "turnout/tensor.h"

namespace turnout::families::mutual_information {

// The inputs of a call. Below, Real is double if px is f64, otherwise float.
struct LatticeTask {
  const void* px;
  const void* py;
  const std::int64_t* boundary;  // a checked copy, which no other thread changes; nullptr: none
  DType dtype;                   // dtype of px, py and the gradients
  std::int64_t symbols, frames, columns;
  core::Stop stop = {};  // once requested, no new strip is started

  bool is_modified() const { return columns == frames; }
};

// The part of a lattice within its boundary; ends are inclusive.
struct LatticeBox {
  std::int64_t s_begin, t_begin, s_end, t_end;
  bool is_empty() const { return s_begin > s_end || t_begin > t_end; }
};
inline LatticeBox box_of(const LatticeTask& task, std::int64_t row) {
  if (task.boundary == nullptr) return {0, 0, task.symbols, task.frames};
  const std::int64_t* b = task.boundary + 4 * row;
  return {b[0], b[1], b[2], b[3]};
}

// What the forward kernel stores for each cell.
enum class Stored : std::uint8_t {
  score,  // p
  odds,   // the difference of the two terms of log_add, symbol minus blank; NaN where p is not finite
};

// The arguments of the two directions.
struct ForwardTask {
  LatticeTask lattice;
  void* cells;             // Real [.., symbols + 1, frames + 1]
  std::int64_t first_row;  // the row of the batch at which `cells` begins
  void* ans;               // Real [batch]
  Stored stored = Stored::score;
};
struct BackwardTask {
  LatticeTask lattice;
  const void* cells;  // as above: p for BackwardKernels, odds for FlowKernels
  std::int64_t first_row;
  void* px_grad;
  void* py_grad;
  void* ans_grad = nullptr;  // Real [batch]; unused by FlowKernels, for which it is 1
  bool overwrite_ans_grad = false;
  std::atomic<bool>* has_plain = nullptr;  // set if a lattice needs plain_gradients()
};

// A wave: rows of the batch that one or several threads compute together. Each lattice is split into strips
// of rows, numbered in the order of computation: forward from the first row of the lattice, backward from the
// last. Strip n needs the boundary row of strip n - 1: forward its last row, backward its first. The strips
// of a lattice pass these rows on through a ring of ring_rows slots. The rules are:
//
// - Items. A thread takes the next item with next_item.fetch_add(1), so items are taken in ascending order.
//   Forward there is one item per lattice for its first row (strip -1), then its strips. All items of strip n
//   come before those of strip n + 1 of the same lattice.
// - Writers. Strip n writes slot (n + 1) % ring_rows forward and slot n % ring_rows backward. The thread that
//   took the strip is the only writer of the slot and of progress[row, n]; one exception: forward, the thread
//   that computes the first row sets progress[row, 0] to 1 before strip 0 starts.
// - Readers. Only strip n + 1 reads the slot of strip n. When all strips of a lattice are done, backward may
//   use slot 0 as scratch memory.
// - Progress, forward. 0: not ready. 1, in strip 0 only: the first row is in the ring. s + 1: the strip has
//   done s steps, so columns up to s - lanes of its last row are in the ring. kDone: all of them are, and the
//   strip no longer reads its input slot.
// - Progress, backward. c: the strip has done c chunks of columns from the right. The number of chunks, or
//   kGivenUp: the strip is done. kGivenUp also says that this strip or one before it found values for which
//   only plain_gradients() is right.
// - Ordering. A slot is written before a release store to the progress of its writer, and read after an
//   acquire load of it.
// - Reuse. Strip n overwrites the slot of strip n - ring_rows, whose only reader is strip
//   n - ring_rows + 1. Strip n starts when that reader is done. Strips of a lattice finish in order, so those
//   in progress are consecutive, and there are at most threads * kStripsInWork of them. With ring_rows
//   greater than that, or than the number of strips, the reader is done by the time strip n is taken. The
//   wait is then short, and orders the accesses to the slot.
// - No deadlock. A strip waits only for strips of lower number in the same lattice, which are earlier items:
//   they were taken by threads that are running. The earliest unfinished item waits for nothing, and its
//   thread always returns to it: forward a thread polls all its strips, backward it has one strip at a time.
//   So some item always advances, even if fewer threads take part than planned: an item without a thread was
//   not taken, and no item that was taken waits for it.
struct Wave {
  std::int64_t row_begin, row_end;      // rows of the batch
  std::int64_t strips;                  // the most strips of a lattice
  std::int64_t ring_rows;               // slots in the ring of one lattice
  std::byte* rings;                     // [rows, ring_rows] slots
  std::atomic<std::int64_t>* progress;  // [rows, strips], initially 0
  std::atomic<std::int64_t> next_item{0};
};

struct WaveKernels {
  std::int64_t (*strips)(const LatticeTask& task);  // the most strips that a lattice has
};
struct ForwardKernels : WaveKernels {
  void (*run)(const ForwardTask& task, Wave& wave);  // each thread calls it once
};
// Computes the gradients from p.
struct BackwardKernels : WaveKernels {
  void (*run)(const BackwardTask& task, Wave& wave);
};
// Computes the gradients from odds.
struct FlowKernels : WaveKernels {
  void (*run)(const BackwardTask& task, Wave& wave);
};

const ForwardKernels& forward_kernels(Isa isa);
const BackwardKernels& backward_kernels(Isa isa);
const FlowKernels& flow_kernels(Isa isa);

// Computes the gradients of one row of the batch from any p, including NaN and infinities: the recursion cell
// by cell in Real, with the same bits on every instruction set. `g` is memory for frames + 1 cells.
// Overwrites ans_grad if the task says so. Does not write gradients outside the box.
void plain_gradients(const BackwardTask& task, std::int64_t row, const LatticeBox& box, void* g);

}  // namespace turnout::families::mutual_information
