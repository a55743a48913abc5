// Plans of the mutual information operators: which threads work on which rows of the batch.
#include "mutual_information/mutual_information.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <new>

#include "mutual_information/kernels.h"
#include "mutual_information/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"

namespace turnout {
namespace families::mutual_information {
namespace {

// From here on a second thread is worth waking.
constexpr std::int64_t kParallelCells = std::int64_t{1} << 17;
// Rows of the batch that one thread takes: their strips hide each other's waiting in the forward direction.
constexpr std::int64_t kGroupRows = 4;

Slot slot_of(const ConstTensor* tensor) { return tensor != nullptr ? Slot(*tensor) : Slot(); }

// A copy of the caller's boundary, in which every component is in 0 .. S or 0 .. T; nullptr: there is none.
// Another thread may change the caller's memory at any time, so each element is read once, and it is the copy
// that is checked and used.
const std::int64_t* checked_boundary(Call& call, std::string_view op, const ConstTensor& px,
                                     const ConstTensor& py, const ConstTensor* boundary, Scratch& scratch) {
  if (boundary == nullptr) return nullptr;
  const auto* given = static_cast<const std::int64_t*>(boundary->data);
  const std::int64_t count = boundary->shape[0] * 4, limits[2] = {px.shape[1], py.shape[2]};
  auto* copy = scratch.take<std::int64_t>(count);
  call.check([&] {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t value = read_once(given + i), limit = limits[i % 2];
      if (value < 0 || value > limit)
        throw Error(ErrorCode::bad_param,
                    concat(op, ": boundary[", i / 4, ", ", i % 4, "] is ", value, ", expected 0 .. ", limit,
                           i % 2 == 0 ? " symbols" : " frames"));
      copy[i] = value;
    }
  });
  return copy;
}

LatticeTask task_of(const ConstTensor& px, const ConstTensor& py, const std::int64_t* boundary) {
  return {px.data, py.data, boundary, px.dtype, px.shape[1], py.shape[2], px.shape[2]};
}

// Saturates: such a size ends in memory that is not available.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (std::int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) return kSizeMax;
  return result;
}
std::size_t scratch_bytes(std::initializer_list<std::int64_t> factors) {
  return padded(static_cast<std::size_t>(std::min(product(factors), kSizeMax / 16)));
}

// Either each thread takes groups of rows and works alone, or, when there are too few, all threads work on
// all rows together.
struct Division {
  std::int64_t batch, rows;  // of the batch, of a wave
  int workers;               // that have a wave of their own
  int threads;               // that work on one wave

  Division(std::int64_t batch_rows, std::int64_t symbols, std::int64_t frames, int thread_count)
      : batch(batch_rows) {
    const std::int64_t cells = product({batch, symbols + 1, frames + 1});
    const std::int64_t groups = (batch + kGroupRows - 1) / kGroupRows;
    const bool parallel = cells >= kParallelCells && thread_count > 1;
    const bool together = parallel && groups < 2 * thread_count;
    rows = together ? batch : std::min(batch, kGroupRows);
    workers = parallel && !together ? thread_count : 1;
    threads = together ? thread_count : 1;
  }
  std::int64_t waves() const { return (batch + rows - 1) / rows; }
};

// Memory of a wave. Sizes are bounds that hold for every instruction set, so that they follow from shapes
// alone.
constexpr std::int64_t kMaxLanes = 16, kMinLanes = 2;

// More rows than strips in work hand on, or one for each strip.
std::int64_t ring_rows(const Division& division, std::int64_t symbols) {
  return std::min(std::int64_t{division.threads} * kStripsInWork + 1, symbols / kMinLanes + 2);
}
std::size_t ring_bytes(const Division& division, std::int64_t symbols, std::int64_t frames) {
  const std::int64_t row = product({frames + 2 + 3 * kMaxLanes, sizeof(double)});
  return scratch_bytes({division.rows, ring_rows(division, symbols),
                        static_cast<std::int64_t>(padded(static_cast<std::size_t>(row)))});
}
std::size_t wave_bytes(const Division& division, std::int64_t symbols, std::int64_t frames) {
  return ring_bytes(division, symbols, frames) +
         scratch_bytes({division.rows, symbols / kMinLanes + 1, sizeof(std::int64_t)});
}

class Waves {
 public:
  using Progress = std::atomic<std::int64_t>;

