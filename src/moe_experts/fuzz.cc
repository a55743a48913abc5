// Differential fuzzer: any shape, routing, layout and activation. Compares every instruction set with the
// definition in double, and the bits of two threads with those of one.
#include "fuzz.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "isas.h"
#include "moe_experts/reference.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

std::vector<float> values(FuzzInput& in, std::int64_t count) {
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& v : made) v = static_cast<float>(in.between(-100, 100)) / 64;
  return made;
}

// The gradient of the activation of these products.
void run_activation(const std::vector<float>& products, const std::vector<float>& weights, std::int64_t inner,
                    const MoeExpertsParams& form, FuzzInput& in, Context& context) {
  const auto rows = static_cast<std::int64_t>(weights.size());
  const auto both = rows == 0 ? 0 : static_cast<std::int64_t>(products.size()) / rows;
  const auto inner_grad = values(in, rows * inner);
  const auto expected = reference::expert_activation_backward({products.begin(), products.end()},
                                                              {inner_grad.begin(), inner_grad.end()},
                                                              {weights.begin(), weights.end()}, inner, form);
  std::vector<float> grad(products.size()), weighted(inner_grad.size()), of_weights(weights.size());
  expert_activation_backward(view(products.data(), {rows, both}), view(inner_grad.data(), {rows, inner}),
                             view(weights.data(), {rows}), view(grad.data(), {rows, both}),
                             view(weighted.data(), {rows, inner}), view(of_weights.data(), {rows}),
                             {form.activation, form.gated, form.interleaved, form.alpha, form.limit},
                             context);
  const auto is_near = [](const std::vector<float>& found, const std::vector<double>& right) {
    double largest = 1;
    for (double v : right) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < right.size(); ++i) require(std::abs(found[i] - right[i]) <= 1e-4 * largest);
  };
  is_near(grad, expected.products);
  is_near(weighted, expected.inner);
  is_near(of_weights, expected.weights);
}

void run_block(FuzzInput& in) {
  const reference::ExpertBlock b{in.between(0, 20), in.between(0, 4), in.between(0, 5), in.between(1, 40),
                                 in.between(0, 20)};
  MoeExpertsParams params;
  params.activation = static_cast<ExpertActivation>(in.between(0, 4));
  params.gated = params.activation == ExpertActivation::swigluoai || in.flag();
  params.interleaved = params.gated && in.flag();
  if (in.flag()) params.limit = 2;
  const std::int64_t up = params.gated ? 2 * b.inner : b.inner;
  const auto x = values(in, b.tokens * b.hidden), gates = values(in, b.tokens * b.choices);
  const auto w13 = values(in, b.experts * up * b.hidden), w2 = values(in, b.experts * b.hidden * b.inner);
  std::vector<std::int64_t> ids;
  for (std::int64_t q = 0; q < b.tokens * b.choices; ++q) ids.push_back(in.between(-2, b.experts + 1));
  const std::vector<double> tokens(x.begin(), x.end()), weights(gates.begin(), gates.end());
  const auto expected = reference::moe_experts(
      b, tokens, ids, weights,
      [&](std::int64_t e, std::int64_t r, std::int64_t h) {
        return double{w13[static_cast<std::size_t>((e * up + r) * b.hidden + h)]};
      },
      [&](std::int64_t e, std::int64_t h, std::int64_t i) {
        return double{w2[static_cast<std::size_t>((e * b.hidden + h) * b.inner + i)]};
      },
      [](std::int64_t, std::int64_t) { return 0.0; }, [](std::int64_t, std::int64_t) { return 0.0; }, params);
  for (Isa isa : supported_isas()) {
    std::vector<float> out[2];
    for (int threads : {1, 2}) {
      Context context({.threads = threads, .isa = isa});
      auto& y = out[threads - 1];
      y.assign(x.size(), -1.f);
      moe_experts(view(x.data(), {b.tokens, b.hidden}), view(ids.data(), {b.tokens, b.choices}),
                  view(gates.data(), {b.tokens, b.choices}), view(w13.data(), {b.experts, up, b.hidden}),
                  view(w2.data(), {b.experts, b.hidden, b.inner}), nullptr, nullptr,
                  view(y.data(), {b.tokens, b.hidden}), params, context);
    }
    require(out[0].empty() || std::memcmp(out[0].data(), out[1].data(), out[0].size() * sizeof(float)) == 0);
    double largest = 1;
    for (double v : expected) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < expected.size(); ++i)
      require(std::abs(out[0][i] - expected[i]) <= 1e-4 * largest);
    // The same block with its products.
    std::vector<float> y(x.size(), -1.f), products(static_cast<std::size_t>(b.tokens * b.choices * up), -1.f);
    Context context({.threads = 2, .isa = isa});
    moe_experts_forward(view(x.data(), {b.tokens, b.hidden}), view(ids.data(), {b.tokens, b.choices}),
                        view(gates.data(), {b.tokens, b.choices}),
                        view(w13.data(), {b.experts, up, b.hidden}),
                        view(w2.data(), {b.experts, b.hidden, b.inner}), nullptr, nullptr,
                        view(y.data(), {b.tokens, b.hidden}),
                        view(products.data(), {b.tokens * b.choices, up}), params, context);
    require(y.empty() || std::memcmp(y.data(), out[0].data(), y.size() * sizeof(float)) == 0);
    run_activation(products, gates, b.inner, params, in, context);
  }
}

