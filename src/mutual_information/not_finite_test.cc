// NaN, infinities and numbers near the limits of a type: on every instruction set, the same cells of every
// result are NaN or infinite as in the recursion in that type.
#include <gtest/gtest.h>

#include <string>

#include "isas.h"
#include "last_log_line.h"
#include "mutual_information/lattice_case.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

// Describes the first position where only one of the two is NaN or infinite, or infinities differ in sign; ""
// if there is none.
template <class T, class Real>
std::string other_pattern(const std::vector<T>& values, const std::vector<Real>& expected) {
  const auto kind = [](double v) { return std::isnan(v) ? 2 : std::isinf(v) ? (v > 0 ? 1 : -1) : 0; };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double v = core::to_float(values[i]), e = core::to_float(LatticeCase<T>::cast(expected[i]));
    if (kind(v) != kind(e))
      return "[" + std::to_string(i) + "] is " + std::to_string(v) + ", expected " + std::to_string(e);
  }
  return "";
}

// The recursion in Real for a whole batch.
template <class T>
struct Recursion {
  using Case = LatticeCase<T>;
  using Real = typename Case::Real;
  std::vector<Real> p, ans, ans_grad, px_grad, py_grad, both_px_grad, both_py_grad;

  // p_given: the p for the gradients; nullptr: the recursion's own p.
  Recursion(const Case& c, const std::vector<Real>& end, const std::vector<Real>* p_given)
      : p(static_cast<std::size_t>(c.cells()), Case::kPaint),
        ans(end.size()),
        ans_grad(end),
        px_grad(c.px.size()),
        py_grad(c.py.size()),
        both_px_grad(c.px.size()),
        both_py_grad(c.py.size()) {
    std::vector<Real> px, py;
    for (const T& v : c.px) px.push_back(core::to_float(v));
    for (const T& v : c.py) py.push_back(core::to_float(v));
    for (std::int64_t b = 0; b < c.batch; ++b) {
      const reference::Lattice l = c.lattice(b);
      const std::int64_t x = b * c.symbols * c.columns, y = b * (c.symbols + 1) * c.frames,
                         cell = b * (c.symbols + 1) * (c.frames + 1);
      const auto i = static_cast<std::size_t>(b);
      ans[i] = reference::mutual_information_forward(l, px.data() + x, py.data() + y, p.data() + cell);
      const Real* of = p_given != nullptr ? p_given->data() : p.data();
      ans_grad[i] = reference::mutual_information_backward(l, px.data() + x, py.data() + y, of + cell, end[i],
                                                           px_grad.data() + x, py_grad.data() + y);
      reference::mutual_information_forward_backward(l, px.data() + x, py.data() + y, both_px_grad.data() + x,
                                                     both_py_grad.data() + y);
    }
  }
};

// S = 1, T = 24: the products of weights of 1e-9 underflow, and the gradient is infinite.
TEST(MutualInformationNotFinite, InfiniteEnd) {
  for (bool modified : {false, true}) {
    LatticeCase<float> c(1, 1, 24, modified);
    std::fill(c.py.begin() + c.frames, c.py.end(), -20.0f);
    for (float end : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      for (Isa isa : supported_isas()) {
        Context context({.threads = 1, .isa = isa});
        auto r = c.empty_result();
        c.forward(context, r);
        r.ans_grad = {end};
        const Recursion<float> expected(c, r.ans_grad, &r.p);
        c.backward(context, r, true);
        EXPECT_EQ(other_pattern(r.px_grad, expected.px_grad), "") << name_of(isa);
        EXPECT_EQ(other_pattern(r.py_grad, expected.py_grad), "") << name_of(isa);
        EXPECT_EQ(r.ans_grad[0], modified ? expected.ans_grad[0] : end);
        EXPECT_EQ(r.py_grad[0], modified ? expected.py_grad[0] : end);
      }
    }
  }
}

