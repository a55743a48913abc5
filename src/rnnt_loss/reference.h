// The definition of each operator of this family in double, one row of logits at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace turnout::reference {

// The index arguments and the sizes of a batch.
struct RnntBatch {
  std::int64_t batch, frames, rows, classes, symbols, columns;
  std::int64_t blank;
  bool use_hat_loss;
  const std::int64_t* text;      // [batch, symbols]
  const std::int64_t* ranges;    // [batch, frames, rows]; nullptr: row r is position r
  const std::int64_t* boundary;  // [batch, 4]; nullptr: everything

  // Calls f(row, b, t, s, symbol or -1) for the rows of logits inside the boundary; `row` counts all rows.
  template <class F>
  void for_each_row(const F& f) const {
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t whole[4] = {0, 0, symbols, frames};
      const std::int64_t* box = boundary == nullptr ? whole : boundary + 4 * b;
      for (std::int64_t t = box[1]; t < box[3]; ++t) {
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t row = (b * frames + t) * rows + r;
          const std::int64_t s = ranges == nullptr ? r : ranges[row];
          if (s >= box[0] && s <= box[2]) f(row, b, t, s, s < box[2] ? text[b * symbols + s] : -1);
        }
      }
    }
  }
  std::int64_t px(std::int64_t b, std::int64_t s, std::int64_t t) const {
    return (b * symbols + s) * columns + t;
  }
  std::int64_t py(std::int64_t b, std::int64_t s, std::int64_t t) const {
    return (b * (symbols + 1) + s) * frames + t;
  }
};

inline double log_sum_exp(const double* from, std::int64_t count) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t c = 0; c < count; ++c) {
    if (std::isnan(from[c])) return from[c];
    most = std::max(most, from[c]);
  }
  for (std::int64_t c = 0; c < count; ++c) sum += std::exp(from[c] - most);
  return most + std::log(sum);
}
inline double log_sigmoid(double z) { return std::min(z, 0.0) - std::log1p(std::exp(-std::abs(z))); }

struct RnntSteps {
  std::vector<double> px, py, normalizer;
  std::vector<std::int64_t> nan_at;
};

inline RnntSteps rnnt_logprobs_forward(const RnntBatch& of, const double* logits) {
  const auto many = [](std::int64_t count) {
    return std::vector<double>(static_cast<std::size_t>(count), -std::numeric_limits<double>::infinity());
  };
  RnntSteps to{many(of.batch * of.symbols * of.columns), many(of.batch * (of.symbols + 1) * of.frames),
               many(of.batch * of.frames * of.rows),
               std::vector<std::int64_t>(static_cast<std::size_t>(of.batch), -1)};
  of.for_each_row([&](std::int64_t row, std::int64_t b, std::int64_t t, std::int64_t s, std::int64_t symbol) {
    const double* x = logits + row * of.classes;
    const int hat = of.use_hat_loss ? 1 : 0;
    const double n = log_sum_exp(x + hat, of.classes - hat);
    to.normalizer[static_cast<std::size_t>(row)] = n;
    if (symbol >= 0)
      to.px[static_cast<std::size_t>(of.px(b, s, t))] = x[symbol] - n + (hat ? log_sigmoid(-x[0]) : 0);
    to.py[static_cast<std::size_t>(of.py(b, s, t))] = hat ? log_sigmoid(x[0]) : x[of.blank] - n;
    std::int64_t& at = to.nan_at[static_cast<std::size_t>(b)];
    if (at < 0 && (!std::isfinite(n) || (hat && std::isnan(x[0])))) at = row - b * of.frames * of.rows;
  });
  return to;
}

