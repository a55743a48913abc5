// Compares the products of bf16 rows bit for bit with a scalar loop of the same chains, for many numbers of
// rows, columns and elements. Runs where the CPU has AVX512_BF16.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "guarded.h"
#include "isas.h"
#include "matrix/bf16.h"
#include "simd/half.h"

namespace turnout::test {
namespace {

using core::to_float;
using core::matrix::Bf16Kernels;
using core::matrix::kBf16Lanes;
using core::matrix::kBf16Slice;
using core::matrix::Source;
using core::matrix::Write;

bf16 any_value(std::mt19937& random) {
  return core::from_float<bf16>(static_cast<float>(random() % 4001) / 512.0f - 4.0f);
}
bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// One step of vdpbf16ps.
float add_pair(float sum, float a0, float b0, float a1, float b1) {
  return std::fma(a0, b0, std::fma(a1, b1, sum));
}

enum class Layout { depth_contiguous, columns_contiguous, neither };

struct Product {
  std::int64_t rows, depth, columns;
  Layout layout;
  Guarded<bf16> a, b;
  Source weights{};

  Product(std::int64_t r, std::int64_t d, std::int64_t c, Layout l, unsigned seed)
      : rows(r), depth(d), columns(c), layout(l), a(r * d, 1), b(2 * (d + 1) * (c + 1), 1) {
    std::mt19937 random(seed);
    for (std::int64_t i = 0; i < a.size(); ++i) a[i] = any_value(random);
    for (std::int64_t i = 0; i < b.size(); ++i) b[i] = any_value(random);
    const std::int64_t of_depth = layout == Layout::depth_contiguous     ? 1
                                  : layout == Layout::columns_contiguous ? columns + 1
                                                                         : 2 * columns + 1;
    const std::int64_t of_columns = layout == Layout::depth_contiguous ? depth + 1
                                    : layout == Layout::neither        ? 2
                                                                       : 1;
    weights = {b.data(), DType::bf16, depth, columns, of_depth, of_columns};
  }
  float left(std::int64_t r, std::int64_t k) { return k < depth ? to_float(a[r * depth + k]) : 0.0f; }
  float right(std::int64_t k, std::int64_t c) {
    return k < depth ? to_float(b[k * weights.depth_stride + c * weights.column_stride]) : 0.0f;
  }

