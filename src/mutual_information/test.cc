// Compares the operators with their definition in double: sizes and edge cases x instruction sets x threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "isas.h"
#include "mutual_information/lattice_case.h"
#include "mutual_information/plan.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

constexpr double kForward = 1e-5;   // p and ans
constexpr double kBackward = 1e-5;  // gradients from a given p
constexpr double kEndToEnd = 1e-4;  // gradients in two calls
constexpr double kHalf = 1e-2;      // gradients rounded to 16 bits

enum class Fill { probabilities, with_unreachable, bands };

template <class T>
void fill(LatticeCase<T>& c, Fill how, std::mt19937& random) {
  std::uniform_real_distribution<double> log_probability(-3, 0);
  const double none = -std::numeric_limits<double>::infinity();
  for (std::vector<T>* values : {&c.px, &c.py})
    for (T& v : *values)
      v = c.cast(how == Fill::with_unreachable && random() % 12 == 0 ? none : log_probability(random));
  if (how != Fill::bands) return;
  // Pruned: keep a few rows around the diagonal, -inf elsewhere.
  const auto outside = [&](std::int64_t s, std::int64_t t) {
    const std::int64_t middle = c.symbols * t / std::max<std::int64_t>(c.frames, 1);
    return s < middle - 4 || s > middle + 4;
  };
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t i = 0; i < c.symbols * c.columns; ++i)
      if (outside(i / c.columns, i % c.columns))
        c.px[static_cast<std::size_t>(b * c.symbols * c.columns + i)] = c.cast(none);
    for (std::int64_t i = 0; i < (c.symbols + 1) * c.frames; ++i)
      if (outside(i / c.frames, i % c.frames))
        c.py[static_cast<std::size_t>(b * (c.symbols + 1) * c.frames + i)] = c.cast(none);
  }
}

// If the end is unreachable, its gradient doubles from cell to cell and overflows float.
bool leaves_float(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::abs(v) > 1e30; });
}

template <class T>
void expect_like_definition(const LatticeCase<T>& c) {
  const auto expected = c.expected();
  const bool comparable =
      sizeof(T) == 8 || !(leaves_float(expected.px_grad) || leaves_float(expected.py_grad));
  const double backward = sizeof(T) == 2 ? kHalf : kBackward, end_to_end = sizeof(T) == 2 ? kHalf : kEndToEnd;
  SCOPED_TRACE(testing::Message() << "batch " << c.batch << ", symbols " << c.symbols << ", frames "
                                  << c.frames << (c.columns == c.frames ? ", modified" : "")
                                  << (c.boundary.empty() ? "" : ", boundary"));
  for (Isa isa : supported_isas()) {
    typename LatticeCase<T>::Result first, first_both;
    for (int threads : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << name_of(isa) << ", threads " << threads);
      Context context({.threads = threads, .isa = isa});
      auto result = c.empty_result(), both = c.empty_result();
      c.forward(context, result);
      c.backward(context, result, true);
      c.both(context, both);
      if (threads > 1) {
        EXPECT_TRUE(result == first) << "other bits than with one thread";
        EXPECT_TRUE(both == first_both) << "other bits than with one thread";
        continue;
      }
      first = result;
      first_both = both;
      EXPECT_LE(difference(result.p, expected.p), kForward);  // p outside the boundary keeps the test pattern
      EXPECT_LE(difference(result.ans, expected.ans), kForward);
      EXPECT_EQ(std::memcmp(both.ans.data(), result.ans.data(), both.ans.size() * sizeof(both.ans[0])), 0);
      EXPECT_LE(difference(both.px_grad, expected.both_px_grad), end_to_end);
      EXPECT_LE(difference(both.py_grad, expected.both_py_grad), end_to_end);
      if (!comparable) continue;
      const auto of_same_p = c.expected(&result.p);
      EXPECT_LE(difference(result.px_grad, of_same_p.px_grad), backward);
      EXPECT_LE(difference(result.py_grad, of_same_p.py_grad), backward);
      EXPECT_LE(difference(result.ans_grad, of_same_p.ans_grad), kBackward);
    }
  }
}

