// Calls with boxes of any kind, compared with the definitions bit by bit: for the tests and the fuzzer.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isas.h"
#include "registry.h"
#include "turnout/boxes.h"

namespace turnout::families::boxes {
std::span<const core::Operator> operators();
}

namespace turnout::test {

// A number below a bound, and where all randomness of a case comes from.
using Below = std::function<std::int64_t(std::int64_t)>;

// Boxes of the operators, whose overlaps are of all kinds: far apart, near to the distance from which the
// overlap is exactly 0, duplicates, thin, large, empty and negative ones, and numbers that are not finite.
template <class Real>
class BoxMaker {
 public:
  explicit BoxMaker(Below below) : below_(std::move(below)), kind_(below_(6)) {}

  // x, y, width, height, angle, z, dz
  std::vector<Real> next() {
    if (!made_.empty() && below_(8) == 0) return made_[static_cast<std::size_t>(below_(size()))];
    std::vector<Real> box(7);
    const Real spread = kind_ == 0 ? Real(2) : kind_ == 1 ? Real(20) : kind_ == 2 ? Real(1e4) : Real(5);
    const Real scale = kind_ == 3 ? Real(1e-3) : kind_ == 4 ? Real(1e3) : Real(1);
    box[0] = uniform(-spread, spread) * scale;
    box[1] = uniform(-spread, spread) * scale;
    box[2] = uniform(Real(0.1), 4) * scale;
    box[3] = uniform(Real(0.1), 4) * scale;
    box[4] = below_(3) == 0 ? static_cast<Real>(below_(9) - 4) * Real(0.78539816339744831)
                            : uniform(Real(-7), Real(7));
    box[5] = uniform(-2, 2);
    box[6] = uniform(Real(0.1), 3);
    if (!made_.empty() && below_(3) == 0) put_near(box);
    const std::int64_t odd = below_(12);
    auto& one = box[static_cast<std::size_t>(below_(7))];
    if (odd == 0) one = not_finite();
    if (odd == 1) one = 0;
    if (odd == 2) one = -one;
    if (odd == 3) box[static_cast<std::size_t>(2 + below_(2))] *= Real(1e-6);
    if (odd == 4) one = std::round(one * 4) / 4;
    made_.push_back(box);
    return box;
  }
  Real uniform(Real low, Real high) {
    return low + (high - low) * static_cast<Real>(below_(1 << 16)) / Real(1 << 16);
  }
  Real not_finite() {
    static constexpr Real kValues[] = {std::numeric_limits<Real>::quiet_NaN(),
                                       std::numeric_limits<Real>::infinity(),
                                       -std::numeric_limits<Real>::infinity(),
                                       std::numeric_limits<Real>::max(),
                                       std::numeric_limits<Real>::denorm_min(),
                                       Real(1e9),
                                       Real(-1e20),
                                       Real(-0.0)};
    return kValues[below_(8)];
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(made_.size()); }
  // At about the distance of two circles around the boxes, or end to end, or on top of each other.
  void put_near(std::vector<Real>& box) {
    const std::vector<Real>& other = made_[static_cast<std::size_t>(below_(size()))];
    const Real radii = (std::hypot(box[2], box[3]) + std::hypot(other[2], other[3])) / 2;
    const std::int64_t how = below_(4);
    if (how > 0) box[4] = other[4];
    const Real gap = below_(2) == 0 ? uniform(Real(-0.02), Real(0.02)) : uniform(Real(-1e-5), Real(1e-5));
    const Real distance = how == 0   ? radii + gap
                          : how == 1 ? (box[2] + other[2]) / 2 + gap
                          : how == 2 ? radii + Real(0.0142) + gap
                                     : gap;
    const Real direction = how == 0 ? uniform(0, 6) : other[4];
    box[0] = other[0] + distance * std::cos(direction);
    box[1] = other[1] + distance * std::sin(direction);
  }

  Below below_;
  const std::int64_t kind_;
  std::vector<std::vector<Real>> made_;
};

// Rows of `numbers` numbers: 7 or 5 as above, 4 as x1, y1, x2, y2.
template <class Real>
std::vector<Real> make_boxes(BoxMaker<Real>& maker, std::int64_t count, int numbers) {
  std::vector<Real> all;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::vector<Real> b = maker.next();
    if (numbers == 7) {
      all.insert(all.end(), {b[0], b[1], b[5], b[2], b[3], b[6], b[4]});
    } else if (numbers == 5) {
      all.insert(all.end(), {b[0], b[1], b[2], b[3], b[4]});
    } else {
      all.insert(all.end(), {b[0], b[1], b[0] + b[2], b[1] + b[3]});
    }
  }
  return all;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool are_nan = a[i] != a[i] && b[i] != b[i];
    if (!are_nan && std::memcmp(&a[i], &b[i], sizeof(T)) != 0) return false;
  }
  return a.size() == b.size();
}

// Runs an operator on all instruction sets and with one and three threads; compares `result`, its last
// argument, with the definition's. Returns what is wrong.
template <class T>
std::string compare(std::string_view op, std::vector<Tensor> arguments, std::vector<T>& result,
                    const std::vector<core::ScalarValue>& scalars) {
  const core::Operator* entry = core::find_operator(op);
  const std::vector<T> painted = result;
  const std::int64_t rows = entry->definition(arguments.data(), scalars.data());
  const std::vector<T> expected = result;
  for (const Isa isa : supported_isas())
    for (const int threads : {1, 3}) {
      result = painted;
      arguments.back().data = result.data();
      Context context({.threads = threads, .isa = isa});
      const std::int64_t found = entry->invoke(context, arguments.data(), scalars.data());
      if (found != rows || !same_bits(result, expected))
        return std::string(op) + " differs from its definition on " + std::string(name_of(isa)) + " with " +
               std::to_string(threads) + " threads";
    }
  return "";
}

