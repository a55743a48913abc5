// Differential fuzzer over geometries, sites and pairs. A legal call must equal the definition on every
// instruction set; a call with a site or a pair out of range must write nothing.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "fuzz.h"
#include "isas.h"
#include "sparse_conv/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

template <class Index>
void run(FuzzInput& in) {
  const int dims = static_cast<int>(in.between(1, 4));
  IndicePairsParams p;
  p.batch_size = in.between(1, 3);
  p.mode = static_cast<ConvMode>(in.between(0, 2));
  const bool subm = p.mode == ConvMode::submanifold;
  const std::int64_t longest = dims == 1 ? 200 : dims == 2 ? 40 : 9;
  for (Dims* values : {&p.spatial_shape, &p.kernel_size, &p.stride, &p.padding, &p.dilation, &p.output_shape})
    *values = Dims::filled(dims, 1);
  for (int d = 0; d < dims; ++d) {
    p.spatial_shape[d] = in.between(1, longest);
    p.kernel_size[d] = in.between(1, dims == 1 ? 40 : 4);
    p.padding[d] = in.between(0, in.one_in(8) ? 300 : 4);
    p.dilation[d] = in.between(1, in.one_in(8) ? 50 : 3);
    if (!subm) p.stride[d] = in.between(1, 4);
    p.output_shape[d] = subm ? p.spatial_shape[d] : in.between(1, longest);
  }
  // A very large space uses sorted keys instead of the bitmap.
  if (in.one_in(4)) p.spatial_shape[0] = p.output_shape[0] = 2147483647;

  const std::int64_t rows = in.between(0, 60), columns = dims + 1;
  std::vector<reference::Site> sites;
  std::vector<Index> indices;
  for (std::int64_t i = 0; i < rows; ++i) {
    sites.emplace_back();
    for (int c = 0; c <= dims; ++c) {
      const std::int64_t limit = c == 0 ? p.batch_size : p.spatial_shape[c - 1];
      sites.back().push_back(in.one_in(16) ? limit - 1
                                           : in.between(0, std::min<std::int64_t>(limit, 40) - 1));
      indices.push_back(static_cast<Index>(sites.back().back()));
    }
  }
  const bool legal = rows == 0 || !in.one_in(8);
  if (!legal) {
    const std::int64_t i = in.between(0, rows * columns - 1);
    const std::int64_t limit =
        i % columns == 0 ? p.batch_size : p.spatial_shape[static_cast<int>(i % columns) - 1];
    indices[static_cast<std::size_t>(i)] = static_cast<Index>(in.flag() || limit == 2147483647 ? -1 : limit);
  }
  const reference::Pairs expected = legal ? reference::indice_pairs(sites, p) : reference::Pairs{};
  const auto active = static_cast<std::int64_t>(expected.outputs.size());
  const std::int64_t room = active + in.between(0, 2);

  for (Isa isa : supported_isas()) {
    Context context({.threads = 2, .isa = isa});
    bool refused = false;
    try {
      const IndicePairs index(view(indices.data(), {rows, columns}), p, context);
      const std::int64_t volume = index.kernel_volume();
      require(index.num_act_out() == active);
      std::vector<Index> out(static_cast<std::size_t>(room * columns), 7);
      std::vector<std::int32_t> pairs(static_cast<std::size_t>(volume * 2 * rows), 7);
      std::vector<std::int32_t> num(static_cast<std::size_t>(volume), 7);
      index.write(view(out.data(), {room, columns}), view(pairs.data(), {volume, 2, rows}),
                  view(num.data(), {volume}));
      for (std::int64_t i = 0; i < room * columns; ++i)
        require(out[static_cast<std::size_t>(i)] ==
                (i < active * columns ? static_cast<Index>(expected.outputs[static_cast<std::size_t>(
                                            i / columns)][static_cast<std::size_t>(i % columns)])
                                      : Index{-1}));
      for (std::int64_t k = 0; k < volume; ++k) {
        for (int side = 0; side < 2; ++side) {
          const auto& list = (side == 0 ? expected.in : expected.out)[static_cast<std::size_t>(k)];
          require(num[static_cast<std::size_t>(k)] == static_cast<std::int32_t>(list.size()));
          for (std::int64_t j = 0; j < rows; ++j)
            require(pairs[static_cast<std::size_t>((2 * k + side) * rows + j)] ==
                    (j < static_cast<std::int64_t>(list.size()) ? list[static_cast<std::size_t>(j)] : -1));
        }
      }
    } catch (const Error&) {
      refused = true;
    }
    require(refused == !legal);
  }
}

