// Grouping, gathering and interpolation of features [batch, channels, rows]: each channel of a sample is a
// row of numbers that indices select from.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/dtypes.h"
#include "core/padding.h"
#include "core/pieces.h"
#include "grouping/interpolation.h"
#include "grouping/places.h"
#include "grouping/signature.h"
#include "runtime/parallel.h"
#include "simd/copy.h"
#include "simd/half.h"
#include "turnout/grouping.h"

namespace turnout {
namespace families::grouping {

using namespace core;
namespace {

// Channels that are computed together. They share the loads of indices and weights, and their sums do not
// wait for each other if an index is repeated.
constexpr std::int64_t kTogether = 4;
constexpr std::int64_t kPlaces = 16 << 10;  // of a range
// Channels of more bytes are selected from one after another, so that each stays in the L1 cache or near it.
constexpr std::int64_t kNearBytes = 128 << 10;

struct Sizes {
  std::int64_t batch, channels, rows, places;  // places: indices of a sample; three are one for interpolation

  std::int64_t blocks() const { return (channels - 1) / kTogether + 1; }
  template <class Features, class Places>
  Sizes(const BasicTensor<Features>& features, const BasicTensor<Places>& result)
      : batch(features.shape[0]),
        channels(features.shape[1]),
        rows(features.shape[2]),
        places(elements_from(result, 2)) {}
};

// Calls work(sample, first channel, channels) for blocks of channels, on several threads if `bytes` are many.
// With a worker, if work takes one.
template <class Work>
void for_blocks(Context& context, const Sizes& sizes, std::int64_t bytes, int workers, const Work& work) {
  const std::int64_t blocks = sizes.batch * sizes.blocks();
  parallel_for(
      context, blocks, bytes >= kParallelBytes ? 1 : blocks,
      [&](std::int64_t begin, std::int64_t end, int worker) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t channel = i % sizes.blocks() * kTogether;
          work(i / sizes.blocks(), channel, std::min(kTogether, sizes.channels - channel), worker);
        }
      },
      workers);
}

// Calls f(std::integral_constant<int, n>) for n = channels, 1 .. kTogether.
template <int kChannels = kTogether, class F>
void with_together(std::int64_t channels, const F& f) {
  if constexpr (kChannels > 1) {
    if (channels < kChannels) return with_together<kChannels - 1>(channels, f);
  }
  f(std::integral_constant<int, kChannels>());
}

// -- selection ---------------------------------------------------------------------------------------------

// to[c][j] = from[c][index[j]]
template <int kChannels, class Element>
void select(const Element* from, std::int64_t rows, const std::int32_t* index, std::int64_t count,
            Element* to, std::int64_t stride) {
  for (std::int64_t j = 0; j < count; ++j) {
    const Element* at = from + index[j];
    for (int c = 0; c < kChannels; ++c) to[c * stride + j] = at[c * rows];
  }
}

// The same, through a tile in the cache that is streamed.
template <int kChannels, class Element>
void select_streamed(const CopyKernels& copy, const Element* from, std::int64_t rows,
                     const std::int32_t* index, std::int64_t count, Element* to, std::int64_t stride) {
  constexpr std::int64_t kTile = kTileBytes / std::int64_t{sizeof(Element)} / kChannels;
  alignas(64) Element tile[kChannels * kTile];
  for (const Piece piece : pieces(0, count, kTile)) {
    select<kChannels>(from, rows, index + piece.begin, piece.count, tile, kTile);
    for (int c = 0; c < kChannels; ++c)
      copy.stream(to + c * stride + piece.begin, tile + c * kTile,
                  piece.count * std::int64_t{sizeof(Element)});
  }
}

void select_all(Call& call, const Sizes& sizes, const ConstTensor& features, const std::int32_t* index,
                const Tensor& out) {
  Context& context = call.context();
  const std::int64_t bytes = sizes.batch * sizes.channels * sizes.places * size_of(out.dtype);
  const bool is_parallel = bytes >= kParallelBytes, is_streamed = core::is_streamed(bytes);
  call.chose(is_streamed ? "by channel, streamed" : "by channel", is_parallel ? context.threads() : 1);
  const CopyKernels& copy = copy_kernels(context.isa());
  visit_bytes(size_of(out.dtype), [&](auto type) {
    using Element = typename decltype(type)::type;
    const auto* from = static_cast<const Element*>(features.data);
    auto* to = static_cast<Element*>(out.data);
    const std::int64_t parts = (sizes.places - 1) / kPlaces + 1;
    const std::int64_t ranges = sizes.batch * sizes.blocks() * parts;
    const std::int64_t at_once = kTogether * sizes.rows * size_of(out.dtype) <= kNearBytes ? kTogether : 1;
    parallel_for(context, ranges, is_parallel ? 1 : ranges, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t sample = i / parts / sizes.blocks();
        const std::int64_t channel = i / parts % sizes.blocks() * kTogether, place = i % parts * kPlaces;
        const std::int64_t count = std::min(kPlaces, sizes.places - place);
        const std::int32_t* its = index + sample * sizes.places + place;
        const std::int64_t together = std::min(kTogether, sizes.channels - channel);
        for (std::int64_t c = 0; c < together; c += at_once)
          with_together(std::min(at_once, together), [&](auto n) {
            const std::int64_t row = sample * sizes.channels + channel + c;
            const Element* source = from + row * sizes.rows;
            Element* target = to + row * sizes.places + place;
            if (is_streamed) {
              select_streamed<n.value>(copy, source, sizes.rows, its, count, target, sizes.places);
            } else {
              select<n.value>(source, sizes.rows, its, count, target, sizes.places);
            }
          });
      }
      if (is_streamed) copy.finish();
    });
  });
}

