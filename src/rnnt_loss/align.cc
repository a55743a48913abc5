// The best path through a lattice.
#include <algorithm>
#include <limits>

#include "core/dtypes.h"
#include "rnnt_loss/kernels.h"
#include "rnnt_loss/lattices.h"
#include "rnnt_loss/signature.h"
#include "runtime/parallel.h"
#include "simd/half.h"
#include "turnout/rnnt_loss.h"

namespace turnout::families::rnnt_loss {

using namespace core;
namespace {

struct AlignShape {
  std::int64_t symbols, frames, columns;
  std::int64_t off() const { return columns == frames ? 1 : 0; }  // frames that a symbol takes
};

// Aligns one row of the batch. by_symbol[s, t]: whether the best path enters the cell by a symbol; p: a row.
template <class T>
LaneOf<T> align(const AlignShape& shape, const Box& box, const T* px, const T* py, std::uint8_t* by_symbol,
                LaneOf<T>* p, std::int64_t* symbol_frames) {
  using Lane = LaneOf<T>;
  constexpr Lane kNone = -std::numeric_limits<Lane>::infinity();
  std::fill_n(symbol_frames, shape.symbols, -1);
  std::fill_n(p, shape.frames + 1, kNone);
  const std::int64_t off = shape.off();
  for (std::int64_t s = box.s_begin; s <= box.s_end; ++s) {
    Lane before = kNone;  // p[s-1, t-1], which the row overwrites
    for (std::int64_t t = box.t_begin; t <= box.t_end; ++t) {
      const Lane above = s > box.s_begin ? (off == 0 ? p[t] : before) : kNone;
      before = p[t];
      if (s == box.s_begin && t == box.t_begin) {
        p[t] = 0;
        continue;
      }
      Lane symbol = kNone, blank = kNone;
      if (s > box.s_begin && t - off >= box.t_begin)
        symbol = above + to_float(px[(s - 1) * shape.columns + t - off]);
      if (t > box.t_begin) blank = p[t - 1] + to_float(py[s * shape.frames + t - 1]);
      const bool takes_symbol = symbol >= blank && symbol > kNone;
      by_symbol[s * (shape.frames + 1) + t] = takes_symbol;
      p[t] = takes_symbol ? symbol : blank;
    }
  }
  const Lane score = p[box.t_end];
  if (!(score > kNone)) return score;
  for (std::int64_t s = box.s_end, t = box.t_end; s > box.s_begin;) {
    if (by_symbol[s * (shape.frames + 1) + t] != 0) {
      t -= off;
      symbol_frames[--s] = t;
    } else if (--t < box.t_begin) {
      break;  // a NaN led here
    }
  }
  return score;
}

}  // namespace
}  // namespace turnout::families::rnnt_loss

namespace turnout {

using namespace families::rnnt_loss;

void rnnt_align(const ConstTensor& px, const ConstTensor& py, const ConstTensor& boundary,
                const Tensor& symbol_frames, const Tensor& score, const Caller& caller) {
  Context& context = caller.context();
  Call call(caller, kRnntAlign, {px, py, boundary, symbol_frames, score}, {});
  if (call.nothing_to_do()) return;
  const AlignShape shape{px.shape[1], py.shape[2], px.shape[2]};
  const LatticeShape lattice{px.shape[0], shape.symbols, shape.frames, false};
  const std::int64_t cells = (shape.symbols + 1) * (shape.frames + 1);
  const bool is_parallel = lattice.batch * cells * 8 >= kParallelBytes;
  const int workers = is_parallel ? context.threads() : 1;
  const std::size_t way_bytes = array_bytes<std::uint8_t>(cells),
                    row_bytes = array_bytes<double>(shape.frames + 1);
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(lattice, false) +
                                  static_cast<std::size_t>(workers) * (way_bytes + row_bytes));
  const Lattices lattices(call, lattice, {.boundary = boundary}, scratch);
  auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(way_bytes + row_bytes) * workers);
  call.chose("cells", workers);
  visit_float(px.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    using Lane = LaneOf<T>;
    parallel_for(
        context, lattice.batch, is_parallel ? 1 : lattice.batch,
        [&](std::int64_t begin, std::int64_t end, int worker) {
          std::byte* own = memory + (way_bytes + row_bytes) * static_cast<std::size_t>(worker);
          for (std::int64_t b = begin; b < end; ++b)
            static_cast<Lane*>(score.data)[b] = align(
                shape, lattices.box(b), static_cast<const T*>(px.data) + b * shape.symbols * shape.columns,
                static_cast<const T*>(py.data) + b * (shape.symbols + 1) * shape.frames,
                reinterpret_cast<std::uint8_t*>(own), reinterpret_cast<Lane*>(own + way_bytes),
                static_cast<std::int64_t*>(symbol_frames.data) + b * shape.symbols);
        },
        workers);
  });
}

}  // namespace turnout
