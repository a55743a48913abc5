// Random expert blocks and their results in f64, for the tests of products and experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "moe_experts/reference.h"
#include "simd/half.h"
#include "turnout/turnout.h"

namespace turnout::test {

using reference::ExpertBlock;

inline double number(double v) { return v; }
template <class T>
double number(T v) {
  return core::to_float(v);
}
template <class T>
T cast(double v) {
  if constexpr (std::is_same_v<T, double>) {
    return v;
  } else {
    return core::from_float<T>(static_cast<float>(v));
  }
}

template <class T>
std::vector<T> values(std::mt19937& random, std::int64_t count, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> made(static_cast<std::size_t>(count));
  for (T& v : made) v = cast<T>(normal(random));
  return made;
}
// Compares vectors of equal length. memcmp() must not get the null pointer of an empty one.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
template <class T>
std::vector<double> numbers(const std::vector<T>& of) {
  std::vector<double> made;
  for (const T& v : of) made.push_back(number(v));
  return made;
}

// The largest difference, relative to the largest value.
template <class T>
double error_of(const std::vector<T>& actual, const std::vector<double>& expected) {
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(number(actual[i]) - expected[i]);
    worst = difference <= worst ? worst : difference;  // NaN counts as worse
    largest = std::max(largest, std::abs(expected[i]));
  }
  return worst / largest;
}
template <class T>
constexpr double kTolerance = sizeof(T) == 8           ? 1e-13
                              : sizeof(T) == 4         ? 2e-6
                              : std::is_same_v<T, f16> ? 1e-3
                                                       : 8e-3;

inline MoeExpertsQuantizedParams quantized(const MoeExpertsParams& p) {
  return {p.activation, p.gated, p.interleaved, p.alpha, p.limit};
}

// An expert block with tokens of T and weights of W.
template <class T, class W>
struct Experts {
  ExpertBlock block;
  MoeExpertsParams params;
  bool transposed, with_bias;
  std::vector<T> tokens, out;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  std::vector<W> w13, w2, b13, b2;

  Experts(const ExpertBlock& b, const MoeExpertsParams& p, bool is_transposed, bool biased, unsigned seed = 1)
      : block(b), params(p), transposed(is_transposed), with_bias(biased) {
    std::mt19937 random(seed);
    tokens = values<T>(random, b.tokens * b.hidden);
    out.resize(tokens.size(), cast<T>(7));
    for (std::int64_t q = 0; q < b.tokens * b.choices; ++q) {
      ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(b.experts + 2)) - 1);
      weights.push_back(static_cast<float>(random() % 100) / 100);
    }
    const double scale = 1 / std::sqrt(static_cast<double>(std::max(b.hidden, b.inner)));
    w13 = values<W>(random, b.experts * up_rows() * b.hidden, scale);
    w2 = values<W>(random, b.experts * b.hidden * b.inner, scale);
    b13 = values<W>(random, b.experts * up_rows());
    b2 = values<W>(random, b.experts * b.hidden);
  }
  std::int64_t up_rows() const { return params.gated ? 2 * block.inner : block.inner; }
  ConstTensor weight(const std::vector<W>& of, std::int64_t rows, std::int64_t depth) const {
    ConstTensor w = view(of.data(), {block.experts, rows, depth});
    if (transposed) {
      w.stride[1] = 1;
      w.stride[2] = rows;
    }
    return w;
  }
  void run(Context& context) {
    const ConstTensor first = view(b13.data(), {block.experts, up_rows()}),
                      second = view(b2.data(), {block.experts, block.hidden});
    moe_experts(
        view(tokens.data(), {block.tokens, block.hidden}), view(ids.data(), {block.tokens, block.choices}),
        view(weights.data(), {block.tokens, block.choices}), weight(w13, up_rows(), block.hidden),
        weight(w2, block.hidden, block.inner), with_bias ? first : nullptr, with_bias ? second : nullptr,
        view(out.data(), {block.tokens, block.hidden}), params, context);
  }
  std::vector<double> expected() const {
    const auto at = [&](const std::vector<W>& of, std::int64_t rows, std::int64_t depth, std::int64_t e,
                        std::int64_t r, std::int64_t d) {
      return number(
          of[static_cast<std::size_t>(transposed ? (e * depth + d) * rows + r : (e * rows + r) * depth + d)]);
    };
    return reference::moe_experts(
        block, numbers(tokens), ids, numbers(weights),
        [&](std::int64_t e, std::int64_t r, std::int64_t h) {
          return at(w13, up_rows(), block.hidden, e, r, h);
        },
        [&](std::int64_t e, std::int64_t h, std::int64_t i) {
          return at(w2, block.hidden, block.inner, e, h, i);
        },
        [&](std::int64_t e, std::int64_t r) {
          return with_bias ? number(b13[static_cast<std::size_t>(e * up_rows() + r)]) : 0.0;
        },
        [&](std::int64_t e, std::int64_t h) {
          return with_bias ? number(b2[static_cast<std::size_t>(e * block.hidden + h)]) : 0.0;
        },
        params);
  }
};

}  // namespace turnout::test
