// A random call of this family and the results of its definition in double, for the tests and the fuzzer.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "rnnt_loss/reference.h"
#include "simd/half.h"
#include "turnout/turnout.h"

namespace turnout::test {

// Sum of errors over 1 + sum of magnitudes, because gradients may all be 0. Values that are not finite must
// be the same.
template <class T>
double rnnt_difference(const std::vector<T>& actual, const std::vector<double>& expected) {
  double error = 0, magnitude = 1;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double a = core::to_float(actual[i]), e = expected[i];
    if (std::isfinite(e)) {
      if (!std::isfinite(a)) return std::numeric_limits<double>::infinity();
      error += std::abs(a - e);
      magnitude += std::abs(e);
    } else if (std::isnan(e) ? !std::isnan(a) : a != e) {
      return std::numeric_limits<double>::infinity();
    }
  }
  return error / magnitude;
}

template <class T>
std::vector<T> many(std::int64_t count, T value = {}) {
  return std::vector<T>(static_cast<std::size_t>(count), value);
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
struct RnntCase {
  using Lane = std::conditional_t<std::is_same_v<T, double>, double, float>;

  std::int64_t batch, frames, symbols, classes, rows, columns;
  std::int64_t blank = 0;
  bool is_pruned, use_hat_loss = false;
  std::vector<std::int64_t> text, ranges, boundary;  // an empty boundary: none
  std::vector<T> logits, lm, am;                     // logits [b, t, rows, c]
  std::vector<Lane> px_grad, py_grad;

  RnntCase(std::int64_t b, std::int64_t t, std::int64_t s, std::int64_t c, bool modified, std::int64_t r = 0)
      : batch(b),
        frames(t),
        symbols(s),
        classes(c),
        rows(r == 0 ? s + 1 : r),
        columns(modified ? t : t + 1),
        is_pruned(r > 0),
        text(many<std::int64_t>(b * s)),
        ranges(many<std::int64_t>(r == 0 ? 0 : b * t * r)),
        logits(many<T>(b * t * rows * c)),
        lm(many<T>(b * (s + 1) * c)),
        am(many<T>(b * t * c)),
        px_grad(many<Lane>(b * s * columns)),
        py_grad(many<Lane>(b * (s + 1) * t)) {}

  static T cast(double v) {
    if constexpr (sizeof(T) == 8) {
      return v;
    } else {
      return core::from_float<T>(static_cast<float>(v));
    }
  }
  static std::vector<double> wide(const auto& values) {
    std::vector<double> d;
    for (const auto& v : values) d.push_back(core::to_float(v));
    return d;
  }

  template <class Random>
  void fill(Random& random, double spread = 3) {
    std::normal_distribution<double> normal(0, spread);
    for (auto* values : {&logits, &lm, &am})
      for (T& v : *values) v = cast(normal(random));
    for (auto* values : {&px_grad, &py_grad})
      for (Lane& v : *values) v = static_cast<Lane>(normal(random) / spread);
    blank = use_hat_loss ? 0 : static_cast<std::int64_t>(random()) % classes;
    const std::int64_t first = use_hat_loss ? 1 : 0;
    for (std::int64_t& v : text) v = first + static_cast<std::int64_t>(random()) % (classes - first);
    if (!is_pruned) return;
    for (std::int64_t i = 0; i < batch * frames; ++i) {
      const std::int64_t start = static_cast<std::int64_t>(random()) % (symbols + 2 - rows);
      for (std::int64_t r = 0; r < rows; ++r) ranges[static_cast<std::size_t>(i * rows + r)] = start + r;
    }
  }
  // Boxes have at least one frame per symbol, as a modified px requires; symbols outside are not classes.
  template <class Random>
  void fill_boundary(Random& random) {
    boundary.clear();
    for (std::int64_t b = 0; b < batch; ++b) {
      const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random()) % (n + 1); };
      const std::int64_t t_begin = below(frames), t_end = t_begin + below(frames - t_begin);
      const std::int64_t s_begin = below(symbols);
      const std::int64_t s_end = s_begin + below(std::min(symbols - s_begin, t_end - t_begin));
      boundary.insert(boundary.end(), {s_begin, t_begin, s_end, t_end});
      for (std::int64_t s = 0; s < symbols; ++s)
        if (s < s_begin || s >= s_end) text[static_cast<std::size_t>(b * symbols + s)] = -1;
    }
  }

  ConstTensor bounds() const { return boundary.empty() ? nullptr : view(boundary.data(), {batch, 4}); }

  reference::RnntBatch definition() const {
    return {batch,
            frames,
            rows,
            classes,
            symbols,
            columns,
            blank,
            use_hat_loss,
            text.data(),
            !is_pruned ? nullptr : ranges.data(),
            boundary.empty() ? nullptr : boundary.data()};
  }

  // Results are filled with a pattern, which every element must replace.
  struct Result {
    std::vector<Lane> px, py, normalizer;
    std::vector<std::int64_t> nan_at;
    std::vector<T> logits_grad, lm_grad, am_grad;

    bool operator==(const Result& o) const {
      return same_bits(px, o.px) && same_bits(py, o.py) && same_bits(normalizer, o.normalizer) &&
             same_bits(nan_at, o.nan_at) && same_bits(logits_grad, o.logits_grad) &&
             same_bits(lm_grad, o.lm_grad) && same_bits(am_grad, o.am_grad);
    }
  };
  static constexpr Lane kPaint = 7;
  Result painted(std::int64_t normalizers) const {
    const T paint = cast(static_cast<double>(kPaint));
    return {many<Lane>(batch * symbols * columns, kPaint),
            many<Lane>(batch * (symbols + 1) * frames, kPaint),
            many<Lane>(normalizers, kPaint),
            many<std::int64_t>(batch, 7),
            many<T>(batch * frames * rows * classes, paint),
            many<T>(batch * (symbols + 1) * classes, paint),
            many<T>(batch * frames * classes, paint)};
  }

  // Forward and backward of the given logits, joint or pruned.
  Result run(Context& context, bool overwrites = false) {
    Result r = painted(batch * frames * rows);
    const ConstTensor words = view(text.data(), {batch, symbols}),
                      kept = view(ranges.data(), {batch, frames, rows});
    const Tensor x = view(logits.data(), {batch, frames, rows, classes});
    const Tensor px = view(r.px.data(), {batch, symbols, columns});
    const Tensor py = view(r.py.data(), {batch, symbols + 1, frames});
    const Tensor n = view(r.normalizer.data(), {batch, frames, rows});
    const Tensor at = view(r.nan_at.data(), {batch});
    const ConstTensor gx = view(px_grad.data(), {batch, symbols, columns});
    const ConstTensor gy = view(py_grad.data(), {batch, symbols + 1, frames});
    const std::vector<T> before = logits;
    const Tensor grad = overwrites ? x : view(r.logits_grad.data(), {batch, frames, rows, classes});
    if (!is_pruned) {
      rnnt_logprobs_joint_forward(x, words, bounds(), px, py, n, at, blank, context);
      rnnt_logprobs_joint_backward(x, words, bounds(), n, gx, gy, grad, blank, context);
    } else {
      const RnntPrunedParams params{blank, use_hat_loss};
      rnnt_logprobs_pruned_forward(x, words, kept, bounds(), px, py, n, at, params, context);
      rnnt_logprobs_pruned_backward(x, words, kept, bounds(), n, gx, gy, grad, params, context);
    }
    if (overwrites) {
      r.logits_grad = logits;
      logits = before;
    }
    return r;
  }

  // Forward and backward of lm + am; rows must be symbols + 1.
  Result run_simple(Context& context) const {
    Result r = painted(batch * (symbols + 1) * frames);
    const ConstTensor words = view(text.data(), {batch, symbols});
    const ConstTensor l = view(lm.data(), {batch, symbols + 1, classes});
    const ConstTensor a = view(am.data(), {batch, frames, classes});
    const Tensor n = view(r.normalizer.data(), {batch, symbols + 1, frames});
    rnnt_logprobs_simple_forward(l, a, words, bounds(), view(r.px.data(), {batch, symbols, columns}),
                                 view(r.py.data(), {batch, symbols + 1, frames}), n,
                                 view(r.nan_at.data(), {batch}), blank, context);
    rnnt_logprobs_simple_backward(l, a, words, bounds(), n, view(px_grad.data(), {batch, symbols, columns}),
                                  view(py_grad.data(), {batch, symbols + 1, frames}),
                                  view(r.lm_grad.data(), {batch, symbols + 1, classes}),
                                  view(r.am_grad.data(), {batch, frames, classes}), blank, context);
    return r;
  }

  struct Expected {
    reference::RnntSteps steps;
    std::vector<double> logits_grad, lm_grad, am_grad;
  };
  Expected expected() const {
    const std::vector<double> x = wide(logits);
    return {reference::rnnt_logprobs_forward(definition(), x.data()),
            reference::rnnt_logprobs_backward(definition(), x.data(), wide(px_grad), wide(py_grad)),
            {},
            {}};
  }
  Expected expected_simple() const {
    const std::vector<double> l = wide(lm), a = wide(am);
    std::vector<double> x;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t t = 0; t < frames; ++t)
        for (std::int64_t s = 0; s <= symbols; ++s)
          for (std::int64_t c = 0; c < classes; ++c)
            x.push_back(l[static_cast<std::size_t>((b * (symbols + 1) + s) * classes + c)] +
                        a[static_cast<std::size_t>((b * frames + t) * classes + c)]);
    Expected e{reference::rnnt_logprobs_forward(definition(), x.data()),
               reference::rnnt_logprobs_backward(definition(), x.data(), wide(px_grad), wide(py_grad)),
               many<double>(batch * (symbols + 1) * classes), many<double>(batch * frames * classes)};
    for (std::size_t i = 0; i < e.logits_grad.size(); ++i) {
      const auto c = static_cast<std::int64_t>(i) % classes,
                 s = static_cast<std::int64_t>(i) / classes % (symbols + 1);
      const auto bt = static_cast<std::int64_t>(i) / classes / (symbols + 1), b = bt / frames;
      e.lm_grad[static_cast<std::size_t>((b * (symbols + 1) + s) * classes + c)] += e.logits_grad[i];
      e.am_grad[static_cast<std::size_t>(bt * classes + c)] += e.logits_grad[i];
    }
    // The operator's normalizers are [positions, frames].
    std::vector<double> n = e.steps.normalizer;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t t = 0; t < frames; ++t)
        for (std::int64_t s = 0; s <= symbols; ++s)
          e.steps.normalizer[static_cast<std::size_t>((b * (symbols + 1) + s) * frames + t)] =
              n[static_cast<std::size_t>((b * frames + t) * (symbols + 1) + s)];
    return e;
  }
};

// Error bound of gradients; 16-bit gradients are rounded once.
template <class T>
inline constexpr double kGradientError = sizeof(T) == 8            ? 1e-12
                                         : std::is_same_v<T, f16>  ? 1e-3
                                         : std::is_same_v<T, bf16> ? 1e-2
                                                                   : 1e-5;

// The error message of a call.
template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace turnout::test