  Waves(const LatticeTask& task, const Division& division, Scratch& scratch)
      : task_(task), division_(division), wave_bytes_(wave_bytes(division, task.symbols, task.frames)) {
    memory_ = scratch.take<std::byte>(static_cast<std::int64_t>(wave_bytes_) * division.workers);
  }

  // Prepares wave w for `worker`; from one thread.
  void start(Wave& wave, const WaveKernels& kernels, std::int64_t w, int worker) const {
    std::byte* memory = memory_ + wave_bytes_ * static_cast<std::size_t>(worker);
    wave.row_begin = w * division_.rows;
    wave.row_end = std::min(division_.batch, wave.row_begin + division_.rows);
    wave.strips = kernels.strips(task_);
    wave.ring_rows = ring_rows(division_, task_.symbols);
    wave.rings = memory;
    wave.progress = reinterpret_cast<Progress*>(memory + ring_bytes(division_, task_.symbols, task_.frames));
    for (std::int64_t i = 0; i < division_.rows * wave.strips; ++i) new (wave.progress + i) Progress(0);
    wave.next_item = 0;
  }

 private:
  const LatticeTask& task_;
  const Division& division_;
  std::size_t wave_bytes_;
  std::byte* memory_;
};

// body(w, worker, run) for every wave w, where run(kernels, task) does a pass over the wave's rows.
template <class Body>
void for_each_wave(Context& context, const Division& division, const Waves& waves, const Body& body) {
  if (division.threads > 1) {  // one wave; each pass is one job of all threads
    body(0, 0, [&](const auto& kernels, const auto& task) {
      Wave wave;
      waves.start(wave, kernels, 0, 0);
      parallel_for(context, division.threads, 1,
                   [&](std::int64_t, std::int64_t) { kernels.run(task, wave); });
    });
    return;
  }
  const std::int64_t count = division.waves();
  parallel_for(
      context, count, division.workers > 1 ? 1 : count,
      [&](std::int64_t begin, std::int64_t end, int worker) {
        for (std::int64_t w = begin; w < end; ++w)
          body(w, worker, [&](const auto& kernels, const auto& task) {
            Wave wave;
            waves.start(wave, kernels, w, worker);
            kernels.run(task, wave);
          });
      },
      division.workers);
}

}  // namespace

// Also for f64, whose rows are as wide, and with room for a boundary if there is none.
std::size_t mutual_information_scratch(std::int64_t batch, std::int64_t symbols, std::int64_t frames,
                                       int threads) {
  const Division division(batch, symbols, frames, threads);
  const auto wave = static_cast<std::int64_t>(wave_bytes(division, symbols, frames));
  return scratch_bytes({batch, 4, sizeof(std::int64_t)}) +
         scratch_bytes({wave, std::int64_t{division.workers}});
}