// Finite inputs and a p that is not a forward result: sums overflow to infinity, and are then multiplied by
// small weights. Only the product of these weights underflows to 0, not a single one.
TEST(MutualInformationNotFinite, SumsThatOverflow) {
  LatticeCase<float> c(1, 1, 16, false);
  auto r = c.empty_result();
  std::fill(r.p.begin(), r.p.end(), 0.0f);
  for (std::size_t t = 0; t < 16; ++t) c.py[16 + t] = t < 6 ? -30.0f : 80.0f;
  for (Isa isa : supported_isas()) {
    Context context({.threads = 1, .isa = isa});
    r.ans_grad = {1};
    const Recursion<float> expected(c, r.ans_grad, &r.p);
    c.backward(context, r, true);
    EXPECT_TRUE(std::isinf(expected.py_grad[16]));
    EXPECT_EQ(other_pattern(r.px_grad, expected.px_grad), "") << name_of(isa);
    EXPECT_EQ(other_pattern(r.py_grad, expected.py_grad), "") << name_of(isa);
  }
}

// A product of weights that underflows, although its product with g would not; and a subnormal number that
// grows to a normal one.
TEST(MutualInformationNotFinite, SmallNumbersThatGrow) {
  for (float end : {1e30f, 1e-40f}) {
    LatticeCase<float> c(1, 0, 24, false);
    auto r = c.empty_result();
    std::fill(r.p.begin(), r.p.end(), 0.0f);
    for (std::size_t t = 0; t < 24; ++t) c.py[t] = t < 12 ? 50.0f : end > 1 && t < 20 ? -20.0f : 0.0f;
    for (Isa isa : supported_isas()) {
      Context context({.threads = 1, .isa = isa});
      r.ans_grad = {end};
      const Recursion<float> expected(c, r.ans_grad, &r.p);
      c.backward(context, r, true);
      EXPECT_TRUE(std::isinf(expected.py_grad[0]));
      EXPECT_EQ(other_pattern(r.py_grad, expected.py_grad), "") << name_of(isa);
      for (std::size_t i = 0; i < r.py_grad.size(); ++i) {
        const bool is_close = std::abs(r.py_grad[i] / expected.py_grad[i] - 1) <= 1e-5;
        EXPECT_TRUE(is_close || std::isinf(expected.py_grad[i])) << name_of(isa) << ' ' << i;
      }
    }
  }
}

// The log says that a lattice was computed again, cell by cell, if and only if its numbers are too large, too
// small or not finite for the fast kernel.
TEST(MutualInformationNotFinite, OrdinaryLatticesAreComputedOnce) {
  constexpr float kLeast = std::numeric_limits<float>::min(), kMost = std::numeric_limits<float>::max();
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const LastLogLine line;
  const auto is_again = [&](float end) {
    LatticeCase<float> c(1, 5, 9, false);
    Context context({.threads = 1});
    auto r = c.empty_result();
    c.forward(context, r);
    r.ans_grad = {end};
    c.backward(context, r, true);
    return line.has("cell by cell");
  };
  for (float end : {0.0f, -0.0f, 1.0f, -3.0f, kLeast, kMost / 8, -kMost / 8})
    EXPECT_FALSE(is_again(end)) << end << ": " << line.text();
  for (float end : {kLeast / 2, std::nextafter(kLeast, 0.0f), std::nextafter(kMost / 8, kMost), kMost,
                    kInfinite, -kInfinite, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_TRUE(is_again(end)) << end << ": " << line.text();
}

// Draws random values of all kinds for all inputs of a call.
template <class T>
class Wild {
 public:
  using Real = typename LatticeCase<T>::Real;
  explicit Wild(unsigned seed) : random(seed) {}

  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(limit));
  }
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  }

  double odd() {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const double largest = std::numeric_limits<Real>::max();
    const double all[] = {kInf,    -kInf,        std::numeric_limits<double>::quiet_NaN(),
                          -1e30,   -2e30,        1e30,
                          88,      -88,          -100,
                          -104,    700,          -740,
                          -20,     20,           1e-40,
                          largest, -largest,     largest / 3,
                          -1e5,    -largest / 3, 0};
    return all[random() % std::size(all)];
  }
  double end() {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const double all[] = {1,    -1,    1,     0.3,  kInf, -kInf, std::numeric_limits<double>::quiet_NaN(),
                          1e30, 1e-30, 1e-40, 3e38, 0,    1};
    return all[random() % std::size(all)];
  }

  LatticeCase<T> lattice() {
    LatticeCase<T> c(1 + below(2), below(20), below(40), below(2) == 1);
    const auto one_in = static_cast<unsigned>(below(4) == 0 ? 1000000 : 2 + below(60));
    const double low = below(3) == 0 ? -25 : -3, high = below(8) == 0 ? 25 : 0;
    for (auto* values : {&c.px, &c.py})
      for (T& v : *values) v = c.cast(random() % one_in == 0 ? odd() : uniform(low, high));
    if (below(2) == 1) random_boundary(c, random);
    return c;
  }
  // A p that is not a forward result.
  std::vector<Real> scores(std::size_t count) {
    const double spread = below(3) == 0 ? 100 : 3;
    const auto one_in = static_cast<unsigned>(2 + below(60));
    std::vector<Real> p;
    for (std::size_t i = 0; i < count; ++i)
      p.push_back(static_cast<Real>(random() % one_in == 0 ? odd() : uniform(-spread, spread)));
    return p;
  }

  std::mt19937 random;
};

