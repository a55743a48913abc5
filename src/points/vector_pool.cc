// Implements vector_pool and its gradient.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "points/clouds.h"
#include "points/given_lists.h"
#include "points/signature.h"
#include "turnout/points.h"

namespace turnout {
namespace families::points {

using namespace core;
namespace {

ScalarValue as_scalar(std::span<const std::int64_t> values) {
  return {values.data(), static_cast<std::int64_t>(values.size())};
}

// The cells of a cube around a query.
template <class Real>
class CubeCells {
 public:
  CubeCells(double radius, std::span<const std::int64_t> grid) : radius_(static_cast<Real>(radius)) {
    for (std::size_t k = 0; k < 3; ++k) {
      grid_[k] = grid[k];
      size_[k] = radius_ * 2 / static_cast<Real>(grid[k]);
    }
  }
  std::int64_t count() const { return grid_[0] * grid_[1] * grid_[2]; }

  // The cell of a point at `local` from the query, -1 outside of the cube.
  std::int64_t of(const Real* local) const {
    std::int64_t cell = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      if (!(std::abs(local[k]) <= radius_)) return -1;
      const Real place = std::floor((local[k] + radius_) / size_[k]);
      // NaN, if the size is 0 or infinite, is 0; only numbers in range are converted.
      const Real most = static_cast<Real>(grid_[k]);
      cell = cell * grid_[k] + (place >= 0 ? static_cast<std::int64_t>(std::min(place, most)) : 0);
    }
    return std::min(cell, count() - 1);
  }

 private:
  Real radius_, size_[3];
  std::int64_t grid_[3];
};

// Calls visit(first channel, channels) for the parts of the channels that go to slots 0, 1, ... in order.
template <class Visit>
void for_parts(std::int64_t channels, std::int64_t slots, const Visit& visit) {
  for (std::int64_t first = 0; slots > 0 && first < channels; first += slots)
    visit(first, std::min(slots, channels - first));
}

template <class Real>
struct PoolTask {
  const Real *xyz, *features, *new_xyz;
  const GivenLists& lists;
  const CubeCells<Real> cube;
  std::int64_t channels, slots, nsample;
  VectorPoolMode mode;
  Real *pooled, *local_xyz;
  std::int32_t *cell_counts, *grouped;

  void run(std::int64_t query) const {
    const std::int64_t cells = cube.count();
    Real *const sums = pooled + query * cells * slots, *const locals = local_xyz + query * cells * 3;
    std::int32_t* const counts = cell_counts + query * cells;
    std::fill_n(sums, cells * slots, Real(0));
    std::fill_n(locals, cells * 3, Real(0));
    std::fill_n(counts, cells, 0);
    std::int64_t taken = 0;
    for (std::int64_t i = lists.start(query); i < lists.start(query + 1); ++i) {
      const std::int64_t row = lists.rows()[i];
      Real local[3];
      for (int k = 0; k < 3; ++k) local[k] = xyz[3 * row + k] - new_xyz[3 * query + k];
      std::int64_t cell = taken < nsample ? cube.of(local) : -1;
      if (cell >= 0 && mode == VectorPoolMode::first && counts[cell] > 0) cell = -1;
      grouped[3 * i] = static_cast<std::int32_t>(row);
      grouped[3 * i + 1] = static_cast<std::int32_t>(query);
      grouped[3 * i + 2] = static_cast<std::int32_t>(cell);
      if (cell < 0) continue;
      ++taken;
      ++counts[cell];
      const bool is_first = mode == VectorPoolMode::first;
      Real* const to = sums + cell * slots;
      for_parts(channels, slots, [&](std::int64_t first, std::int64_t width) {
        const Real* from = features + row * channels + first;
        if (is_first) {
          std::copy_n(from, width, to);
        } else {
          for (std::int64_t j = 0; j < width; ++j) to[j] += from[j];
        }
      });
      for (int k = 0; k < 3; ++k) {
        Real& sum = locals[3 * cell + k];
        sum = is_first ? local[k] : sum + local[k];
      }
    }
    if (mode == VectorPoolMode::mean) divide(sums, locals, counts, cells);
  }

 private:
  void divide(Real* sums, Real* locals, const std::int32_t* counts, std::int64_t cells) const {
    for (std::int64_t cell = 0; cell < cells; ++cell) {
      if (counts[cell] < 2) continue;
      const auto count = static_cast<Real>(counts[cell]);
      for (std::int64_t j = 0; j < slots; ++j) sums[cell * slots + j] /= count;
      for (int k = 0; k < 3; ++k) locals[3 * cell + k] /= count;
    }
  }
};

// Copies grouped [entries, 3] after checking it.
void read_grouped(Call& call, const ConstTensor& grouped, const std::int64_t (&limits)[3], std::int32_t* to) {
  static constexpr const char* kNames[] = {"points", "queries", "cells"};
  visit_index(grouped.dtype, [&](auto type) {
    const auto* from = static_cast<const typename decltype(type)::type*>(grouped.data);
    serial_for(0, grouped.shape[0], [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        for (int k = 0; k < 3; ++k) {
          std::int64_t value = load_once(from + 3 * i + k);
          if (k == 2 && value < 0) value = -1;
          if (!(k == 2 && value < 0) && !in_range(value, limits[k]))
            call.refuse(concat(call.name("grouped"), "[", i, ", ", k, "] is ", value,
                               limits[k] == 0
                                   ? concat(", but none is valid since ", kNames[k], " is 0")
                                   : concat(", expected ", k == 2 ? "at most " : "0 .. ", limits[k] - 1)));
          to[3 * i + k] = static_cast<std::int32_t>(value);
        }
    });
  });
}

}  // namespace
}  // namespace families::points

