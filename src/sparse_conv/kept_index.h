// Checks an index that the caller kept from an earlier call.
#pragma once

#include <cstdint>
#include <string_view>

#include "sparse_conv/pair_lists.h"

namespace turnout::families::sparse_conv {

class KeptIndex {
 public:
  KeptIndex(const ConstTensor& index, const Pairs& pairs) : index_(index), pairs_(pairs) {}

  std::size_t scratch_bytes() const;
  // Throws if the size does not fit the pairs, or if a source row, target row or offset is out of range.
  // The beginnings of the lists are copied to `scratch`. The lists stay in the caller's memory and may change
  // during the call, so readers must clamp the source row and the offset of a pair.
  PairsByRow check(Context& context, core::Call& call, const PairRows& from, core::Scratch& scratch) const;

 private:
  std::int64_t first_out_of_range(const PairsByRow& by_row, std::int64_t block) const;
  [[noreturn]] void refuse(core::Call& call, const ListedPair& pair, std::int64_t position,
                           const PairRows& from) const;

  const ConstTensor& index_;
  const Pairs& pairs_;
};

}  // namespace turnout::families::sparse_conv