template <class T>
void compare_patterns(unsigned seed, int count) {
  Wild<T> wild(seed);
  using Real = typename LatticeCase<T>::Real;
  for (int n = 0; n < count && !testing::Test::HasFailure(); ++n) {
    const LatticeCase<T> c = wild.lattice();
    std::vector<Real> end;
    for (std::int64_t b = 0; b < c.batch; ++b) end.push_back(static_cast<Real>(wild.end()));
    std::vector<Real> p;
    if (wild.below(2) == 1) p = wild.scores(static_cast<std::size_t>(c.cells()));
    const Recursion<T> forward(c, end, nullptr);
    for (Isa isa : supported_isas()) {
      SCOPED_TRACE(testing::Message()
                   << name_of(isa) << ", case " << n << ", symbols " << c.symbols << ", frames " << c.frames
                   << (c.columns == c.frames ? ", modified" : "") << (p.empty() ? "" : ", any p")
                   << (c.boundary.empty() ? "" : ", boundary") << ", ans_grad " << end[0]);
      Context context({.threads = 1, .isa = isa});
      auto r = c.empty_result(), both = c.empty_result();
      c.forward(context, r);
      EXPECT_EQ(other_pattern(r.p, forward.p), "") << "p";
      EXPECT_EQ(other_pattern(r.ans, forward.ans), "") << "ans";
      if (!p.empty()) r.p = p;
      r.ans_grad = end;
      const Recursion<T> expected(c, end, &r.p);
      c.backward(context, r, true);
      EXPECT_EQ(other_pattern(r.px_grad, expected.px_grad), "") << "px_grad";
      EXPECT_EQ(other_pattern(r.py_grad, expected.py_grad), "") << "py_grad";
      EXPECT_EQ(other_pattern(r.ans_grad, expected.ans_grad), "") << "ans_grad";
      c.both(context, both);
      EXPECT_EQ(other_pattern(both.ans, forward.ans), "") << "ans of both";
      EXPECT_EQ(other_pattern(both.px_grad, forward.both_px_grad), "") << "px_grad of both";
      EXPECT_EQ(other_pattern(both.py_grad, forward.both_py_grad), "") << "py_grad of both";
      for (const auto* grad : {&both.px_grad, &both.py_grad})
        for (const T& v : *grad) EXPECT_TRUE(core::to_float(v) >= 0 && core::to_float(v) <= 1.001);
    }
  }
}

TEST(MutualInformationNotFinite, SamePatternsInFloat) {
  compare_patterns<float>(1, kReducedShapes ? 200 : 4000);
}
TEST(MutualInformationNotFinite, SamePatternsInDouble) {
  compare_patterns<double>(2, kReducedShapes ? 100 : 1500);
}
TEST(MutualInformationNotFinite, SamePatternsInHalves) {
  compare_patterns<bf16>(3, kReducedShapes ? 50 : 500);
  compare_patterns<f16>(4, kReducedShapes ? 50 : 500);
}

