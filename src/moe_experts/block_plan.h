// The plan of an expert block: sorts choices by expert, computes both products and the activation, sums per
// token.
#pragma once

#include <algorithm>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "indices/indices.h"
#include "moe_experts/products.h"
#include "runtime/parallel.h"
#include "turnout/moe_experts.h"

namespace turnout::families::moe_experts {

using namespace core;

// Limit of intermediate values in bytes. More tokens are processed in several parts.
inline constexpr std::int64_t kPartBytes = 64 << 20;

struct BlockShape {
  std::int64_t tokens, hidden, choices, experts, inner;
};

class BlockPlan {
 public:
  BlockPlan(const BlockShape& shape, const MoeExpertsParams& params, const Weights& w13, const Weights& w2,
            DType tokens, int threads, Isa isa)
      : shape_(shape),
        params_(params),
        w13_(w13),
        w2_(w2),
        dtype_(tokens),
        matrix_(matrix::kernels<float>(isa)),
        kernels_(expert_kernels(isa)),
        activation_(activation_kernels(isa).of(params.activation)),
        first_(isa, w13_),
        second_(isa, w2_) {
    const std::int64_t row = (shape.inner + shape.hidden) * std::int64_t{sizeof(float)};
    const std::int64_t token = shape.choices * row + shape.hidden * std::int64_t{sizeof(float)};
    part_ = std::clamp<std::int64_t>(kPartBytes / std::max<std::int64_t>(token, 1), 1,
                                     std::max<std::int64_t>(shape.tokens, 1));
    const double products = static_cast<double>(shape.tokens * shape.choices) *
                            static_cast<double>(shape.hidden) *
                            static_cast<double>(w13.columns + shape.inner);
    threads_ = products < kParallelProducts ? 1 : threads;
    // Columns of gate and up that alternate are multiplied together and parted afterwards.
    together_ = params.gated && params.interleaved;
    first_columns_ =
        std::min(first_.block_columns() / (together_ ? 2 : 1), std::max<std::int64_t>(shape.inner, 1));
    // Rows of f32 become two rows of bf16 whose sum has 16 bits of them, or one that has 8.
    splits_tokens_ = first_.takes_bf16() && tokens == DType::f32;
    keeps_low_ = params.precision == ExpertPrecision::float32;
  }

  int threads() const { return threads_; }
  Isa last_isa() const { return first_.last_isa(); }
  const char* algorithm() const {
    return first_.in_place() && second_.in_place() ? "weights in place" : "packed weights";
  }

  std::size_t scratch_bytes() const {
    const std::int64_t rows = part_ * shape_.choices;
    return 3 * array_bytes<std::int64_t>(shape_.experts + 1) + 2 * array_bytes<std::int32_t>(rows) +
           array_bytes<float>(wide_size()) + array_bytes<float>(rows * shape_.inner) +
           array_bytes<float>(rows * shape_.hidden) + static_cast<std::size_t>(threads_) * worker_bytes();
  }

  // `products` may be absent.
  void run(Context& context, const ConstTensor& hidden_states, const ConstTensor& ids,
           const ConstTensor& weights, const ConstTensor& w13_bias, const ConstTensor& w2_bias,
           const Tensor& out, const Tensor& products, Scratch& scratch) {
    const std::int64_t rows = part_ * shape_.choices;
    begins_ = scratch.take<std::int64_t>(shape_.experts + 1);
    starts_ = scratch.take<std::int64_t>(shape_.experts + 1);
    product_rows_ = scratch.take<std::int64_t>(shape_.experts + 1);
    row_of_ = scratch.take<std::int32_t>(rows);
    token_of_ = scratch.take<std::int32_t>(rows);
    wide_ = scratch.take<float>(wide_size());
    inner_ = scratch.take<float>(rows * shape_.inner);
    results_ = scratch.take<float>(rows * shape_.hidden);
    workers_ = scratch.rest();
    if (!products.is_absent()) find_product_rows(ids, products);
    for (const auto [token, count] : pieces(0, shape_.tokens, part_)) {
      sort(ids, token, count);
      widen(context, hidden_states, token, count);
      multiply_first(context, w13_bias, products);
      multiply_second(context, w2_bias);
      sum(context, weights, token, count, out);
    }
  }

