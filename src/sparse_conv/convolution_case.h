// Compares a convolution or pooling along given pairs with the definition, on every instruction set and for
// several numbers of threads.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "guarded.h"
#include "isas.h"
#include "matrix/matrix.h"
#include "simd/half.h"
#include "sparse_conv/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {

using reference::Pairs;
using reference::Rows;

template <class T>
T rounded(core::matrix::LaneOf<T> v) {
  if constexpr (sizeof(T) == 8) {
    return v;
  } else {
    return core::from_float<T>(v);
  }
}

// Numbers with few bits, none of them 0; products of two are not exact in f32.
template <class T>
T random_value(std::mt19937& random) {
  const double v = (static_cast<double>(random() % 4001) - 2000.5) / 1024;
  return rounded<T>(static_cast<core::matrix::LaneOf<T>>(v / 3));
}

enum class Order { sorted, shuffled, one_row, empty };

// `offsets` lists of pairs of different lengths, in which some rows occur twice and some never.
inline Pairs make_pairs(Order order, std::int64_t offsets, std::int64_t rows, std::int64_t out_rows,
                        unsigned seed) {
  std::mt19937 random(seed);
  Pairs pairs;
  for (std::int64_t k = 0; k < offsets; ++k) {
    pairs.in.emplace_back();
    pairs.out.emplace_back();
    if (rows == 0 || out_rows == 0 || order == Order::empty || (k % 5 == 4 && k > 4)) continue;
    const std::int64_t most = rows - rows * (k % 3) / 4;
    for (std::int64_t j = 0; j < most; ++j) {
      const auto any = [&](std::int64_t n) {
        return static_cast<std::int32_t>(random() % static_cast<unsigned>(n));
      };
      pairs.in.back().push_back(order == Order::sorted ? static_cast<std::int32_t>(j) : any(rows));
      pairs.out.back().push_back(order == Order::sorted    ? static_cast<std::int32_t>(j * out_rows / rows)
                                 : order == Order::one_row ? static_cast<std::int32_t>(out_rows - 1)
                                                           : any(out_rows));
    }
  }
  return pairs;
}

// The pairs as tensors; entries beyond the counts are not valid rows.
struct PairTensors {
  std::int64_t offsets, columns = 0;
  std::vector<std::int32_t> entries, num32;
  std::vector<std::int64_t> num64;
  bool is_wide;  // counts in 64 bits

  PairTensors(const Pairs& pairs, bool wide)
      : offsets(static_cast<std::int64_t>(pairs.in.size())), is_wide(wide) {
    for (const auto& list : pairs.in) columns = std::max(columns, static_cast<std::int64_t>(list.size()) + 1);
    entries.assign(static_cast<std::size_t>(offsets * 2 * columns), -7);
    for (std::size_t k = 0; k < pairs.in.size(); ++k) {
      std::copy(pairs.in[k].begin(), pairs.in[k].end(), side(k, 0));
      std::copy(pairs.out[k].begin(), pairs.out[k].end(), side(k, 1));
      num32.push_back(static_cast<std::int32_t>(pairs.in[k].size()));
      num64.push_back(static_cast<std::int64_t>(pairs.in[k].size()));
    }
  }
  std::int32_t* side(std::size_t k, std::size_t s) {
    return entries.data() + (2 * k + s) * static_cast<std::size_t>(columns);
  }
  ConstTensor pairs() const { return view(entries.data(), {offsets, 2, columns}); }
  ConstTensor num() const { return is_wide ? view(num64.data(), {offsets}) : view(num32.data(), {offsets}); }
};

// Rows of T, and the same rows in lanes.
template <class T>
struct Values {
  using Lane = core::matrix::LaneOf<T>;
  Guarded<T> memory;
  Rows<Lane> lanes;