// Arbitrary pairs of rows, as lists and as tensors; inverse: with inputs and outputs exchanged.
template <class Index>
struct FuzzedPairs {
  reference::Pairs lists;
  std::vector<std::int32_t> entries;
  std::vector<Index> num;

  FuzzedPairs(FuzzInput& in, std::int64_t offsets, std::int64_t columns, std::int64_t rows,
              std::int64_t out_rows, bool inverse)
      : entries(static_cast<std::size_t>(offsets * 2 * columns), -1) {
    for (std::int64_t k = 0; k < offsets; ++k) {
      lists.in.emplace_back();
      lists.out.emplace_back();
      const std::int64_t count = rows == 0 || out_rows == 0 ? 0 : in.between(0, columns);
      for (std::int64_t j = 0; j < count; ++j) {
        lists.in.back().push_back(static_cast<std::int32_t>(in.between(0, rows - 1)));
        lists.out.back().push_back(static_cast<std::int32_t>(in.between(0, out_rows - 1)));
        entries[static_cast<std::size_t>((2 * k + inverse) * columns + j)] = lists.in.back().back();
        entries[static_cast<std::size_t>((2 * k + !inverse) * columns + j)] = lists.out.back().back();
      }
      num.push_back(static_cast<Index>(count));
    }
  }
};

// Rows of small integers, so that all sums are exact.
reference::Rows<float> small_numbers(std::int64_t rows, std::int64_t width) {
  reference::Rows<float> made(static_cast<std::size_t>(rows), static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < made.values.size(); ++i) made.values[i] = static_cast<float>(i * 37 % 17) - 8;
  return made;
}

// Convolutions along arbitrary pairs of small integers: all sums are exact, even though SSE4 rounds products.
template <class Index>
void run_convolution(FuzzInput& in) {
  const std::int64_t offsets = in.between(0, 5), rows = in.between(0, 40), out_rows = in.between(0, 40);
  const std::int64_t columns = in.between(0, 30), channels = in.between(0, 20),
                     out_channels = in.between(0, 35);
  const IndiceConvolutionParams params{.inverse = in.flag(), .subm = rows == out_rows && in.flag()};
  const int threads = static_cast<int>(in.between(1, 3));
  FuzzedPairs<Index> made(in, offsets, columns, rows, out_rows, params.inverse);
  auto& [given, entries, num] = made;
  std::size_t centre = 0;
  for (std::size_t k = 1; k < num.size(); ++k)
    if (num[k] > num[centre]) centre = k;
  // One pair or one count may be out of range.
  bool legal = true;
  if (offsets > 0 && in.one_in(4)) {
    const auto k = static_cast<std::size_t>(in.between(0, offsets - 1));
    if (in.flag()) {
      num[k] = static_cast<Index>(in.flag() ? -1 : columns + 1);
      legal = false;
    } else if (num[k] > 0) {
      const std::int64_t side = in.between(0, 1), j = in.between(0, static_cast<std::int64_t>(num[k]) - 1);
      const bool is_input = side == (params.inverse ? 1 : 0);
      entries[static_cast<std::size_t>((2 * static_cast<std::int64_t>(k) + side) * columns + j)] =
          in.flag() ? -1 : static_cast<std::int32_t>(is_input ? rows : out_rows);
      legal = params.subm && k == centre;
    }
  }
  const auto features = small_numbers(rows, channels), grad = small_numbers(out_rows, out_channels);
  const auto filters = small_numbers(offsets * channels, out_channels), bias = small_numbers(1, out_channels);
  const reference::Pairs pairs =
      params.subm && offsets > 0 ? reference::with_centre(given, static_cast<std::size_t>(rows)) : given;
  const ConstTensor pairs_view = view(entries.data(), {offsets, 2, columns}),
                    num_view = view(num.data(), {offsets});
  const ConstTensor x = view(features.values.data(), {rows, channels});
  const ConstTensor w = view(filters.values.data(), {offsets, channels, out_channels});
  const ConstTensor dy = view(grad.values.data(), {out_rows, out_channels});
  const ConstTensor b = view(bias.values.data(), {out_channels});
  for (Isa isa : supported_isas()) {
    Context context({.threads = threads, .isa = isa});
    const auto compare = [&](const reference::Rows<float>& expected, const auto& call) {
      std::vector<float> actual(expected.values.size(), 7);
      bool refused = false;
      try {
        call(actual.data());
      } catch (const Error&) {
        refused = true;
      }
      require(refused == (!legal && !actual.empty()));
      require(actual == (refused ? std::vector<float>(actual.size(), 7) : expected.values));
    };
    compare(reference::indice_convolution_forward(features, filters, bias.values.data(), pairs,
                                                  static_cast<std::size_t>(out_rows)),
            [&](float* to) {
              indice_convolution_forward(x, w, pairs_view, num_view, b, nullptr,
                                         view(to, {out_rows, out_channels}), params, context);
            });
    compare(reference::indice_convolution_backward_data(grad, filters, pairs, static_cast<std::size_t>(rows),
                                                        static_cast<std::size_t>(channels)),
            [&](float* to) {
              indice_convolution_backward_data(dy, w, pairs_view, num_view, nullptr,
                                               view(to, {rows, channels}), params, context);
            });
    // With a kept index that may have a wrong word, the call must throw or sum other pairs.
    std::vector<std::int64_t> index;
    bool is_made = true;
    try {
      const IndiceConvolutionIndex by_row(pairs_view, num_view, {rows, out_rows, params.inverse, params.subm},
                                          context);
      index.resize(static_cast<std::size_t>(by_row.size()));
      by_row.write(view(index.data(), {by_row.size()}));
    } catch (const Error&) {
      is_made = false;
    }
    require(is_made == legal);
    if (is_made) {
      const bool corrupt = in.one_in(4);
      if (corrupt)
        index[static_cast<std::size_t>(in.between(0, static_cast<std::int64_t>(index.size()) - 1))] ^=
            std::int64_t{1} << in.between(0, 63);
      const ConstTensor kept = view(index.data(), {static_cast<std::int64_t>(index.size())});
      std::vector<float> along(static_cast<std::size_t>(out_rows * out_channels), 7);
      try {
        indice_convolution_forward(x, w, pairs_view, num_view, b, kept,
                                   view(along.data(), {out_rows, out_channels}), params, context);
        const auto expected = reference::indice_convolution_forward(
            features, filters, bias.values.data(), pairs, static_cast<std::size_t>(out_rows));
        require(corrupt || along == expected.values);
      } catch (const Error&) {
        require(corrupt && along == std::vector<float>(along.size(), 7));
      }
    }
    compare(reference::indice_convolution_backward_filter(features, grad, pairs), [&](float* to) {
      indice_convolution_backward_filter(x, dy, pairs_view, num_view,
                                         view(to, {offsets, channels, out_channels}), params, context);
    });
  }
}

