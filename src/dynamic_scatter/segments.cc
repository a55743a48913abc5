// Implements segment_csr, gather_csr and scatter_min.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "dynamic_scatter/groups.h"
#include "dynamic_scatter/maps.h"
#include "dynamic_scatter/reductions.h"
#include "dynamic_scatter/segment_signature.h"
#include "indices/indices.h"
#include "runtime/call.h"
#include "simd/half.h"
#include "turnout/segments.h"

namespace turnout {
namespace families::dynamic_scatter {

using namespace core;
namespace {

// The types that numbers are compared in.
template <class T>
using LaneType = std::conditional_t<std::is_floating_point_v<T> || std::is_integral_v<T>, T, float>;

template <class T>
LaneType<T> widened(T v) {
  if constexpr (sizeof(T) == 2) {
    return to_float(v);
  } else {
    return v;
  }
}
template <class T>
T rounded(LaneType<T> v) {
  if constexpr (sizeof(T) == 2) {
    return from_float<T>(v);
  } else {
    return v;
  }
}
template <class F>
void visit_number(DType dtype, const F& f) {
  if (dtype == DType::i32) return f(Type<std::int32_t>{});
  if (dtype == DType::i64) return f(Type<std::int64_t>{});
  visit_float(dtype, f);
}

constexpr std::int64_t kColumns = 64;  // channels that are reduced at once

// The greatest finite number, from which a minimum starts.
template <class T>
constexpr LaneType<T> greatest() {
  if constexpr (std::is_same_v<T, f16>) {
    return 65504.f;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return 0x1.FEp127f;
  } else {
    return std::numeric_limits<T>::max();
  }
}

// The smallest elements of the rows of one group, and the rows that they come from; arg may be nullptr.
template <class T, class Index>
void minimum_of(const T* src, std::int64_t channels, const std::int32_t* its_rows, std::int64_t count,
                std::int64_t none, T* out, Index* arg) {
  using Lane = LaneType<T>;
  for (const auto [first, width] : pieces(0, channels, kColumns)) {
    Lane found[kColumns];
    Index at[kColumns];
    std::fill_n(found, width, greatest<T>());
    std::fill_n(at, width, static_cast<Index>(none));
    for (std::int64_t i = 0; i < count; ++i) {
      const T* from = src + its_rows[i] * channels + first;
      for (std::int64_t c = 0; c < width; ++c) {
        const Lane v = widened(from[c]);
        const bool is_less = v < found[c];  // false for NaN
        found[c] = is_less ? v : found[c];
        at[c] = is_less ? static_cast<Index>(its_rows[i]) : at[c];
      }
    }
    for (std::int64_t c = 0; c < width; ++c) {
      out[first + c] = rounded<T>(at[c] == static_cast<Index>(none) ? Lane(0) : found[c]);
      if (arg != nullptr) arg[first + c] = at[c];
    }
  }
}

// The same as maximum_rows().
void minimum_rows(Context& context, Call& call, const VoxelGroups& groups, const ConstTensor& src,
                  const Tensor& out, const Tensor& arg) {
  const std::int64_t channels = src.shape[1], row_bytes = channels * size_of(src.dtype);
  const bool parallel = is_parallel(groups, row_bytes);
  call.chose("by voxel", parallel ? context.threads() : 1);
  visit_number(src.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = static_cast<const T*>(src.data);
    auto* to = static_cast<T*>(out.data);
    visit_index(arg.is_absent() ? DType::i64 : arg.dtype, [&](auto kind) {
      auto* const at = static_cast<typename decltype(kind)::type*>(arg.data);
      for_voxel_ranges(context, groups, row_bytes, parallel, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t g = first; g < last; ++g)
          minimum_of(from, channels, groups.order + groups.starts[g], groups.count(g), groups.points,
                     to + g * channels, at == nullptr ? nullptr : at + g * channels);
      });
    });
  });
}

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
      return maximum_rows(context, call, groups, src_rows, out_rows, arg_rows);
    case SegmentReduce::min:
      return minimum_rows(context, call, groups, src_rows, out_rows, arg_rows);
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

void scatter_min(const ConstTensor& src, const ConstTensor& index, const Tensor& out, const Tensor& argmin,
                 const Caller& caller) {
  Call call(caller, kScatterMin, {src, index, out, argmin}, {});
  if (call.nothing_to_do()) return;
  Context& context = call.context();
  const std::int64_t rows = src.shape[0], count = out.shape[0];
  const std::int64_t channels = call.size(kScatterMin.size("channels"));
  const MapGrouping grouping(rows, count, context.threads());
  Scratch& scratch = call.scratch(array_bytes<std::int32_t>(rows) + grouping.scratch_bytes());
  auto* map = scratch.take<std::int32_t>(rows);
  const MapRead read = read_map(context, index, 0, count, map);
  if (read.bad >= 0)
    call.refuse(concat(call.name("index"), "[", read.bad, "] is ", map_value(index, read.bad), ", expected ",
                       count > 0 ? concat("0 .. ", count - 1) : "no elements, since dim_size is 0"));
  const VoxelGroups groups = read.is_sorted ? group_by_sorted_map(context, map, rows, count, scratch)
                                            : grouping.run(context, map, scratch);
  const Tensor no_arg = nullptr;
  minimum_rows(context, call, groups, as_rows(src, channels), as_rows(out, channels),
               argmin.is_absent() ? no_arg : as_rows(argmin, channels));
}

}  // namespace turnout
