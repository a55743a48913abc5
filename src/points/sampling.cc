// Furthest point sampling: of points in leaves, and of a matrix of distances.
#include <algorithm>
#include <limits>

#include "points/kernels.h"
#include "points/signature.h"
#include "points/stacked.h"
#include "runtime/parallel.h"
#include "turnout/points.h"

namespace turnout {
namespace families::points {

using namespace core;
namespace {

constexpr double kFarAway = 1e10;  // the distances before the first sample

template <class Real>
Real* elements(const Tensor& tensor) {
  return tensor.is_absent() ? nullptr : static_cast<Real*>(tensor.data);
}
template <class Real>
const Real* elements(const ConstTensor& tensor) {
  return tensor.is_absent() ? nullptr : static_cast<const Real*>(tensor.data);
}

// Copies `count` elements on this thread; without `from`, they are kFarAway.
template <class Real>
void copy_initial(const Real* from, std::int64_t count, Real* to) {
  if (from == nullptr) {
    std::fill_n(to, count, static_cast<Real>(kFarAway));
  } else if (from != to) {
    std::copy_n(from, count, to);
  }
}

// The memory of one thread.
template <class Real>
struct Workspace {
  PointLeaves<Real> leaves;
  Real *distances, *leaf_most, *group_most;
  std::int32_t *leaf_row, *samples;

  static std::int64_t groups(std::int64_t points) {
    return points / (PointLeaves<Real>::kLeaf * PointLeaves<Real>::kGroup) + 1;
  }
  static std::size_t bytes(std::int64_t points, std::int64_t samples) {
    const std::int64_t leaves = groups(points) * PointLeaves<Real>::kGroup;
    return PointLeaves<Real>::bytes(points) + array_bytes<Real>(leaves * PointLeaves<Real>::kLeaf) +
           array_bytes<Real>(leaves) + array_bytes<Real>(padded_groups(groups(points))) +
           array_bytes<std::int32_t>(leaves) + array_bytes<std::int32_t>(samples);
  }
  Workspace(Scratch& scratch, std::int64_t points, std::int64_t most_samples) : leaves(scratch, points) {
    const std::int64_t count = groups(points) * PointLeaves<Real>::kGroup;
    distances = scratch.take<Real>(count * PointLeaves<Real>::kLeaf);
    leaf_most = scratch.take<Real>(count);
    group_most = scratch.take<Real>(padded_groups(groups(points)));
    leaf_row = scratch.take<std::int32_t>(count);
    samples = scratch.take<std::int32_t>(most_samples);
  }

  // Samples one cloud into `samples`, and writes the distances unless `to` is nullptr.
  void run(const SampleKernels<Real>& kernels, const Real* points, std::int64_t count, const Real* initial,
           std::int64_t sample_count, Real* to, const Stop& stop) {
    if (sample_count > 0) samples[0] = 0;
    if (sample_count <= 1) {
      if (to != nullptr) copy_initial(initial, count, to);
      return;
    }
    leaves.build(nullptr, points, count, LeafOrder::curve);
    const std::int32_t* rows = leaves.rows();
    for (std::int64_t j = 0; j < count; ++j)
      distances[j] = initial == nullptr ? static_cast<Real>(kFarAway) : initial[rows[j]];
    std::fill(distances + count, distances + leaves.leaves() * PointLeaves<Real>::kLeaf, Real(kNoDistance));
    const SampleTask<Real> task{leaves, points, distances, leaf_most, group_most, leaf_row, stop};
    const std::int64_t found = kernels.sample(task, sample_count, samples);
    std::fill(samples + found, samples + sample_count, samples[found - 1]);
    if (to != nullptr)
      for (std::int64_t j = 0; j < count; ++j) to[rows[j]] = distances[j];
  }
};

void write_samples(const std::int32_t* samples, std::int64_t count, std::int64_t first_row, const Tensor& idx,
                   std::int64_t at) {
  visit_index(idx.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    auto* to = static_cast<Index*>(idx.data) + at;
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Index>(first_row + samples[i]);
  });
}

// Samples each cloud on one thread. `points` are the clouds, `samples` the positions of their samples.
void sample_clouds(Call& call, const ConstTensor& xyz, const ConstTensor& initial, const Starts& points,
                   const Starts& samples, bool are_rows_global, const Tensor& idx, const Tensor& distances) {
  const FpEnvironment environment;  // the caller's may round otherwise, or trap
  const std::int64_t most_points = points.most(), most_samples = samples.most();
  const auto workers = static_cast<int>(
      std::min<std::int64_t>({call.context().threads(), std::max<std::int64_t>(points.samples(), 1), 64}));
  call.chose("leaves", workers);
  const Stop stop;
  visit_lane(xyz.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const SampleKernels<Real>& kernels = sample_kernels(call.context().isa()).of<Real>();
    const std::size_t bytes = Workspace<Real>::bytes(most_points, most_samples);
    Scratch scratch = call.lease(static_cast<std::size_t>(workers) * bytes);
    std::byte* const memory = scratch.take<std::byte>(static_cast<std::int64_t>(bytes) * workers);
    const auto run = [&](std::int64_t begin, std::int64_t end, int worker) {
      Scratch own(call.context(), {memory + static_cast<std::size_t>(worker) * bytes, bytes}, bytes);
      Workspace<Real> workspace(own, most_points, most_samples);
      for (std::int64_t b = begin; b < end; ++b) {
        const std::int64_t first = points.first(b);
        const auto at = [&](auto* from) { return from == nullptr ? nullptr : from + first; };
        workspace.run(kernels, elements<Real>(xyz) + 3 * first, points.count(b), at(elements<Real>(initial)),
                      samples.count(b), at(elements<Real>(distances)), stop);
        write_samples(workspace.samples, samples.count(b), are_rows_global ? first : 0, idx,
                      samples.first(b));
      }
    };
    parallel_for(call.context(), points.samples(), 1, run, workers);
  });
}

[[noreturn]] void refuse_no_points(Call& call, std::int64_t samples) {
  call.refuse(concat(call.name("samples"), " is ", samples, ", expected 0, because there are no points"));
}

}  // namespace
}  // namespace families::points