// -- numbers in the type that they are computed in ---------------------------------------------------------

template <class T>
using Lane = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
T rounded(Lane<T> v) {
  if constexpr (sizeof(T) == 2) {
    return from_float<T>(v);
  } else {
    return v;
  }
}

// Memory for the channels of each worker's block as f32, if they are 16-bit floats.
template <class T>
class Widened {
 public:
  Widened(const Sizes& sizes, int workers)
      : size_(sizeof(T) == 2 ? kTogether * sizes.rows : 0), workers_(workers) {}
  std::size_t bytes() const { return array_bytes<Lane<T>>(size_ * workers_); }
  void take(Scratch& scratch) { memory_ = scratch.take<Lane<T>>(size_ * workers_); }
  Lane<T>* of(int worker) const { return memory_ + worker * size_; }

 private:
  const std::int64_t size_;
  const int workers_;
  Lane<T>* memory_ = nullptr;
};

// -- interpolation -----------------------------------------------------------------------------------------

template <int kChannels, class T>
void interpolate(const Lane<T>* from, std::int64_t rows, const std::int32_t* index, const Lane<T>* weight,
                 std::int64_t count, T* to, std::int64_t stride) {
  for (std::int64_t j = 0; j < count; ++j, index += 3, weight += 3) {
    const Lane<T>*f0 = from + index[0], *f1 = from + index[1], *f2 = from + index[2];
    for (int c = 0; c < kChannels; ++c)
      to[c * stride + j] =
          rounded<T>((weight[0] * f0[c * rows] + weight[1] * f1[c * rows]) + weight[2] * f2[c * rows]);
  }
}

// The same where an index may be -1: its term is 0.
template <int kChannels, class T>
void interpolate_known(const Lane<T>* from, std::int64_t rows, const std::int32_t* index,
                       const Lane<T>* weight, std::int64_t count, T* to, std::int64_t stride) {
  for (std::int64_t j = 0; j < count; ++j, index += 3, weight += 3)
    for (int c = 0; c < kChannels; ++c) {
      const auto term = [&](int k) {
        return index[k] < 0 ? Lane<T>(0) : weight[k] * from[c * rows + index[k]];
      };
      to[c * stride + j] = rounded<T>((term(0) + term(1)) + term(2));
    }
}

// -- gradients ---------------------------------------------------------------------------------------------

