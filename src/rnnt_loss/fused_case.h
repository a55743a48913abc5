// A random call of the fused joiner and log-probabilities, and its definition in double, for the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "rnnt_loss/rnnt_case.h"

namespace turnout::test {

// A pruned case whose logits are the output of a joiner.
template <class T>
struct FusedCase {
  using Lane = typename RnntCase<T>::Lane;
  RnntCase<T> steps;   // text, ranges, boundary, and the gradients of the steps
  RnntCase<T> joiner;  // its lm and am have `width` classes
  std::int64_t width;
  std::vector<T> weight, bias;
  RnntActivation activation;

  FusedCase(std::int64_t b, std::int64_t t, std::int64_t s, std::int64_t c, std::int64_t r, std::int64_t j,
            bool modified, RnntActivation of, std::mt19937& random)
      : steps(b, t, s, c, modified, r), joiner(b, t, s, j, modified), width(j), activation(of) {
    steps.use_hat_loss = random() % 2 == 0;
    steps.fill(random, 1);
    joiner.fill(random, 1);
    std::normal_distribution<double> normal(0, 1);
    for (std::int64_t i = 0; i < c * j; ++i) weight.push_back(steps.cast(normal(random)));
    for (std::int64_t i = 0; i < c; ++i) bias.push_back(steps.cast(normal(random)));
  }

  struct Result {
    std::vector<Lane> px, py, normalizer;
    std::vector<std::int64_t> nan_at;
    std::vector<T> am_grad, lm_grad, weight_grad, bias_grad;
  };
  Result run(Context& context, bool has_bias = true) const {
    const RnntCase<T>& c = steps;
    const T paint = c.cast(7);
    Result r{many<Lane>(c.batch * c.symbols * c.columns, 7),
             many<Lane>(c.batch * (c.symbols + 1) * c.frames, 7),
             many<Lane>(c.batch * c.frames * c.rows, 7),
             many<std::int64_t>(c.batch, 7),
             many<T>(c.batch * c.frames * width, paint),
             many<T>(c.batch * (c.symbols + 1) * width, paint),
             many<T>(c.classes * width, paint),
             many<T>(c.classes, paint)};
    const ConstTensor a = view(joiner.am.data(), {c.batch, c.frames, width}),
                      l = view(joiner.lm.data(), {c.batch, c.symbols + 1, width}),
                      w = view(weight.data(), {c.classes, width}),
                      o = has_bias ? view(bias.data(), {c.classes}) : nullptr,
                      words = view(c.text.data(), {c.batch, c.symbols}),
                      kept = view(c.ranges.data(), {c.batch, c.frames, c.rows});
    const Tensor n = view(r.normalizer.data(), {c.batch, c.frames, c.rows});
    const RnntFusedParams params{activation, c.blank, c.use_hat_loss};
    rnnt_logprobs_fused_forward(a, l, w, o, words, kept, c.bounds(),
                                view(r.px.data(), {c.batch, c.symbols, c.columns}),
                                view(r.py.data(), {c.batch, c.symbols + 1, c.frames}), n,
                                view(r.nan_at.data(), {c.batch}), params, context);
    rnnt_logprobs_fused_backward(a, l, w, o, words, kept, c.bounds(), n,
                                 view(c.px_grad.data(), {c.batch, c.symbols, c.columns}),
                                 view(c.py_grad.data(), {c.batch, c.symbols + 1, c.frames}),
                                 view(r.am_grad.data(), {c.batch, c.frames, width}),
                                 view(r.lm_grad.data(), {c.batch, c.symbols + 1, width}),
                                 view(r.weight_grad.data(), {c.classes, width}),
                                 has_bias ? view(r.bias_grad.data(), {c.classes}) : nullptr, params, context);
    return r;
  }

  struct Expected {
    reference::RnntSteps steps;
    std::vector<double> am_grad, lm_grad, weight_grad, bias_grad;
  };
  Expected expected() const {
    const RnntCase<T>& c = steps;
    const auto a = c.wide(joiner.am), l = c.wide(joiner.lm), w = c.wide(weight), o = c.wide(bias);
    const auto at = [](const std::vector<double>& x, std::int64_t i) {
      return x[static_cast<std::size_t>(i)];
    };
    auto hidden = many<double>(c.batch * c.frames * c.rows * width);
    auto logits = many<double>(c.batch * c.frames * c.rows * c.classes);
    const reference::RnntBatch batch = c.definition();
    const auto each = [&](const auto& f) {
      batch.for_each_row([&](std::int64_t row, std::int64_t b, std::int64_t t, std::int64_t s, std::int64_t) {
        f(row, (b * c.frames + t) * width, (b * (c.symbols + 1) + s) * width);
      });
    };
    each([&](std::int64_t row, std::int64_t am, std::int64_t lm) {
      for (std::int64_t j = 0; j < width; ++j) {
        const double x = at(a, am + j) + at(l, lm + j);
        hidden[static_cast<std::size_t>(row * width + j)] = activation == RnntActivation::tanh ? std::tanh(x)
                                                            : activation == RnntActivation::relu
                                                                ? std::max(x, 0.0)
                                                                : x;
      }
      for (std::int64_t k = 0; k < c.classes; ++k) {
        double sum = at(o, k);
        for (std::int64_t j = 0; j < width; ++j) sum += at(w, k * width + j) * at(hidden, row * width + j);
        logits[static_cast<std::size_t>(row * c.classes + k)] = sum;
      }
    });
    Expected e{reference::rnnt_logprobs_forward(batch, logits.data()),
               many<double>(c.batch * c.frames * width), many<double>(c.batch * (c.symbols + 1) * width),
               many<double>(c.classes * width), many<double>(c.classes)};
    const auto grad =
        reference::rnnt_logprobs_backward(batch, logits.data(), c.wide(c.px_grad), c.wide(c.py_grad));
    each([&](std::int64_t row, std::int64_t am, std::int64_t lm) {
      for (std::int64_t k = 0; k < c.classes; ++k)
        e.bias_grad[static_cast<std::size_t>(k)] += at(grad, row * c.classes + k);
      for (std::int64_t j = 0; j < width; ++j) {
        const double h = at(hidden, row * width + j);
        double sum = 0;
        for (std::int64_t k = 0; k < c.classes; ++k) {
          const double g = at(grad, row * c.classes + k);
          e.weight_grad[static_cast<std::size_t>(k * width + j)] += g * h;
          sum += g * at(w, k * width + j);
        }
        sum *= activation == RnntActivation::tanh   ? 1 - h * h
               : activation == RnntActivation::relu ? h > 0
                                                    : 1;
        e.am_grad[static_cast<std::size_t>(am + j)] += sum;
        e.lm_grad[static_cast<std::size_t>(lm + j)] += sum;
      }
    });
    return e;
  }
};

}  // namespace turnout::test