// The block with 8-bit or 4-bit weights, compared with the definition for the decoded elements.
void run_quantized(FuzzInput& in) {
  const bool packed = in.flag();
  const std::int64_t unit = packed ? 32 : 1, most = packed ? 2 : 40;
  const reference::ExpertBlock b{in.between(0, 9), in.between(0, 3), in.between(0, 3),
                                 unit * in.between(1, most), unit * in.between(0, most)};
  MoeExpertsParams params;
  params.gated = in.flag();
  params.interleaved = params.gated && in.flag();
  const std::int64_t up = params.gated ? 2 * b.inner : b.inner;
  struct Weight {
    std::vector<std::uint8_t> bytes;
    std::vector<float> scale;
    std::int64_t rows, width, scales;
    double at(bool four_bits, std::int64_t row, std::int64_t k) const {
      const std::int64_t j = four_bits ? k / 32 * 16 + k % 16 : k;
      const int byte = bytes[static_cast<std::size_t>(row * width + j)];
      const int q = !four_bits    ? static_cast<std::int8_t>(byte)
                    : k % 32 < 16 ? (byte & 15) - 8
                                  : (byte >> 4) - 8;
      return q * double{scale[static_cast<std::size_t>(row * scales + (four_bits ? k / 32 : 0))]};
    }
  };
  const auto weight = [&](std::int64_t rows, std::int64_t depth) {
    Weight w{{}, {}, rows, packed ? depth / 2 : depth, packed ? depth / 32 : 1};
    for (std::int64_t i = 0; i < b.experts * rows * w.width; ++i)
      w.bytes.push_back(static_cast<std::uint8_t>(in.between(0, 255)));
    for (std::int64_t i = 0; i < b.experts * rows * w.scales; ++i)
      w.scale.push_back(static_cast<float>(in.between(-16, 16)) / (packed ? 64.f : 1024.f));
    return w;
  };
  const auto x = values(in, b.tokens * b.hidden), gates = values(in, b.tokens * b.choices);
  const Weight w13 = weight(up, b.hidden), w2 = weight(b.hidden, b.inner);
  std::vector<std::int32_t> ids;
  for (std::int64_t q = 0; q < b.tokens * b.choices; ++q)
    ids.push_back(static_cast<std::int32_t>(in.between(-1, b.experts)));
  const auto expected = reference::moe_experts(
      b, std::vector<double>(x.begin(), x.end()), std::vector<std::int64_t>(ids.begin(), ids.end()),
      std::vector<double>(gates.begin(), gates.end()),
      [&](std::int64_t e, std::int64_t r, std::int64_t h) { return w13.at(packed, e * up + r, h); },
      [&](std::int64_t e, std::int64_t h, std::int64_t i) { return w2.at(packed, e * b.hidden + h, i); },
      [](std::int64_t, std::int64_t) { return 0.0; }, [](std::int64_t, std::int64_t) { return 0.0; }, params);
  const auto bytes_of = [&](const Weight& w) {
    ConstTensor t = view(w.bytes.data(), {b.experts, w.rows, w.width});
    if (!packed) t.dtype = DType::i8;
    return t;
  };
  const auto scale_of = [&](const Weight& w) { return view(w.scale.data(), {b.experts, w.rows, w.scales}); };
  for (Isa isa : supported_isas()) {
    std::vector<float> out[2];
    for (int threads : {1, 2}) {
      Context context({.threads = threads, .isa = isa});
      auto& y = out[threads - 1];
      y.assign(x.size(), -1.f);
      moe_experts_quantized(
          view(x.data(), {b.tokens, b.hidden}), view(ids.data(), {b.tokens, b.choices}),
          view(gates.data(), {b.tokens, b.choices}), bytes_of(w13), scale_of(w13), bytes_of(w2), scale_of(w2),
          nullptr, nullptr, view(y.data(), {b.tokens, b.hidden}),
          {params.activation, params.gated, params.interleaved, params.alpha, params.limit}, context);
    }
    require(out[0] == out[1]);
    double largest = 1;
    for (double v : expected) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < expected.size(); ++i)
      require(std::abs(out[0][i] - expected[i]) <= 1e-4 * largest);
  }
}