  // One chain per slice of kBf16Slice elements.
  float chained(std::int64_t r, std::int64_t c, float old, Write write) {
    float total = old;
    for (std::int64_t begin = 0; begin == 0 || begin < depth; begin += kBf16Slice) {
      float sum = 0;
      for (std::int64_t k = begin; k < std::min(begin + kBf16Slice, depth); k += 2)
        sum = add_pair(sum, left(r, k), right(k, c), left(r, k + 1), right(k + 1, c));
      total = begin == 0 && write == Write::store ? sum : total + sum;
    }
    return total;
  }
  // 16 lanes of pairs per slice of 2048 elements, then their sum.
  float in_lanes(std::int64_t r, std::int64_t c, float old, Write write) {
    constexpr std::int64_t kSlice = 2048;
    float total = old;
    for (std::int64_t begin = 0; begin == 0 || begin < depth; begin += kSlice) {
      float lane[16] = {};
      for (std::int64_t k = begin; k < std::min(begin + kSlice, depth); k += 32)
        for (std::int64_t i = 0; i < 16; ++i)
          lane[i] = add_pair(lane[i], left(r, k + 2 * i), right(k + 2 * i, c), left(r, k + 2 * i + 1),
                             right(k + 2 * i + 1, c));
      float quarter[4];  // of four consecutive lanes
      for (int q = 0; q < 4; ++q)
        quarter[q] = (lane[4 * q] + lane[4 * q + 2]) + (lane[4 * q + 1] + lane[4 * q + 3]);
      const float sum = (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
      total = begin == 0 && write == Write::store ? sum : total + sum;
    }
    return total;
  }
};

void compare_products(const Bf16Kernels& k, Product& p) {
  SCOPED_TRACE(testing::Message() << "rows " << p.rows << " depth " << p.depth << " columns " << p.columns
                                  << " layout " << static_cast<int>(p.layout));
  Guarded<bf16> packed(k.packed_size(p.depth, p.columns));
  k.pack(p.weights, packed.data());
  std::vector<const void*> from;
  for (std::int64_t r = 0; r < p.rows; ++r) from.push_back(p.a.data() + r * p.depth);
  for (const bool is_packed : {false, true})
    for (const Write write : {Write::store, Write::add}) {
      Guarded<float> to(p.rows * p.columns, 1);
      std::vector<float*> into;
      for (std::int64_t r = 0; r < p.rows; ++r) into.push_back(to.data() + r * p.columns);
      for (std::int64_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(i % 7);
      if (is_packed) {
        k.multiply_packed(from.data(), into.data(), p.rows, packed.data(), p.depth, p.columns, write);
      } else {
        k.multiply(from.data(), into.data(), p.rows, p.weights, write);
      }
      const bool lanes = !is_packed && p.layout == Layout::depth_contiguous && p.depth >= kBf16Lanes;
      for (std::int64_t i = 0; i < to.size(); ++i) {
        const std::int64_t r = i / p.columns, c = i % p.columns;
        const auto old = static_cast<float>(i % 7);
        const float expected = lanes ? p.in_lanes(r, c, old, write) : p.chained(r, c, old, write);
        ASSERT_TRUE(same_bits(to[i], expected)) << "row " << r << " column " << c << ": " << to[i]
                                                << ", expected " << expected << (is_packed ? ", packed" : "");
      }
    }
}

const Bf16Kernels* kernels_here() {
  for (const Isa isa : supported_isas())
    if (const Bf16Kernels* kernels = core::matrix::bf16_kernels(isa)) return kernels;
  return nullptr;
}

TEST(MatrixBf16, ProductsAreTheSameChainsForAnyNumberOfRows) {
  const Bf16Kernels* k = kernels_here();
  if (k == nullptr) GTEST_SKIP() << "this CPU or this build has no AVX512_BF16";
  unsigned seed = 0;
  for (const Layout layout : {Layout::depth_contiguous, Layout::columns_contiguous, Layout::neither}) {
    for (std::int64_t rows : {0, 1, 2, 3, 4, 6, 7, 8, 9, 13, 17})
      for (std::int64_t columns : {1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64, 129, 161}) {
        Product p(rows, 11, columns, layout, ++seed);
        compare_products(*k, p);
      }
    for (std::int64_t depth : {0, 1, 2, 3, 31, 32, 33, 127, 128, 255, 256, 257, 600, 2048, 2051})
      for (std::int64_t rows : {2, 9}) {
        Product p(rows, depth, 37, layout, ++seed);
        compare_products(*k, p);
      }
  }
}

TEST(MatrixBf16, OuterProductsAreOneChainOverAllRows) {
  const Bf16Kernels* k = kernels_here();
  if (k == nullptr) GTEST_SKIP() << "this CPU or this build has no AVX512_BF16";
  std::mt19937 random(3);
  for (std::int64_t rows : {0, 1, 2, 3, 127, 128, 129, 300})
    for (std::int64_t depth : {1, 7, 8, 9, 64, 65, 70})
      for (std::int64_t columns : {1, 15, 16, 17, 32, 33, 70}) {
        const std::int64_t stride = columns + 3;
        Guarded<bf16> a(rows * depth, 1), b(rows * columns, 1);
        Guarded<float> to(depth * stride, 1);
        for (std::int64_t i = 0; i < a.size(); ++i) a[i] = any_value(random);
        for (std::int64_t i = 0; i < b.size(); ++i) b[i] = any_value(random);
        for (std::int64_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(i % 5);
        std::vector<const void*> from, with;
        for (std::int64_t r = 0; r < rows; ++r) {
          from.push_back(a.data() + r * depth);
          with.push_back(b.data() + r * columns);
        }
        k->add_outer(from.data(), with.data(), rows, depth, columns, to.data(), stride);
        for (std::int64_t i = 0; i < to.size(); ++i) {
          const std::int64_t d = i / stride, c = i % stride;
          auto expected = static_cast<float>(i % 5);
          for (std::int64_t r = 0; c < columns && r < rows; r += 2) {
            const bool both = r + 1 < rows;
            expected = add_pair(expected, to_float(a[r * depth + d]), to_float(b[r * columns + c]),
                                both ? to_float(a[(r + 1) * depth + d]) : 0.0f,
                                both ? to_float(b[(r + 1) * columns + c]) : 0.0f);
          }
          ASSERT_TRUE(same_bits(to[i], expected))
              << rows << " " << depth << " " << columns << ": " << d << " " << c;
        }
      }
}

TEST(MatrixBf16, TwoPartsKeepSixteenBits) {
  const Bf16Kernels* k = kernels_here();
  if (k == nullptr) GTEST_SKIP() << "this CPU or this build has no AVX512_BF16";
  std::mt19937 random(9);
  for (std::int64_t count : {0, 1, 15, 16, 17, 100}) {
    Guarded<float> from(count, 1);
    Guarded<bf16> high(count, 1), low(count, 1), alone(count, 1);
    for (std::int64_t i = 0; i < count; ++i)
      from[i] = std::ldexp(static_cast<float>(random() % 100001) - 5e4f, -9);
    k->split(from.data(), count, high.data(), low.data());
    k->split(from.data(), count, alone.data(), nullptr);
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(high[i].bits, core::from_float<bf16>(from[i]).bits);
      EXPECT_EQ(low[i].bits, core::from_float<bf16>(from[i] - to_float(high[i])).bits);
      EXPECT_EQ(alone[i].bits, high[i].bits);
      EXPECT_LE(std::abs(double{from[i]} - to_float(high[i]) - to_float(low[i])), std::abs(from[i]) / 65536);
    }
  }
}

}  // namespace
}  // namespace turnout::test
