// Derives classes, deltas and windows from strides, paddings and dilations.
#include "sparse_conv/geometry.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "core/saturate.h"
#include "sparse_conv/parameters.h"

namespace turnout::families::sparse_conv {

using namespace core;
namespace {

constexpr std::int64_t kMaxLeaves = std::int64_t{1} << 58;  // a cell, which is leaf * 32 + bit, fits 64 bits
constexpr std::int64_t kMaxParts = 4096;                    // entries of a table that stays in the L1 cache

std::int64_t part_count(const IndicePairsParams& p, int d) {
  return has_classes(p) && p.spatial_shape[d] <= kMaxParts ? p.spatial_shape[d] : 0;
}

// Plans offsets, classes and extent of one dimension. Returns the smallest output coordinate of any site.
std::int64_t plan_dim(const IndicePairsParams& p, int d, Scratch& memory, GeometryDim& dim) {
  const std::int64_t kernel = p.kernel_size[d], stride = p.stride[d], padding = p.padding[d];
  const bool transposed = p.mode == ConvMode::transposed;
  dim.out_size = p.output_shape[d];
  dim.stride = stride;
  dim.padding = padding;
  dim.reciprocal = ~std::uint64_t{0} / static_cast<std::uint64_t>(stride) + 1;
  dim.offsets = memory.take<KernelOffset>(kernel);
  auto* residues = memory.take<std::int64_t>(kernel);
  auto* parts = memory.take<SitePart>(part_count(p, d));
  dim.parts = part_count(p, d) > 0 ? parts : nullptr;

  const std::int64_t last = p.spatial_shape[d] - 1;
  dim.last_site = last;
  dim.last_base = transposed ? last * stride : (last + padding) / stride - padding / stride;
  std::int64_t low = 0, high = dim.out_size - 1, count = 0;
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t a = k * p.dilation[d];
    const std::int64_t delta = transposed ? a - padding : padding / stride - a / stride;
    const bool meets = delta >= -dim.last_base && delta < dim.out_size;
    dim.offsets[k] = {delta, meets ? 0 : -1};
    if (!meets) continue;
    low = std::min(low, delta);
    high = std::max(high, dim.last_base + delta);
    residues[count++] = transposed ? 0 : a % stride;
  }
  std::sort(residues, residues + count);
  dim.classes = static_cast<std::int32_t>(std::unique(residues, residues + count) - residues);
  dim.residues = residues;
  for (std::int64_t k = 0; k < kernel && !transposed; ++k) {
    if (dim.offsets[k].cls < 0) continue;
    const std::int64_t residue = k * p.dilation[d] % stride;
    dim.offsets[k].cls =
        static_cast<std::int32_t>(std::lower_bound(residues, residues + dim.classes, residue) - residues);
  }
  dim.extent = dim.out_size + std::max(-low, high - (dim.out_size - 1));
  return low;
}

// Cuts the offsets of each class of the last dimension into windows of at most kMaxWidth cells.
void plan_windows(const IndicePairsParams& p, Geometry& g) {
  const GeometryDim& x = g.dim[g.dims - 1];
  const std::int64_t kernel = p.kernel_size[g.dims - 1];
  // Sorts taps by class, then by ascending delta: a counting sort with class_windows as its cursors.
  std::int32_t* next = g.class_windows;
  std::fill_n(next, x.classes + 1, 0);
  for (std::int64_t k = 0; k < kernel; ++k)
    if (x.offsets[k].cls >= 0) ++next[x.offsets[k].cls + 1];
  std::partial_sum(next, next + x.classes + 1, next);
  const std::int32_t tap_count = next[x.classes];
  for (std::int64_t j = 0; j < kernel; ++j) {
    const std::int64_t k = g.transposed ? j : kernel - 1 - j;  // ascending delta
    if (x.offsets[k].cls >= 0) g.taps[next[x.offsets[k].cls]++].k = static_cast<std::int32_t>(k);
  }
  // A new window begins with each class, and if the next tap does not fit the last window.
  g.width = 1;
  for (std::int32_t t = 0; t < tap_count; ++t) {
    const auto [delta, cls] = x.offsets[g.taps[t].k];
    const Window* before = g.window_count > 0 ? &g.windows[g.window_count - 1] : nullptr;
    const bool first = before == nullptr || before->cls != cls;
    if (first) g.class_windows[cls] = g.window_count;
    if (first || delta - before->delta >= kMaxWidth)
      g.windows[g.window_count++] = {delta, cls, first ? 0 : before->slot + 1, t, 0, 0};
    Window& window = g.windows[g.window_count - 1];
    const auto bit = static_cast<std::int32_t>(delta - window.delta);
    g.taps[t].bit = bit;
    ++window.taps;
    window.mask |= 1u << bit;
    g.width = std::max<std::int64_t>(g.width, bit + 1);
    g.slots = std::max(g.slots, window.slot + 1);
  }
  g.class_windows[x.classes] = g.window_count;
}

// Lists the row offsets: all combinations of the other dimensions' offsets under which some site has an
// output.
void plan_rows(const IndicePairsParams& p, Geometry& g) {
  const int last = g.dims - 1;
  std::int64_t combinations = 1;
  for (int d = 0; d < last; ++d) combinations *= p.kernel_size[d];
  for (std::int64_t c = 0; c < combinations; ++c) {
    RowOffset row{0, c * p.kernel_size[last], 0};
    bool meets = true;
    std::int64_t rest = c, radix = 1;
    for (int d = last - 1; d >= 0; --d) {
      const KernelOffset& offset = g.dim[d].offsets[rest % p.kernel_size[d]];
      rest /= p.kernel_size[d];
      meets &= offset.cls >= 0;
      row.leaf_delta +=
          static_cast<std::uint64_t>(offset.delta) * static_cast<std::uint64_t>(g.dim[d].leaf_stride);
      row.cls += static_cast<std::int32_t>(offset.cls * radix);
      radix *= g.dim[d].classes;
    }
    if (meets) g.offsets[g.offset_count++] = row;
  }
}

}  // namespace

