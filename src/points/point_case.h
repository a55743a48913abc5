// Calls with clouds of any kind, compared with the definitions bit by bit: for the tests and the fuzzer.
#pragma once

#include <algorithm>
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
#include "turnout/points.h"

namespace turnout::families::points {
std::span<const core::Operator> operators();
}

namespace turnout::test {

// A number below a bound, and where all randomness of a case comes from.
using Below = std::function<std::int64_t(std::int64_t)>;

// Clouds in which distances are of all kinds: random, on a lattice with many equal distances, in clusters,
// with duplicates, large and tiny, and with numbers that are not finite.
template <class Real>
class CloudMaker {
 public:
  explicit CloudMaker(Below below) : below_(std::move(below)), kind_(below_(6)), has_odd_(below_(3) == 0) {}

  std::vector<Real> make(std::int64_t count) {
    std::vector<Real> cloud;
    for (std::int64_t i = 0; i < count; ++i) {
      if (i > 0 && below_(10) == 0) {  // a duplicate
        const auto from = static_cast<std::ptrdiff_t>(3 * below_(i));
        const std::vector<Real> copy(cloud.begin() + from, cloud.begin() + from + 3);
        cloud.insert(cloud.end(), copy.begin(), copy.end());
        continue;
      }
      for (int k = 0; k < 3; ++k) cloud.push_back(next(k));
    }
    return cloud;
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
  Real next(int axis) {
    if (has_odd_ && below_(40) == 0) return not_finite();
    switch (kind_) {
      case 0:
        return static_cast<Real>(below_(4));
      case 1:
        return static_cast<Real>(below_(12)) / 4 + Real(1000);
      case 2:
        return uniform(0, axis == 2 ? 2 : 50);
      case 3:
        return uniform(-1, 1) * Real(1e-3);
      case 4:
        return uniform(0, 1) + static_cast<Real>(10 * below_(3));
      default:
        return uniform(-2, 2);
    }
  }

  Below below_;
  const std::int64_t kind_;
  const bool has_odd_;
};

using Shape = std::vector<std::int64_t>;

// A tensor that owns its elements.
struct Owned {
  std::vector<std::byte> memory;
  Tensor tensor = nullptr;

  Owned() = default;
  template <class T>
  Owned(const std::vector<T>& values, const Shape& shape)
      : memory(values.size() * sizeof(T) + 1),
        tensor(nullptr, dtype_of<T>, shape.data(), static_cast<int>(shape.size())) {
    if (!values.empty()) std::memcpy(memory.data(), values.data(), values.size() * sizeof(T));
    tensor.data = memory.data();
  }
  template <class T>
  static Owned painted(const Shape& shape) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    return Owned(std::vector<T>(static_cast<std::size_t>(elements), T(7)), shape);
  }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> all((memory.size() - 1) / sizeof(T));
    if (!all.empty()) std::memcpy(all.data(), memory.data(), all.size() * sizeof(T));
    return all;
  }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool are_nan = a[i] != a[i] && b[i] != b[i];
    if (!are_nan && std::memcmp(&a[i], &b[i], sizeof(T)) != 0) return false;
  }
  return a.size() == b.size();
}
inline bool same_bits(const Owned& a, const Owned& b) {
  if (a.tensor.is_absent()) return true;
  if (a.tensor.dtype == DType::f32) return same_bits(a.values<float>(), b.values<float>());
  if (a.tensor.dtype == DType::f64) return same_bits(a.values<double>(), b.values<double>());
  return a.memory == b.memory;
}

// Runs an operator on all instruction sets and with one and three threads; compares all arguments with those
// of the definition. Returns what is wrong.
inline std::string compare(std::string_view op, const std::vector<Owned>& arguments,
                           const std::vector<core::ScalarValue>& scalars) {
  const core::Operator* entry = core::find_operator(op);
  const auto tensors = [](std::vector<Owned>& of) {
    std::vector<Tensor> all;
    for (Owned& one : of) {
      if (!one.tensor.is_absent()) one.tensor.data = one.memory.data();
      all.push_back(one.tensor);
    }
    return all;
  };
  std::vector<Owned> expected = arguments;
  entry->definition(tensors(expected).data(), scalars.data());
  for (const Isa isa : supported_isas())
    for (const int threads : {1, 3}) {
      std::vector<Owned> found = arguments;
      Context context({.threads = threads, .isa = isa});
      entry->invoke(context, tensors(found).data(), scalars.data());
      for (std::size_t i = 0; i < found.size(); ++i)
        if (!same_bits(found[i], expected[i]))
          return std::string(op) + ": " + std::string(entry->signature->arguments[static_cast<int>(i)].name) +
                 " differs from its definition on " + std::string(name_of(isa)) + " with " +
                 std::to_string(threads) + " threads";
    }
  return "";
}

