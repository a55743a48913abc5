// Compares the quantized expert block with its definition in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "isas.h"
#include "last_log_line.h"
#include "moe_experts/experts_case.h"

namespace turnout::test {
namespace {

// Weights are quantized, and the definition uses the same values, element for element.
struct Quantized {
  Experts<float, float> c;
  bool packed;
  std::int64_t more_scales13 = 0, more_scales2 = 0;  // only in the shapes, not in memory: such calls fail
  std::vector<std::int8_t> bytes13, bytes2;
  std::vector<float> scale13, scale2;

  Quantized(const ExpertBlock& block, const MoeExpertsParams& params, bool four_bits)
      : c(block, params, false, true), packed(four_bits) {
    std::mt19937 random(5);
    fill(random, c.w13, block.hidden, bytes13, scale13);
    fill(random, c.w2, block.inner, bytes2, scale2);
  }
  void fill(std::mt19937& random, std::vector<float>& weights, std::int64_t depth,
            std::vector<std::int8_t>& bytes, std::vector<float>& scale) const {
    const std::int64_t rows = depth == 0 ? 0 : static_cast<std::int64_t>(weights.size()) / depth;
    const std::int64_t each = packed ? 32 : std::max<std::int64_t>(depth, 1);
    bytes.assign(weights.size() / (packed ? 2 : 1), 0);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t k = 0; k < depth; ++k) {
        if (k % each == 0)
          scale.push_back(static_cast<float>(random() % 64 + 1) / (packed ? 1024.f : 16384.f));
        const int q = static_cast<int>(random() % (packed ? 16 : 256));
        weights[static_cast<std::size_t>(row * depth + k)] =
            static_cast<float>(packed ? q - 8 : q - 128) * scale.back();
        const std::int64_t j = packed ? k / 32 * 16 + k % 16 : k;
        auto& byte = bytes[static_cast<std::size_t>(row * (packed ? depth / 2 : depth) + j)];
        byte = static_cast<std::int8_t>(packed ? byte | q << (k % 32 < 16 ? 0 : 4) : q - 128);
      }
  }
  ConstTensor weight(const std::vector<std::int8_t>& bytes, std::int64_t rows, std::int64_t depth) const {
    ConstTensor w = view(bytes.data(), {c.block.experts, rows, packed ? depth / 2 : depth});
    if (packed) w.dtype = DType::u8;
    return w;
  }
  void run(Context& context) {
    const ExpertBlock& b = c.block;
    const ConstTensor first = view(c.b13.data(), {b.experts, c.up_rows()}),
                      second = view(c.b2.data(), {b.experts, b.hidden});
    moe_experts_quantized(
        view(c.tokens.data(), {b.tokens, b.hidden}), view(c.ids.data(), {b.tokens, b.choices}),
        view(c.weights.data(), {b.tokens, b.choices}), weight(bytes13, c.up_rows(), b.hidden),
        view(scale13.data(), {b.experts, c.up_rows(), (packed ? b.hidden / 32 : 1) + more_scales13}),
        weight(bytes2, b.hidden, b.inner),
        view(scale2.data(), {b.experts, b.hidden, (packed ? b.inner / 32 : 1) + more_scales2}), first, second,
        view(c.out.data(), {b.tokens, b.hidden}), quantized(c.params), context);
  }
};

TEST(MoeExpertsQuantized, EqualsTheDefinition) {
  for (const bool packed : {false, true})
    for (const bool interleaved : {false, true})
      for (const ExpertBlock& block :
           {ExpertBlock{1, 2, 3, 64, 32}, ExpertBlock{13, 2, 4, 96, 64}, ExpertBlock{300, 1, 2, 1088, 32},
            ExpertBlock{5, 3, 2, packed ? 32 : 37, packed ? 1056 : 1050}}) {
        MoeExpertsParams params;
        params.interleaved = interleaved;
        Quantized q(block, params, packed);
        const auto expected = q.c.expected();
        for (Isa isa : supported_isas()) {
          Context one({.threads = 1, .isa = isa}), three({.threads = 3, .isa = isa});
          q.run(one);
          EXPECT_LT(error_of(q.c.out, expected), 2e-6) << packed << " " << block.tokens;
          const auto first = q.c.out;
          q.run(three);
          EXPECT_TRUE(same_bits(first, q.c.out));
        }
      }
}

// Checked by hand: a row of 32 4-bit elements; element 0 is 1 (bits 9), element 16 is -8 (bits 0), others 0.
TEST(MoeExpertsQuantized, ByHand) {
  std::vector<float> x(32, 0.f);
  x[0] = 2;
  x[16] = 3;
  const std::vector<std::int64_t> ids = {0};
  const std::vector<float> one = {1}, scale13(32, 0.5f), scale2(32, 1.f);
  std::vector<std::uint8_t> w13(32 * 16, 0x88), w2(32 * 16, 0x88);
  w13[0] = 0x09;      // the first row: 0.5 (1 * 2 - 8 * 3) = -11
  w13[16] = 0x89;     // the second: 0.5 * 1 * 2 = 1
  w2[0] = 0x89;       // out[0] = h[0]
  w2[16] = 0x8a;      // out[1] = 2 h[0]
  w2[32] = 0x98;      // out[2] = h[16] = 0
  w2[48 + 1] = 0x8b;  // out[3] = 3 h[1]
  std::vector<float> out(32, 7.f);
  const LastLogLine line;
  moe_experts_quantized(view(x.data(), {1, 32}), view(ids.data(), {1, 1}), view(one.data(), {1, 1}),
                        view(w13.data(), {1, 32, 16}), view(scale13.data(), {1, 32, 1}),
                        view(w2.data(), {1, 32, 16}), view(scale2.data(), {1, 32, 1}), nullptr, nullptr,
                        view(out.data(), {1, 32}), {.activation = ExpertActivation::relu, .gated = false});
  EXPECT_TRUE(line.has("4-bit weights in place")) << line.text();
  EXPECT_EQ(out[0], 0);  // relu(-11)
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[2], 0);
  EXPECT_EQ(out[3], 3);
}

