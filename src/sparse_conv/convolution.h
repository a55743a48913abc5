// Plans of the convolutions along given pairs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/grain.h"
#include "matrix/matrix.h"
#include "runtime/call.h"
#include "runtime/interrupt.h"
#include "sparse_conv/kept_index.h"
#include "sparse_conv/pair_lists.h"

namespace turnout::families::sparse_conv {

// Below this many multiply-adds a second thread takes longer to wake than it saves.
inline constexpr double kParallelProducts = 4e6 / core::kGrainDivisor;

// The shapes of a convolution.
struct ConvolutionShape {
  DType dtype;
  std::int64_t depth, columns;  // channels of the source rows and of the target rows
};

struct ConvolutionOperands {
  const void* from;  // [from_rows, depth]
  const void* bias;  // [columns] or nullptr
  void* to;          // [to_rows, columns]
  const void* filters;
  std::int64_t offset_stride, depth_stride, column_stride;  // of filters [offsets, depth, columns]
};

// to[row] += from[pair's row] filters[k] along the pairs, from 0, then the bias. Target rows are cut into
// blocks whose sums stay in the L2 cache; one thread computes a block.
template <class Lane>
class ConvolutionPlan {
 public:
  // index: one that was built from these pairs earlier, or absent.
  ConvolutionPlan(const Pairs& pairs, const ConvolutionShape& shape, int threads, Isa isa,
                  const ConstTensor& index = nullptr);

  std::size_t scratch_bytes() const;
  int threads() const { return threads_; }

  // Throws for a pair with a row out of range before anything is written.
  void run(Context& context, core::Call& call, const PairRows& from, const PairRows& to,
           const ConvolutionOperands& operands, core::Scratch& scratch);

 private:
  struct Worker;  // memory of a thread
  void pack(Context& context, const ConvolutionOperands& operands);
  void add_block(std::int64_t block, const ConvolutionOperands& operands, const Worker& worker) const;

  const Pairs& pairs_;
  const ConvolutionShape shape_;
  const core::matrix::Kernels<Lane>& kernels_;
  const std::int64_t padded_columns_;
  const int block_bits_, threads_;
  const std::int64_t batch_;  // the number of pairs that are multiplied at once
  PairLists lists_;
  std::optional<KeptIndex> kept_;
  PairsByRow by_row_;
  Lane *packed_ = nullptr, *bias_ = nullptr;
};

// filters_grad[k] = the sum of outer products of the rows of its pairs, 512 pairs at a time.
template <class Lane>
class FilterGradientPlan {
 public:
  FilterGradientPlan(const Pairs& pairs, const ConvolutionShape& shape, int threads, Isa isa);

  std::size_t scratch_bytes() const;
  int threads() const { return threads_; }

  struct Operands {
    const void* from;    // [from_rows, depth]
    const void* with;    // [to_rows, columns]
    void* filters_grad;  // [offsets, depth, columns]
  };
  void run(Context& context, const Operands& operands, core::Scratch& scratch);

 private:
  struct Worker;
  // Offsets first .. last-1, and rows begin .. end-1 of their results.
  struct Task {
    std::int64_t first, last, begin, end;
  };
  Task task(std::int64_t i) const;
  void sum_task(const Task& task, const Operands& operands, const Worker& worker) const;
  void add_chunk(std::int64_t k, std::int64_t chunk, const Task& task, const Operands& operands,
                 const Worker& worker) const;

  const Pairs& pairs_;
  const ConvolutionShape shape_;
  const core::matrix::Kernels<Lane>& kernels_;
  const std::int64_t padded_columns_;
  const int threads_;
  const core::Stop stop_;
  std::int64_t groups_, slices_;  // of offsets, of rows of the result
  Lane* sums_ = nullptr;          // [offsets, depth, padded_columns]
};

}  // namespace turnout::families::sparse_conv