// Pooling along arbitrary pairs, of which one may be out of range.
template <class Index>
void run_pool(FuzzInput& in) {
  const std::int64_t offsets = in.between(1, 5), rows = in.between(1, 40), out_rows = in.between(1, 40);
  const std::int64_t columns = in.between(0, 30), channels = in.between(1, 35);
  FuzzedPairs<Index> made(in, offsets, columns, rows, out_rows, false);
  auto& [pairs, entries, num] = made;
  const auto k = static_cast<std::size_t>(in.between(0, offsets - 1));
  const bool legal = !in.one_in(6) || num[k] == 0;
  if (!legal) {
    const std::int64_t side = in.between(0, 1), j = in.between(0, static_cast<std::int64_t>(num[k]) - 1);
    entries[static_cast<std::size_t>((2 * static_cast<std::int64_t>(k) + side) * columns + j)] =
        in.flag() ? -1 : static_cast<std::int32_t>(side == 0 ? rows : out_rows);
  }
  const auto features = small_numbers(rows, channels), grad = small_numbers(out_rows, channels);
  const PoolInit init = in.flag() ? PoolInit::zero : PoolInit::lowest;
  const auto most = reference::indice_max_pool_forward(
      features, pairs, static_cast<std::size_t>(out_rows),
      init == PoolInit::zero ? 0.0f : std::numeric_limits<float>::lowest());
  const ConstTensor pairs_view = view(entries.data(), {offsets, 2, columns}),
                    num_view = view(num.data(), {offsets});
  const ConstTensor x = view(features.values.data(), {rows, channels}),
                    y = view(most.values.data(), {out_rows, channels}),
                    dy = view(grad.values.data(), {out_rows, channels});
  const int threads = static_cast<int>(in.between(1, 3));
  for (Isa isa : supported_isas()) {
    Context context({.threads = threads, .isa = isa});
    const auto compare = [&](const reference::Rows<float>& expected, const auto& call) {
      const auto height = static_cast<std::int64_t>(expected.count());
      std::vector<float> actual(expected.values.size(), 7);
      bool refused = false;
      try {
        call(view(actual.data(), {height, channels}));
      } catch (const Error&) {
        refused = true;
      }
      require(refused == !legal);
      require(actual == (refused ? std::vector<float>(actual.size(), 7) : expected.values));
    };
    compare(most,
            [&](const Tensor& to) { indice_max_pool_forward(x, pairs_view, num_view, to, init, context); });
    compare(reference::indice_max_pool_backward(features, most, grad, pairs),
            [&](const Tensor& to) { indice_max_pool_backward(x, y, dy, pairs_view, num_view, to, context); });
    compare(reference::indice_avg_pool_forward(features, pairs, static_cast<std::size_t>(out_rows)),
            [&](const Tensor& to) { indice_avg_pool_forward(x, pairs_view, num_view, to, context); });
    compare(reference::indice_avg_pool_backward(grad, pairs, static_cast<std::size_t>(rows)),
            [&](const Tensor& to) { indice_avg_pool_backward(dy, pairs_view, num_view, to, context); });
  }
}