TEST(MoeExpertsQuantized, Refusals) {
  const auto message = [](bool packed, const ExpertBlock& block, const auto& change) -> std::string {
    Quantized q(block, {}, packed);
    change(q);
    try {
      Context context;
      q.run(context);
      return "";
    } catch (const Error& error) {
      EXPECT_TRUE(std::all_of(q.c.out.begin(), q.c.out.end(), [](float v) { return v == 7; }));
      return error.what();
    }
  };
  const auto nothing = [](Quantized&) {};
  EXPECT_EQ(message(true, {2, 1, 2, 32, 32}, nothing), "");
  EXPECT_EQ(
      message(true, {2, 1, 2, 64, 32}, [](Quantized& q) { q.c.block.hidden = 48; }),
      "moe_experts_quantized: hidden_states.shape[1] is 48, expected a multiple of 32 with 4-bit weights");
  EXPECT_EQ(message(true, {2, 1, 2, 64, 32}, [](Quantized& q) { q.c.block.inner = 16; }),
            "moe_experts_quantized: 2 * w2.shape[2] is 16, expected a multiple of 32 with 4-bit weights");
  EXPECT_EQ(message(false, {2, 1, 2, 64, 32}, [](Quantized& q) { q.c.params.limit = 0; }),
            "moe_experts_quantized: limit is 0, expected a number above 0");
  EXPECT_EQ(message(true, {2, 1, 2, 64, 32}, [](Quantized& q) { q.more_scales13 = 1; }),
            "moe_experts_quantized: w13_scale.shape[2] is 3, expected 2, one per 32 elements");
  EXPECT_EQ(message(false, {2, 1, 2, 64, 32}, [](Quantized& q) { q.more_scales2 = 1; }),
            "moe_experts_quantized: w2_scale.shape[2] is 2, expected 1, one per row");
}

}  // namespace
}  // namespace turnout::test
