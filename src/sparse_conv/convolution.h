// Plans of the convolutions along given pairs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/grain.h"
#include "matrix/row_products.h"
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
  Isa last_isa() const { return products_.last_isa(); }

  // Throws for a pair with a row out of range before anything is written.
  void run(Context& context, core::Call& call, const PairRows& from, const PairRows& to,
           const ConvolutionOperands& operands, core::Scratch& scratch);

 private:
  struct Worker;  // memory of a thread
  std::size_t worker_bytes() const;
  std::size_t filter_bytes() const;
  void pack(Context& context, const ConvolutionOperands& operands);
  bool pack_gathered(const ConvolutionOperands& operands);
  template <class Body>
  void for_each_pair(std::int64_t block, const Body& body) const;
  void multiply_pairs(std::int64_t block, const std::byte* base, const Worker& worker) const;
  void multiply_gathered(std::int64_t block, const std::byte* base, const Worker& worker) const;
  void add_block(std::int64_t block, const ConvolutionOperands& operands, const Worker& worker) const;

  const Pairs& pairs_;
  const ConvolutionShape shape_;
  const core::matrix::RowProducts<Lane> products_;
  const std::int64_t padded_columns_;
  const int threads_, block_bits_;
  const std::int64_t batch_;  // pairs that are multiplied together
  // Few channels: the elements of a row that are multiplied together, those of all offsets; otherwise 0.
  const std::int64_t gathered_;
  bool gathers_ = false;
  PairLists lists_;
  std::optional<KeptIndex> kept_;
  PairsByRow by_row_;
  std::byte* packed_ = nullptr;
  Lane* bias_ = nullptr;
};

// filters_grad[k] = the sum of outer products of the rows of its pairs, 512 pairs at a time.
template <class Lane>
class FilterGradientPlan {
 public:
  FilterGradientPlan(const Pairs& pairs, const ConvolutionShape& shape, int threads, Isa isa);

  std::size_t scratch_bytes() const;
  int threads() const { return threads_; }
  Isa last_isa() const { return products_.last_isa(); }

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
  const core::matrix::RowProducts<Lane> products_;
  const std::int64_t padded_columns_;
  const int threads_;
  const core::Stop stop_;
  std::int64_t groups_, slices_;  // of offsets, of rows of the result
  Lane* sums_ = nullptr;          // [offsets, depth, padded_columns]
};

}  // namespace turnout::families::sparse_conv
