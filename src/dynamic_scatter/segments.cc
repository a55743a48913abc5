// Implements segment_csr, gather_csr and scatter_min.
#include <algorithm>
#include <cstring>
#include <limits>
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

// The types that numbers are computed in: integers are unsigned in sums, which wrap around.
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
template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
  } else {
    return a + b;
  }
}

template <class F>
void visit_number(DType dtype, const F& f) {
  if (dtype == DType::i32) return f(Type<std::int32_t>{});
  if (dtype == DType::i64) return f(Type<std::int64_t>{});
  visit_float(dtype, f);
}

constexpr std::int64_t kColumns = 64;  // channels that are reduced at once

// The finite number farthest from what is looked for.
template <class T, SegmentReduce kReduce>
constexpr LaneType<T> start_of() {
  using Lane = LaneType<T>;
  if constexpr (kReduce != SegmentReduce::min && kReduce != SegmentReduce::max) {
    return 0;
  } else if constexpr (std::is_same_v<T, f16>) {
    return kReduce == SegmentReduce::min ? 65504.f : -65504.f;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return kReduce == SegmentReduce::min ? 0x1.FEp127f : -0x1.FEp127f;
  } else {
    return kReduce == SegmentReduce::min ? std::numeric_limits<Lane>::max()
                                         : std::numeric_limits<Lane>::lowest();
  }
}

// Reduces rows row_of(0) .. row_of(count - 1) into one row; arg may be nullptr.
template <class T, SegmentReduce kReduce, class Index, class RowOf>
void reduce_one(const T* src, std::int64_t channels, std::int64_t count, const RowOf& row_of,
                std::int64_t rows, T* out, Index* arg) {
  using Lane = LaneType<T>;
  constexpr bool kIsChoice = kReduce == SegmentReduce::min || kReduce == SegmentReduce::max;
  for (const auto [first, width] : pieces(0, channels, kColumns)) {
    Lane found[kColumns];
    Index at[kColumns];
    std::fill_n(found, width, start_of<T, kReduce>());
    if constexpr (kIsChoice) std::fill_n(at, width, static_cast<Index>(rows));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = row_of(i);
      const T* from = src + row * channels + first;
      for (std::int64_t c = 0; c < width; ++c) {
        const Lane v = widened(from[c]);
        if constexpr (kIsChoice) {
          const bool is_taken = kReduce == SegmentReduce::min ? v < found[c] : v > found[c];
          found[c] = is_taken ? v : found[c];
          at[c] = is_taken ? static_cast<Index>(row) : at[c];
        } else {
          found[c] = sum_of(found[c], v);
        }
      }
    }
    for (std::int64_t c = 0; c < width; ++c) {
      if constexpr (kIsChoice) {
        out[first + c] = rounded<T>(at[c] == static_cast<Index>(rows) ? Lane(0) : found[c]);
        if (arg != nullptr) arg[first + c] = at[c];
      } else {
        if constexpr (kReduce == SegmentReduce::mean && !std::is_integral_v<T>)
          found[c] = count > 0 ? found[c] / static_cast<Lane>(count) : Lane(0);
        out[first + c] = rounded<T>(found[c]);
        if (arg != nullptr) arg[first + c] = static_cast<Index>(rows);
      }
    }
  }
}

// Calls f(std::integral_constant of the reduction).
template <class F>
void visit_reduce(SegmentReduce reduce, const F& f) {
  switch (reduce) {
    case SegmentReduce::sum:
      return f(std::integral_constant<SegmentReduce, SegmentReduce::sum>{});
    case SegmentReduce::mean:
      return f(std::integral_constant<SegmentReduce, SegmentReduce::mean>{});
    case SegmentReduce::min:
      return f(std::integral_constant<SegmentReduce, SegmentReduce::min>{});
    default:
      return f(std::integral_constant<SegmentReduce, SegmentReduce::max>{});
  }
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

// Calls f(segment) for all segments, in ranges with about equal work.
template <class F>
void for_segments(Context& context, const VoxelGroups& groups, std::int64_t row_bytes, const F& f) {
  for_voxel_ranges(context, groups, row_bytes, is_parallel(groups, row_bytes),
                   [&](std::int64_t first, std::int64_t last) {
                     for (std::int64_t s = first; s < last; ++s) f(s);
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
  auto* starts = call.scratch(array_bytes<std::int32_t>(segments + 1)).take<std::int32_t>(segments + 1);
  read_indptr(call, indptr, rows, starts);
  // The work of segments counts from the first row on.
  const std::int32_t skipped = starts[0];
  for (std::int64_t s = 0; s <= segments; ++s) starts[s] -= skipped;
  VoxelGroups groups;
  groups.points = starts[segments];
  groups.voxels = segments;
  groups.starts = starts;
  const std::int64_t row_bytes = channels * size_of(src.dtype);
  call.chose("by segment", is_parallel(groups, row_bytes) ? context.threads() : 1);
  visit_number(src.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = static_cast<const T*>(src.data);
    auto* to = static_cast<T*>(out.data);
    visit_reduce(reduce, [&](auto kind) {
      visit_index(arg.is_absent() ? DType::i64 : arg.dtype, [&](auto index) {
        using Index = typename decltype(index)::type;
        auto* const at = static_cast<Index*>(arg.data);
        for_segments(context, groups, row_bytes, [&](std::int64_t s) {
          const std::int64_t first = starts[s] + skipped;
          reduce_one<T, kind.value>(
              from, channels, starts[s + 1] - starts[s], [&](std::int64_t i) { return first + i; }, rows,
              to + s * channels, at == nullptr ? nullptr : at + s * channels);
        });
      });
    });
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
  const std::int64_t row_bytes = channels * size_of(src.dtype);
  call.chose("by voxel", is_parallel(groups, row_bytes) ? context.threads() : 1);
  visit_number(src.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto* from = static_cast<const T*>(src.data);
    auto* to = static_cast<T*>(out.data);
    visit_index(argmin.dtype, [&](auto kind) {
      using Index = typename decltype(kind)::type;
      auto* const at = static_cast<Index*>(argmin.data);
      for_segments(context, groups, row_bytes, [&](std::int64_t g) {
        const std::int32_t* its = groups.order + groups.starts[g];
        reduce_one<T, SegmentReduce::min>(
            from, channels, groups.count(g), [&](std::int64_t i) { return std::int64_t{its[i]}; }, rows,
            to + g * channels, at + g * channels);
      });
    });
  });
}

}  // namespace turnout
