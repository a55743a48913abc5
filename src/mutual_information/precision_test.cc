// Limits the error of float results against double: steps of many sizes, pruned bands, all kinds of lattices.
#include <gtest/gtest.h>

#include <string>

#include "isas.h"
#include "mutual_information/lattice_case.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

// The limits in README.md: sum of errors / sum of values.
constexpr double kScores = 1e-5;     // p and ans
constexpr double kBoth = 1e-4;       // gradients in one pass
constexpr double kSameP = 1e-5;      // gradients from a given p
constexpr double kSamePLong = 3e-5;  // where S + T is more than kLong
constexpr double kTwoCalls = 1e-3;   // gradients in two calls
constexpr std::int64_t kLong = 1500;

enum class Mode { regular, modified, constrained };
enum class Steps { narrow, wide, spread, peaked };

// Lattices of pruned losses: each frame keeps `range` rows around a path, as losses choose them; 0 keeps all.
class Losses {
 public:
  explicit Losses(unsigned seed) : random_(seed) {}

  LatticeCase<float> lattice(std::int64_t symbols, std::int64_t frames, Mode mode, Steps steps,
                             std::int64_t range) {
    LatticeCase<float> c(1, symbols, frames, mode != Mode::regular);
    // The frame in which each symbol is emitted, and the number of symbols emitted before each frame.
    std::vector<std::int64_t> said;
    for (std::int64_t s = 0; s < symbols; ++s) said.push_back(below(frames));
    std::sort(said.begin(), said.end());
    std::vector<std::int64_t> start(static_cast<std::size_t>(frames + 1), 0);
    for (std::int64_t t = frames; range > 0 && t-- > 0;) {
      const std::int64_t before = std::lower_bound(said.begin(), said.end(), t) - said.begin();
      const std::int64_t next = t + 1 < frames ? start[static_cast<std::size_t>(t + 1)] : symbols + 1 - range;
      start[static_cast<std::size_t>(t)] =
          std::clamp<std::int64_t>(before - range / 2, std::max<std::int64_t>(0, next - (range - 1)),
                                   std::min(next, symbols + 1 - range));
    }
    start.back() = symbols + 1 - range;
    const auto value = [&](bool is_symbol, std::int64_t s, std::int64_t t) {
      const std::int64_t first = start[static_cast<std::size_t>(t)];
      if (range > 0 && (s < first || s >= first + range)) return -std::numeric_limits<double>::infinity();
      const bool is_said = s < symbols && said[static_cast<std::size_t>(s)] == t;
      switch (steps) {
        case Steps::narrow:
          return uniform(-3, 0);
        case Steps::wide:
          return uniform(-10, 0);
        case Steps::spread:
          return std::normal_distribution<double>(-3, 1.5)(random_);
        default:
          return (is_symbol == is_said ? -0.05 : is_symbol ? -9 : -5) * uniform(0.5, 1.5);
      }
    };
    for (std::int64_t i = 0; i < symbols * c.columns; ++i)
      c.px[static_cast<std::size_t>(i)] = c.cast(value(true, i / c.columns, i % c.columns));
    for (std::int64_t i = 0; i < (symbols + 1) * frames; ++i)
      c.py[static_cast<std::size_t>(i)] = c.cast(value(false, i / frames, i % frames));
    if (mode == Mode::constrained)
      for (std::int64_t i = 0; i < symbols * frames; ++i)
        c.px[static_cast<std::size_t>(i)] += c.py[static_cast<std::size_t>(i + frames)];
    return c;
  }

 private:
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<unsigned>(limit));
  }
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  std::mt19937 random_;
};

