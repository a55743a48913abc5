// Reads and checks boundaries, symbols and ranges.
#include "rnnt_loss/lattices.h"

#include "core/dtypes.h"
#include "indices/indices.h"

namespace turnout::families::rnnt_loss {

using namespace core;

Lattices::Lattices(Call& call, const LatticeShape& shape, const Source& source, Scratch& scratch)
    : shape_(shape),
      boxes_(scratch.take<Box>(shape.batch)),
      symbols_(scratch.take<std::int64_t>(shape.batch * shape.symbols)) {
  if (!source.ranges.is_absent()) firsts_ = scratch.take<std::int64_t>(shape.batch * shape.frames);
  read_boxes(call, source);
  if (!source.symbols.is_absent()) read_symbols(call, source);
  if (!source.ranges.is_absent()) read_ranges(call, source);
}

void Lattices::read_boxes(Call& call, const Source& source) {
  for (std::int64_t b = 0; b < shape_.batch; ++b) {
    boxes_[b] = {0, 0, shape_.symbols, shape_.frames};
    if (!source.boundary.is_absent()) {
      const auto* given = static_cast<const std::int64_t*>(source.boundary.data) + 4 * b;
      std::int64_t value[4];
      for (int i = 0; i < 4; ++i) {
        const std::int64_t limit = i % 2 == 0 ? shape_.symbols : shape_.frames;
        value[i] = load_once(given + i);
        if (value[i] < 0 || value[i] > limit)
          call.refuse(concat(call.name("boundary"), "[", b, ", ", std::int64_t{i}, "] is ", value[i],
                             ", expected 0 .. ", limit, i % 2 == 0 ? " symbols" : " frames"));
      }
      for (int i = 0; i < 2; ++i)
        if (value[i] > value[i + 2])
          call.refuse(concat(call.name("boundary"), "[", b, ", ", std::int64_t{i}, "] is ", value[i],
                             ", expected at most ", call.name("boundary"), "[", b, ", ", std::int64_t{i + 2},
                             "] = ", value[i + 2]));
      boxes_[b] = {value[0], value[1], value[2], value[3]};
    }
    const Box& box = boxes_[b];
    const std::int64_t symbols = box.s_end - box.s_begin, frames = box.t_end - box.t_begin;
    if (shape_.is_modified && frames < symbols)
      call.refuse(concat("row ", b, " of the batch has ", frames, " frames for ", symbols,
                         " symbols, expected at least ", symbols, ", as a symbol takes a frame"));
  }
}

void Lattices::read_symbols(Call& call, const Source& source) {
  visit_index(source.symbols.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    const auto* given = static_cast<const Index*>(source.symbols.data);
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      for (std::int64_t s = boxes_[b].s_begin; s < boxes_[b].s_end; ++s) {
        const std::int64_t i = b * shape_.symbols + s, value = load_once(given + i);
        if (value < source.first_class || value >= source.classes)
          call.refuse(concat(call.name("symbols"), "[", b, ", ", s, "] is ", value, ", expected ",
                             source.first_class, " .. ", source.classes - 1));
        symbols_[i] = value;
      }
    }
  });
}

void Lattices::read_ranges(Call& call, const Source& source) {
  const auto* given = static_cast<const std::int64_t*>(source.ranges.data);
  const std::int64_t rows = source.ranges.shape[2];
  for (std::int64_t b = 0; b < shape_.batch; ++b) {
    for (std::int64_t t = boxes_[b].t_begin; t < boxes_[b].t_end; ++t) {
      const std::int64_t* row = given + (b * shape_.frames + t) * rows;
      std::int64_t first = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t value = load_once(row + r);
        if (r == 0) first = value;
        if (value < r || value > shape_.symbols + 1 - rows + r)
          call.refuse(concat(call.name("ranges"), "[", b, ", ", t, ", ", r, "] is ", value, ", expected ", r,
                             " .. ", shape_.symbols + 1 - rows + r));
        if (value != first + r)
          call.refuse(concat(call.name("ranges"), "[", b, ", ", t, ", ", r, "] is ", value, ", expected ",
                             first + r, ", one more than the position before it"));
      }
      firsts_[b * shape_.frames + t] = first;
    }
  }
}

}  // namespace turnout::families::rnnt_loss
