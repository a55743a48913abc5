// Clouds of several samples: equally many points for each element of a batch, or stacked with their counts.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtypes.h"
#include "core/padding.h"
#include "indices/indices.h"
#include "runtime/call.h"

namespace turnout::families::points {

// The first row of each sample, and the number of all rows after the last one.
class Starts {
 public:
  static std::size_t bytes(std::int64_t samples) { return core::array_bytes<std::int64_t>(samples + 1); }

  // `each` rows for each sample.
  Starts(core::Scratch& scratch, std::int64_t samples, std::int64_t each)
      : samples_(samples), starts_(scratch.take<std::int64_t>(samples + 1)) {
    for (std::int64_t b = 0; b <= samples; ++b) starts_[b] = b * each;
  }
  // Reads each count once. Rejects the call unless they are 0 or more and sum to `rows`, the rows of `of`.
  Starts(core::Call& call, core::Scratch& scratch, std::string_view name, const ConstTensor& counts,
         std::int64_t rows, std::string_view of);
  // The same for the search of sizes, which has no Call: throws Error.
  Starts(core::Scratch& scratch, std::string_view op, std::string_view name, const ConstTensor& counts,
         std::int64_t rows, std::string_view of);

  std::int64_t samples() const { return samples_; }
  std::int64_t first(std::int64_t sample) const { return starts_[sample]; }
  std::int64_t count(std::int64_t sample) const { return starts_[sample + 1] - starts_[sample]; }
  std::int64_t most() const {
    std::int64_t most = 0;
    for (std::int64_t b = 0; b < samples_; ++b) most = std::max(most, count(b));
    return most;
  }
  // The sample of a row, in logarithmic time.
  std::int64_t sample_of(std::int64_t row) const {
    return std::upper_bound(starts_, starts_ + samples_ + 1, row) - starts_ - 1;
  }

 private:
  template <class Refuse>
  void read(const ConstTensor& counts, std::int64_t rows, std::string_view name, std::string_view of,
            const Refuse& refuse);

  std::int64_t samples_;
  std::int64_t* starts_;
};

// The extents of a tensor [batch?, rows, ...] whose last `inner` dimensions are not counted.
struct Batched {
  std::int64_t batch, rows;
  Batched(const ConstTensor& tensor, int inner)
      : batch(tensor.rank > inner + 1 ? tensor.shape[0] : 1), rows(tensor.shape[tensor.rank - inner - 1]) {}
};

}  // namespace turnout::families::points
