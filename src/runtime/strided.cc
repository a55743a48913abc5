// Implements copy_strided(): rows along the innermost dimension, divided among the threads.
#include "runtime/strided.h"

#include <cstddef>
#include <cstring>

#include "runtime/parallel.h"
#include "turnout/tensor.h"

namespace turnout::core {
namespace {

// The dimensions, with those merged that are contiguous in memory.
struct Layout {
  std::int64_t shape[kMaxRank] = {1};
  std::int64_t stride[kMaxRank] = {0};
  int rank = 0;

  void append(std::int64_t extent, std::int64_t step) {
    if (extent == 1) return;
    if (rank > 0 && stride[rank - 1] == extent * step) {
      shape[rank - 1] *= extent;
      stride[rank - 1] = step;
      return;
    }
    shape[rank] = extent;
    stride[rank++] = step;
  }
};

template <class T>
void copy_row(const std::byte* from, std::int64_t step, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i)  // memcpy: an element may be unaligned
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), from + i * step, sizeof(T));
}

template <class T>
void copy_rows(Context& context, const std::byte* from, const Layout& layout, std::byte* to) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t kLongRow = 128;  // bytes from which memcpy is faster than a loop
  const int outer = layout.rank - 1;
  const std::int64_t count = layout.shape[outer], step = layout.stride[outer], row_bytes = count * kSize;
  std::int64_t rows = 1;
  for (int d = 0; d < outer; ++d) rows *= layout.shape[d];
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    std::int64_t position[kMaxRank] = {};
    const std::byte* row = from;
    for (std::int64_t d = outer - 1, rest = begin; d >= 0; --d) {
      position[d] = rest % layout.shape[d];
      rest /= layout.shape[d];
      row += position[d] * layout.stride[d];
    }
    for (std::int64_t r = begin; r < end; ++r) {
      std::byte* target = to + r * row_bytes;
      if (step == kSize && row_bytes >= kLongRow) {
        std::memcpy(target, row, static_cast<std::size_t>(row_bytes));
      } else {
        copy_row<T>(row, step, count, target);
      }
      for (int d = outer - 1; d >= 0; --d) {
        row += layout.stride[d];
        if (++position[d] < layout.shape[d]) break;
        row -= layout.shape[d] * layout.stride[d];
        position[d] = 0;
      }
    }
  };
  parallel_for(context, rows, kParallelBytes / row_bytes + 1, body);
}

}  // namespace

void copy_strided(Context& context, const void* from, const std::int64_t* shape, const std::int64_t* stride,
                  int rank, std::int64_t size, void* to) {
  Layout layout;
  for (int d = 0; d < rank; ++d) layout.append(shape[d], stride[d]);
  if (layout.rank == 0) layout.rank = 1;  // one element
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  switch (size) {
    case 1:
      return copy_rows<std::uint8_t>(context, source, layout, target);
    case 2:
      return copy_rows<std::uint16_t>(context, source, layout, target);
    case 4:
      return copy_rows<std::uint32_t>(context, source, layout, target);
    default:
      return copy_rows<std::uint64_t>(context, source, layout, target);
  }
}

}  // namespace turnout::core
