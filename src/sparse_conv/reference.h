// The definition of each operator of this family: serial, readable, every input against every offset. The
// tests compare with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "turnout/sparse_conv.h"

namespace turnout::reference {

using Site = std::vector<std::int64_t>;  // n, x_0, ..

struct Pairs {
  std::vector<Site> outputs;
  std::vector<std::vector<std::int32_t>> in, out;  // by kernel offset
};

// The output that input i meets under offset k in one dimension.
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

// All of params given.
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

}  // namespace turnout::reference