  Values(std::int64_t rows, std::int64_t columns, std::mt19937& random, std::int64_t offset = 0)
      : memory(rows * columns, offset),
        lanes(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)) {
    for (std::int64_t i = 0; i < memory.size(); ++i) {
      memory[i] = random_value<T>(random);
      lanes.values[static_cast<std::size_t>(i)] = core::to_float(memory[i]);
    }
  }
  Tensor tensor(std::int64_t rows, std::int64_t columns) { return view(memory.data(), {rows, columns}); }
};

// Whether a sum has the order of the definition. SSE4 rounds products, avx512_bf16 adds pairs of bf16
// products, and few channels are summed over all neighbours in one chain.
template <class T>
bool is_exact(Isa isa, bool few_channels = false) {
  return isa != Isa::sse4 && !few_channels && (isa != Isa::avx512_bf16 || !std::is_same_v<T, bf16>);
}

// `actual` must be bit-equal if `exact`, and otherwise within the error of two sums of `terms` terms each,
// whose magnitudes add up to `magnitude`.
template <class T>
void expect_rows(bool exact, Guarded<T>& actual, const std::vector<core::matrix::LaneOf<T>>& expected,
                 const std::vector<core::matrix::LaneOf<T>>& magnitude, std::int64_t terms) {
  using Lane = core::matrix::LaneOf<T>;
  ASSERT_EQ(actual.size(), static_cast<std::int64_t>(expected.size()));
  const double own = sizeof(T) == 2 ? std::is_same_v<T, f16> ? 0x1p-10 : 0x1p-7 : 0;
  for (std::int64_t i = 0; i < actual.size(); ++i) {
    const Lane want = expected[static_cast<std::size_t>(i)];
    if (!exact) {
      const double error = std::abs(static_cast<double>(core::to_float(actual[i])) - want);
      const double room = magnitude.empty()
                              ? 0
                              : static_cast<double>(magnitude[static_cast<std::size_t>(i)]) *
                                    static_cast<double>(terms) * 2 * std::numeric_limits<Lane>::epsilon();
      ASSERT_LE(error, room + own * std::abs(static_cast<double>(want))) << "element " << i;
    } else {
      const T right = rounded<T>(want);
      ASSERT_EQ(std::memcmp(&actual[i], &right, sizeof(T)), 0)
          << "element " << i << " is " << core::to_float(actual[i]) << ", expected " << want;
    }
  }
}

template <class Lane>
Rows<Lane> magnitudes(Rows<Lane> rows) {
  for (Lane& v : rows.values) v = std::abs(v);
  return rows;
}

struct ConvolutionCase {
  Order order = Order::shuffled;
  std::int64_t offsets = 9, rows = 70, out_rows = 50, in = 16, out = 16;
  bool inverse = false, subm = false, bias = true;
  bool transposed = false;  // filters are stored as [out, offsets, in]
  unsigned seed = 1;
  std::vector<int> threads = {1, 2, 5};
};