// `total` in `parts` numbers of 0 or more.
inline std::vector<std::int64_t> divide(const Below& below, std::int64_t total, std::int64_t parts) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(parts), 0);
  for (std::size_t b = 0; b + 1 < counts.size(); ++b) {
    counts[b] = below(total + 1);
    total -= counts[b];
  }
  counts.back() = total;
  return counts;
}

template <class Real, class Index>
std::string compare_sampling(std::string_view op, const Below& below, std::int64_t most) {
  const bool is_stacked = op.ends_with("_stacked"), is_matrix = op.ends_with("_by_distances");
  const std::int64_t batch = 1 + below(3), count = 1 + below(is_matrix ? most / 4 + 1 : most);
  std::int64_t samples = 1 + below(count + 3);
  CloudMaker<Real> maker(below);
  const std::int64_t rows = is_stacked ? count : batch * count;
  std::vector<Owned> arguments;
  if (is_matrix) {
    std::vector<Real> matrix;
    for (std::int64_t i = 0; i < batch * count * count; ++i)
      matrix.push_back(below(30) == 0 ? maker.not_finite() : static_cast<Real>(below(50)) / 4);
    arguments.emplace_back(matrix, Shape{batch, count, count});
  } else if (is_stacked) {
    const auto counts = divide(below, count, batch);
    std::vector<std::int64_t> wanted;
    samples = 0;
    for (const std::int64_t points : counts) {
      wanted.push_back(points == 0 ? 0 : below(points + 3));
      samples += wanted.back();
    }
    if (samples == 0) return "";
    arguments.emplace_back(maker.make(count), Shape{count, 3});
    arguments.emplace_back(counts, Shape{batch});
    arguments.emplace_back(std::vector<std::int32_t>(wanted.begin(), wanted.end()), Shape{batch});
  } else {
    arguments.emplace_back(maker.make(rows), Shape{batch, count, 3});
  }
  const auto per_point = [&](const std::vector<Real>& values) {
    return is_stacked ? Owned(values, {count}) : Owned(values, {batch, count});
  };
  std::vector<Real> initial;
  for (std::int64_t i = 0; i < rows; ++i)
    initial.push_back(below(8) == 0 ? maker.not_finite() : static_cast<Real>(below(9) - 2));
  arguments.push_back(below(3) == 0 ? per_point(initial) : Owned());
  arguments.push_back(is_stacked ? Owned::painted<Index>({samples})
                                 : Owned::painted<Index>({batch, samples}));
  arguments.push_back(below(2) == 0 ? per_point(std::vector<Real>(static_cast<std::size_t>(rows), 7))
                                    : Owned());
  return compare(op, arguments, {});
}

// A cloud and queries near to it, with the same kinds of numbers.
template <class Real>
struct Asked {
  std::vector<Real> cloud, queries;
  Asked(CloudMaker<Real>& maker, const Below& below, std::int64_t points, std::int64_t asked)
      : cloud(maker.make(points)), queries(maker.make(asked)) {
    for (std::int64_t q = 0; q < asked && points > 0; ++q)
      if (below(3) == 0)  // at a point
        std::copy_n(cloud.begin() + static_cast<std::ptrdiff_t>(3 * below(points)), 3,
                    queries.begin() + static_cast<std::ptrdiff_t>(3 * q));
  }
};