// sums[c][index[j]] += grad[c][j / kEach] * weight[j], in the order of j. Without weights, kEach is 1. With
// kSkips, an index may be -1, whose term is not added.
template <int kChannels, int kEach, bool kSkips, class T>
void add(const T* grad, std::int64_t stride, const std::int32_t* index, const Lane<T>* weight,
         std::int64_t first, std::int64_t last, Lane<T>* sums, std::int64_t rows) {
  for (std::int64_t j = first; j < last; ++j)
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t i = j * kEach + k;
      if (kSkips && index[i] < 0) continue;
      Lane<T>* at = sums + index[i];
      for (int c = 0; c < kChannels; ++c) {
        const Lane<T> g = to_float(grad[c * stride + j]);
        at[c * rows] += kEach == 1 ? g : g * weight[i];
      }
    }
}

template <int kEach>
void add_all(Call& call, const Sizes& sizes, const ConstTensor& grad_out, const ConstTensor& indices,
             const ConstTensor& weights, Strays strays, const Tensor& grad_features) {
  Context& context = call.context();
  const std::int64_t count = sizes.batch * sizes.places * kEach;
  const std::int64_t bytes = sizes.batch * sizes.channels * sizes.places * kEach * size_of(grad_out.dtype);
  const int workers = context.threads();
  call.chose("by channel", bytes >= kParallelBytes ? workers : 1);
  visit_float(grad_out.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    Widened<T> widened(sizes, workers);
    Scratch& scratch = call.scratch(array_bytes<std::int32_t>(count) + widened.bytes());
    auto* index = scratch.take<std::int32_t>(count);
    widened.take(scratch);
    const bool skips = read_indices(call, indices, sizes.rows, strays, index);
    if (elements_from(grad_features, 0) == 0) return;
    const auto* grad = static_cast<const T*>(grad_out.data);
    const auto* weight = static_cast<const Lane<T>*>(weights.data);
    auto* to = static_cast<T*>(grad_features.data);
    const Stop stop;
    for_blocks(context, sizes, bytes, workers,
               [&](std::int64_t sample, std::int64_t channel, std::int64_t channels, int worker) {
                 const std::int64_t row = sample * sizes.channels + channel, numbers = channels * sizes.rows;
                 T* const its = to + row * sizes.rows;
                 Lane<T>* sums;
                 if constexpr (sizeof(T) == 2) {
                   sums = widened.of(worker);
                 } else {
                   sums = its;
                 }
                 std::fill_n(sums, numbers, Lane<T>(0));
                 const std::int64_t place = sample * sizes.places * kEach;
                 with_together(channels, [&](auto n) {
                   const auto its_add =
                       skips ? &add<n.value, kEach, true, T> : &add<n.value, kEach, false, T>;
                   static_cast<void>(stop.blocks(0, sizes.places, [&](std::int64_t first, std::int64_t last) {
                     its_add(grad + row * sizes.places, sizes.places, index + place,
                             weight == nullptr ? nullptr : weight + place, first, last, sums, sizes.rows);
                   }));
                 });
                 if constexpr (sizeof(T) == 2)
                   for (std::int64_t i = 0; i < numbers; ++i) its[i] = rounded<T>(sums[i]);
               });
  });
}

// Writes 0 if there are no rows and `strays` allows that; the indices are then not read.
void select_points(Call& call, const ConstTensor& features, const ConstTensor& indices, const Tensor& out,
                   Strays strays) {
  const Sizes sizes(features, out);
  if (strays == Strays::refuse_if_rows && sizes.rows == 0) {
    copy_kernels(call.context().isa()).clear(out.data, elements_from(out, 0) * size_of(out.dtype));
    copy_kernels(call.context().isa()).finish();
    return call.chose("no rows", 1);
  }
  const std::int64_t count = sizes.batch * sizes.places;
  auto* index = call.scratch(array_bytes<std::int32_t>(count)).take<std::int32_t>(count);
  read_indices(call, indices, sizes.rows, strays, index);
  select_all(call, sizes, features, index, out);
}

}  // namespace

