// The plan of all operators of this family: assigns rows of the batch and scratch memory to threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mutual_information/kernels.h"
#include "runtime/parallel.h"

namespace turnout::families::mutual_information {

// Rows of the batch are processed in waves. Either each thread takes waves of a few rows and works alone, or,
// if there are too few rows for that, all threads work together on one wave.
class LatticePlan {
 public:
  // kept_cell_bytes: bytes per cell of the lattices that an operator keeps in scratch memory, or 0.
  LatticePlan(std::int64_t batch, std::int64_t symbols, std::int64_t frames, int threads,
              std::int64_t kept_cell_bytes = 0);

  int threads() const { return std::max(workers_, together_); }
  std::size_t scratch_bytes() const;  // the same for f32 and f64, with and without a boundary

  struct Memory {
    std::int64_t* boundary;  // [batch, 4]
    std::byte* waves;        // per worker
    std::byte* cells;        // the lattices of each worker
  };
  Memory take(core::Scratch& scratch) const;

  // Calls body(first_row, cells, run) for every wave, where run(kernels, task) makes a pass over the rows of
  // the wave, which begin with first_row, and `cells` is memory for their lattices.
  template <class Body>
  void run(Context& context, const LatticeTask& task, const Memory& memory, const Body& body) const {
    const auto run_wave = [&](std::int64_t w, int worker, const auto& run_pass) {
      body(w * rows_, memory.cells + cell_bytes_ * static_cast<std::size_t>(worker),
           [&](const auto& kernels, const auto& pass) {
             Wave wave;
             start(wave, kernels.strips(task), w,
                   memory.waves + wave_bytes_ * static_cast<std::size_t>(worker));
             run_pass([&] { kernels.run(pass, wave); });
           });
    };
    if (together_ > 1)  // each pass is one job of all threads
      return run_wave(0, 0, [&](const auto& work) {
        core::parallel_for(context, together_, 1, [&](std::int64_t, std::int64_t) { work(); });
      });
    const std::int64_t waves = (batch_ + rows_ - 1) / rows_;
    core::parallel_for(
        context, waves, 1,
        [&](std::int64_t w, std::int64_t, int worker) {
          run_wave(w, worker, [](const auto& work) { work(); });
        },
        workers_);
  }

 private:
  // Prepares wave w in `memory`; called by one thread.
  void start(Wave& wave, std::int64_t strips, std::int64_t w, std::byte* memory) const;

  const std::int64_t batch_;
  std::int64_t rows_;  // per wave
  int workers_;        // threads that work alone on a wave each
  int together_;       // threads that work on one wave
  std::int64_t ring_rows_;
  std::size_t ring_bytes_, wave_bytes_, cell_bytes_;  // the rings of a wave, all of a wave, its lattices
};

}  // namespace turnout::families::mutual_information
