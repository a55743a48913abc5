// The index arguments of a call, copied once, checked, and then used: another thread may change the caller's
// memory at any time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/check.h"
#include "core/grain.h"
#include "runtime/call.h"

namespace turnout::families::rnnt_loss {

using namespace core;

// Multiply-adds below which a second thread takes longer to wake than it saves.
inline constexpr double kParallelProducts = 4e6 / kGrainDivisor;

struct LatticeShape {
  std::int64_t batch, symbols, frames;
  bool is_modified;  // a symbol takes a frame
};

// s_begin <= s <= s_end, t_begin <= t < t_end: what is read of the logits of one row of the batch.
struct Box {
  std::int64_t s_begin, t_begin, s_end, t_end;

  bool has_frame(std::int64_t t) const { return t >= t_begin && t < t_end; }
};

class Lattices {
 public:
  static std::size_t scratch_bytes(const LatticeShape& shape, bool has_ranges) {
    return array_bytes<Box>(shape.batch) + array_bytes<std::int64_t>(shape.batch * shape.symbols) +
           (has_ranges ? array_bytes<std::int64_t>(shape.batch * shape.frames) : 0);
  }

  // What a call has, and what it is called in sentences.
  struct Source {
    std::string_view op;
    const ConstTensor* symbols;         // nullptr: there are none
    const ConstTensor* ranges;          // nullptr: a frame has all positions
    const ConstTensor* boundary;        // nullptr: whole lattices
    std::int64_t first_class, classes;  // that a symbol may be
  };
  // Throws Error where they are out of range.
  Lattices(Call& call, const LatticeShape& shape, const Source& source, Scratch& scratch);

  const Box& box(std::int64_t b) const { return boxes_[b]; }
  // For s_begin <= s < s_end.
  std::int64_t symbol(std::int64_t b, std::int64_t s) const { return symbols_[b * shape_.symbols + s]; }
  // The position of row 0 of a frame.
  std::int64_t first(std::int64_t b, std::int64_t t) const {
    return firsts_ == nullptr ? 0 : firsts_[b * shape_.frames + t];
  }

 private:
  void read_boxes(const Source& source);
  void read_symbols(const Source& source);
  void read_ranges(const Source& source);

  LatticeShape shape_;
  Box* boxes_;
  std::int64_t* symbols_;
  std::int64_t* firsts_ = nullptr;
};

inline Slot slot_of(const ConstTensor* tensor) { return tensor != nullptr ? Slot(*tensor) : Slot(); }

}  // namespace turnout::families::rnnt_loss
