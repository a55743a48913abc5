// The geometry of one convolution as sums: an output coordinate is the site's base plus the offset's delta.
//
// In each dimension, with k dilation = a:
//
// - sparse and submanifold, stride 1: base i, delta padding - a
// - sparse, stride > 1, i + padding = q stride + r: base q - padding / stride,
//   delta padding / stride - a / stride, for the k with a % stride == r
// - transposed: base i stride, delta a - padding
//
// So the residues r sort the sites into classes, every kernel offset belongs to one class, and within a class
// all modes look alike. Output coordinates are flattened in an output shape with a margin in each dimension,
// so that a sum that leaves the shape meets a cell that is never set, and no border is tested.
//
// Leaves overlap: leaf l holds cells l * leaf_cells .. l * leaf_cells + 31, so that a window of `width` =
// 33 - leaf_cells cells lies in one leaf, whatever its first cell. One look at a leaf answers all offsets of
// the last dimension that a window spans.
#pragma once

#include <cstdint>

#include "runtime/context.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;

inline constexpr int kMaxWidth = 17;

struct KernelOffset {  // in one dimension
  std::int64_t delta;
  std::int32_t cls;  // -1: meets no output, wherever the site is
};

// What a coordinate of a site adds where strides sort sites into classes.
struct SitePart {
  std::uint64_t leaf;  // to the leaf; to x in the last dimension
  std::int64_t cls;    // to the class; kNoClass: the site meets no output, whatever the other dimensions say
};
inline constexpr std::int64_t kNoClass = -(std::int64_t{1} << 56);

struct GeometryDim {
  std::int64_t out_size, extent;      // of the output, without and with its margin
  std::int64_t last_site, last_base;  // the largest coordinate of a site, and its base
  std::int64_t stride, padding;
  std::int64_t leaf_stride;  // leaves from one coordinate to the next; 0 in the last dimension
  std::uint64_t reciprocal;  // 2^64 / stride, rounded up
  std::int32_t classes;
  std::int64_t class_radix;      // classes of the dimensions behind this one
  const std::int64_t* residues;  // of the classes, ascending
  SitePart* parts;               // by coordinate; nullptr: too many, or no strides
  KernelOffset* offsets;

  SitePart part(std::int64_t i) const { return parts != nullptr ? parts[i] : computed_part(i); }
  SitePart computed_part(std::int64_t i) const;
};

struct RowOffset {           // an offset in all dimensions but the last
  std::uint64_t leaf_delta;  // leaves are counted modulo 2^64: only where a sum ends must be within the space
  std::int64_t k;            // of its first kernel offset
  std::int32_t cls;
};

struct Tap {  // a kernel offset of the last dimension, as a bit of its window
  std::int32_t bit;
  std::int32_t k;
};

struct Window {
  std::int64_t delta;  // of its first cell
  std::int32_t cls;    // in the last dimension
  std::int32_t slot;   // among the windows of that class
  std::int32_t first_tap, taps;
  std::uint32_t mask;  // the taps as bits
};

struct Geometry {
  int dims;
  bool transposed, submanifold;
  std::int64_t batch_size, kernel_volume;
  GeometryDim dim[Dims::kMax];
  std::int64_t leaf_cells, width;
  std::int64_t row_leaves, batch_leaves;  // leaves of a row, of a batch
  std::int64_t bias;                      // the leaf of cell 0
  std::uint64_t leaves;                   // of the space
  RowOffset* offsets;
  std::int64_t offset_count;
  Window* windows;                   // by class of the last dimension
  std::int32_t* class_windows;       // the first window of each class, and the end
  std::int32_t window_count, slots;  // slots: windows that a site has, at most
  Tap* taps;
  std::int64_t classes;

  std::int32_t last_taps() const {  // in all windows
    return window_count == 0 ? 0 : windows[window_count - 1].first_tap + windows[window_count - 1].taps;
  }
  const GeometryDim& last() const { return dim[dims - 1]; }
};

// Whether strides sort sites into classes, or leave some without any output.
bool has_classes(const IndicePairsParams& params);

// Memory that a Geometry's arrays take. `params` as checked.
std::size_t geometry_bytes(const IndicePairsParams& params);
// Error(not_supported) for a space beyond 2^58 leaves.
void make_geometry(const IndicePairsParams& params, Scratch& memory, Geometry& geometry);

}  // namespace turnout::families::sparse_conv