 private:
  std::int64_t wide_size() const {
    const bool needed = first_.takes_bf16() ? splits_tokens_ : size_of(dtype_) == 2;
    return needed ? part_ * shape_.hidden : 0;
  }
  std::int64_t bias_size() const { return std::max(2 * first_columns_, second_.block_columns()); }
  std::int64_t panel_size() const { return std::max(first_.panel_size(), second_.panel_size()); }
  std::size_t worker_bytes() const {
    return 3 * array_bytes<float>(kRowBlock * first_columns_) + array_bytes<float>(bias_size()) +
           array_bytes<float>(panel_size()) + array_bytes<float>(shape_.hidden);
  }
  struct Worker {
    float *gate, *both, *bias, *panel, *total;
  };
  Worker worker(int number) const {
    std::byte* at = workers_ + static_cast<std::size_t>(number) * worker_bytes();
    Worker own{};
    const auto take = [&](std::int64_t count) {
      auto* begin = reinterpret_cast<float*>(at);
      at += array_bytes<float>(count);
      return begin;
    };
    own.gate = take(kRowBlock * first_columns_);
    own.both = take(2 * kRowBlock * first_columns_);
    own.bias = take(bias_size());
    own.panel = take(panel_size());
    own.total = take(shape_.hidden);
    return own;
  }
  template <class Body>
  void for_each(Context& context, std::int64_t count, const Body& body) const {
    parallel_for(
        context, count, 1, [&](std::int64_t i, std::int64_t, int number) { body(i, worker(number)); },
        threads_);
  }

  // row_of_[t, k]: the row of each choice in the order of experts, or -1; token_of_[row]; begins_[expert].
  void sort(const ConstTensor& ids, std::int64_t first, std::int64_t count) {
    std::fill_n(begins_, shape_.experts + 1, std::int64_t{0});
    const std::int64_t choices = count * shape_.choices;
    visit_index(ids.dtype, [&](auto type) {
      const auto* from = static_cast<const typename decltype(type)::type*>(ids.data) + first * shape_.choices;
      for (std::int64_t q = 0; q < choices; ++q) {
        const std::int64_t expert = load_once(from + q);
        row_of_[q] = in_range(expert, shape_.experts) ? static_cast<std::int32_t>(expert) : -1;
        if (row_of_[q] >= 0) ++begins_[expert + 1];
      }
    });
    for (std::int64_t e = 0; e < shape_.experts; ++e) begins_[e + 1] += begins_[e];
    std::copy_n(begins_, shape_.experts + 1, starts_);
    for (std::int64_t q = 0; q < choices; ++q) {
      if (row_of_[q] < 0) continue;
      const std::int64_t row = starts_[row_of_[q]]++;
      token_of_[row] = static_cast<std::int32_t>(q / shape_.choices);
      row_of_[q] = static_cast<std::int32_t>(row);
    }
  }

  // product_rows_[expert]: the first of the expert's rows of `products` that the next part writes. Clears the
  // rows of choices without an expert, which follow those of all experts.
  void find_product_rows(const ConstTensor& ids, const Tensor& products) {
    std::fill_n(product_rows_, shape_.experts + 1, std::int64_t{0});
    const std::int64_t choices = shape_.tokens * shape_.choices;
    visit_index(ids.dtype, [&](auto type) {
      const auto* from = static_cast<const typename decltype(type)::type*>(ids.data);
      for (std::int64_t q = 0; q < choices; ++q) {
        const std::int64_t expert = load_once(from + q);
        if (in_range(expert, shape_.experts)) ++product_rows_[expert + 1];
      }
    });
    for (std::int64_t e = 0; e < shape_.experts; ++e) product_rows_[e + 1] += product_rows_[e];
    const std::int64_t row = w13_.columns * size_of(dtype_);
    const std::int64_t found = product_rows_[shape_.experts];
    std::fill_n(static_cast<std::byte*>(products.data) + found * row, (choices - found) * row, std::byte{0});
  }

  // Rounds `columns` products of each row of a block to the columns of `products` from `first` on.
  void write_products(const Tensor& products, const Block& b, std::int64_t first, std::int64_t columns,
                      const float* const* from) const {
    // Another thread may have changed the ids since product_rows_ was found.
    const std::int64_t row = product_rows_[b.group] + b.first_row - begins_[b.group];
    const std::int64_t count = std::min(b.rows, products.shape[0] - row);
    for (std::int64_t r = 0; r < count; ++r)
      matrix_.round(
          from[r], nullptr, columns,
          static_cast<std::byte*>(products.data) + ((row + r) * w13_.columns + first) * size_of(dtype_),
          dtype_);
  }

