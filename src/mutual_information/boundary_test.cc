// Tests which values of the boundary are errors, and that a call does not read the boundary after the check.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>

#include "mutual_information/lattice_case.h"
#include "racing.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

LatticeCase<float> filled(std::int64_t batch, std::int64_t symbols, std::int64_t frames) {
  LatticeCase<float> c(batch, symbols, frames, false);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> log_probability(-3, 0);
  for (auto* values : {&c.px, &c.py})
    for (float& v : *values) v = log_probability(random);
  return c;
}

// The message that a call of operator `which` throws. Also checks that the failing call writes nothing.
std::string message_of(const LatticeCase<float>& c, int which) {
  auto r = c.empty_result();
  const auto before = r;
  Context context;
  try {
    if (which == 0) c.forward(context, r);
    if (which == 1) c.backward(context, r, true);
    if (which == 2) c.both(context, r);
  } catch (const Error& error) {
    EXPECT_TRUE(r == before) << "a failing call wrote to an output";
    return error.what();
  }
  return "";
}

TEST(MutualInformationBoundary, IsChecked) {
  const char* const names[] = {"mutual_information_forward", "mutual_information_backward",
                               "mutual_information_forward_backward"};
  for (int which = 0; which < 3; ++which) {
    LatticeCase<float> c = filled(3, 5, 9);
    c.boundary = {0, 0, 5, 9, 0, 0, 6, 9, 0, 0, 5, 9};
    EXPECT_EQ(message_of(c, which),
              std::string(names[which]) + ": boundary[1, 2] is 6, expected 0 .. 5 symbols");
    c.boundary[6] = 5;
    c.boundary[11] = -1;
    EXPECT_EQ(message_of(c, which),
              std::string(names[which]) + ": boundary[2, 3] is -1, expected 0 .. 9 frames");
  }
}

// Cells outside keep their contents or become -infinity; the others do not depend on them. The second lattice
// is empty, and the batch is large enough for several threads.
TEST(MutualInformationBoundary, CellsOutsideAreKeptOrFilled) {
  LatticeCase<float> c = filled(8, 60, 400);
  for (std::int64_t b = 0; b < c.batch; ++b)
    c.boundary.insert(c.boundary.end(), {b % 4, b == 1 ? 300 : b, 60 - b % 3, b == 1 ? 299 : 400 - 9 * b});
  for (const int threads : {1, 2, 5}) {
    Context context({.threads = threads});
    auto kept = c.empty_result(), filled_too = c.empty_result();
    c.forward(context, kept);
    c.forward(context, filled_too, Outside::minus_infinity);
    EXPECT_EQ(kept.ans, filled_too.ans);
    std::int64_t i = 0;
    for (std::int64_t b = 0; b < c.batch; ++b) {
      const std::int64_t* box = c.boundary.data() + 4 * b;
      for (std::int64_t s = 0; s <= c.symbols; ++s) {
        for (std::int64_t t = 0; t <= c.frames; ++t, ++i) {
          const bool inside = s >= box[0] && s <= box[2] && t >= box[1] && t <= box[3];
          const auto at = static_cast<std::size_t>(i);
          ASSERT_EQ(kept.p[at], inside ? filled_too.p[at] : LatticeCase<float>::kPaint);
          if (inside) continue;
          ASSERT_EQ(filled_too.p[at], -std::numeric_limits<float>::infinity());
        }
      }
    }
  }
}

TEST(MutualInformationBoundary, IsNotReadAgainAfterItsCheck) {
  for (std::int64_t batch : {2, 40}) {  // few lattices shared by all threads, and many
    const LatticeCase<float> before = [&] {
      LatticeCase<float> c = filled(batch, 30, batch == 2 ? 2400 : 120);
      for (std::int64_t b = 0; b < batch; ++b)
        c.boundary.insert(c.boundary.end(), {1, 2, 28 - b % 3, c.frames - b});
      return c;
    }();
    auto expected = before.empty_result(), expected_both = before.empty_result();
    Context plain({.threads = 1});
    before.forward(plain, expected);
    before.backward(plain, expected, true);
    before.both(plain, expected_both);

    LatticeCase<float> c = before;
    FlippingExecutor executor;  // flips when a call starts its parallel loops, after all checks
    executor.flip = [&] { std::fill(c.boundary.begin(), c.boundary.end(), 3); };  // a different box
    Context context({.threads = 2, .executor = &executor});
    auto r = c.empty_result(), both = c.empty_result();
    const auto call = [&](const auto& f) {
      executor.loops = 0;
      c.boundary = before.boundary;
      f();
      EXPECT_FALSE(c.boundary == before.boundary);
    };
    call([&] { c.forward(context, r); });
    call([&] { c.backward(context, r, true); });
    call([&] { c.both(context, both); });
    EXPECT_TRUE(r == expected);
    EXPECT_TRUE(both == expected_both);
  }
}

TEST(MutualInformationBoundary, MayChangeWhileCallsRun) {
  if (kThreadSanitizer) GTEST_SKIP() << "the test causes a data race on purpose";
  LatticeCase<float> c = filled(2, 120, 150);
  for (int b = 0; b < 2; ++b) c.boundary.insert(c.boundary.end(), {0, 0, 120, 150});
  auto r = c.empty_result();
  expect_survives([&] {
    const Flipper<std::int64_t> flipper(c.boundary.data(), 8);
    int i = 0;
    call_for(std::chrono::milliseconds(800), [&] {
      Context context({.threads = 1 + ++i % 2});
      if (i % 3 == 0) c.forward(context, r);
      if (i % 3 == 1) c.backward(context, r, true);
      if (i % 3 == 2) c.both(context, r);
    });
  });
}

}  // namespace
}  // namespace turnout::test