template <class T>
void run(std::int64_t batch, std::int64_t symbols, std::int64_t frames, unsigned seed) {
  std::mt19937 random(seed);
  for (bool modified : {false, true}) {
    for (Fill how : {Fill::probabilities, Fill::with_unreachable, Fill::bands}) {
      for (bool bounded : {false, true}) {
        LatticeCase<T> c(batch, symbols, frames, modified);
        fill(c, how, random);
        if (bounded) random_boundary(c, random);
        expect_like_definition(c);
      }
    }
  }
}

// Checked by hand: one symbol, one frame.
TEST(MutualInformation, WorkedExample) {
  const float px[2] = {-1, -2}, py[2] = {-0.5, -0.25};
  const ConstTensor x = view(px, {1, 1, 2}), y = view(py, {1, 2, 1});
  float p[4], ans, grad = 1, px_grad[2], py_grad[2];
  mutual_information_forward(x, y, nullptr, view(p, {1, 2, 2}), view(&ans, {1}));
  const float expected[4] = {0, -0.5, -1, -0.998071f};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(p[i], expected[i], 1e-6);
  EXPECT_NEAR(ans, -0.998071, 1e-6);
  mutual_information_backward(x, y, nullptr, view(static_cast<const float*>(p), {1, 2, 2}), view(&grad, {1}),
                              view(px_grad, {1, 1, 2}), view(py_grad, {1, 2, 1}), true);
  EXPECT_NEAR(px_grad[0], 0.777300, 1e-6);
  EXPECT_NEAR(px_grad[1], 0.222700, 1e-6);
  EXPECT_NEAR(py_grad[0], 0.222700, 1e-6);
  EXPECT_NEAR(py_grad[1], 0.777300, 1e-6);
  EXPECT_NEAR(grad, 1, 1e-6);
}

TEST(MutualInformation, SmallLattices) {
  for (std::int64_t symbols : {0, 1, 2, 7, 8, 9, 17, 33})
    for (std::int64_t frames : {0, 1, 2, 8, 15, 16, 17, 40}) {
      run<float>(2, symbols, frames, 1);
      if (!kReducedShapes || symbols % 2 == 1) run<double>(1, symbols, frames, 2);
    }
}
TEST(MutualInformation, Halves) {
  for (std::int64_t symbols : {1, 9, 20}) {
    run<f16>(2, symbols, 30, 3);
    run<bf16>(2, symbols, 30, 4);
  }
}
// The sizes of the benchmarks and of the cases that MLU-OPS ships.
TEST(MutualInformation, NamedScales) {
  run<float>(4, 15, 104, 5);
  run<float>(1, 179, 180, 6);
  run<float>(1, 178, 179, 7);
  if (!kReducedShapes) run<float>(2, 380, 380, 8);
}
// Enough cells for several threads, which work on different rows, or all on the same few rows.
TEST(MutualInformation, ManyThreads) {
  run<float>(kReducedShapes ? 9 : 48, 40, kReducedShapes ? 400 : 150, 9);
  run<float>(3, kReducedShapes ? 60 : 130, kReducedShapes ? 720 : 700, 10);
  run<double>(2, 60, kReducedShapes ? 1100 : 1300, 11);
}

LatticeCase<float> small_case() {
  LatticeCase<float> c(3, 5, 9, false);
  std::mt19937 random(13);
  fill(c, Fill::probabilities, random);
  return c;
}