inline std::vector<double> rnnt_logprobs_backward(const RnntBatch& of, const double* logits,
                                                  const std::vector<double>& px_grad,
                                                  const std::vector<double>& py_grad) {
  std::vector<double> grad(static_cast<std::size_t>(of.batch * of.frames * of.rows * of.classes));
  of.for_each_row([&](std::int64_t row, std::int64_t b, std::int64_t t, std::int64_t s, std::int64_t symbol) {
    const double* x = logits + row * of.classes;
    double* to = grad.data() + row * of.classes;
    const double gx = symbol >= 0 ? px_grad[static_cast<std::size_t>(of.px(b, s, t))] : 0;
    const double gy = py_grad[static_cast<std::size_t>(of.py(b, s, t))];
    if (gx == 0 && gy == 0) return;
    const int hat = of.use_hat_loss ? 1 : 0;
    const double n = log_sum_exp(x + hat, of.classes - hat), weight = hat ? gx : gx + gy;
    for (std::int64_t c = hat; c < of.classes; ++c) to[c] = -weight * std::exp(x[c] - n);
    if (symbol >= 0) to[symbol] += gx;
    to[of.blank] += hat ? gy * std::exp(log_sigmoid(-x[0])) - gx * std::exp(log_sigmoid(x[0])) : gy;
  });
  return grad;
}

// Returns starts[b, t] of the windows of `rows` positions.
inline std::vector<std::int64_t> rnnt_prune_starts(const RnntBatch& of, const std::vector<double>& px_grad,
                                                   const std::vector<double>& py_grad, bool by_flow) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(of.batch * of.frames));
  const std::int64_t step = of.columns == of.frames ? 1 : of.rows - 1;
  for (std::int64_t b = 0; b < of.batch; ++b) {
    std::int64_t* at = starts.data() + b * of.frames;
    const std::int64_t s_end = of.boundary[4 * b + 2], t_end = of.boundary[4 * b + 3];
    for (std::int64_t t = 0; t < of.frames; ++t) {
      double best = -std::numeric_limits<double>::infinity();
      for (std::int64_t s = 0; s + of.rows <= of.symbols + 1; ++s) {
        double score = 0;
        for (std::int64_t i = s; i < s + of.rows; ++i)
          score += py_grad[static_cast<std::size_t>(of.py(b, i, t))];
        if (by_flow && s > 0) score -= px_grad[static_cast<std::size_t>(of.px(b, s - 1, t))];
        for (std::int64_t i = s; !by_flow && i < std::min(s + of.rows, of.symbols); ++i)
          score += px_grad[static_cast<std::size_t>(of.px(b, i, t))];
        if (score > best) best = score, at[t] = s;
      }
      if (t >= t_end - 1) at[t] = std::max<std::int64_t>(s_end - of.rows + 1, 0);
    }
    for (std::int64_t t = of.frames - 1; t-- > 0;) at[t] = std::min(at[t], at[t + 1]);
    for (std::int64_t t = 0; t < of.frames; ++t) at[t] = step * t - at[t];
    for (std::int64_t t = of.frames - 1; t-- > 0;) at[t] = std::min(at[t], at[t + 1]);
    for (std::int64_t t = 0; t < of.frames; ++t) at[t] = step * t - std::max<std::int64_t>(at[t], 0);
  }
  return starts;
}

// The score of the best path to cell (s, t) of a lattice that begins at `box`.
inline double rnnt_best_score(const RnntBatch& of, std::int64_t b, const std::int64_t* box,
                              const std::vector<double>& px, const std::vector<double>& py, std::int64_t s,
                              std::int64_t t) {
  if (s == box[0] && t == box[1]) return 0;
  const std::int64_t off = of.columns == of.frames ? 1 : 0;
  double best = -std::numeric_limits<double>::infinity();
  if (s > box[0] && t - off >= box[1])
    best = rnnt_best_score(of, b, box, px, py, s - 1, t - off) +
           px[static_cast<std::size_t>(of.px(b, s - 1, t - off))];
  if (t > box[1])
    best = std::max(best, rnnt_best_score(of, b, box, px, py, s, t - 1) +
                              py[static_cast<std::size_t>(of.py(b, s, t - 1))]);
  return best;
}

}  // namespace turnout::reference