template <class Real, class Index>
std::string compare_queries(std::string_view op, const Below& below, std::int64_t most) {
  const bool is_stacked = op.ends_with("_stacked"), is_ball = op.starts_with("ball");
  const bool is_three = op.starts_with("three");
  const std::int64_t batch = 1 + below(3), least = is_three ? 1 : 0;
  const std::int64_t count = least + below(most), asked = below(most < 100 ? most : 130);
  const std::int64_t points = is_stacked ? count : batch * count,
                     queries = is_stacked ? asked : batch * asked;
  CloudMaker<Real> maker(below);
  const Asked<Real> made(maker, below, points, queries);
  auto counts = divide(below, points, batch), query_counts = divide(below, queries, batch);
  if (is_three)  // no queries of a cloud without points
    for (std::size_t b = 0; b < counts.size(); ++b)
      if (counts[b] == 0 && query_counts[b] > 0) {
        const auto to =
            static_cast<std::size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
        query_counts[to] += query_counts[b];
        query_counts[b] = 0;
      }
  const std::int64_t room = is_three ? 3 : 1 + below(below(4) == 0 ? count + 2 : 20);
  const auto shaped = [&](std::int64_t rows, std::int64_t last) {
    Shape shape;
    if (!is_stacked) shape.push_back(batch);
    shape.push_back(is_stacked ? rows : rows / batch);
    if (last > 0) shape.push_back(last);
    return shape;
  };
  std::vector<Owned> arguments;
  const auto add_points = [&] {
    arguments.emplace_back(made.cloud, shaped(points, 3));
    if (is_stacked) arguments.emplace_back(counts, Shape{batch});
  };
  const auto add_queries = [&] {
    arguments.emplace_back(made.queries, shaped(queries, 3));
    if (is_stacked) arguments.emplace_back(query_counts, Shape{batch});
  };
  if (is_three) {
    add_queries();
    add_points();
    arguments.push_back(Owned::painted<Real>(shaped(queries, 3)));
    arguments.push_back(Owned::painted<Index>(shaped(queries, 3)));
    return compare(op, arguments, {});
  }
  add_points();
  add_queries();
  arguments.push_back(Owned::painted<Index>(shaped(queries, room)));
  if (!is_ball) {
    arguments.push_back(Owned::painted<Real>(shaped(queries, room)));
    return compare(op, arguments, {});
  }
  arguments.push_back(Owned::painted<std::int32_t>(shaped(queries, 0)));
  static constexpr double kRadii[] = {0.5, 1, 2, 0.8, 0, 1e-3, 1e5, std::numeric_limits<double>::infinity()};
  return compare(op, arguments, {kRadii[below(8)], below(2) == 0 ? 0.0 : kRadii[below(4)]});
}

template <class Real, class Index>
std::string compare_voxels(std::string_view op, const Below& below, std::int64_t most) {
  const std::int64_t points = 1 + below(most), queries = below(most), nsample = 1 + below(6);
  const Shape extents{1 + below(3), 1 + below(4), 1 + below(6), 1 + below(9)};
  CloudMaker<Real> maker(below);
  const Asked<Real> made(maker, below, points, queries);
  std::vector<Index> coordinates, grid;
  for (std::int64_t q = 0; q < queries; ++q) {
    coordinates.push_back(static_cast<Index>(below(extents[0])));
    for (std::size_t k = 1; k < 4; ++k) coordinates.push_back(static_cast<Index>(below(extents[k] + 4) - 2));
  }
  for (std::int64_t i = 0; i < extents[0] * extents[1] * extents[2] * extents[3]; ++i)
    grid.push_back(static_cast<Index>(below(2) == 0 ? -1 - below(2) : below(points)));
  static constexpr double kRadii[] = {0.5, 1, 2, 0, 1e5, std::numeric_limits<double>::infinity()};
  return compare(op,
                 {Owned(made.cloud, {points, 3}), Owned(made.queries, {queries, 3}),
                  Owned(coordinates, {queries, 4}), Owned(grid, extents),
                  Owned::painted<Index>({queries, nsample}), Owned::painted<std::int32_t>({queries})},
                 {kRadii[below(6)], below(3), below(5), below(2) == 0 ? below(5) : std::int64_t{2147483647}});
}

// A random call of an operator of this family.
inline std::string compare_with_definition(std::string_view op, const Below& below, std::int64_t most) {
  const auto run = [&](auto real, auto index) {
    using Real = decltype(real);
    using Index = decltype(index);
    if (op.starts_with("furthest")) return compare_sampling<Real, Index>(op, below, most);
    if (op.starts_with("voxel")) return compare_voxels<Real, Index>(op, below, most);
    return compare_queries<Real, Index>(op, below, most);
  };
  if (below(3) == 0) return run(double{}, std::int64_t{});
  return below(3) == 0 ? run(float{}, std::int64_t{}) : run(float{}, std::int32_t{});
}

}  // namespace turnout::test