  void widen(Context& context, const ConstTensor& hidden_states, std::int64_t first, std::int64_t count) {
    const auto* from =
        static_cast<const std::byte*>(hidden_states.data) + first * shape_.hidden * size_of(dtype_);
    tokens_ = from;
    if (wide_size() == 0) return;
    if (!splits_tokens_) tokens_ = reinterpret_cast<const std::byte*>(wide_);
    parallel_for(context, count, threads_ == 1 ? count : 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const void* row = from + t * shape_.hidden * size_of(dtype_);
        if (splits_tokens_) {
          split(static_cast<const float*>(row), shape_.hidden, halves(wide_, part_, shape_.hidden, t));
        } else {
          matrix_.widen(&row, dtype_, 1, shape_.hidden, wide_ + t * shape_.hidden, shape_.hidden);
        }
      }
    });
  }

  // Rows of bf16 in memory for `rows` rows of f32: all high parts, then all low parts.
  struct Halves {
    bf16 *high, *low;
  };
  static Halves halves(float* memory, std::int64_t rows, std::int64_t columns, std::int64_t row) {
    auto* all = reinterpret_cast<bf16*>(memory);
    return {all + row * columns, all + (rows + row) * columns};
  }
  void split(const float* from, std::int64_t count, Halves to) const {
    first_.split(from, count, to.high, keeps_low_ ? to.low : nullptr);
  }

  // One product of rows whose parts are in `high` and, if there is a second, in `low`.
  static void multiply_halves(const Products<float>& products, const void* const* high,
                              const void* const* low, bool has_low, float* const* to, std::int64_t rows,
                              const ColumnBlock& block) {
    products.run_bf16(high, to, rows, block);
    if (has_low) products.run_bf16(low, to, rows, block, matrix::Write::add);
  }

  // to[r][c] += bias[group, first + c]
  void add_bias(const ConstTensor& bias, std::int64_t group, std::int64_t first, std::int64_t columns,
                std::int64_t rows, float* const* to, float* values) const {
    if (bias.is_absent()) return;
    const void* at =
        static_cast<const std::byte*>(bias.data) + (group * bias.shape[1] + first) * size_of(bias.dtype);
    matrix_.widen(&at, bias.dtype, 1, columns, values, columns);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) to[r][c] += values[c];
  }

  // The tokens of rows first .. first + count - 1, as first_ takes them.
  void find_tokens(std::int64_t first, std::int64_t count, const void** high, const void** low) const {
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t t = token_of_[first + r];
      if (splits_tokens_) {
        const Halves both = halves(wide_, part_, shape_.hidden, t);
        high[r] = both.high;
        low[r] = both.low;
      } else {
        high[r] = tokens_ + t * shape_.hidden * (first_.takes_bf16() ? 2 : 4);
      }
    }
  }

  void multiply_first(Context& context, const ConstTensor& bias, const Tensor& products) {
    const Blocks blocks(begins_, shape_.experts, shape_.inner, first_columns_, kRowBlock, starts_);
    const auto alpha = static_cast<float>(params_.alpha), limit = static_cast<float>(params_.limit);
    for_each(context, blocks.count(), [&](std::int64_t i, const Worker& own) {
      const Block b = blocks[i];
      const void *high[kRowBlock], *low[kRowBlock];
      float *gate[kRowBlock], *up[kRowBlock];
      find_tokens(b.first_row, b.rows, high, low);
      for (std::int64_t r = 0; r < b.rows; ++r) {
        gate[r] = second_.takes_bf16() ? own.gate + r * first_columns_
                                       : inner_ + (b.first_row + r) * shape_.inner + b.first_column;
        up[r] = own.both + r * 2 * first_columns_;
      }
      const auto multiply = [&](std::int64_t first, std::int64_t columns, float* const* to) {
        const ColumnBlock block{b.group, first, columns};
        if (first_.takes_bf16()) {
          multiply_halves(first_, high, low, splits_tokens_ && keeps_low_, to, b.rows, block);
        } else {
          const float* from[kRowBlock];
          for (std::int64_t r = 0; r < b.rows; ++r) from[r] = static_cast<const float*>(high[r]);
          first_.run(from, to, b.rows, block, own.panel);
        }
        add_bias(bias, b.group, first, columns, b.rows, to, own.bias);
        if (!products.is_absent()) write_products(products, b, first, columns, to);
      };
      if (together_) {
        multiply(2 * b.first_column, 2 * b.columns, up);
        for (std::int64_t r = 0; r < b.rows; ++r)
          for (std::int64_t c = 0; c < b.columns; ++c) {
            gate[r][c] = up[r][2 * c];
            up[r][c] = up[r][2 * c + 1];
          }
      } else {
        multiply(b.first_column, b.columns, gate);
        if (params_.gated) multiply(shape_.inner + b.first_column, b.columns, up);
      }
      for (std::int64_t r = 0; r < b.rows; ++r) {
        activation_.apply(gate[r], params_.gated ? up[r] : nullptr, b.columns, alpha, limit, gate[r]);
        if (!second_.takes_bf16()) continue;
        Halves to = halves(inner_, part_ * shape_.choices, shape_.inner, b.first_row + r);
        split(gate[r], b.columns, {to.high + b.first_column, to.low + b.first_column});
      }
    });
    for (std::int64_t e = 0; e < shape_.experts; ++e) product_rows_[e] += begins_[e + 1] - begins_[e];
  }

  void multiply_second(Context& context, const ConstTensor& bias) {
    const Blocks blocks(begins_, shape_.experts, shape_.hidden, second_.block_columns(), kRowBlock, starts_);
    for_each(context, blocks.count(), [&](std::int64_t i, const Worker& own) {
      const Block b = blocks[i];
      const ColumnBlock block{b.group, b.first_column, b.columns};
      float* to[kRowBlock];
      for (std::int64_t r = 0; r < b.rows; ++r)
        to[r] = results_ + (b.first_row + r) * shape_.hidden + b.first_column;
      if (second_.takes_bf16()) {
        const void *high[kRowBlock], *low[kRowBlock];
        for (std::int64_t r = 0; r < b.rows; ++r) {
          const Halves from = halves(inner_, part_ * shape_.choices, shape_.inner, b.first_row + r);
          high[r] = from.high;
          low[r] = from.low;
        }
        multiply_halves(second_, high, low, keeps_low_, to, b.rows, block);
      } else {
        const float* from[kRowBlock];
        for (std::int64_t r = 0; r < b.rows; ++r) from[r] = inner_ + (b.first_row + r) * shape_.inner;
        second_.run(from, to, b.rows, block, own.panel);
      }
      add_bias(bias, b.group, b.first_column, b.columns, b.rows, to, own.bias);
    });
  }

  void sum(Context& context, const ConstTensor& weights, std::int64_t first, std::int64_t count,
           const Tensor& out) {
    constexpr std::int64_t kTogether = 64;  // choices summed at a time
    for_each(context, count, [&](std::int64_t t, const Worker& own) {
      const float* rows[kTogether];
      float factors[kTogether];
      std::int64_t found = 0;
      const auto flush = [&](bool more) {
        if (!more || found == kTogether) {
          kernels_.weighted_sum(rows, factors, found, shape_.hidden, own.total);
          rows[0] = own.total;  // the next choices start with the sum so far, times one
          factors[0] = 1;
          found = 1;
        }
      };
      for (std::int64_t k = 0; k < shape_.choices; ++k) {
        const std::int64_t row = row_of_[t * shape_.choices + k];
        if (row < 0) continue;
        flush(true);
        rows[found] = results_ + row * shape_.hidden;
        const std::int64_t q = (first + t) * shape_.choices + k;
        const void* at = static_cast<const std::byte*>(weights.data) + q * size_of(weights.dtype);
        matrix_.widen(&at, weights.dtype, 1, 1, factors + found, 1);
        ++found;
      }
      flush(false);
      matrix_.round(own.total, nullptr, shape_.hidden,
                    static_cast<std::byte*>(out.data) + (first + t) * shape_.hidden * size_of(dtype_),
                    dtype_);
    });
  }

  const BlockShape shape_;
  const MoeExpertsParams params_;
  const Weights w13_, w2_;
  const DType dtype_;
  const matrix::Kernels<float>& matrix_;
  const ExpertKernels& kernels_;
  const Activation& activation_;
  const Products<float> first_, second_;
  std::int64_t part_;  // tokens
  std::int64_t first_columns_;
  bool together_, splits_tokens_, keeps_low_;
  int threads_;

  std::int64_t *begins_ = nullptr, *starts_ = nullptr, *product_rows_ = nullptr;
  std::int32_t *row_of_ = nullptr, *token_of_ = nullptr;
  float *wide_ = nullptr, *inner_ = nullptr, *results_ = nullptr;
  const std::byte* tokens_ = nullptr;
  std::byte* workers_ = nullptr;
};

}  // namespace turnout::families::moe_experts