void mutual_information_forward(const Frame& frame, const ConstTensor& px, const ConstTensor& py,
                                const ConstTensor* boundary, const Tensor& p, const Tensor& ans) {
  Context& context = frame.context;
  Call call(frame, kMutualInformationForward, {px, py, slot_of(boundary), p, ans}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t batch = ans.shape[0], symbols = px.shape[1], frames = py.shape[2];
  const int threads = context.threads();  // once: it may change
  const Division division(batch, symbols, frames, threads);
  Scratch& scratch = call.scratch(mutual_information_scratch(batch, symbols, frames, threads));
  const LatticeTask task =
      task_of(px, py, checked_boundary(call, kMutualInformationForward.op, px, py, boundary, scratch));
  call.chose("anti-diagonals", std::max(division.workers, division.threads));
  const ForwardTask forward{task, p.data, 0, ans.data};
  for_each_wave(context, division, Waves(task, division, scratch),
                [&](std::int64_t, int, const auto& run) { run(forward_kernels(context.isa()), forward); });
}

void mutual_information_backward(const Frame& frame, const ConstTensor& px, const ConstTensor& py,
                                 const ConstTensor* boundary, const ConstTensor& p, const Tensor& ans_grad,
                                 const Tensor& px_grad, const Tensor& py_grad, bool overwrite_ans_grad) {
  Context& context = frame.context;
  Call call(frame, kMutualInformationBackward, {px, py, slot_of(boundary), p, ans_grad, px_grad, py_grad},
            {overwrite_ans_grad});
  if (call.nothing_to_do()) return;
  const std::int64_t batch = ans_grad.shape[0], symbols = px.shape[1], frames = py.shape[2];
  const int threads = context.threads();
  const Division division(batch, symbols, frames, threads);
  Scratch& scratch = call.scratch(mutual_information_scratch(batch, symbols, frames, threads));
  const LatticeTask task =
      task_of(px, py, checked_boundary(call, kMutualInformationBackward.op, px, py, boundary, scratch));
  call.chose("rows", std::max(division.workers, division.threads));
  const BackwardTask backward{task, p.data, 0, px_grad.data, py_grad.data, ans_grad.data, overwrite_ans_grad};
  for_each_wave(context, division, Waves(task, division, scratch),
                [&](std::int64_t, int, const auto& run) { run(backward_kernels(context.isa()), backward); });
}

void mutual_information_forward_backward(const Frame& frame, const ConstTensor& px, const ConstTensor& py,
                                         const ConstTensor* boundary, const Tensor& ans,
                                         const Tensor& px_grad, const Tensor& py_grad) {
  Context& context = frame.context;
  Call call(frame, kMutualInformationForwardBackward, {px, py, slot_of(boundary), ans, px_grad, py_grad}, {});
  if (call.nothing_to_do()) return;
  const std::int64_t batch = ans.shape[0], symbols = px.shape[1], frames = py.shape[2];
  const int threads = context.threads();
  const Division division(batch, symbols, frames, threads);
  const std::size_t lattice_bytes =
      scratch_bytes({division.rows, symbols + 1, frames + 1, size_of(ans.dtype)});
  Scratch& scratch =
      call.scratch(mutual_information_scratch(batch, symbols, frames, threads) +
                   scratch_bytes({static_cast<std::int64_t>(lattice_bytes), std::int64_t{division.workers}}));
  const LatticeTask task = task_of(
      px, py, checked_boundary(call, kMutualInformationForwardBackward.op, px, py, boundary, scratch));
  call.chose("anti-diagonals, rows", std::max(division.workers, division.threads));
  const Waves memory(task, division, scratch);
  auto* lattices = scratch.take<std::byte>(static_cast<std::int64_t>(lattice_bytes) * division.workers);
  for_each_wave(context, division, memory, [&](std::int64_t w, int worker, const auto& run) {
    std::byte* odds = lattices + lattice_bytes * static_cast<std::size_t>(worker);
    const std::int64_t first_row = w * division.rows;
    run(forward_kernels(context.isa()), ForwardTask{task, odds, first_row, ans.data, Stored::odds});
    run(flow_kernels(context.isa()), BackwardTask{task, odds, first_row, px_grad.data, py_grad.data});
  });
}

}  // namespace families::mutual_information

void mutual_information_forward(Context& context, const ConstTensor& px, const ConstTensor& py,
                                const ConstTensor* boundary, const Tensor& p, const Tensor& ans) {
  families::mutual_information::mutual_information_forward(context, px, py, boundary, p, ans);
}

void mutual_information_backward(Context& context, const ConstTensor& px, const ConstTensor& py,
                                 const ConstTensor* boundary, const ConstTensor& p, const Tensor& ans_grad,
                                 const Tensor& px_grad, const Tensor& py_grad, bool overwrite_ans_grad) {
  families::mutual_information::mutual_information_backward(context, px, py, boundary, p, ans_grad, px_grad,
                                                            py_grad, overwrite_ans_grad);
}

void mutual_information_forward_backward(Context& context, const ConstTensor& px, const ConstTensor& py,
                                         const ConstTensor* boundary, const Tensor& ans,
                                         const Tensor& px_grad, const Tensor& py_grad) {
  families::mutual_information::mutual_information_forward_backward(context, px, py, boundary, ans, px_grad,
                                                                    py_grad);
}

}  // namespace turnout
