// The definition of each operator of this family: serial and readable, every input with every offset. The
// tests compare with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "turnout/sparse_conv.h"

namespace turnout::reference {

using Site = std::vector<std::int64_t>;  // n, x_0, ..

struct Pairs {
  std::vector<Site> outputs;
  std::vector<std::vector<std::int32_t>> in, out;  // by kernel offset
};

// The output of input i under offset k in one dimension.
inline std::optional<std::int64_t> output_of(std::int64_t i, std::int64_t k, const IndicePairsParams& p,
                                             int d, std::int64_t limit) {
  std::int64_t o;
  if (p.mode == ConvMode::transposed) {
    o = i * p.stride[d] - p.padding[d] + k * p.dilation[d];
  } else {
    const std::int64_t reach = i + p.padding[d] - k * p.dilation[d];
    if (reach < 0 || reach % p.stride[d] != 0) return {};
    o = reach / p.stride[d];
  }
  if (o < 0 || o >= limit) return {};
  return o;
}

// All of `params` must be given.
inline Pairs indice_pairs(const std::vector<Site>& sites, const IndicePairsParams& p) {
  const int dims = p.kernel_size.count();
  std::int64_t volume = 1;
  for (int d = 0; d < dims; ++d) volume *= p.kernel_size[d];

  const auto meets = [&](const Site& site, std::int64_t k) -> std::optional<Site> {
    Site o = site;
    for (int d = dims - 1; d >= 0; --d) {
      const auto x =
          output_of(site[static_cast<std::size_t>(d + 1)], k % p.kernel_size[d], p, d, p.output_shape[d]);
      if (!x) return {};
      o[static_cast<std::size_t>(d + 1)] = *x;
      k /= p.kernel_size[d];
    }
    return o;
  };

  Pairs pairs;
  std::map<Site, std::int32_t> row_of;  // ascending (n, x_0, ..)
  if (p.mode == ConvMode::submanifold) {
    pairs.outputs = sites;
    for (std::size_t i = 0; i < sites.size(); ++i) row_of[sites[i]] = static_cast<std::int32_t>(i);
  } else {
    for (const Site& site : sites)
      for (std::int64_t k = 0; k < volume; ++k)
        if (const auto o = meets(site, k)) row_of[*o] = 0;
    for (auto& [site, row] : row_of) {
      row = static_cast<std::int32_t>(pairs.outputs.size());
      pairs.outputs.push_back(site);
    }
  }
  for (std::int64_t k = 0; k < volume; ++k) {
    pairs.in.emplace_back();
    pairs.out.emplace_back();
    for (std::size_t i = 0; i < sites.size(); ++i) {
      const auto o = meets(sites[i], k);
      if (!o) continue;
      const auto found = row_of.find(*o);
      if (found == row_of.end()) continue;
      pairs.in.back().push_back(static_cast<std::int32_t>(i));
      pairs.out.back().push_back(found->second);
    }
  }
  return pairs;
}

// The pairs from the outputs back to the inputs.
inline Pairs exchanged(Pairs pairs) {
  std::swap(pairs.in, pairs.out);
  return pairs;
}

// The offset with the most pairs, the first of equals, maps every row to itself.
inline Pairs with_centre(Pairs pairs, std::size_t rows) {
  std::size_t centre = 0;
  for (std::size_t k = 1; k < pairs.in.size(); ++k)
    if (pairs.in[k].size() > pairs.in[centre].size()) centre = k;
  pairs.in[centre].resize(rows);
  std::iota(pairs.in[centre].begin(), pairs.in[centre].end(), 0);
  pairs.out[centre] = pairs.in[centre];
  return pairs;
}

// Rows in the type of sums: float, or double for f64.
template <class Lane>
struct Rows {
  std::size_t columns = 0;
  std::vector<Lane> values;
  Rows(std::size_t rows, std::size_t columns_, Lane value = 0)
      : columns(columns_), values(rows * columns_, value) {}
  std::size_t count() const { return columns == 0 ? 0 : values.size() / columns; }
  Lane* operator[](std::size_t row) { return values.data() + row * columns; }
  const Lane* operator[](std::size_t row) const { return values.data() + row * columns; }
};

// filters: consecutive matrices [in, out]. bias may be null.
template <class Lane>
Rows<Lane> indice_convolution_forward(const Rows<Lane>& features, const Rows<Lane>& filters, const Lane* bias,
                                      const Pairs& pairs, std::size_t out_rows) {
  Rows<Lane> out(out_rows, filters.columns);
  for (std::size_t k = 0; k < pairs.in.size(); ++k) {
    for (std::size_t j = 0; j < pairs.in[k].size(); ++j) {
      const Lane* from = features[static_cast<std::size_t>(pairs.in[k][j])];
      Lane* to = out[static_cast<std::size_t>(pairs.out[k][j])];
      for (std::size_t c = 0; c < filters.columns; ++c) {
        Lane sum = 0;
        for (std::size_t d = 0; d < features.columns; ++d)
          sum = std::fma(from[d], filters[k * features.columns + d][c], sum);
        to[c] += sum;
      }
    }
  }
  for (std::size_t row = 0; row < out_rows && bias != nullptr; ++row)
    for (std::size_t c = 0; c < out.columns; ++c) out[row][c] += bias[c];
  return out;
}

// The same along the exchanged pairs, with transposed filters.
template <class Lane>
Rows<Lane> indice_convolution_backward_data(const Rows<Lane>& output_grad, const Rows<Lane>& filters,
                                            const Pairs& pairs, std::size_t rows, std::size_t channels) {
  Rows<Lane> transposed(pairs.in.size() * filters.columns, channels);
  for (std::size_t k = 0; k < pairs.in.size(); ++k)
    for (std::size_t d = 0; d < channels; ++d)
      for (std::size_t c = 0; c < filters.columns; ++c)
        transposed[k * filters.columns + c][d] = filters[k * channels + d][c];
  return indice_convolution_forward<Lane>(output_grad, transposed, nullptr, exchanged(pairs), rows);
}

template <class Lane>
Rows<Lane> indice_convolution_backward_filter(const Rows<Lane>& features, const Rows<Lane>& output_grad,
                                              const Pairs& pairs) {
  constexpr std::size_t kChunk = 512;
  const std::size_t channels = features.columns;
  Rows<Lane> grad(pairs.in.size() * channels, output_grad.columns);
  for (std::size_t k = 0; k < pairs.in.size(); ++k) {
    for (std::size_t d = 0; d < channels; ++d) {
      for (std::size_t c = 0; c < output_grad.columns; ++c) {
        for (std::size_t first = 0; first < pairs.in[k].size(); first += kChunk) {
          Lane sum = 0;
          for (std::size_t j = first; j < std::min(first + kChunk, pairs.in[k].size()); ++j)
            sum = std::fma(features[static_cast<std::size_t>(pairs.in[k][j])][d],
                           output_grad[static_cast<std::size_t>(pairs.out[k][j])][c], sum);
          grad[k * channels + d][c] += sum;
        }
      }
    }
  }
  return grad;
}

// init: the start value of a maximum.
template <class Lane>
Rows<Lane> indice_max_pool_forward(const Rows<Lane>& features, const Pairs& pairs, std::size_t out_rows,
                                   Lane init) {
  Rows<Lane> out(out_rows, features.columns, init);
  for (std::size_t k = 0; k < pairs.in.size(); ++k) {
    for (std::size_t j = 0; j < pairs.in[k].size(); ++j) {
      const Lane* from = features[static_cast<std::size_t>(pairs.in[k][j])];
      Lane* to = out[static_cast<std::size_t>(pairs.out[k][j])];
      for (std::size_t c = 0; c < features.columns; ++c)
        if (from[c] > to[c]) to[c] = from[c];
    }
  }
  return out;
}

// The number of pairs of each output row, or 1 if it has none.
template <class Lane>
std::vector<Lane> pair_counts(const Pairs& pairs, std::size_t out_rows) {
  std::vector<Lane> counts(out_rows, 0);
  for (const auto& list : pairs.out)
    for (std::int32_t o : list) ++counts[static_cast<std::size_t>(o)];
  for (Lane& count : counts) count = std::max(count, Lane{1});
  return counts;
}

template <class Lane>
Rows<Lane> indice_avg_pool_forward(const Rows<Lane>& features, const Pairs& pairs, std::size_t out_rows) {
  Rows<Lane> out(out_rows, features.columns);
  for (std::size_t k = 0; k < pairs.in.size(); ++k)
    for (std::size_t j = 0; j < pairs.in[k].size(); ++j)
      for (std::size_t c = 0; c < features.columns; ++c)
        out[static_cast<std::size_t>(pairs.out[k][j])][c] +=
            features[static_cast<std::size_t>(pairs.in[k][j])][c];
  const auto counts = pair_counts<Lane>(pairs, out_rows);
  for (std::size_t row = 0; row < out_rows; ++row)
    for (std::size_t c = 0; c < features.columns; ++c) out[row][c] /= counts[row];
  return out;
}

template <class Lane>
Rows<Lane> indice_avg_pool_backward(const Rows<Lane>& output_grad, const Pairs& pairs, std::size_t rows) {
  Rows<Lane> grad(rows, output_grad.columns);
  const auto counts = pair_counts<Lane>(pairs, output_grad.count());
  for (std::size_t k = 0; k < pairs.in.size(); ++k) {
    for (std::size_t j = 0; j < pairs.in[k].size(); ++j) {
      const auto o = static_cast<std::size_t>(pairs.out[k][j]);
      for (std::size_t c = 0; c < output_grad.columns; ++c)
        grad[static_cast<std::size_t>(pairs.in[k][j])][c] += output_grad[o][c] / counts[o];
    }
  }
  return grad;
}

template <class Lane>
Rows<Lane> indice_max_pool_backward(const Rows<Lane>& features, const Rows<Lane>& features_out,
                                    const Rows<Lane>& output_grad, const Pairs& pairs) {
  Rows<Lane> grad(features.count(), features.columns);
  for (std::size_t k = 0; k < pairs.in.size(); ++k) {
    for (std::size_t j = 0; j < pairs.in[k].size(); ++j) {
      const auto in = static_cast<std::size_t>(pairs.in[k][j]);
      const auto out = static_cast<std::size_t>(pairs.out[k][j]);
      for (std::size_t c = 0; c < features.columns; ++c)
        if (features[in][c] == features_out[out][c]) grad[in][c] += output_grad[out][c];
    }
  }
  return grad;
}

// Pooling of whole batch elements: batches[i] is the batch number of row i.
template <class Lane>
Rows<Lane> global_max_pool_forward(const Rows<Lane>& features, const std::vector<std::int64_t>& batches,
                                   std::size_t batch_size) {
  Rows<Lane> out(batch_size, features.columns);
  for (std::size_t b = 0; b < batch_size; ++b) {
    for (std::size_t c = 0; c < features.columns && std::count(batches.begin(), batches.end(), b) > 0; ++c) {
      out[b][c] = -std::numeric_limits<Lane>::infinity();
      for (std::size_t i = 0; i < batches.size(); ++i)
        if (static_cast<std::size_t>(batches[i]) == b && features[i][c] > out[b][c])
          out[b][c] = features[i][c];
      out[b][c] += 0;  // -0 becomes +0
    }
  }
  return out;
}

template <class Lane>
Rows<Lane> global_max_pool_backward(const Rows<Lane>& features, const Rows<Lane>& features_out,
                                    const Rows<Lane>& output_grad, const std::vector<std::int64_t>& batches) {
  Rows<Lane> grad(features.count(), features.columns);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto b = static_cast<std::size_t>(batches[i]);
    for (std::size_t c = 0; c < features.columns; ++c)
      if (features[i][c] == features_out[b][c]) grad[i][c] = output_grad[b][c];
  }
  return grad;
}