using namespace families::points;

void furthest_point_sample(const ConstTensor& xyz, const ConstTensor& initial, const Tensor& idx,
                           const Tensor& distances, const Caller& caller) {
  Call call(caller, kFurthestPointSample, {xyz, initial, idx, distances}, {});
  if (call.nothing_to_do()) return;
  const Batched cloud(xyz, 1), sampled(idx, 0);
  if (cloud.rows == 0 && sampled.rows > 0) refuse_no_points(call, sampled.rows);
  Scratch& scratch = call.scratch(2 * Starts::bytes(cloud.batch));
  const Starts points(scratch, cloud.batch, cloud.rows), samples(scratch, cloud.batch, sampled.rows);
  sample_clouds(call, xyz, initial, points, samples, false, idx, distances);
}

void furthest_point_sample_stacked(const ConstTensor& xyz, const ConstTensor& counts,
                                   const ConstTensor& sample_counts, const ConstTensor& initial,
                                   const Tensor& idx, const Tensor& distances, const Caller& caller) {
  Call call(caller, kFurthestPointSampleStacked, {xyz, counts, sample_counts, initial, idx, distances}, {});
  if (call.nothing_to_do()) return;
  Scratch& scratch = call.scratch(2 * Starts::bytes(counts.shape[0]));
  const Starts points(call, scratch, "counts", counts, xyz.shape[0], "xyz");
  const Starts samples(call, scratch, "sample_counts", sample_counts, idx.shape[0], "idx");
  if (xyz.shape[0] == 0 && idx.shape[0] > 0) refuse_no_points(call, idx.shape[0]);
  for (std::int64_t b = 0; b < points.samples(); ++b)
    if (points.count(b) == 0 && samples.count(b) > 0)
      call.refuse(concat(call.name("sample_counts"), "[", b, "] is ", samples.count(b),
                         ", expected 0, because ", call.name("counts"), "[", b, "] is 0"));
  sample_clouds(call, xyz, initial, points, samples, true, idx, distances);
}

void furthest_point_sample_by_distances(const ConstTensor& matrix, const ConstTensor& initial,
                                        const Tensor& idx, const Tensor& distances, const Caller& caller) {
  Call call(caller, kFurthestPointSampleByDistances, {matrix, initial, idx, distances}, {});
  if (call.nothing_to_do()) return;
  const FpEnvironment environment;
  const Batched cloud(matrix, 1), sampled(idx, 0);
  const std::int64_t count = cloud.rows;
  if (count == 0 && sampled.rows > 0) refuse_no_points(call, sampled.rows);
  const auto workers = static_cast<int>(
      std::min<std::int64_t>({call.context().threads(), std::max<std::int64_t>(cloud.batch, 1), 64}));
  call.chose("rows", workers);
  const Stop stop;
  visit_lane(matrix.dtype, [&](auto type) {
    using Real = typename decltype(type)::type;
    const SampleKernels<Real>& kernels = sample_kernels(call.context().isa()).of<Real>();
    Scratch& scratch =
        call.scratch(array_bytes<Real>(count) * static_cast<std::size_t>(workers) +
                     array_bytes<std::int32_t>(sampled.rows) * static_cast<std::size_t>(workers));
    Real* own[64];
    std::int32_t* chosen[64];
    for (int w = 0; w < workers; ++w) {
      own[w] = scratch.take<Real>(count);
      chosen[w] = scratch.take<std::int32_t>(sampled.rows);
    }
    const std::int64_t asks = Stop::kGrain / (count + 1) + 1;
    const auto run = [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t b = begin; b < end; ++b) {
        const auto* rows = elements<Real>(matrix) + b * count * count;
        Real* least = own[worker];
        const Real* start = elements<Real>(initial);
        copy_initial(start == nullptr ? nullptr : start + b * count, count, least);
        std::int32_t* samples = chosen[worker];
        std::int64_t last = 0;
        bool is_repeated = false;
        for (std::int64_t i = 0; i < sampled.rows; ++i) {
          if (i % asks == asks - 1 && stop.is_asked()) return;
          if (i > 0 && !is_repeated) {
            const std::int64_t next = kernels.step(rows + last * count, least, count);
            is_repeated = next == last;
            last = next;
          }
          samples[i] = static_cast<std::int32_t>(last);
        }
        write_samples(samples, sampled.rows, 0, idx, b * sampled.rows);
        if (Real* to = elements<Real>(distances)) std::copy_n(least, count, to + b * count);
      }
    };
    parallel_for(call.context(), cloud.batch, 1, run, workers);
  });
}

}  // namespace turnout