// Any offs: either they are rejected, or every row is right.
void run_groups(FuzzInput& in) {
  const std::int64_t rows = in.between(0, 30), depth = in.between(0, 30), columns = in.between(1, 30);
  std::vector<std::int32_t> offs;
  bool valid = true;
  std::int32_t before = 0;
  for (std::int64_t g = in.between(0, 4); g > 0; --g) {
    const auto next = static_cast<std::int32_t>(in.between(-1, rows + 1));
    valid &= next >= before && next <= rows;
    before = next;
    offs.push_back(next);
  }
  const auto groups = static_cast<std::int64_t>(offs.size());
  const auto x = values(in, rows * depth), w = values(in, groups * depth * columns);
  std::vector<float> out(static_cast<std::size_t>(rows * columns), -1.f);
  try {
    grouped_mm(view(x.data(), {rows, depth}), view(w.data(), {groups, depth, columns}),
               view(offs.data(), {groups}), nullptr, view(out.data(), {rows, columns}));
    require(valid || rows * columns == 0);
    if (!valid) return;
  } catch (const Error&) {
    require(!valid);
    return;
  }
  const std::vector<double> input(x.begin(), x.end());
  const auto expected = reference::grouped_mm(
      input, rows, std::vector<std::int64_t>(offs.begin(), offs.end()), depth, columns,
      [&](std::int64_t g, std::int64_t d, std::int64_t c) {
        return double{w[static_cast<std::size_t>((g * depth + d) * columns + c)]};
      },
      [](std::int64_t, std::int64_t) { return 0.0; });
  for (std::size_t i = 0; i < expected.size(); ++i) require(std::abs(out[i] - expected[i]) <= 1e-3);
}

// The gradients of weight and bias for valid groups.
void run_weight_gradient(FuzzInput& in) {
  const std::int64_t rows = in.between(0, 30), depth = in.between(0, 30), columns = in.between(0, 30);
  const std::int64_t groups = in.between(0, 4);
  std::vector<std::int32_t> offs;
  std::int64_t before = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    before = in.between(before, rows);
    offs.push_back(static_cast<std::int32_t>(before));
  }
  const auto x = values(in, rows * depth), grad = values(in, rows * columns);
  const auto sums = reference::grouped_mm_backward_weight(
      std::vector<double>(x.begin(), x.end()), std::vector<double>(grad.begin(), grad.end()),
      std::vector<std::int64_t>(offs.begin(), offs.end()), depth, columns);
  const auto of_bias = sums.begin() + groups * depth * columns;
  const std::vector<double> expected(sums.begin(), of_bias), expected_bias(of_bias, sums.end());
  const bool has_bias = in.flag();
  for (Isa isa : supported_isas()) {
    std::vector<float> weights[2], bias(expected_bias.size());
    for (int threads : {1, 2}) {
      Context context({.threads = threads, .isa = isa});
      auto& made = weights[threads - 1];
      made.assign(expected.size(), -1.f);
      bias.assign(expected_bias.size(), -1.f);
      const Tensor bias_grad = view(bias.data(), {groups, columns});
      grouped_mm_backward_weight(view(x.data(), {rows, depth}), view(grad.data(), {rows, columns}),
                                 view(offs.data(), {groups}), view(made.data(), {groups, depth, columns}),
                                 has_bias ? bias_grad : nullptr, context);
    }
    require(weights[0] == weights[1]);
    for (std::size_t i = 0; i < expected.size(); ++i) require(std::abs(weights[0][i] - expected[i]) <= 1e-3);
    for (std::size_t i = 0; has_bias && i < expected_bias.size(); ++i)
      require(std::abs(bias[i] - expected_bias[i]) <= 1e-3);
  }
}

}  // namespace
}  // namespace turnout::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::test::FuzzInput in(data, size);
  switch (in.between(0, 3)) {
    case 0:
      turnout::test::run_block(in);
      break;
    case 1:
      turnout::test::run_groups(in);
      break;
    case 2:
      turnout::test::run_quantized(in);
      break;
    default:
      turnout::test::run_weight_gradient(in);
  }
  return 0;
}