// One unusual value in an otherwise ordinary lattice: the finite results match the definition too.
TEST(MutualInformationNotFinite, OneOddValue) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  Wild<float> wild(14);
  for (float value : {nan, inf, -inf, 100.0f, -2e30f}) {
    for (int where = 0; where < 40; ++where) {
      LatticeCase<float> c(1, 9, 20, where % 2 == 1);
      for (auto* values : {&c.px, &c.py})
        for (float& v : *values) v = static_cast<float>(wild.uniform(-3, 0));
      auto& values = where % 4 < 2 ? c.px : c.py;
      values[wild.random() % values.size()] = value;
      const auto expected = c.expected();
      for (Isa isa : supported_isas()) {
        SCOPED_TRACE(testing::Message() << value << " on " << name_of(isa));
        Context context({.threads = 1, .isa = isa});
        auto r = c.empty_result(), both = c.empty_result();
        c.forward(context, r);
        EXPECT_LE(difference(r.p, expected.p), 1e-5);
        c.backward(context, r, true);
        const auto of_same_p = c.expected(&r.p);
        EXPECT_LE(difference(r.px_grad, of_same_p.px_grad), 1e-5);
        EXPECT_LE(difference(r.py_grad, of_same_p.py_grad), 1e-5);
        c.both(context, both);
        EXPECT_LE(difference(both.px_grad, expected.both_px_grad), 1e-4);
        EXPECT_LE(difference(both.py_grad, expected.both_py_grad), 1e-4);
        if (value == -2e30f) continue;  // not clamped in one pass, so reachable
        EXPECT_LE(difference(both.px_grad, expected.px_grad), 1e-4);
        EXPECT_LE(difference(both.py_grad, expected.py_grad), 1e-4);
      }
    }
  }
}

// The backward operator accepts any p, even one that is not a forward result.
TEST(MutualInformationNotFinite, AnyP) {
  for (bool modified : {false, true}) {
    LatticeCase<float> c(2, 20, 50, modified);
    Wild<float> wild(15);
    for (auto* values : {&c.px, &c.py})
      for (float& v : *values) v = static_cast<float>(wild.uniform(-3, 0));
    auto r = c.empty_result();
    for (float& v : r.p) v = static_cast<float>(wild.uniform(-2.5, 2.5));
    const auto expected = c.expected(&r.p);
    for (Isa isa : supported_isas()) {
      for (int threads : {1, 3}) {
        Context context({.threads = threads, .isa = isa});
        c.backward(context, r, false);
        EXPECT_LE(difference(r.px_grad, expected.px_grad), 1e-5);
        EXPECT_LE(difference(r.py_grad, expected.py_grad), 1e-5);
      }
    }
  }
}

// If one strip of a lattice finds unusual values, the whole lattice is computed by the plain recursion, even
// if several threads work on it.
TEST(MutualInformationNotFinite, ManyStripsAreGivenUpTogether) {
  for (std::int64_t batch : {2, 16}) {
    LatticeCase<float> c(batch, 70, batch == 2 ? 1000 : 130, false);
    Wild<float> wild(16);
    for (auto* values : {&c.px, &c.py})
      for (float& v : *values) v = static_cast<float>(wild.uniform(-3, 0));
    auto r = c.empty_result();
    Context plain({.threads = 1});
    c.forward(plain, r);
    for (std::size_t b = 0; b < r.ans_grad.size(); b += 2)  // one cell of every second lattice
      r.p[(b * 71 + 1 + wild.random() % 70) * static_cast<std::size_t>(c.frames + 1) + 60] += 5;
    r.ans_grad.back() = std::numeric_limits<float>::infinity();
    const auto end = r.ans_grad;
    const Recursion<float> expected(c, end, &r.p);
    for (Isa isa : supported_isas()) {
      for (int threads : {1, 2, 5}) {
        Context context({.threads = threads, .isa = isa});
        r.ans_grad = end;
        c.backward(context, r, true);
        SCOPED_TRACE(testing::Message() << name_of(isa) << ", threads " << threads);
        EXPECT_EQ(other_pattern(r.px_grad, expected.px_grad), "");
        EXPECT_EQ(other_pattern(r.py_grad, expected.py_grad), "");
        const auto row =
            static_cast<std::ptrdiff_t>(c.py.size()) / batch;  // only the first lattice was given up
        EXPECT_EQ(std::memcmp(r.py_grad.data(), expected.py_grad.data(),
                              static_cast<std::size_t>(row) * sizeof(float)),
                  0);
        EXPECT_EQ(r.ans_grad[0], expected.ans_grad[0]);
      }
    }
  }
}

}  // namespace
}  // namespace turnout::test
