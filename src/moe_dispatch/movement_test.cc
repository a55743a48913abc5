// Compares gradients, combine and [samples, choices] dispatch with their definitions: shapes x dtypes x ISAs
// x threads x routing patterns. Results are bit-identical; dot products are within their error bound.
#include <gtest/gtest.h>

#include "isas.h"
#include "moe_dispatch/reference.h"
#include "moe_dispatch/routing_cases.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

template <class T>
std::int64_t differing(Guarded<T>& a, Guarded<T>& b) {
  std::int64_t count = 0;
  for (std::int64_t x = 0; x < a.size(); ++x) count += !same(a[x], b[x]);
  return count;
}

// Numbers near 1, so that dot products are finite and their error has a bound.
template <class T>
void fill_finite(Guarded<T>& values, std::mt19937& random) {
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const float v = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 512.0f;
    if constexpr (std::is_same_v<T, double>) {
      values[i] = static_cast<double>(v) * 1.1;
    } else {
      values[i] = core::from_float<T>(v);
    }
  }
}

// The bound of a dot product: additions of at most 1024 / (4 * 4) products per lane and four partial sums in
// f32, then f64, and the rounding of the result.
template <class Product, class T>
double error_bound(double size, double value) {
  const double sum = std::is_same_v<T, double> ? 1e-14 : 70 * 0x1p-24;
  const double rounding = sizeof(Product) == 8           ? 0
                          : sizeof(Product) == 4         ? 0x1p-24
                          : std::is_same_v<Product, f16> ? 0x1p-11
                                                         : 0x1p-8;
  return sum * size + rounding * std::abs(value) + 1e-7;
}

template <class Product, class T>
void expect_near(Guarded<Product>& actual, const std::vector<double>& products,
                 const std::vector<double>& sizes) {
  for (std::int64_t q = 0; q < actual.size(); ++q) {
    const auto at = static_cast<std::size_t>(q);
    const auto value = static_cast<double>(core::to_float(actual[q]));
    ASSERT_LE(std::abs(value - products[at]), (error_bound<Product, T>(sizes[at], products[at]))) << q;
  }
}

template <class T, class Gate, class Index, class Location>
struct Case {
  Shape s;
  std::int64_t rows, routed;
  Guarded<Gate> gates;
  Guarded<Index> indices;
  Guarded<Location> locations;
  Guarded<T> tokens, buffers;
  MoeBuffers params;

  Case(const Shape& shape, Routing routing, std::int64_t offset, bool finite, unsigned seed)
      : s(shape),
        rows(s.num_experts * s.capacity),
        routed(s.choices * s.samples),
        gates(routed, offset),
        indices(routed, offset),
        locations(routed, offset),
        tokens(s.samples * s.hidden, offset),
        buffers(rows * s.hidden, offset),
        params{s.capacity, s.num_experts} {
    std::mt19937 random(seed);
    route(routing, s, random, indices, locations);
    const auto fill = [&](auto& values) {
      finite ? fill_finite(values, random) : fill_values(values, random);
    };
    fill(gates);
    fill(tokens);
    fill(buffers);
  }

  template <class U>
  Tensor routing_view(Guarded<U>& values, bool choices_first) const {
    if (s.choices == 1) return view(values.data(), {s.samples});
    return choices_first ? view(values.data(), {s.choices, s.samples})
                         : view(values.data(), {s.samples, s.choices});
  }
  Tensor token_view(Guarded<T>& values) const { return view(values.data(), {s.samples, s.hidden}); }
  Tensor buffer_view(Guarded<T>& values, bool flat) const {
    return flat ? view(values.data(), {rows, s.hidden})
                : view(values.data(), {s.num_experts, s.capacity, s.hidden});
  }
};

