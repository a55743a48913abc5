// Sums rows into their groups in the order of the rows, without finding the rows of each group first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dynamic_scatter/kernels.h"
#include "runtime/call.h"

namespace turnout::families::dynamic_scatter {

// The additions are those of reduce_rows(), so the bits are the same. A thread owns a slice of the channels.
class DirectSums {
 public:
  DirectSums(std::int64_t rows, const Tensor& out, Reduce reduce_type);

  // Whether this takes less time: the sums stay in the cache, and there are enough slices for the threads.
  bool pays(int threads) const;
  std::size_t scratch_bytes() const;
  // map [rows]: the group of each row.
  void run(Context& context, core::Call& call, const std::int32_t* map, const void* src,
           core::Scratch& scratch) const;

 private:
  std::int64_t slices() const;  // of the channels

  std::int64_t rows_, groups_, channels_;
  DType dtype_;
  Tensor out_;
  Reduce reduce_type_;
};

}  // namespace turnout::families::dynamic_scatter