void interpolate_points(const ConstTensor& features, const ConstTensor& indices, const ConstTensor& weights,
                        Strays strays, const Tensor& out, const Caller& caller) {
  Call call(caller, kThreeInterpolate, {features, indices, weights, out}, {});
  if (call.nothing_to_do()) return;
  const Sizes sizes(features, out);
  Context& context = call.context();
  const std::int64_t count = sizes.batch * sizes.places * 3;
  const std::int64_t bytes = sizes.batch * sizes.channels * sizes.places * 3 * size_of(out.dtype);
  const int workers = context.threads();
  call.chose("by channel", bytes >= kParallelBytes ? workers : 1);
  visit_float(features.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    Widened<T> widened(sizes, workers);
    Scratch& scratch = call.scratch(array_bytes<std::int32_t>(count) + widened.bytes());
    auto* index = scratch.take<std::int32_t>(count);
    widened.take(scratch);
    const bool skips = read_indices(call, indices, sizes.rows, strays, index);
    const auto* from = static_cast<const T*>(features.data);
    const auto* weight = static_cast<const Lane<T>*>(weights.data);
    auto* to = static_cast<T*>(out.data);
    const Stop stop;
    for_blocks(
        context, sizes, bytes, workers,
        [&](std::int64_t sample, std::int64_t channel, std::int64_t channels, int worker) {
          const std::int64_t row = sample * sizes.channels + channel;
          const Lane<T>* numbers;
          if constexpr (sizeof(T) == 2) {
            Lane<T>* wide = widened.of(worker);
            for (std::int64_t i = 0; i < channels * sizes.rows; ++i)
              wide[i] = to_float(from[row * sizes.rows + i]);
            numbers = wide;
          } else {
            numbers = from + row * sizes.rows;
          }
          const std::int64_t place = sample * sizes.places;
          with_together(channels, [&](auto n) {
            const auto its_interpolate = skips ? &interpolate_known<n.value, T> : &interpolate<n.value, T>;
            static_cast<void>(stop.blocks(0, sizes.places, [&](std::int64_t first, std::int64_t last) {
              its_interpolate(numbers, sizes.rows, index + 3 * (place + first), weight + 3 * (place + first),
                              last - first, to + row * sizes.places + first, sizes.places);
            }));
          });
        });
  });
}

void interpolate_points_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                 const ConstTensor& weights, Strays strays, const Tensor& grad_features,
                                 const Caller& caller) {
  Call call(caller, kThreeInterpolateBackward, {grad_out, indices, weights, grad_features}, {});
  if (call.nothing_to_do()) return;
  add_all<3>(call, Sizes(grad_features, grad_out), grad_out, indices, weights, strays, grad_features);
}

}  // namespace families::grouping

using namespace families::grouping;

void group_points(const ConstTensor& features, const ConstTensor& indices, const Tensor& out,
                  const Caller& caller) {
  Call call(caller, kGroupPoints, {features, indices, out}, {});
  if (call.nothing_to_do()) return;
  select_points(call, features, indices, out, Strays::refuse_if_rows);
}

void gather_points(const ConstTensor& features, const ConstTensor& indices, const Tensor& out,
                   const Caller& caller) {
  Call call(caller, kGatherPoints, {features, indices, out}, {});
  if (call.nothing_to_do()) return;
  select_points(call, features, indices, out, Strays::refuse);
}

void group_points_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                           const Tensor& grad_features, const Caller& caller) {
  Call call(caller, kGroupPointsBackward, {grad_out, indices, grad_features}, {});
  if (call.nothing_to_do()) return;
  add_all<1>(call, Sizes(grad_features, grad_out), grad_out, indices, nullptr, Strays::refuse_if_rows,
             grad_features);
}

void gather_points_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                            const Tensor& grad_features, const Caller& caller) {
  Call call(caller, kGatherPointsBackward, {grad_out, indices, grad_features}, {});
  if (call.nothing_to_do()) return;
  add_all<1>(call, Sizes(grad_features, grad_out), grad_out, indices, nullptr, Strays::refuse, grad_features);
}

void three_interpolate(const ConstTensor& features, const ConstTensor& indices, const ConstTensor& weights,
                       const Tensor& out, const Caller& caller) {
  interpolate_points(features, indices, weights, Strays::refuse, out, caller);
}

void three_interpolate_backward(const ConstTensor& grad_out, const ConstTensor& indices,
                                const ConstTensor& weights, const Tensor& grad_features,
                                const Caller& caller) {
  interpolate_points_backward(grad_out, indices, weights, Strays::refuse, grad_features, caller);
}

}  // namespace turnout
