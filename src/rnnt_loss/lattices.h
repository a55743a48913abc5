// The index arguments of a call. They are copied once and the copies are checked and used, because another
// thread may change the caller's memory at any time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/check.h"
#include "core/grain.h"
#include "runtime/call.h"

namespace turnout::families::rnnt_loss {

// With fewer multiply-adds, a second thread does not pay off.
inline constexpr double kParallelProducts = 4e6 / core::kGrainDivisor;

struct LatticeShape {
  std::int64_t batch, symbols, frames;
  bool is_modified;  // a symbol takes a frame
};

// The part of the logits that is read for one row of the batch: s_begin <= s <= s_end, t_begin <= t < t_end.
struct Box {
  std::int64_t s_begin, t_begin, s_end, t_end;

  bool has_frame(std::int64_t t) const { return t >= t_begin && t < t_end; }
};

class Lattices {
 public:
  static std::size_t scratch_bytes(const LatticeShape& shape, bool has_ranges) {
    return core::array_bytes<Box>(shape.batch) +
           core::array_bytes<std::int64_t>(shape.batch * shape.symbols) +
           (has_ranges ? core::array_bytes<std::int64_t>(shape.batch * shape.frames) : 0);
  }

  struct Source {
    ConstTensor symbols = nullptr;
    ConstTensor ranges = nullptr;               // absent: a frame has all positions
    ConstTensor boundary = nullptr;             // absent: whole lattices
    std::int64_t first_class = 0, classes = 0;  // symbols must be in first_class .. classes - 1
  };
  // Throws if an element is out of range.
  Lattices(core::Call& call, const LatticeShape& shape, const Source& source, core::Scratch& scratch);

  const Box& box(std::int64_t b) const { return boxes_[b]; }
  // For s_begin <= s < s_end.
  std::int64_t symbol(std::int64_t b, std::int64_t s) const { return symbols_[b * shape_.symbols + s]; }
  // The position of row 0 of a frame.
  std::int64_t first(std::int64_t b, std::int64_t t) const {
    return firsts_ == nullptr ? 0 : firsts_[b * shape_.frames + t];
  }

 private:
  void read_boxes(core::Call& call, const Source& source);
  void read_symbols(core::Call& call, const Source& source);
  void read_ranges(core::Call& call, const Source& source);

  LatticeShape shape_;
  Box* boxes_;
  std::int64_t* symbols_;
  std::int64_t* firsts_ = nullptr;
};

}  // namespace turnout::families::rnnt_loss