// Weighted sums of rows: moe_dispatch_backward_data and moe_combine, with gates and without.
template <class T, class Gate, class Index, class Location>
void compare_gather(const Shape& s, Routing routing, std::int64_t offset, const std::vector<Isa>& on,
                    std::initializer_list<int> thread_counts, unsigned seed) {
  Case<T, Gate, Index, Location> c(s, routing, offset, false, seed);
  const auto rows = reference::rows_of(c.indices.data(), c.locations.data(), c.routed, c.params);
  Guarded<T> expected(s.samples * s.hidden, offset), actual(s.samples * s.hidden, offset);
  for (const bool choices_first : {true, false}) {
    for (const bool gated : {true, false}) {
      reference::gather_rows({s.samples, s.choices, choices_first}, rows, gated ? c.gates.data() : nullptr,
                             c.buffers.data(), expected.data(), s.hidden);
      const ConstTensor gates = c.routing_view(c.gates, choices_first);
      const ConstTensor indices = c.routing_view(c.indices, choices_first);
      const ConstTensor locations = c.routing_view(c.locations, choices_first);
      for (const Isa isa : on) {
        for (const int threads : thread_counts) {
          SCOPED_TRACE(testing::Message()
                       << name_of(isa) << " threads " << threads << " choices_first " << choices_first
                       << " gated " << gated << " routing " << static_cast<int>(routing) << " hidden "
                       << s.hidden << " offset " << offset << " seed " << seed);
          Context context({.threads = threads, .isa = isa});
          std::mt19937 random(1);
          fill_finite(actual, random);  // every element must be overwritten
          if (choices_first) {
            moe_dispatch_backward_data(gated ? gates : nullptr, indices, locations,
                                       c.buffer_view(c.buffers, true), c.token_view(actual), c.params,
                                       context);
          } else {
            moe_combine(c.buffer_view(c.buffers, seed % 2 == 0), indices, locations, gated ? gates : nullptr,
                        c.token_view(actual), s.capacity, context);
          }
          ASSERT_EQ(differing(expected, actual), 0);
        }
      }
    }
  }
}

// Dot products alone, fused with a gather and fused with a scatter: the same bits on any number of threads.
template <class T, class Gate, class Index, class Location>
void compare_gradients(const Shape& s, Routing routing, std::int64_t offset, const std::vector<Isa>& on,
                       std::initializer_list<int> thread_counts, unsigned seed) {
  Case<T, Gate, Index, Location> c(s, routing, offset, true, seed);
  const auto rows = reference::rows_of(c.indices.data(), c.locations.data(), c.routed, c.params);
  const auto count = static_cast<std::size_t>(c.routed);
  std::vector<double> products(count), sizes(count);
  Guarded<T> grad_tokens(s.samples * s.hidden, offset), grad_buffers(c.rows * s.hidden, offset);
  Guarded<T> actual_tokens(s.samples * s.hidden, offset), actual_buffers(c.rows * s.hidden, offset);
  Guarded<Gate> once(c.routed, offset), again(c.routed, offset), beside(c.routed, offset);
  for (const bool choices_first : {true, false}) {
    const reference::RoutingShape shape{s.samples, s.choices, choices_first};
    reference::dot_rows(shape, rows, c.tokens.data(), c.buffers.data(), products.data(), sizes.data(),
                        s.hidden);
    reference::gather_rows(shape, rows, c.gates.data(), c.buffers.data(), grad_tokens.data(), s.hidden);
    reference::scatter_rows(shape, rows, c.gates.data(), c.tokens.data(), grad_buffers.data(), c.rows,
                            s.hidden);
    const ConstTensor gates = c.routing_view(c.gates, choices_first);
    const ConstTensor indices = c.routing_view(c.indices, choices_first);
    const ConstTensor locations = c.routing_view(c.locations, choices_first);
    for (const Isa isa : on) {
      bool is_first = true;
      for (const int threads : thread_counts) {
        SCOPED_TRACE(testing::Message()
                     << name_of(isa) << " threads " << threads << " choices_first " << choices_first
                     << " routing " << static_cast<int>(routing) << " hidden " << s.hidden << " offset "
                     << offset << " seed " << seed);
        Context context({.threads = threads, .isa = isa});
        if (choices_first) {
          moe_dispatch_backward_gate(indices, locations, c.token_view(c.tokens),
                                     c.buffer_view(c.buffers, true), c.routing_view(again, true), c.params,
                                     context);
          moe_dispatch_backward(gates, indices, locations, c.token_view(c.tokens),
                                c.buffer_view(c.buffers, true), c.token_view(actual_tokens),
                                c.routing_view(beside, true), c.params, context);
          ASSERT_EQ(differing(grad_tokens, actual_tokens), 0);
          ASSERT_TRUE(again.same_bytes(beside));
        } else {
          const bool flat = seed % 2 == 0;
          moe_combine_backward(c.token_view(c.tokens), c.buffer_view(c.buffers, flat), indices, locations,
                               gates, c.buffer_view(actual_buffers, !flat), c.routing_view(again, false),
                               s.capacity, context);
          ASSERT_EQ(differing(grad_buffers, actual_buffers), 0);
        }
        expect_near<Gate, T>(again, products, sizes);
        if (is_first) {
          once.copy_from(again);
          is_first = false;
        }
        ASSERT_TRUE(once.same_bytes(again)) << "bits depend on threads";
      }
    }
  }
}

