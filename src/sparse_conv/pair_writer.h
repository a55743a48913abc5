// Writes the results of get_indice_pairs.
#pragma once

#include <cstdint>

#include "runtime/context.h"
#include "sparse_conv/index.h"

namespace turnout::families::sparse_conv {

// The plan of the second step. Made once per call, because the number of threads may change during the call.
class PairWriter {
 public:
  PairWriter(const PairIndex& index, const ConstTensor& indices, int threads);

  std::size_t scratch_bytes() const;
  // out_indices must have at least as many rows as outputs.
  void run(Context& context, const Tensor& out_indices, const Tensor& indice_pairs, const Tensor& indice_num,
           core::Scratch& scratch) const;

 private:
  void find_pairs(Context& context, std::int32_t* pairs, std::int64_t* counts, core::RankWord* words) const;
  void join_blocks(Context& context, std::int32_t* pairs, const std::int64_t* counts,
                   std::int32_t* num) const;
  void fill_tails(Context& context, std::int32_t* pairs, const std::int32_t* num) const;
  void write_sites(Context& context, const Tensor& out_indices) const;

  std::int64_t block_begin(std::int64_t sites, std::int64_t block) const { return sites * block / blocks_; }
  std::int64_t count_elements() const;
  std::int64_t word_elements() const;

  const PairIndex& index_;
  const ConstTensor& indices_;
  std::int64_t blocks_ = 1;  // blocks that the sites of a window are cut into
  int workers_ = 1;          // the most threads that search at the same time
  bool parallel_, stream_;
};

}  // namespace turnout::families::sparse_conv
