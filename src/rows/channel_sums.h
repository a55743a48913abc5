// Sums of rows that indices select, added in the order of the indices: each thread has a block of channels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/padding.h"
#include "runtime/context.h"
#include "simd/half.h"
#include "turnout/tensor.h"

namespace turnout::rows {

// The type in which numbers of type T are computed.
template <class T>
using LaneOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// A result [rows, channels] of type T in the type that it is computed in: the result itself, or memory that
// is rounded to it.
template <class T>
class ChannelSums {
 public:
  using Lane = LaneOf<T>;
  static constexpr std::int64_t kLeast = 16, kMost = 64;  // channels of a block; 16 of f32 are a cache line

  // Blocks are as wide as `tasks` of them allow: wide ones read memory in longer pieces.
  ChannelSums(const Tensor& result, std::int64_t tasks)
      : result_(static_cast<T*>(result.data)),
        rows_(result.shape[0]),
        channels_(result.shape[1]),
        block_(std::clamp(channels_ / std::max<std::int64_t>(tasks, 1) / kLeast * kLeast, kLeast, kMost)) {}
  std::size_t bytes() const { return sizeof(T) == 2 ? core::array_bytes<Lane>(rows_ * channels_) : 0; }
  void take(core::Scratch& scratch) {
    if constexpr (sizeof(T) == 2) {
      sums_ = scratch.take<Lane>(rows_ * channels_);
    } else {
      sums_ = result_;
    }
  }

  std::int64_t blocks() const { return (channels_ - 1) / block_ + 1; }
  std::int64_t first_channel(std::int64_t block) const { return block * block_; }
  std::int64_t width(std::int64_t channel) const { return std::min(block_, channels_ - channel); }
  Lane* at(std::int64_t row, std::int64_t channel) const { return sums_ + row * channels_ + channel; }

  // Before the first and after the last addition to rows first .. last-1 of a block.
  void clear(std::int64_t first, std::int64_t last, std::int64_t channel) const {
    for (std::int64_t row = first; row < last; ++row) std::fill_n(at(row, channel), width(channel), Lane(0));
  }
  void finish(std::int64_t first, std::int64_t last, std::int64_t channel) const {
    if constexpr (sizeof(T) == 2)
      for (std::int64_t row = first; row < last; ++row)
        for (std::int64_t c = channel; c < channel + width(channel); ++c)
          result_[row * channels_ + c] = core::from_float<T>(sums_[row * channels_ + c]);
  }

 private:
  T* const result_;
  Lane* sums_ = nullptr;
  const std::int64_t rows_, channels_, block_;
};

}  // namespace turnout::rows
