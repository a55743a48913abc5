// Implements segment_csr and gather_csr.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/dtypes.h"
#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/maps.h"
#include "dynamic_scatter/reductions.h"
#include "dynamic_scatter/segment_signature.h"
#include "indices/indices.h"
#include "runtime/call.h"
#include "turnout/segments.h"

namespace turnout {
namespace families::dynamic_scatter {

using namespace core;
namespace {

// Reads indptr, which must ascend from 0 or more to at most `rows`, into `starts`.
void read_indptr(Call& call, const ConstTensor& indptr, std::int64_t rows, std::int32_t* starts) {
  visit_index(indptr.dtype, [&](auto type) {
    const auto* values = static_cast<const typename decltype(type)::type*>(indptr.data);
    std::int64_t before = 0;
    serial_for(0, indptr.shape[0], [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t value = load_once(values + i);
        if (value < before || value > rows)
          call.refuse(
              concat(call.name("indptr"), "[", i, "] is ", value, ", expected ", before, " .. ", rows));
        starts[i] = static_cast<std::int32_t>(before = value);
      }
    });
  });
}

}  // namespace
}  // namespace families::dynamic_scatter

using namespace families::dynamic_scatter;

void segment_csr(const ConstTensor& src, const ConstTensor& indptr, const Tensor& out, const Tensor& arg,
                 SegmentReduce reduce, const Caller& caller) {
  Call call(caller, kSegmentCsr, {src, indptr, out, arg}, {reduce});
  if (reduce == SegmentReduce::mean && !contains(kFloats, src.dtype))
    call.refuse(concat(call.name("src"), " has integers, expected floating-point numbers for a mean"));
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const std::int64_t rows = src.shape[0], segments = out.shape[0];
  const std::int64_t channels = call.size(kSegmentCsr.size("channels"));
  Scratch& scratch = call.scratch(array_bytes<std::int32_t>(segments + 1) + array_bytes<std::int32_t>(rows));
  auto* starts = scratch.take<std::int32_t>(segments + 1);
  read_indptr(call, indptr, rows, starts);
  // Segments are voxels whose points follow each other.
  const std::int32_t skipped = starts[0];
  for (std::int64_t s = 0; s <= segments; ++s) starts[s] -= skipped;
  VoxelGroups groups;
  groups.points = rows;
  groups.voxels = segments;
  groups.starts = starts;
  auto* order = scratch.take<std::int32_t>(rows);
  groups.order = order;
  parallel_for(context, groups.grouped(), 8 * kPointGrain, [&](std::int64_t begin, std::int64_t end) {
    std::iota(order + begin, order + end, skipped + static_cast<std::int32_t>(begin));
  });
  const ConstTensor src_rows = as_rows(src, channels);
  const Tensor out_rows = as_rows(out, channels), no_arg = nullptr;
  const Tensor arg_rows = arg.is_absent() ? no_arg : as_rows(arg, channels);
  switch (reduce) {
    case SegmentReduce::max:
      return extreme_rows(context, call, groups, src_rows, out_rows, arg_rows, Extreme::maximum);
    case SegmentReduce::min:
      return extreme_rows(context, call, groups, src_rows, out_rows, arg_rows, Extreme::minimum);
    default:
      reduce_rows(context, call, groups, src_rows, out_rows,
                  reduce == SegmentReduce::mean ? Reduce::mean : Reduce::sum);
  }
  if (arg.is_absent()) return;
  visit_index(arg.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    std::fill_n(static_cast<Index*>(arg.data), segments * channels, static_cast<Index>(rows));
  });
}

void gather_csr(const ConstTensor& src, const ConstTensor& indptr, const Tensor& out, const Caller& caller) {
  Call call(caller, kGatherCsr, {src, indptr, out}, {});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const std::int64_t rows = out.shape[0], segments = src.shape[0];
  const std::int64_t row_bytes = call.size(kGatherCsr.size("channels")) * size_of(src.dtype);
  Scratch& scratch = call.scratch(array_bytes<std::int32_t>(segments + 1));
  auto* starts = scratch.take<std::int32_t>(segments + 1);
  read_indptr(call, indptr, rows, starts);
  const auto* from = static_cast<const std::byte*>(src.data);
  make_rows(context, call, rows, row_bytes, out.data,
            [&](std::int64_t first, std::int64_t last, std::byte* to) {
              std::int64_t s = std::upper_bound(starts, starts + segments + 1, first) - starts - 1;
              for (std::int64_t row = first; row < last; ++row, to += row_bytes) {
                while (s < segments && row >= starts[s + 1]) ++s;
                if (s < 0 || s == segments) {
                  std::memset(to, 0, static_cast<std::size_t>(row_bytes));
                  if (s < 0 && row + 1 >= starts[0]) s = 0;
                } else {
                  std::memcpy(to, from + s * row_bytes, static_cast<std::size_t>(row_bytes));
                }
              }
            });
}

}  // namespace turnout
