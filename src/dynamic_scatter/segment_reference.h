// The definitions of segments, minima of groups, ranks and bird's-eye views: serial, one element at a time.
// Numbers are f64 and i64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/elements.h"
#include "turnout/segments.h"

namespace turnout::definition {

template <class Data>
std::int64_t channels_of(const BasicTensor<Data>& t) {
  std::int64_t channels = 1;
  for (int d = 1; d < t.rank; ++d) channels *= t.shape[d];
  return channels;
}

// Reduces `rows` of channel c. `at` stays if no row is a minimum or maximum. NaN and infinities are not among
// the numbers of random calls; tests have them.
template <class T>
T reduced_rows(const T* src, std::int64_t channels, std::int64_t c, const std::vector<std::int64_t>& rows,
               SegmentReduce reduce, std::int64_t& at) {
  const bool is_choice = reduce == SegmentReduce::min || reduce == SegmentReduce::max;
  T found = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const T v = src[rows[i] * channels + c];
    if (!is_choice) {
      found += v;
    } else if (i == 0 || (reduce == SegmentReduce::min ? v < found : v > found)) {
      found = v;
      at = rows[i];
    }
  }
  return reduce == SegmentReduce::mean && !rows.empty() ? found / static_cast<T>(rows.size()) : found;
}

// Writes one row of results for each list of rows.
inline void reduce_lists(const ConstTensor& src, const std::vector<std::vector<std::int64_t>>& lists,
                         const Tensor& out, const Tensor& arg, SegmentReduce reduce) {
  const std::int64_t channels = channels_of(src);
  for (std::size_t s = 0; s < lists.size(); ++s)
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t to = static_cast<std::int64_t>(s) * channels + c;
      std::int64_t at = src.shape[0];
      if (src.dtype == DType::f64) {
        static_cast<double*>(out.data)[to] =
            reduced_rows(static_cast<const double*>(src.data), channels, c, lists[s], reduce, at);
      } else {
        static_cast<std::int64_t*>(out.data)[to] =
            reduced_rows(static_cast<const std::int64_t*>(src.data), channels, c, lists[s], reduce, at);
      }
      if (!arg.is_absent()) static_cast<std::int64_t*>(arg.data)[to] = at;
    }
}

inline void segment_csr(const ConstTensor& src, const ConstTensor& indptr, const Tensor& out,
                        const Tensor& arg, SegmentReduce reduce) {
  const auto starts = core::integers(indptr);
  std::vector<std::vector<std::int64_t>> lists(static_cast<std::size_t>(out.shape[0]));
  if (channels_of(out) > 0)  // otherwise the call ends before it reads indptr
    for (std::size_t s = 0; s < lists.size(); ++s)
      for (std::int64_t i = starts(static_cast<std::int64_t>(s));
           i < starts(static_cast<std::int64_t>(s) + 1); ++i)
        lists[s].push_back(i);
  reduce_lists(src, lists, out, arg, reduce);
}

inline void gather_csr(const ConstTensor& src, const ConstTensor& indptr, const Tensor& out) {
  const auto starts = core::integers(indptr);
  const std::int64_t channels = channels_of(out);
  if (channels == 0) return;
  std::fill_n(static_cast<std::int64_t*>(out.data), out.shape[0] * channels, 0);  // also the bits of 0.0
  for (std::int64_t s = 0; out.shape[0] > 0 && s < src.shape[0]; ++s)
    for (std::int64_t i = starts(s); i < starts(s + 1); ++i)
      std::copy_n(static_cast<const std::int64_t*>(src.data) + s * channels, channels,
                  static_cast<std::int64_t*>(out.data) + i * channels);
}

inline void reduce_groups(const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                          const Tensor& arg, SegmentReduce reduce) {
  const auto groups = core::integers(index);
  std::vector<std::vector<std::int64_t>> lists(static_cast<std::size_t>(out.shape[0]));
  if (!lists.empty() && channels_of(out) > 0)
    for (std::int64_t i = 0; i < src.shape[0]; ++i) lists[static_cast<std::size_t>(groups(i))].push_back(i);
  reduce_lists(src, lists, out, arg, reduce);
}
inline void scatter_min(const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                        const Tensor& argmin) {
  reduce_groups(src, index, out, argmin, SegmentReduce::min);
}
inline void scatter_max(const ConstTensor& src, const ConstTensor& index, const Tensor& out,
                        const Tensor& argmax) {
  reduce_groups(src, index, out, argmax, SegmentReduce::max);
}

inline void ingroup_indices(const ConstTensor& groups, const Tensor& out) {
  const auto group = core::integers(groups);
  const auto to = core::integers(out);
  for (std::int64_t i = 0; i < group.extent(0); ++i) {
    to(i) = 0;
    for (std::int64_t j = 0; j < i; ++j) to(i) += group(j) == group(i);
  }
}

inline void bev_pool(const ConstTensor& feats, const ConstTensor& coords, const Tensor& out) {
  const auto from = core::numbers(feats);
  const auto at = core::integers(coords);
  const auto to = core::numbers(out);
  std::int64_t count = 1;
  for (int d = 0; d < 5; ++d) count *= out.shape[d];
  std::fill_n(static_cast<double*>(out.data), count, 0.0);
  for (std::int64_t i = 0; count > 0 && i < from.extent(0); ++i)
    for (std::int64_t c = 0; c < from.extent(1); ++c)
      to(at(i, 3), c, at(i, 2), at(i, 0), at(i, 1)) += from(i, c);
}
inline void bev_pool_backward(const ConstTensor& grad_out, const ConstTensor& coords,
                              const Tensor& grad_feats) {
  const auto grad = core::numbers(grad_out);
  const auto at = core::integers(coords);
  const auto to = core::numbers(grad_feats);
  for (std::int64_t i = 0; i < to.extent(0); ++i)
    for (std::int64_t c = 0; c < to.extent(1); ++c)
      to(i, c) = grad(at(i, 3), c, at(i, 2), at(i, 0), at(i, 1));
}

}  // namespace turnout::definition