bool has_classes(const IndicePairsParams& p) {
  const std::int64_t* end = p.stride.data() + p.stride.count();
  return p.mode != ConvMode::transposed &&
         std::any_of(p.stride.data(), end, [](std::int64_t stride) { return stride > 1; });
}

SitePart GeometryDim::computed_part(std::int64_t i) const {
  std::uint64_t base = static_cast<std::uint64_t>(i), residue = 0;
  if (stride > 1) {
    const auto t =
        static_cast<std::uint64_t>(i + padding);  // below 2^32, so the rounded-up reciprocal divides exactly
    const auto q = static_cast<std::uint64_t>(static_cast<unsigned __int128>(t) * reciprocal >> 64);
    base = q - static_cast<std::uint64_t>(padding / stride);
    residue = t - q * static_cast<std::uint64_t>(stride);
  }
  const std::int64_t* found =
      std::lower_bound(residues, residues + classes, static_cast<std::int64_t>(residue));
  const bool has_class = found != residues + classes && *found == static_cast<std::int64_t>(residue);
  return {leaf_stride > 0 ? base * static_cast<std::uint64_t>(leaf_stride) : base,
          has_class ? (found - residues) * class_radix : kNoClass};
}

std::size_t geometry_bytes(const IndicePairsParams& p) {
  const int dims = p.kernel_size.count();
  std::size_t bytes = 0;
  for (int d = 0; d < dims; ++d) {
    bytes += array_bytes<KernelOffset>(p.kernel_size[d]) + array_bytes<std::int64_t>(p.kernel_size[d]) +
             array_bytes<SitePart>(part_count(p, d));
  }
  const std::int64_t kernel = p.kernel_size[dims - 1];
  return bytes + array_bytes<RowOffset>(kernel_volume(p) / kernel) + array_bytes<Window>(kernel) +
         array_bytes<Tap>(kernel) + array_bytes<std::int32_t>(kernel + 1);
}

void make_geometry(Call& call, const IndicePairsParams& p, Scratch& memory, Geometry& g) {
  g = {};
  g.dims = p.kernel_size.count();
  g.transposed = p.mode == ConvMode::transposed;
  g.submanifold = p.mode == ConvMode::submanifold;
  g.batch_size = p.batch_size;
  const int last = g.dims - 1;
  g.kernel_volume = 1;
  g.classes = 1;
  std::int64_t low[Dims::kMax], rows = 1;
  for (int d = 0; d < g.dims; ++d) {
    low[d] = plan_dim(p, d, memory, g.dim[d]);
    g.kernel_volume *= p.kernel_size[d];
    g.classes *= g.dim[d].classes;
    if (d < last) rows *= p.kernel_size[d];
  }
  g.offsets = memory.take<RowOffset>(rows);
  g.windows = memory.take<Window>(p.kernel_size[last]);
  g.taps = memory.take<Tap>(p.kernel_size[last]);
  g.class_windows = memory.take<std::int32_t>(p.kernel_size[last] + 1);

  plan_windows(p, g);
  g.leaf_cells = 33 - g.width;
  GeometryDim& x = g.dim[last];
  x.extent = (x.extent + g.leaf_cells - 1) / g.leaf_cells * g.leaf_cells;
  g.row_leaves = x.extent / g.leaf_cells;
  g.batch_leaves = g.row_leaves;
  g.bias = g.row_leaves;  // a negative sum in the last dimension ends in the previous row
  for (int d = last - 1; d >= 0; --d) {
    g.dim[d].leaf_stride = g.batch_leaves;
    g.bias = std::min(kMaxLeaves, g.bias + std::min(kMaxLeaves, saturating_product(-low[d], g.batch_leaves)));
    g.batch_leaves = saturating_product(g.batch_leaves, g.dim[d].extent);
  }
  const std::int64_t space = saturating_product(g.batch_leaves, g.batch_size);
  // If the output shape is smaller than the input, bases may be beyond it.
  std::int64_t beyond = 2 * g.row_leaves + x.last_base / g.leaf_cells + 2;
  for (int d = 0; d < last; ++d)
    beyond =
        std::min(kMaxLeaves,
                 beyond + std::min(kMaxLeaves, saturating_product(g.dim[d].last_base, g.dim[d].leaf_stride)));
  const std::int64_t leaves = std::min(space, kMaxLeaves) - std::min(g.batch_leaves, kMaxLeaves) + g.bias +
                              std::max(std::min(g.batch_leaves, kMaxLeaves) + g.row_leaves + 1, beyond);
  if (space > kMaxLeaves || leaves > kMaxLeaves)
    call.refuse("the output space, with its margins, takes more than 2^58 words of 32 cells, expected fewer",
                ErrorCode::not_supported);
  g.leaves = static_cast<std::uint64_t>(leaves);
  plan_rows(p, g);
  std::int64_t radix = 1;
  for (int d = last; d >= 0; --d) {
    GeometryDim& dim = g.dim[d];
    dim.class_radix = radix;
    radix *= dim.classes;
    for (std::int64_t i = 0; i < part_count(p, d); ++i) dim.parts[i] = dim.computed_part(i);
  }
}

}  // namespace turnout::families::sparse_conv
