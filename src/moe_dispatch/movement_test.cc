// Gradients, combine and [samples, choices] dispatch against their definitions: shapes x dtypes x ISAs x
// threads x routing patterns. Bits are equal, those of dot products within their bound.
#include <gtest/gtest.h>

#include <string>

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
          fill_finite(actual, random);  // no element keeps what it has
          if (choices_first) {
            moe_dispatch_backward_data(context, gated ? &gates : nullptr, indices, locations,
                                       c.buffer_view(c.buffers, true), c.token_view(actual), c.params);
          } else {
            moe_combine(context, c.buffer_view(c.buffers, seed % 2 == 0), indices, &locations,
                        gated ? &gates : nullptr, c.token_view(actual), s.capacity);
          }
          ASSERT_EQ(differing(expected, actual), 0);
        }
      }
    }
  }
}

// Dot products alone, beside a gather and beside a scatter: the same bits on any number of threads.
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
          moe_dispatch_backward_gate(context, indices, locations, c.token_view(c.tokens),
                                     c.buffer_view(c.buffers, true), c.routing_view(again, true), c.params);
          moe_dispatch_backward(context, gates, indices, locations, c.token_view(c.tokens),
                                c.buffer_view(c.buffers, true), c.token_view(actual_tokens),
                                c.routing_view(beside, true), c.params);
          ASSERT_EQ(differing(grad_tokens, actual_tokens), 0);
          ASSERT_TRUE(again.same_bytes(beside));
        } else {
          const bool flat = seed % 2 == 0;
          moe_combine_backward(context, c.token_view(c.tokens), c.buffer_view(c.buffers, flat), indices,
                               &locations, gates, c.buffer_view(actual_buffers, !flat),
                               c.routing_view(again, false), s.capacity);
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
        moe_dispatch(context, c.token_view(c.tokens), c.routing_view(c.indices, false), &locations,
                     gated ? &gates : nullptr, c.buffer_view(actual, gated), c.params);
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

// Large enough for several threads and streamed stores; rows do not end at a cache line.
TEST(MoeMovements, SameBitsForEveryThreadCount) {
  const std::vector<Isa> best = {Context().isa()};
  for (const Routing routing : {Routing::distinct, Routing::dropped, Routing::all_equal})
    compare_all<float, float, std::int32_t, std::int64_t>({2, 700, 1031, 4, 200}, routing, 1, best, {1, 2, 5},
                                                          11);
  compare_all<bf16, float, std::int64_t, std::int32_t>({8, 300, 1001, 2, 700}, Routing::random, 3, best, {2},
                                                       12);
}

// Both gradients at once go through a row in tiles of 1024 columns.
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

// More choices than the kernels have room for, and than rows are computed at once.
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

// Without locations and with a capacity of 1 an index is a row.
TEST(MoeMovements, RowsInsteadOfExpertsAndSlots) {
  const float input[] = {1, 2, 3, 4, 5, 6};
  const std::int32_t rows[] = {3, 0, -1, 2, 9, 1};
  const float gates[] = {1, 10, 5, 2, 5, 3};
  std::vector<float> dispatch(8, -1), output(6, -1);
  const ConstTensor weights = view(gates, {3, 2});
  moe_dispatch(view(input, {3, 2}), view(rows, {3, 2}), nullptr, &weights, view(dispatch.data(), {4, 2}),
               {.capacity = 1, .num_experts = 4});
  EXPECT_EQ(dispatch, (std::vector<float>{10, 20, 15, 18, 6, 8, 1, 2}));
  moe_token_unpermute(view(dispatch.data(), {4, 2}), view(rows, {3, 2}), nullptr,
                      view(output.data(), {3, 2}));
  EXPECT_EQ(output, (std::vector<float>{11, 22, 6, 8, 15, 18}));
}

TEST(MoeMovements, WorkedExampleOfTheGradients) {
  // Token 0 goes to expert 1, slot 0, token 1 is beyond the capacity, token 2 goes to expert 0, slot 1.
  const float gates[] = {2, 3, -1}, input[] = {1, 2, 3, 4, 5, 6}, grad[] = {9, 9, 1, 10, 100, 1000, 9, 9};
  const std::int32_t indices[] = {1, 1, 0}, locations[] = {0, 2, 1};
  std::vector<float> grad_input(6, 7), grad_gates(3, 7);
  moe_dispatch_backward(view(gates, {3}), view(indices, {3}), view(locations, {3}), view(input, {3, 2}),
                        view(grad, {4, 2}), view(grad_input.data(), {3, 2}), view(grad_gates.data(), {3}),
                        {.capacity = 2, .num_experts = 2});
  EXPECT_EQ(grad_input, (std::vector<float>{200, 2000, 0, 0, -1, -10}));
  EXPECT_EQ(grad_gates, (std::vector<float>{2100, 0, 65}));
}

// <dD, forward(g, X)> = <backward_data(g, dD), X> = <g, backward_gate(X, dD)> as long as rows are distinct.
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

// -0 stays for one choice; of several, a dropped one adds +0.
TEST(MoeMovements, SignOfZero) {
  const float rows[] = {-0.0f, 1};
  const auto sum = [&](std::vector<std::int32_t> indices) {
    float output = 7;
    const auto choices = static_cast<std::int64_t>(indices.size());
    moe_combine(view(rows, {2, 1}), view(indices.data(), {1, choices}), nullptr, nullptr,
                view(&output, {1, 1}), 1);
    return output;
  };
  EXPECT_TRUE(std::signbit(sum({0})));
  EXPECT_TRUE(std::signbit(sum({0, 0})));
  for (const auto& dropped : {std::vector<std::int32_t>{0, -1}, {-1, 0}, {0, 2, 0}, {-1}}) {
    const float zero = sum(dropped);
    EXPECT_EQ(zero, 0);
    EXPECT_FALSE(std::signbit(zero));
  }
}

TEST(MoeMovements, WithoutLocationsTheFirstSlotIsMeant) {
  const std::vector<float> rows = {0, 1, 2, 3, 4, 5};  // two experts with three slots of one column
  const std::vector<std::int32_t> indices = {1, 0, 2, 1};
  std::vector<float> tokens(4, 7), dispatch(6, 7);
  moe_combine(view(rows.data(), {6, 1}), view(indices.data(), {4}), nullptr, nullptr,
              view(tokens.data(), {4, 1}), 3);
  EXPECT_EQ(tokens, (std::vector<float>{3, 0, 0, 3}));
  tokens = {5, 6, 7, 8};
  moe_dispatch(view(std::as_const(tokens).data(), {4, 1}), view(indices.data(), {4}), nullptr, nullptr,
               view(dispatch.data(), {6, 1}), {.capacity = 3, .num_experts = 2});
  EXPECT_EQ(dispatch, (std::vector<float>{6, 0, 0, 8, 0, 0}));
}

TEST(MoeMovements, EmptyTensors) {
  std::vector<float> tokens(6, 7), gates(3, 7);
  const std::vector<float> weights(3, 1);
  const std::vector<std::int32_t> routing(3);
  const ConstTensor ones = view(weights.data(), {3});
  // No rows: all tokens are dropped.
  moe_combine(Tensor(nullptr, DType::f32, {0, 2}), view(routing.data(), {3}), nullptr, &ones,
              view(tokens.data(), {3, 2}), 0);
  EXPECT_EQ(tokens, std::vector<float>(6, 0));
  moe_combine_backward(view(tokens.data(), {3, 2}), Tensor(nullptr, DType::f32, {2, 0, 2}),
                       view(routing.data(), {3}), nullptr, ones, Tensor(nullptr, DType::f32, {0, 2}),
                       view(gates.data(), {3}), 0);
  EXPECT_EQ(gates, std::vector<float>(3, 0));
  // No columns: products are 0.
  gates.assign(3, 7);
  moe_dispatch_backward_gate(view(routing.data(), {3}), view(routing.data(), {3}),
                             Tensor(nullptr, DType::f32, {3, 0}), Tensor(nullptr, DType::f32, {2, 0}),
                             view(gates.data(), {3}), {.capacity = 1, .num_experts = 2});
  EXPECT_EQ(gates, std::vector<float>(3, 0));
}

std::string sentence_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MoeMovements, BuffersThatDoNotFit) {
  std::vector<float> rows(24), tokens(6);
  const std::vector<std::int32_t> routing(3);
  const auto combine = [&](const ConstTensor& expert_output, std::int64_t capacity) {
    return sentence_of([&] {
      moe_combine(expert_output, view(routing.data(), {3}), nullptr, nullptr, view(tokens.data(), {3, 2}),
                  capacity);
    });
  };
  EXPECT_EQ(combine(view(rows.data(), {4, 3, 2}), 3), "");
  EXPECT_EQ(combine(view(rows.data(), {3, 4, 2}), 3),
            "moe_combine: expert_output has 3 dimensions, expected [rows, hidden]");
  EXPECT_EQ(combine(view(rows.data(), {7, 2}), 3),
            "moe_combine: expert_output has 7 rows, expected a multiple of capacity = 3");
  Tensor strided = view(rows.data(), {2, 3, 2});
  strided.stride[0] = 2;
  EXPECT_NE(combine(strided, 3).find("expert_output is strided"), std::string::npos);
}

}  // namespace
}  // namespace turnout::test