using namespace families::points;

void vector_pool(const ConstTensor& xyz, const ConstTensor& features, const ConstTensor& new_xyz,
                 const ConstTensor& rows, const ConstTensor& starts, const Tensor& pooled,
                 const Tensor& local_xyz, const Tensor& cell_counts, const Tensor& grouped, double radius,
                 std::span<const std::int64_t> grid, VectorPoolMode mode, std::int64_t nsample,
                 const Caller& caller) {
  Call call(caller, kVectorPool,
            {xyz, features, new_xyz, rows, starts, pooled, local_xyz, cell_counts, grouped},
            {radius, as_scalar(grid), mode, nsample});
  if (call.nothing_to_do()) return;
  call.chose("lists", call.context().threads());
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  Scratch& scratch = call.scratch(GivenLists::bytes(rows, starts));
  const GivenLists lists(call, scratch, rows, starts, xyz.shape[0]);
  visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const PoolTask<Real> task{.xyz = static_cast<const Real*>(xyz.data),
                              .features = static_cast<const Real*>(features.data),
                              .new_xyz = static_cast<const Real*>(new_xyz.data),
                              .lists = lists,
                              .cube = CubeCells<Real>(radius, grid),
                              .channels = features.shape[1],
                              .slots = pooled.shape[2],
                              .nsample = nsample,
                              .mode = mode,
                              .pooled = static_cast<Real*>(pooled.data),
                              .local_xyz = static_cast<Real*>(local_xyz.data),
                              .cell_counts = static_cast<std::int32_t*>(cell_counts.data),
                              .grouped = static_cast<std::int32_t*>(grouped.data)};
    parallel_for(call.context(), new_xyz.shape[0], kQueryGrain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t q = first; q < last; ++q) task.run(q);
    });
  });
}

void vector_pool_backward(const ConstTensor& grad_pooled, const ConstTensor& cell_counts,
                          const ConstTensor& grouped, const Tensor& grad_features, VectorPoolMode mode,
                          const Caller& caller) {
  Call call(caller, kVectorPoolBackward, {grad_pooled, cell_counts, grouped, grad_features}, {mode});
  if (call.nothing_to_do()) return;
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const std::int64_t points = grad_features.shape[0], channels = grad_features.shape[1];
  const std::int64_t cells = grad_pooled.shape[1], slots = grad_pooled.shape[2], entries = grouped.shape[0];
  auto* const triples = call.scratch(array_bytes<std::int32_t>(3 * entries)).take<std::int32_t>(3 * entries);
  read_grouped(call, grouped, {points, grad_pooled.shape[0], cells}, triples);
  // Each block of rows reads all entries, so that each row has one writer and its entries stay in order.
  const std::int64_t elements = (entries + points) * channels;
  const int threads = elements < kParallelBytes / 8 ? 1 : call.context().threads();
  call.chose("blocks of rows", threads);
  const Stop stop;
  visit_lane(grad_pooled.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const auto* grad = static_cast<const Real*>(grad_pooled.data);
    auto* to = static_cast<Real*>(grad_features.data);
    const auto add = [&](const std::int32_t* entry) {
      const std::int64_t at = entry[1] * cells + entry[2];
      const std::int64_t count = visit_index(cell_counts.dtype, [&](auto index) {
        return std::int64_t{static_cast<const typename decltype(index)::type*>(cell_counts.data)[at]};
      });
      const Real share = mode == VectorPoolMode::mean
                             ? Real(1) / static_cast<Real>(std::max<std::int64_t>(count, 1))
                             : Real(1);
      const Real* from = grad + at * slots;
      for_parts(channels, slots, [&](std::int64_t first, std::int64_t width) {
        Real* sums = to + entry[0] * channels + first;
        // Of channels of the same slot, `first` has assigned the last one.
        const bool is_first = mode == VectorPoolMode::first;
        const std::int64_t begin = is_first ? std::max<std::int64_t>(channels - slots - first, 0) : 0;
        for (std::int64_t j = begin; j < width; ++j) sums[j] += from[j] * share;
      });
    };
    parallel_for(call.context(), points, (points + threads - 1) / threads,
                 [&](std::int64_t first, std::int64_t last) {
                   std::fill(to + first * channels, to + last * channels, Real(0));
                   for (std::int64_t i = 0; i < entries; ++i) {
                     const std::int32_t* entry = triples + 3 * i;
                     if (i % 1024 == 0 && stop.is_asked()) return;
                     if (entry[0] >= first && entry[0] < last && entry[2] >= 0) add(entry);
                   }
                 });
  });
}

}  // namespace turnout