template <class Lane>
Rows<Lane> global_avg_pool_forward(const Rows<Lane>& features, const std::vector<std::int64_t>& batches,
                                   std::size_t batch_size) {
  constexpr std::size_t kChunk = 512, kTurns = 8;
  Rows<Lane> out(batch_size, features.columns);
  for (std::size_t b = 0; b < batch_size; ++b) {
    for (std::size_t c = 0; c < features.columns; ++c) {
      std::size_t count = 0;
      Lane s[kTurns] = {};
      const auto add_chunk = [&] {
        out[b][c] += ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
        std::fill_n(s, kTurns, Lane{0});
      };
      for (std::size_t i = 0; i < batches.size(); ++i) {
        if (static_cast<std::size_t>(batches[i]) != b) continue;
        s[count % kTurns] += features[i][c];
        if (++count % kChunk == 0) add_chunk();
      }
      if (count % kChunk != 0) add_chunk();
      if (count > 0) out[b][c] /= static_cast<Lane>(count);
    }
  }
  return out;
}

template <class Lane>
Rows<Lane> global_avg_pool_backward(const Rows<Lane>& output_grad, const std::vector<std::int64_t>& batches) {
  Rows<Lane> grad(batches.size(), output_grad.columns);
  for (std::size_t i = 0; i < batches.size(); ++i)
    for (std::size_t c = 0; c < output_grad.columns; ++c)
      grad[i][c] = output_grad[static_cast<std::size_t>(batches[i])][c] /
                   static_cast<Lane>(std::count(batches.begin(), batches.end(), batches[i]));
  return grad;
}

}  // namespace turnout::reference
