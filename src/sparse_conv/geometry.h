// The geometry of one convolution as sums: an output coordinate is the site's base plus the offset's delta.
// README.md, "Terms and an example", defines cell, leaf, class, row offset, window, tap and slot.
//
// In each dimension, with a = k * dilation for kernel offset k:
//
// - sparse and submanifold, stride 1: base i, delta padding - a
// - sparse, stride > 1, with i + padding = q * stride + r: base q - padding / stride,
//   delta padding / stride - a / stride, for the k with a % stride == r
// - transposed: base i * stride, delta a - padding
//
// The residue r determines the class of a site, and every kernel offset belongs to one class; within a class
// all modes are alike. Output coordinates are flattened in an output shape with a margin in each dimension. A
// sum outside the output shape ends in a margin cell, which is never set, so no border is tested.
#pragma once

#include <cstdint>

#include "runtime/call.h"
#include "runtime/context.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

inline constexpr int kMaxWidth = 17;

struct KernelOffset {  // of one dimension
  std::int64_t delta;
  std::int32_t cls;  // -1: no site has an output under this offset
};

// The contribution of one coordinate of a site to its leaf and its class, if strides make classes.
struct SitePart {
  std::uint64_t leaf;  // added to the leaf; in the last dimension added to x
  // Added to the class. kNoClass: the site has no output, whatever its other coordinates are.
  std::int64_t cls;
};
inline constexpr std::int64_t kNoClass = -(std::int64_t{1} << 56);

struct GeometryDim {
  std::int64_t out_size, extent;      // of the output, without and with its margin
  std::int64_t last_site, last_base;  // the largest coordinate of a site, and its base
  std::int64_t stride, padding;
  std::int64_t leaf_stride;  // leaves between neighbouring coordinates; 0 in the last dimension
  std::uint64_t reciprocal;  // 2^64 / stride, rounded up
  std::int32_t classes;
  std::int64_t class_radix;      // the product of `classes` over the later dimensions
  const std::int64_t* residues;  // of the classes, ascending
  SitePart* parts;               // table by coordinate; nullptr: too many coordinates, or no strides
  KernelOffset* offsets;

  SitePart part(std::int64_t i) const { return parts != nullptr ? parts[i] : computed_part(i); }
  SitePart computed_part(std::int64_t i) const;
};

struct RowOffset {  // a kernel offset in all dimensions but the last
  // Modulo 2^64: parts of a sum may be negative, but the sum is a leaf of the space.
  std::uint64_t leaf_delta;
  std::int64_t k;  // the first of its kernel offsets
  std::int32_t cls;
};

struct Tap {  // a kernel offset of the last dimension, as a bit of its window
  std::int32_t bit;
  std::int32_t k;
};

struct Window {
  std::int64_t delta;  // of its first cell, from the base of the site
  std::int32_t cls;    // in the last dimension
  std::int32_t slot;   // its number among the windows of that class
  std::int32_t first_tap, taps;
  std::uint32_t mask;  // the bits of all its taps
};

struct Geometry {
  int dims;
  bool transposed, submanifold;
  std::int64_t batch_size, kernel_volume;
  GeometryDim dim[Dims::kMax];
  std::int64_t leaf_cells, width;
  std::int64_t row_leaves, batch_leaves;  // leaves of a row of the last dimension, of a batch
  std::int64_t bias;                      // the leaf of coordinate 0, since margins below it have leaves too
  std::uint64_t leaves;                   // of the whole space
  RowOffset* offsets;
  std::int64_t offset_count;
  Window* windows;                   // ordered by class of the last dimension
  std::int32_t* class_windows;       // [classes + 1] the first window of each class, and the end
  std::int32_t window_count, slots;  // slots: the most windows that a class has
  Tap* taps;
  std::int64_t classes;

  std::int32_t last_taps() const {  // in all windows
    return window_count == 0 ? 0 : windows[window_count - 1].first_tap + windows[window_count - 1].taps;
  }
  const GeometryDim& last() const { return dim[dims - 1]; }
};

// Whether strides make several classes, or leave some sites without any output.
bool has_classes(const IndicePairsParams& params);

// Bytes of the arrays of a Geometry. `params` are checked.
std::size_t geometry_bytes(const IndicePairsParams& params);
// Throws Error(not_supported) for a space of more than 2^58 leaves.
void make_geometry(core::Call& call, const IndicePairsParams& params, core::Scratch& memory,
                   Geometry& geometry);

}  // namespace turnout::families::sparse_conv
