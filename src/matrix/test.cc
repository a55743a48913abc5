// Compares products and outer products bit for bit with a scalar loop of the same chains, on every
// instruction set, for many numbers of rows and columns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

#include "guarded.h"
#include "isas.h"
#include "matrix/matrix.h"
#include "simd/half.h"

namespace turnout::test {
namespace {

using core::matrix::Kernels;
using core::matrix::Write;

// One step of a chain. SSE4 has no fused multiply-add and rounds the product.
template <class Lane>
Lane step(Isa isa, Lane a, Lane b, Lane sum) {
  if (isa != Isa::sse4) return std::fma(a, b, sum);
  const volatile Lane product = a * b;
  return product + sum;
}

template <class T>
T value(std::mt19937& random) {
  const float v = static_cast<float>(random() % 2001) / 512.0f - 2.0f;
  if constexpr (sizeof(T) == 8) {
    return v / 3.0;
  } else {
    return core::from_float<T>(sizeof(T) == 4 ? v / 3.0f : v);
  }
}

template <class Lane>
bool same_bits(Lane a, Lane b) {
  return std::memcmp(&a, &b, sizeof(Lane)) == 0;
}

// A matrix, row-major or transposed, with gaps between rows.
template <class T>
struct Strided {
  std::int64_t depth, columns;
  bool transposed;
  Guarded<T> memory;
  Strided(std::int64_t d, std::int64_t c, bool t, std::mt19937& random)
      : depth(d), columns(c), transposed(t), memory((d + 1) * (c + 2), 1) {
    for (std::int64_t i = 0; i < memory.size(); ++i) memory[i] = value<T>(random);
  }
  core::matrix::Source source() {
    const std::int64_t row = transposed ? 1 : columns + 2, column = transposed ? depth + 1 : 1;
    return {memory.data(), dtype_of<T>, depth, columns, row, column};
  }
  auto at(std::int64_t d, std::int64_t c) {
    const auto s = source();
    return core::to_float(memory[d * s.depth_stride + c * s.column_stride]);
  }
};

template <class T>
void compare_products(Isa isa, std::int64_t rows, std::int64_t depth, std::int64_t columns, unsigned seed) {
  using Lane = core::matrix::LaneOf<T>;
  SCOPED_TRACE(testing::Message() << name_of(dtype_of<T>) << " isa " << static_cast<int>(isa) << " rows "
                                  << rows << " depth " << depth << " columns " << columns << " seed "
                                  << seed);
  std::mt19937 random(seed);
  const Kernels<Lane>& k = core::matrix::kernels<Lane>(isa);
  Strided<T> b(depth, columns, seed % 2 == 1, random);
  Guarded<Lane> packed(k.packed_size(depth, columns));
  k.pack(b.source(), packed.data());

  // Random rows of A and of the result; some are equal.
  const std::int64_t there = rows + 2;
  Guarded<T> a(there * depth, seed % 3);
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = value<T>(random);
  Guarded<Lane> wide(rows * (depth + 1)), to(there * columns, seed % 5);
  std::vector<const void*> narrow;
  std::vector<std::int64_t> from_row, to_row;
  std::vector<const Lane*> from;
  std::vector<Lane*> into;
  for (std::int64_t r = 0; r < rows; ++r) {
    from_row.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(there)));
    to_row.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(there)));
    narrow.push_back(a.data() + from_row.back() * depth);
    from.push_back(wide.data() + r * (depth + 1));
    into.push_back(to.data() + to_row.back() * columns);
  }
  k.widen(narrow.data(), dtype_of<T>, rows, depth, wide.data(), depth + 1);

  for (Write write : {Write::add, Write::store}) {
    std::vector<Lane> expected;
    for (std::int64_t i = 0; i < to.size(); ++i) expected.push_back(to[i] = value<Lane>(random));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        Lane sum = 0;
        for (std::int64_t d = 0; d < depth; ++d)
          sum = step<Lane>(isa, core::to_float(a[from_row[r] * depth + d]), b.at(d, c), sum);
        Lane& at = expected[static_cast<std::size_t>(to_row[r] * columns + c)];
        at = write == Write::add ? at + sum : sum;
      }
    }
    k.multiply(from.data(), into.data(), rows, packed.data(), depth, columns, write);
    for (std::int64_t i = 0; i < to.size(); ++i)
      ASSERT_TRUE(same_bits(to[i], expected[static_cast<std::size_t>(i)])) << i << " of row " << i / columns;
    if (write == Write::add || b.transposed || !std::is_same_v<T, Lane>) continue;
    for (Lane* row : into) std::fill_n(row, columns, Lane{7});
    k.multiply_in_place(from.data(), into.data(), rows, static_cast<const Lane*>(b.source().data),
                        b.source().depth_stride, depth, columns);
    for (std::int64_t i = 0; i < to.size(); ++i)
      ASSERT_TRUE(same_bits(to[i], expected[static_cast<std::size_t>(i)])) << i << " in place";
  }
}