template <class Real>
std::string compare_pairs(std::string_view op, const Below& below, std::int64_t most) {
  const bool is_rotated = op.starts_with("box_iou_rotated"), is_aligned = op.ends_with("_aligned");
  const int numbers = is_rotated ? 5 : 7;
  const std::int64_t rows = below(most + 1), columns = is_aligned ? rows : below(most + 1);
  BoxMaker<Real> maker(below);
  std::vector<Real> a = make_boxes(maker, rows, numbers), b = make_boxes(maker, columns, numbers);
  std::vector<Real> result(static_cast<std::size_t>(is_aligned ? rows : rows * columns), Real(7));
  const Tensor to = is_aligned ? view(result.data(), {rows}) : view(result.data(), {rows, columns});
  std::vector<core::ScalarValue> scalars;
  if (is_rotated) scalars.emplace_back(below(2));
  return compare<Real>(op, {view(a.data(), {rows, numbers}), view(b.data(), {columns, numbers}), to}, result,
                       scalars);
}

template <class Real>
std::string compare_nms(std::string_view op, const Below& below, std::int64_t most) {
  const int numbers = op == "nms" ? 4 : op == "nms_rotated" ? 5 : 7;
  const std::int64_t count = below(most + 1);
  BoxMaker<Real> maker(below);
  std::vector<Real> boxes = make_boxes(maker, count, numbers);
  std::vector<float> scores;
  for (std::int64_t i = 0; i < count; ++i)
    scores.push_back(below(8) == 0 ? static_cast<float>(maker.not_finite())
                                   : static_cast<float>(below(8) == 0 ? below(4) : below(1000)));
  static constexpr double kThresholds[] = {0.1, 0.0, 0.5, 0.01, 0.7, 1.0, -0.5, 1.01};
  const double threshold = kThresholds[below(8)];
  const std::int64_t room = below(3) == 0 ? below(count + 2) : count;
  std::vector<std::int64_t> keep(static_cast<std::size_t>(room), -7);
  std::vector<core::ScalarValue> scalars{threshold};
  if (op == "nms") scalars.emplace_back(below(2));
  Tensor given = nullptr;
  if (below(4) != 0) given = view(scores.data(), {count});
  return compare<std::int64_t>(op, {view(boxes.data(), {count, numbers}), given, view(keep.data(), {room})},
                               keep, scalars);
}

template <class Real>
std::string compare_points(std::string_view op, const Below& below, std::int64_t most) {
  const bool is_batched = below(2) == 0, is_all = op.ends_with("_all");
  const std::int64_t batch = is_batched ? below(4) : 1, points = below(4 * most + 1), count = below(most + 1);
  BoxMaker<Real> maker(below);
  std::vector<Real> boxes = make_boxes(maker, batch * count, 7), at;
  for (std::int64_t i = 0; i < batch * points; ++i) {
    Real p[] = {maker.uniform(-6, 6), maker.uniform(-6, 6), maker.uniform(-3, 3)};
    if (count > 0 && below(2) == 0) {  // at a border of a box, or inside
      const Real* box = &boxes[static_cast<std::size_t>(7 * below(batch * count))];
      const Real u = maker.uniform(Real(-0.51), Real(0.51)) * box[3];
      const Real v = static_cast<Real>(below(3) - 1) / 2 * box[4], c = std::cos(box[6]), s = std::sin(box[6]);
      p[0] = box[0] + u * c - v * s;
      p[1] = box[1] + u * s + v * c;
      p[2] = box[2] + (below(2) == 0 ? box[5] / 2 : box[5] / 4);
    }
    if (below(20) == 0) p[below(3)] = maker.not_finite();
    at.insert(at.end(), p, p + 3);
  }
  static constexpr double kMargins[] = {1e-5, 0, 1e-2, -0.1};
  const std::vector<core::ScalarValue> scalars{below(2), kMargins[below(4)]};
  std::vector<std::int32_t> result(static_cast<std::size_t>(batch * points * (is_all ? count : 1)), -7);
  if (!is_batched)
    return compare<std::int32_t>(
        op,
        {view(at.data(), {points, 3}), view(boxes.data(), {count, 7}),
         is_all ? view(result.data(), {points, count}) : view(result.data(), {points})},
        result, scalars);
  return compare<std::int32_t>(
      op,
      {view(at.data(), {batch, points, 3}), view(boxes.data(), {batch, count, 7}),
       is_all ? view(result.data(), {batch, points, count}) : view(result.data(), {batch, points})},
      result, scalars);
}

// A random call of an operator of this family.
inline std::string compare_with_definition(std::string_view op, const Below& below, std::int64_t most) {
  const auto run = [&](auto real) {
    using Real = decltype(real);
    if (op.find("nms") != op.npos) return compare_nms<Real>(op, below, most);
    if (op.starts_with("points")) return compare_points<Real>(op, below, most);
    return compare_pairs<Real>(op, below, most);
  };
  return below(3) == 0 ? run(double{}) : run(float{});
}

}  // namespace turnout::test