TEST(MutualInformation, AnsGradIsOverwrittenOnRequest) {
  LatticeCase<float> c = small_case();
  c.boundary = {0, 0, 5, 9, 4, 3, 2, 9, 5, 9, 5, 9};  // the second is empty, the third one cell
  Context context;
  auto r = c.empty_result();
  c.forward(context, r);
  EXPECT_EQ(r.ans[1], 0);
  EXPECT_EQ(r.ans[2], 0);
  r.ans_grad = {2, 3, 4};
  c.backward(context, r, false);
  EXPECT_EQ(r.ans_grad, (std::vector<float>{2, 3, 4}));
  c.backward(context, r, true);
  EXPECT_NEAR(r.ans_grad[0], 2, 1e-5);  // the gradient at the start equals that at the end
  EXPECT_EQ(r.ans_grad[1], 3);
  EXPECT_EQ(r.ans_grad[2], 4);
  for (std::size_t i = c.px.size() / 3; i < c.px.size(); ++i) EXPECT_EQ(r.px_grad[i], 0);
  for (std::size_t i = c.py.size() / 3; i < c.py.size(); ++i) EXPECT_EQ(r.py_grad[i], 0);
}

// The number of threads may change while a call runs; the call keeps the number that it planned for.
TEST(MutualInformation, ThreadsMayChange) {
  std::mt19937 random(16);
  for (std::int64_t batch : {2, 40}) {  // few lattices shared by all threads, and many
    LatticeCase<float> c(batch, 40, batch == 2 ? 1700 : 90, false);
    fill(c, Fill::probabilities, random);
    Context context({.threads = 2});
    auto first = c.empty_result();
    c.both(context, first);
    std::atomic<bool> done{false};
    std::thread changing([&] {
      while (!done)
        for (int threads : {1, 7, 2, 24}) context.set_threads(threads);
    });
    for (int i = 0; i < 20; ++i) {
      auto r = c.empty_result();
      c.both(context, r);
      EXPECT_TRUE(r == first);
    }
    done = true;
    changing.join();
  }
}

TEST(MutualInformation, SizesBeyondMemory) {
  if (kReducedShapes) GTEST_SKIP() << "a sanitizer ends the process where an allocation fails";
  const std::int64_t symbols = (std::int64_t{1} << 61) - 1;
  float ans[4];
  try {
    mutual_information_forward_backward(view(static_cast<const float*>(nullptr), {4, symbols, 0}),
                                        view(static_cast<const float*>(nullptr), {4, symbols + 1, 0}),
                                        nullptr, view(ans, {4}),
                                        view(static_cast<float*>(nullptr), {4, symbols, 0}),
                                        view(static_cast<float*>(nullptr), {4, symbols + 1, 0}));
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::alloc_failed) << error.what();
  }
}

TEST(MutualInformation, LatticeIsWideBesideWideInput) {
  LatticeCase<double> c(1, 2, 3, false);
  std::vector<float> p(12), ans(1);
  try {
    mutual_information_forward(c.x(), c.y(), nullptr, view(p.data(), {1, 3, 4}), view(ans.data(), {1}));
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "mutual_information_forward: p has dtype f32, expected f64 for px of f64");
  }
}

// For large lattices, all threads work on one wave of all rows, unless there are two waves for each thread.
TEST(MutualInformationPlan, RowsAreSharedIfTheyAreFew) {
  using families::mutual_information::LatticePlan;
  const auto waves = [](std::int64_t batch, std::int64_t symbols, std::int64_t frames) {
    Context context({.threads = 2});
    const LatticePlan plan(batch, symbols, frames, 2);
    std::vector<std::byte> memory(plan.scratch_bytes());
    std::atomic<int> count = 0;
    plan.run(context, {}, {nullptr, memory.data(), memory.data()},
             [&](std::int64_t, std::byte*, const auto&) { ++count; });
    return count.load();
  };
  EXPECT_EQ(waves(12, 200, 400), 1);
  EXPECT_EQ(waves(13, 200, 400), 4);
  EXPECT_EQ(waves(16, 200, 400), 4);
  EXPECT_EQ(waves(12, 1, 1), 3);
}

}  // namespace
}  // namespace turnout::test