template <class T, class Gate, class Index, class Location>
void compare_dispatch(const Shape& s, Routing routing, std::int64_t offset, const std::vector<Isa>& on,
                      std::initializer_list<int> thread_counts, unsigned seed) {
  Case<T, Gate, Index, Location> c(s, routing, offset, false, seed);
  const auto rows = reference::rows_of(c.indices.data(), c.locations.data(), c.routed, c.params);
  Guarded<T> expected(c.rows * s.hidden, offset), actual(c.rows * s.hidden, offset);
  for (const bool gated : {true, false}) {
    reference::scatter_rows({s.samples, s.choices, false}, rows, gated ? c.gates.data() : nullptr,
                            c.tokens.data(), expected.data(), c.rows, s.hidden);
    const ConstTensor gates = c.routing_view(c.gates, false), locations = c.routing_view(c.locations, false);
    for (const Isa isa : on) {
      for (const int threads : thread_counts) {
        SCOPED_TRACE(testing::Message()
                     << name_of(isa) << " threads " << threads << " gated " << gated << " routing "
                     << static_cast<int>(routing) << " hidden " << s.hidden);
        Context context({.threads = threads, .isa = isa});
        actual.copy_from(c.buffers);
        moe_dispatch(c.token_view(c.tokens), c.routing_view(c.indices, false), locations,
                     gated ? gates : nullptr, c.buffer_view(actual, gated), c.params, context);
        ASSERT_EQ(differing(expected, actual), 0);
      }
    }
  }
}

template <class T, class Gate, class Index, class Location>
void compare_all(const Shape& s, Routing routing, std::int64_t offset, const std::vector<Isa>& on,
                 std::initializer_list<int> threads, unsigned seed) {
  compare_gather<T, Gate, Index, Location>(s, routing, offset, on, threads, seed);
  compare_gradients<T, Gate, Index, Location>(s, routing, offset, on, threads, seed);
  compare_dispatch<T, Gate, Index, Location>(s, routing, offset, on, threads, seed);
}

template <class T, class Gate>
void compare_small() {
  unsigned seed = 1;
  for (const std::int64_t hidden : {1, 3, 8, 15, 16, 33, 65, 257}) {
    for (const Routing routing : kRoutings) {
      const auto offset = static_cast<std::int64_t>(seed % 5);
      ++seed;
      compare_all<T, Gate, std::int32_t, std::int32_t>({1, 13, hidden, 2, 8}, routing, offset,
                                                       supported_isas(), {1}, seed);
      compare_all<T, Gate, std::int64_t, std::int32_t>({3, 9, hidden, 3, 5}, routing, offset,
                                                       supported_isas(), {1}, seed);
    }
  }
}

TEST(MoeMovements, EqualTheDefinitionF32) { compare_small<float, float>(); }
TEST(MoeMovements, EqualTheDefinitionF64) {
  compare_small<double, double>();
  compare_small<double, float>();
}
TEST(MoeMovements, EqualTheDefinitionF16) {
  compare_small<f16, f16>();
  compare_small<f16, float>();
}
TEST(MoeMovements, EqualTheDefinitionBf16) {
  compare_small<bf16, bf16>();
  compare_small<bf16, float>();
}

