// The definition of each operator of this family: serial and readable, one element at a time.
#pragma once

#include <cstdint>

#include "core/elements.h"
#include "turnout/tensor.h"

namespace turnout::definition {

// -- features [batch, channels, rows] ----------------------------------------------------------------------

// Calls f(b, c, p, s) for all elements of a tensor [batch, channels, centers, samples], in order.
template <class F>
void for_grouped(const ConstTensor& grouped, const F& f) {
  const std::int64_t* n = grouped.shape;
  for (std::int64_t b = 0; b < n[0]; ++b)
    for (std::int64_t c = 0; c < n[1]; ++c)
      for (std::int64_t p = 0; p < n[2]; ++p)
        for (std::int64_t s = 0; s < (grouped.rank == 4 ? n[3] : 1); ++s) f(b, c, p, s);
}
inline void clear(const Tensor& t) {
  std::int64_t count = 1;
  for (int d = 0; d < t.rank; ++d) count *= t.shape[d];
  for (std::int64_t i = 0; i < count; ++i) static_cast<double*>(t.data)[i] = 0;
}

inline void group_points(const ConstTensor& features, const ConstTensor& indices, const Tensor& out) {
  const auto from = core::numbers(features);
  const auto index = core::integers(indices);
  const auto to = core::numbers(out);
  for_grouped(out, [&](std::int64_t b, std::int64_t c, std::int64_t p, std::int64_t s) {
    to(b, c, p, s) = from.extent(2) == 0 ? 0 : from(b, c, index(b, p, s));
  });
}
inline void group_points_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                  const Tensor& grad_features) {
  const auto grad = core::numbers(grad_out);
  const auto index = core::integers(indices);
  const auto to = core::numbers(grad_features);
  clear(grad_features);
  if (to.extent(2) == 0) return;
  for_grouped(grad_out, [&](std::int64_t b, std::int64_t c, std::int64_t p, std::int64_t s) {
    to(b, c, index(b, p, s)) += grad(b, c, p, s);
  });
}

inline void gather_points(const ConstTensor& features, const ConstTensor& indices, const Tensor& out) {
  const auto from = core::numbers(features);
  const auto index = core::integers(indices);
  const auto to = core::numbers(out);
  for_grouped(out, [&](std::int64_t b, std::int64_t c, std::int64_t p, std::int64_t) {
    to(b, c, p) = from(b, c, index(b, p));
  });
}
inline void gather_points_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                   const Tensor& grad_features) {
  const auto grad = core::numbers(grad_out);
  const auto index = core::integers(indices);
  const auto to = core::numbers(grad_features);
  clear(grad_features);
  if (to.extent(2) == 0) return;
  for_grouped(grad_out, [&](std::int64_t b, std::int64_t c, std::int64_t p, std::int64_t) {
    to(b, c, index(b, p)) += grad(b, c, p);
  });
}

inline void three_interpolate(const ConstTensor& features, const ConstTensor& indices,
                              const ConstTensor& weights, const Tensor& out) {
  const auto from = core::numbers(features);
  const auto index = core::integers(indices);
  const auto w = core::numbers(weights);
  const auto to = core::numbers(out);
  for_grouped(out, [&](std::int64_t b, std::int64_t c, std::int64_t p, std::int64_t) {
    const auto part = [&](int k) { return w(b, p, k) * from(b, c, index(b, p, k)); };
    to(b, c, p) = (part(0) + part(1)) + part(2);
  });
}
inline void three_interpolate_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                       const ConstTensor& weights, const Tensor& grad_features) {
  const auto grad = core::numbers(grad_out);
  const auto index = core::integers(indices);
  const auto w = core::numbers(weights);
  const auto to = core::numbers(grad_features);
  clear(grad_features);
  if (to.extent(2) == 0) return;
  for_grouped(grad_out, [&](std::int64_t b, std::int64_t c, std::int64_t p, std::int64_t) {
    for (int k = 0; k < 3; ++k) to(b, c, index(b, p, k)) += grad(b, c, p) * w(b, p, k);
  });
}

// -- stacked samples ---------------------------------------------------------------------------------------

// Calls f(p, s, row) for all elements of indices [centers, samples], in order. row is -1 in a sample without
// features.
template <class F>
void for_stacked(const ConstTensor& counts, const ConstTensor& indices, const ConstTensor& index_counts,
                 const F& f) {
  const auto count = core::integers(counts), centers = core::integers(index_counts);
  const auto index = core::integers(indices);
  std::int64_t start = 0, p = 0;
  for (std::int64_t b = 0; b < count.extent(0); ++b) {
    for (const std::int64_t end = p + centers(b); p < end; ++p)
      for (std::int64_t s = 0; s < index.extent(1); ++s) f(p, s, count(b) == 0 ? -1 : start + index(p, s));
    start += count(b);
  }
}

inline void group_points_stacked(const ConstTensor& features, const ConstTensor& counts,
                                 const ConstTensor& indices, const ConstTensor& index_counts,
                                 const Tensor& out) {
  const auto from = core::numbers(features);
  const auto to = core::numbers(out);
  for_stacked(counts, indices, index_counts, [&](std::int64_t p, std::int64_t s, std::int64_t row) {
    for (std::int64_t c = 0; c < from.extent(1); ++c) to(p, c, s) = row < 0 ? 0 : from(row, c);
  });
}
inline void group_points_stacked_backward(const ConstTensor& grad_out, const ConstTensor& counts,
                                          const ConstTensor& indices, const ConstTensor& index_counts,
                                          const Tensor& grad_features) {
  const auto grad = core::numbers(grad_out);
  const auto to = core::numbers(grad_features);
  clear(grad_features);
  if (to.extent(0) == 0) return;
  for_stacked(counts, indices, index_counts, [&](std::int64_t p, std::int64_t s, std::int64_t row) {
    for (std::int64_t c = 0; row >= 0 && c < to.extent(1); ++c) to(row, c) += grad(p, c, s);
  });
}

inline void three_interpolate_stacked(const ConstTensor& features, const ConstTensor& indices,
                                      const ConstTensor& weights, const Tensor& out) {
  const auto from = core::numbers(features);
  const auto index = core::integers(indices);
  const auto w = core::numbers(weights);
  const auto to = core::numbers(out);
  for (std::int64_t p = 0; p < to.extent(0); ++p)
    for (std::int64_t c = 0; c < to.extent(1); ++c) {
      const auto part = [&](int k) { return w(p, k) * from(index(p, k), c); };
      to(p, c) = (part(0) + part(1)) + part(2);
    }
}
inline void three_interpolate_stacked_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                               const ConstTensor& weights, const Tensor& grad_features) {
  const auto grad = core::numbers(grad_out);
  const auto index = core::integers(indices);
  const auto w = core::numbers(weights);
  const auto to = core::numbers(grad_features);
  clear(grad_features);
  if (to.extent(0) == 0) return;
  for (std::int64_t p = 0; p < grad.extent(0); ++p)
    for (int k = 0; k < 3; ++k)
      for (std::int64_t c = 0; c < to.extent(1); ++c) to(index(p, k), c) += grad(p, c) * w(p, k);
}

}  // namespace turnout::definition