template <class Lane>
void compare_outer(Isa isa, std::int64_t rows, std::int64_t depth, std::int64_t columns, unsigned seed) {
  SCOPED_TRACE(testing::Message() << sizeof(Lane) << " bytes, isa " << static_cast<int>(isa) << " rows "
                                  << rows << " depth " << depth << " columns " << columns << " seed "
                                  << seed);
  std::mt19937 random(seed);
  const Kernels<Lane>& k = core::matrix::kernels<Lane>(isa);
  const std::int64_t there = rows + 1, stride = k.padded(columns);
  Guarded<Lane> a(there * depth), b(there * columns, 1), to(depth * stride);
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = value<Lane>(random);
  for (std::int64_t i = 0; i < b.size(); ++i) b[i] = value<Lane>(random);
  std::vector<const Lane*> from, with;
  for (std::int64_t r = 0; r < rows; ++r) {
    from.push_back(a.data() + random() % static_cast<unsigned>(there) * depth);
    with.push_back(b.data() + random() % static_cast<unsigned>(there) * columns);
  }
  std::vector<Lane> expected;
  for (std::int64_t d = 0; d < depth; ++d) {
    for (std::int64_t c = 0; c < columns; ++c) {
      Lane sum = to[d * stride + c] = value<Lane>(random);
      for (std::int64_t r = 0; r < rows; ++r) sum = step(isa, from[r][d], with[r][c], sum);
      expected.push_back(sum);
    }
  }
  k.add_outer(from.data(), with.data(), rows, depth, columns, to.data(), stride);
  for (std::int64_t d = 0; d < depth; ++d)
    for (std::int64_t c = 0; c < columns; ++c)
      ASSERT_TRUE(same_bits(to[d * stride + c], expected[static_cast<std::size_t>(d * columns + c)]))
          << d << " " << c;
}

TEST(Matrix, PaddingColumnsOfAPackedMatrixAreZero) {
  constexpr std::int64_t kDepth = 3, kColumns = 21;
  std::mt19937 random(0);
  for (Isa isa : supported_isas()) {
    for (const bool transposed : {false, true}) {
      const Kernels<float>& k = core::matrix::kernels<float>(isa);
      Strided<float> b(kDepth, kColumns, transposed, random);
      for (std::int64_t i = 0; i < b.memory.size(); ++i) b.memory[i] = 1;
      Guarded<float> packed(k.packed_size(kDepth, kColumns));
      for (std::int64_t i = 0; i < packed.size(); ++i) packed[i] = 7;
      k.pack(b.source(), packed.data());
      EXPECT_EQ(std::count(packed.data(), packed.data() + packed.size(), 1.0f), kDepth * kColumns);
      EXPECT_EQ(std::count(packed.data(), packed.data() + packed.size(), 0.0f),
                packed.size() - kDepth * kColumns);
    }
  }
}

// Numbers of rows and columns near the sizes of a tile, a vector and a batch.
TEST(Matrix, ProductsAreOneChainAtAnyRow) {
  unsigned seed = 0;
  for (Isa isa : supported_isas()) {
    for (std::int64_t rows : {0, 1, 2, 3, 5, 6, 7, 8, 9, 13, 16, 17, 31, 256, 259})
      for (std::int64_t columns : {1, 3, 4, 8, 9, 16, 17, 31, 32, 33, 48, 65}) {
        compare_products<float>(isa, rows, rows > 200 ? 3 : 11, columns, ++seed);
        if (rows < 20) compare_products<double>(isa, rows, 5, columns, ++seed);
      }
    for (std::int64_t depth : {0, 1, 2, 7, 16, 33, 130, 515})
      for (std::int64_t columns : {1, 16, 40}) {
        compare_products<float>(isa, 9, depth, columns, ++seed);
        compare_products<double>(isa, 9, depth, columns, ++seed);
        compare_products<f16>(isa, 9, depth, columns, ++seed);
        compare_products<bf16>(isa, 9, depth, columns, ++seed);
      }
  }
}

TEST(Matrix, OuterProductsAreOneChainOverAllRows) {
  unsigned seed = 0;
  for (Isa isa : supported_isas()) {
    for (std::int64_t rows : {0, 1, 15, 16, 17, 128, 129, 300})
      for (std::int64_t columns : {1, 3, 8, 16, 17, 33, 48}) {
        compare_outer<float>(isa, rows, 9, columns, ++seed);
        compare_outer<double>(isa, rows, 7, columns, ++seed);
      }
    for (std::int64_t depth : {0, 1, 6, 8, 15, 31, 32, 65, 300})
      for (std::int64_t columns : {1, 20, 33, 70}) {
        compare_outer<float>(isa, 140, depth, columns, ++seed);
        compare_outer<double>(isa, 40, depth, columns, ++seed);
      }
  }
}

template <class T>
void compare_rounding(Isa isa) {
  using Lane = core::matrix::LaneOf<T>;
  const Kernels<Lane>& k = core::matrix::kernels<Lane>(isa);
  std::mt19937 random(5);
  for (std::int64_t columns = 0; columns < 70; ++columns) {
    Guarded<Lane> from(columns), bias(columns, 1);
    for (std::int64_t c = 0; c < columns; ++c) {
      from[c] = value<Lane>(random);
      bias[c] = value<Lane>(random);
    }
    for (bool with_bias : {false, true}) {
      Guarded<T> to(columns, 1);
      k.round(from.data(), with_bias ? bias.data() : nullptr, columns, to.data(), dtype_of<T>);
      for (std::int64_t c = 0; c < columns; ++c) {
        const Lane sum = with_bias ? from[c] + bias[c] : from[c];
        if constexpr (sizeof(T) == 8) {
          ASSERT_TRUE(same_bits(to[c], sum));
        } else {
          ASSERT_TRUE(same_bits(to[c], core::from_float<T>(sum)));
        }
      }
    }
  }
}

TEST(Matrix, OneRoundingAtTheEnd) {
  for (Isa isa : supported_isas()) {
    compare_rounding<float>(isa);
    compare_rounding<double>(isa);
    compare_rounding<f16>(isa);
    compare_rounding<bf16>(isa);
  }
}

}  // namespace
}  // namespace turnout::test