// Large enough for several threads and streamed stores; rows do not end at cache-line boundaries.
TEST(MoeMovements, SameBitsForEveryThreadCount) {
  const std::vector<Isa> best = {Context().isa()};
  for (const Routing routing : {Routing::distinct, Routing::dropped, Routing::all_equal})
    compare_all<float, float, std::int32_t, std::int64_t>({2, 700, 1031, 4, 200}, routing, 1, best, {1, 2, 5},
                                                          11);
  compare_all<bf16, float, std::int64_t, std::int32_t>({8, 300, 1001, 2, 700}, Routing::random, 3, best, {2},
                                                       12);
}

// The fused gradients process a row in tiles of 1024 columns.
TEST(MoeMovements, GradientsOfRowsOfSeveralTiles) {
  unsigned seed = 41;
  for (const std::int64_t hidden : {1023, 1024, 2048, 2049, 3172}) {
    const Shape one{1, 4, hidden, 2, 2}, three{3, 4, hidden, 2, 5};
    const auto offset = static_cast<std::int64_t>(seed % 3);
    ++seed;
    compare_gradients<float, float, std::int32_t, std::int32_t>(one, Routing::distinct, offset,
                                                                supported_isas(), {1}, seed);
    compare_gradients<float, float, std::int32_t, std::int32_t>(three, Routing::dropped, offset,
                                                                supported_isas(), {1}, seed);
    compare_gradients<double, double, std::int32_t, std::int32_t>(three, Routing::random, offset,
                                                                  supported_isas(), {1}, seed);
    compare_gradients<f16, f16, std::int32_t, std::int32_t>(three, Routing::random, offset, supported_isas(),
                                                            {1}, seed);
    compare_gradients<bf16, float, std::int32_t, std::int32_t>(three, Routing::distinct, offset,
                                                               supported_isas(), {1}, seed);
  }
}

TEST(MoeMovements, VeryLongRowsAreCutIntoPieces) {
  compare_all<float, float, std::int32_t, std::int32_t>({1, 5, 300001, 1, 4}, Routing::random, 1,
                                                        {Context().isa()}, {1, 2, 5}, 21);
}

// More choices than the kernels hold, and more than the rows that are computed at once.
TEST(MoeMovements, ManyChoices) {
  for (const std::int64_t choices : {8, 64, 65, 257, 300}) {
    compare_all<float, float, std::int32_t, std::int32_t>({choices, 5, 20, 4, 100}, Routing::dropped, 0,
                                                          supported_isas(), {1, 2}, 31);
    compare_all<bf16, float, std::int32_t, std::int32_t>({choices, 3, 300, 4, 100}, Routing::random, 1,
                                                         supported_isas(), {1}, 32);
    compare_all<float, float, std::int32_t, std::int32_t>({choices, 3, 33, 1, 2}, Routing::extremes, 1,
                                                          supported_isas(), {1}, 33);
  }
}

// <dD, forward(g, X)> = <backward_data(g, dD), X> = <g, backward_gate(X, dD)> if rows are distinct.
TEST(MoeMovements, DerivativeIdentity) {
  const Shape s{2, 40, 33, 4, 25};
  Case<double, double, std::int32_t, std::int32_t> c(s, Routing::distinct, 0, true, 3);
  const auto dot = [](auto& a, auto& b) {
    double sum = 0;
    for (std::int64_t x = 0; x < a.size(); ++x) sum += a[x] * b[x];
    return sum;
  };
  Guarded<double> dispatched(c.rows * s.hidden), grad_input(s.samples * s.hidden), grad_gates(c.routed);
  const ConstTensor gates = c.routing_view(c.gates, true);
  moe_dispatch_forward(gates, c.routing_view(c.indices, true), c.routing_view(c.locations, true),
                       c.token_view(c.tokens), c.buffer_view(dispatched, true),
                       {.capacity = s.capacity, .num_experts = s.num_experts, .fill = Fill::zero});
  moe_dispatch_backward(gates, c.routing_view(c.indices, true), c.routing_view(c.locations, true),
                        c.token_view(c.tokens), c.buffer_view(c.buffers, true), c.token_view(grad_input),
                        c.routing_view(grad_gates, true), c.params);
  const double expected = dot(c.buffers, dispatched);
  EXPECT_NE(expected, 0);
  EXPECT_NEAR(dot(grad_input, c.tokens), expected, 1e-10);
  EXPECT_NEAR(dot(grad_gates, c.gates), expected, 1e-10);
}

}  // namespace
}  // namespace turnout::test
