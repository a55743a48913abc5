// Reduces rows into their groups in the order of the rows, without finding the rows of each group first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dynamic_scatter/kernels.h"
#include "runtime/call.h"

namespace turnout::families::dynamic_scatter {

// When this takes less time. It runs on one thread: with a slice of the channels for each of several threads,
// all of them fetch all rows.
class DirectPlan {
 public:
  // lane_bytes: what the table of the groups has for each channel.
  DirectPlan(std::int64_t rows, std::int64_t groups, std::int64_t channels, std::int64_t lane_bytes)
      : rows_(rows), groups_(groups), channels_(channels), row_bytes_(channels * lane_bytes) {}

  // Whether the table stays in the cache, and threads that group rows are not faster.
  bool pays(int threads) const;
  // Calls add(first row, last row) for ranges that cover all rows.
  template <class Add>
  void run(core::Call& call, const Add& add) const;

  std::int64_t rows() const { return rows_; }
  std::int64_t groups() const { return groups_; }
  std::int64_t channels() const { return channels_; }
  std::int64_t elements() const { return groups_ * channels_; }

 private:
  std::int64_t rows_, groups_, channels_, row_bytes_;
};

// The additions are those of reduce_rows(), so the bits are the same.
class DirectSums {
 public:
  DirectSums(std::int64_t rows, const Tensor& out, Reduce reduce_type);

  bool pays(int threads) const { return plan_.pays(threads); }
  std::size_t scratch_bytes() const;
  // map [rows]: the group of each row.
  void run(Context& context, core::Call& call, const std::int32_t* map, const void* src,
           core::Scratch& scratch) const;

 private:
  DirectPlan plan_;
  Tensor out_;
  Reduce reduce_type_;
};

// Maxima or minima, and the rows that they come from unless `arg` is absent.
class DirectExtremes {
 public:
  DirectExtremes(std::int64_t rows, const Tensor& out, const Tensor& arg, Extreme which);

  bool pays(int threads) const { return plan_.pays(threads); }
  std::size_t scratch_bytes() const;
  void run(Context& context, core::Call& call, const std::int32_t* map, const void* src,
           core::Scratch& scratch) const;

 private:
  DirectPlan plan_;
  Tensor out_, arg_;
  Extreme which_;
};

}  // namespace turnout::families::dynamic_scatter
