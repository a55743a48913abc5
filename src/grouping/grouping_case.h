// Random calls, compared bit by bit with the definitions: for the tests and the fuzzer. Numbers are multiples
// of 1/8 and small, so that sums of f32 and f64 are exact; sums of 16-bit floats are rounded once.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/dtypes.h"
#include "isas.h"
#include "registry.h"
#include "simd/half.h"

namespace turnout::families::grouping {
std::span<const core::Operator> operators();
}

namespace turnout::test {

// A number below a bound, and where all randomness of a case comes from.
using Below = std::function<std::int64_t(std::int64_t)>;

// A tensor in a dtype and in the definition's: f64, or i64.
class Numbers {
 public:
  Numbers(DType dtype, std::vector<std::int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
    for (const std::int64_t extent : shape_) count_ *= extent;
    wide_.resize(static_cast<std::size_t>(count_ * 8));
    own_.resize(static_cast<std::size_t>(count_ * size_of(dtype)));
  }
  std::int64_t count() const { return count_; }
  bool is_integer() const { return dtype_ == DType::i32 || dtype_ == DType::i64; }
  void set(std::int64_t i, double value) {
    if (is_integer()) {
      core::visit_index(dtype_, [&](auto type) { put<typename decltype(type)::type>(i, value); });
      reinterpret_cast<std::int64_t*>(wide_.data())[i] = static_cast<std::int64_t>(value);
    } else {
      core::visit_float(dtype_, [&](auto type) { put<typename decltype(type)::type>(i, value); });
      reinterpret_cast<double*>(wide_.data())[i] = value;
    }
  }
  // Rounds the definition's numbers to the dtype.
  void round() {
    for (std::int64_t i = 0; i < count_; ++i) set(i, reinterpret_cast<double*>(wide_.data())[i]);
  }
  Tensor own() { return tensor(own_.data(), dtype_); }
  Tensor wide() { return tensor(wide_.data(), is_integer() ? DType::i64 : DType::f64); }
  std::vector<std::byte>& bytes() { return own_; }

 private:
  template <class T>
  void put(std::int64_t i, double value) {
    if constexpr (sizeof(T) == 2) {
      reinterpret_cast<T*>(own_.data())[i] = core::from_float<T>(static_cast<float>(value));
    } else {
      reinterpret_cast<T*>(own_.data())[i] = static_cast<T>(value);
    }
  }
  Tensor tensor(void* data, DType dtype) {
    Tensor t(data, dtype, {});
    t.rank = static_cast<std::int32_t>(shape_.size());
    std::int64_t stride = 1;
    for (int d = t.rank - 1; d >= 0; --d) {
      t.shape[d] = shape_[static_cast<std::size_t>(d)];
      t.stride[d] = stride;
      stride *= t.shape[d];
    }
    return t;
  }

  DType dtype_;
  std::vector<std::int64_t> shape_;
  std::int64_t count_ = 1;
  std::vector<std::byte> wide_, own_;
};

// Runs the operator on all instruction sets and with one and three threads; compares the result, its last
// argument, with the definition's. Returns what is wrong.
inline std::string compare(const core::Operator& op, std::vector<Numbers>& arguments) {
  std::vector<Tensor> own, wide;
  for (Numbers& one : arguments) {
    own.push_back(one.own());
    wide.push_back(one.wide());
  }
  Numbers& result = arguments.back();
  const std::vector<std::byte> painted = result.bytes();
  op.definition(wide.data(), nullptr);
  result.round();
  const std::vector<std::byte> expected = result.bytes();
  for (const Isa isa : supported_isas())
    for (const int threads : {1, 3}) {
      if (!painted.empty()) std::memcpy(own.back().data, painted.data(), painted.size());
      Context context({.threads = threads, .isa = isa});
      op.invoke(context, own.data(), nullptr);
      if (result.bytes() != expected)
        return std::string(op.signature->op) + " differs from its definition on " +
               std::string(name_of(isa)) + " with " + std::to_string(threads) + " threads";
    }
  return "";
}

// A random call of an operator of this family with extents up to about `most`.
inline std::string compare_with_definition(const core::Operator& op, const Below& below, std::int64_t most) {
  const std::string_view name = op.signature->op;
  const bool is_backward = name.ends_with("_backward"), is_three = name.starts_with("three");
  const bool is_stacked = name.find("stacked") != name.npos, is_gather = name.starts_with("gather");
  static constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
  const DType dtype = kDTypes[below(4)], lane = dtype == DType::f64 ? dtype : DType::f32;
  const DType index = below(2) == 0 ? DType::i32 : DType::i64;
  const std::int64_t batch = 1 + below(3), channels = below(2 * most), centers = below(most);
  const std::int64_t samples = is_three ? 3 : is_gather ? 1 : below(40), rows = 1 + below(most);

  using Shape = std::vector<std::int64_t>;
  Shape features{batch, channels, rows}, grouped{batch, channels, centers, samples};
  Shape places{batch, centers, samples};
  if (is_stacked) {
    features = {rows, channels};
    grouped = {centers, channels, samples};
    places = {centers, samples};
  }
  if (is_three || is_gather) grouped.pop_back();
  if (is_three && is_stacked) grouped = {centers, channels};
  if (is_gather) places.pop_back();

  Numbers indices(index, places), counts(index, {batch}), index_counts(index, {batch});
  std::vector<std::int64_t> limit(static_cast<std::size_t>(indices.count()), rows);
  if (is_stacked && !is_three) {
    std::int64_t left = rows, centers_left = centers, at = 0;
    for (std::int64_t b = 0; b < batch; ++b) {
      const bool is_last = b + 1 == batch;
      const std::int64_t count = is_last ? left : below(left + 1);
      const std::int64_t its = is_last ? centers_left : below(centers_left + 1);
      counts.set(b, static_cast<double>(count));
      index_counts.set(b, static_cast<double>(its));
      left -= count;
      centers_left -= its;
      for (std::int64_t i = 0; i < its * samples; ++i) limit[static_cast<std::size_t>(at++)] = count;
    }
  }
  const bool repeats = below(3) == 0;  // most indices are equal, as in balls with few points
  for (std::int64_t i = 0; i < indices.count(); ++i) {
    const std::int64_t its = limit[static_cast<std::size_t>(i)];
    // A sample without rows may have any index.
    indices.set(i, static_cast<double>(its == 0 ? below(9) - 4 : below(repeats ? 1 + below(its) : its)));
  }
  const auto numbers = [&](DType kind, const Shape& shape) {
    Numbers made(kind, shape);
    for (std::int64_t i = 0; i < made.count(); ++i) made.set(i, static_cast<double>(below(65) - 32) / 8);
    return made;
  };
  std::vector<Numbers> arguments{numbers(dtype, is_backward ? grouped : features)};
  if (is_stacked && !is_three) {
    arguments.insert(arguments.end(), {counts, indices, index_counts});
  } else {
    arguments.push_back(indices);
  }
  if (is_three) arguments.push_back(numbers(lane, places));
  arguments.push_back(numbers(dtype, is_backward ? features : grouped));
  return compare(op, arguments);
}

}  // namespace turnout::test