// Pooling of whole batch elements. Features are small integers, so that all sums are exact.
template <class Index>
void run_global_pool(FuzzInput& in) {
  const std::int64_t rows = in.between(0, 40), channels = in.between(0, 20), batches = in.between(0, 5);
  const std::int64_t columns = in.between(1, 4);
  const int threads = static_cast<int>(in.between(1, 3));
  std::vector<Index> indices(static_cast<std::size_t>(rows * columns), 9);
  std::vector<std::int64_t> numbers;
  bool legal = true;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t number =
        in.one_in(50) ? in.between(-2, 7) : in.between(0, std::max<std::int64_t>(batches - 1, 0));
    legal &= number >= 0 && number < batches;
    numbers.push_back(number);
    indices[static_cast<std::size_t>(row * columns)] = static_cast<Index>(number);
  }
  reference::Rows<float> features(static_cast<std::size_t>(rows), static_cast<std::size_t>(channels));
  for (float& value : features.values) value = static_cast<float>(in.between(-3, 3));
  const ConstTensor x = view(features.values.data(), {rows, channels});
  const ConstTensor sites = view(indices.data(), {rows, columns});
  Context context({.threads = threads});
  const auto compare = [&](std::int64_t height, const auto& operate, const auto& define) {
    std::vector<float> out(static_cast<std::size_t>(height * channels), 7);
    const std::vector<float> untouched = out;
    try {
      operate(view(out.data(), {height, channels}));
      require(legal || out.empty());
      if (legal) require(out == define().values);
    } catch (const Error&) {
      require(!legal && out == untouched);
    }
  };
  const auto size = static_cast<std::size_t>(batches);
  const auto most =
      legal ? reference::global_max_pool_forward(features, numbers, size) : small_numbers(batches, channels);
  const auto grad = small_numbers(batches, channels);
  const ConstTensor y = view(most.values.data(), {batches, channels}),
                    dy = view(grad.values.data(), {batches, channels});
  compare(
      batches, [&](const Tensor& out) { global_max_pool_forward(x, sites, out, context); },
      [&] { return most; });
  compare(
      batches, [&](const Tensor& out) { global_avg_pool_forward(x, sites, out, context); },
      [&] { return reference::global_avg_pool_forward(features, numbers, size); });
  compare(
      rows, [&](const Tensor& out) { global_max_pool_backward(x, y, dy, sites, out, context); },
      [&] { return reference::global_max_pool_backward(features, most, grad, numbers); });
  compare(
      rows, [&](const Tensor& out) { global_avg_pool_backward(dy, sites, out, context); },
      [&] { return reference::global_avg_pool_backward(grad, numbers); });
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::test::FuzzInput in(data, size);
  using namespace turnout::test;
  const bool is_pairs = in.flag(), is_narrow = in.flag();
  if (is_pairs) {
    is_narrow ? run<std::int32_t>(in) : run<std::int64_t>(in);
  } else if (in.one_in(3)) {
    is_narrow ? run_pool<std::int32_t>(in) : run_pool<std::int64_t>(in);
  } else if (in.one_in(4)) {
    is_narrow ? run_global_pool<std::int32_t>(in) : run_global_pool<std::int64_t>(in);
  } else {
    is_narrow ? run_convolution<std::int32_t>(in) : run_convolution<std::int64_t>(in);
  }
  return 0;
}