void expect_precise(const LatticeCase<float>& c, const std::string& what) {
  const auto expected = c.expected();
  ASSERT_TRUE(std::isfinite(expected.ans[0])) << what;
  const double same_p = c.symbols + c.frames > kLong ? kSamePLong : kSameP;
  for (Isa isa : supported_isas()) {
    SCOPED_TRACE(what + ", " + name_of(isa));
    Context context({.threads = 2, .isa = isa});
    auto r = c.empty_result(), both = c.empty_result();
    c.forward(context, r);
    EXPECT_LE(difference(r.p, expected.p), kScores);
    EXPECT_LE(difference(r.ans, expected.ans), kScores);
    c.both(context, both);
    EXPECT_LE(difference(both.px_grad, expected.px_grad), kBoth);
    EXPECT_LE(difference(both.py_grad, expected.py_grad), kBoth);
    c.backward(context, r, false);
    const auto of_same_p = c.expected(&r.p);
    EXPECT_LE(difference(r.px_grad, of_same_p.px_grad), same_p);
    EXPECT_LE(difference(r.py_grad, of_same_p.py_grad), same_p);
    EXPECT_LE(difference(r.px_grad, expected.px_grad), kTwoCalls);
    EXPECT_LE(difference(r.py_grad, expected.py_grad), kTwoCalls);
  }
}

void run(std::int64_t symbols, std::int64_t frames, std::initializer_list<std::int64_t> ranges) {
  Losses losses(static_cast<unsigned>(symbols));
  for (Mode mode : {Mode::regular, Mode::modified, Mode::constrained}) {
    if (mode != Mode::regular && symbols > frames) continue;
    for (Steps steps : {Steps::narrow, Steps::wide, Steps::spread, Steps::peaked})
      for (std::int64_t range : ranges)
        expect_precise(losses.lattice(symbols, frames, mode, steps, range),
                       "symbols " + std::to_string(symbols) + ", frames " + std::to_string(frames) +
                           ", mode " + std::to_string(static_cast<int>(mode)) + ", steps " +
                           std::to_string(static_cast<int>(steps)) + ", range " + std::to_string(range));
  }
}

TEST(MutualInformationPrecision, Speech) { run(50, 500, {0, 3, 5, 20}); }
TEST(MutualInformationPrecision, LongSpeech) {
  if (kReducedShapes) GTEST_SKIP() << "the same code on a shorter lattice is tested above";
  run(100, 800, {0, 5});
  run(200, 1500, {100});
}
// More symbols than frames: the band moves several rows per frame, and most strips are unreachable in most of
// their steps.
TEST(MutualInformationPrecision, Steep) { run(300, 60, {0, 20, 60}); }

// S + T = 4,000: the rounding errors of a long lattice.
TEST(MutualInformationPrecision, Longest) {
  if (kReducedShapes) GTEST_SKIP() << "the same code on a shorter lattice is tested above";
  Losses losses(1);
  expect_precise(losses.lattice(500, 3500, Mode::regular, Steps::narrow, 0), "regular");
  expect_precise(losses.lattice(500, 3500, Mode::modified, Steps::narrow, 5), "modified, range 5");
  expect_precise(losses.lattice(500, 3500, Mode::constrained, Steps::peaked, 60), "constrained, range 60");
  expect_precise(losses.lattice(3800, 150, Mode::regular, Steps::narrow, 100), "steep, range 100");
}

// If no path reaches the end, the gradients in one pass are 0 and do not double from cell to cell.
TEST(MutualInformationPrecision, NoWayThrough) {
  // Modified: each of the 100 symbols takes a frame, and there are only 50.
  LatticeCase<float> c = Losses(2).lattice(100, 50, Mode::modified, Steps::narrow, 0);
  for (Isa isa : supported_isas()) {
    Context context({.threads = 1, .isa = isa});
    auto r = c.empty_result();
    c.both(context, r);
    EXPECT_EQ(r.ans[0], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(r.px_grad, std::vector<float>(c.px.size(), 0.0f));
    EXPECT_EQ(r.py_grad, std::vector<float>(c.py.size(), 0.0f));
  }
}

}  // namespace
}  // namespace turnout::test