template <class T>
void compare_convolution(const ConvolutionCase& c) {
  using Lane = core::matrix::LaneOf<T>;
  SCOPED_TRACE(testing::Message() << name_of(dtype_of<T>) << " order " << static_cast<int>(c.order)
                                  << " offsets " << c.offsets << " rows " << c.rows << " to " << c.out_rows
                                  << " channels " << c.in << " to " << c.out << " inverse " << c.inverse
                                  << " subm " << c.subm << " seed " << c.seed);
  std::mt19937 random(c.seed);
  const Pairs along = make_pairs(c.order, c.offsets, c.rows, c.out_rows, c.seed);
  const PairTensors given(c.inverse ? reference::exchanged(along) : along, c.seed % 2 == 1);
  const auto rows = static_cast<std::size_t>(c.rows);
  const Pairs pairs = c.subm && c.offsets > 0 ? reference::with_centre(along, rows) : along;
  Values<T> features(c.rows, c.in, random, c.seed % 3), grad(c.out_rows, c.out, random, c.seed % 4);
  Values<T> filters(c.offsets * c.in, c.out, random), bias(1, c.out, random);
  // The same filters in the other layout.
  Guarded<T> other(c.offsets * c.in * c.out, 1);
  for (std::int64_t row = 0; row < c.offsets * c.in; ++row)
    for (std::int64_t o = 0; o < c.out; ++o)
      other[o * c.offsets * c.in + row] = filters.memory[row * c.out + o];
  Tensor strided = view(c.transposed ? other.data() : filters.memory.data(), {c.offsets, c.in, c.out});
  if (c.transposed) {
    strided.stride[0] = c.in;
    strided.stride[1] = 1;
    strided.stride[2] = c.offsets * c.in;
  }
  const ConstTensor bias_tensor = view(bias.memory.data(), {c.out});
  const Lane* added = c.bias ? bias.lanes.values.data() : nullptr;
  const auto forward = reference::indice_convolution_forward(features.lanes, filters.lanes, added, pairs,
                                                             static_cast<std::size_t>(c.out_rows));
  const auto data = reference::indice_convolution_backward_data(grad.lanes, filters.lanes, pairs, rows,
                                                                static_cast<std::size_t>(c.in));
  const auto filter = reference::indice_convolution_backward_filter(features.lanes, grad.lanes, pairs);
  const auto abs_features = magnitudes(features.lanes), abs_filters = magnitudes(filters.lanes),
             abs_grad = magnitudes(grad.lanes), abs_bias = magnitudes(bias.lanes);
  const auto forward_room = reference::indice_convolution_forward(
      abs_features, abs_filters, abs_bias.values.data(), pairs, static_cast<std::size_t>(c.out_rows));
  const auto data_room = reference::indice_convolution_backward_data(abs_grad, abs_filters, pairs, rows,
                                                                     static_cast<std::size_t>(c.in));
  const auto filter_room = reference::indice_convolution_backward_filter(abs_features, abs_grad, pairs);
  std::int64_t terms = c.in + c.out + 4;  // of the longest sum
  for (const auto& list : pairs.in) terms += static_cast<std::int64_t>(list.size());

  const IndiceConvolutionParams params{.inverse = c.inverse, .subm = c.subm};
  for (Isa isa : supported_isas()) {
    std::vector<T> first;  // the results of the first number of threads
    for (int threads : c.threads) {
      SCOPED_TRACE(testing::Message() << "isa " << static_cast<int>(isa) << " threads " << threads);
      Context context({.threads = threads, .isa = isa});
      Guarded<T> features_out(c.out_rows * c.out, c.seed % 5), input_grad(c.rows * c.in, 1);
      Guarded<T> filters_grad(c.offsets * c.in * c.out, c.seed % 2);
      indice_convolution_forward(features.tensor(c.rows, c.in), strided, given.pairs(), given.num(),
                                 c.bias ? bias_tensor : nullptr, nullptr,
                                 view(features_out.data(), {c.out_rows, c.out}), params, context);
      indice_convolution_backward_data(grad.tensor(c.out_rows, c.out), strided, given.pairs(), given.num(),
                                       nullptr, view(input_grad.data(), {c.rows, c.in}), params, context);
      indice_convolution_backward_filter(
          features.tensor(c.rows, c.in), grad.tensor(c.out_rows, c.out), given.pairs(), given.num(),
          view(filters_grad.data(), {c.offsets, c.in, c.out}), params, context);
      constexpr std::int64_t kFew = 8;
      expect_rows(is_exact<T>(isa, c.in <= kFew), features_out, forward.values, forward_room.values, terms);
      expect_rows(is_exact<T>(isa, c.out <= kFew), input_grad, data.values, data_room.values, terms);
      expect_rows(is_exact<T>(isa), filters_grad, filter.values, filter_room.values, terms);
      if (testing::Test::HasFatalFailure()) return;
      std::vector<T> all;
      for (Guarded<T>* result : {&features_out, &input_grad, &filters_grad})
        all.insert(all.end(), result->data(), result->data() + result->size());
      if (first.empty()) first = all;
      ASSERT_EQ(std::memcmp(all.data(), first.data(), all.size() * sizeof(T)), 0);
    }
  }
}

}  // namespace turnout::test
