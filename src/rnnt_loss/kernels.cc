// Log-sum-exp and its gradient along a row, compiled once per instruction set.
#include "rnnt_loss/kernels.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "core/dtypes.h"
#include "simd/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rnnt_loss/kernels.cc"
#include "simd/simd.h"
//
#include "simd/math.h"

TURNOUT_ISA_BEGIN(families::rnnt_loss)

using namespace core;

template <class Lane>
using Tag = hn::ScalableTag<Lane>;
template <class Lane>
constexpr std::int64_t kLanes = HWY_MAX_BYTES / sizeof(Lane);
template <class Lane>
constexpr Lane kNone = -std::numeric_limits<Lane>::infinity();

HWY_INLINE hn::Vec<Tag<float>> load(const float* from) { return hn::LoadU(Tag<float>(), from); }
HWY_INLINE hn::Vec<Tag<double>> load(const double* from) { return hn::LoadU(Tag<double>(), from); }
HWY_INLINE hn::Vec<Tag<float>> load(const f16* from) { return widen(from); }
HWY_INLINE hn::Vec<Tag<float>> load(const bf16* from) { return widen(from); }

HWY_INLINE void store(hn::Vec<Tag<float>> v, float* to) { hn::StoreU(v, Tag<float>(), to); }
HWY_INLINE void store(hn::Vec<Tag<double>> v, double* to) { hn::StoreU(v, Tag<double>(), to); }
HWY_INLINE void store(hn::Vec<Tag<float>> v, f16* to) { hn::StoreU(narrow(f16{}, v), U16(), &to->bits); }
HWY_INLINE void store(hn::Vec<Tag<float>> v, bf16* to) { hn::StoreU(narrow(bf16{}, v), U16(), &to->bits); }

template <class T>
HWY_INLINE T rounded(LaneOf<T> v) {
  if constexpr (sizeof(T) == 8) {
    return v;
  } else {
    return from_float<T>(v);
  }
}

// The last elements of a row, fewer than a vector, followed by `rest`.
template <class T>
struct Tail {
  alignas(kLine) T values[kLanes<LaneOf<T>>];

  Tail(const T* from, std::int64_t count, T rest) {
    std::fill(std::begin(values), std::end(values), rest);
    std::memcpy(values, from, static_cast<std::size_t>(count) * sizeof(T));
  }
};

// Calls visit(from) for each whole vector of a row, and last(from, count) for the rest.
template <class T, class Visit, class Last>
HWY_INLINE void by_vectors(const T* row, std::int64_t count, const Visit& visit, const Last& last) {
  constexpr std::int64_t kStep = kLanes<LaneOf<T>>;
  std::int64_t c = 0;
  for (; c + kStep <= count; c += kStep) visit(row + c);
  if (c < count) last(row + c, count - c);
}

template <class T>
LaneOf<T> largest(const void* row, std::int64_t count) {
  using Lane = LaneOf<T>;
  const Tag<Lane> d;
  auto most = hn::Set(d, kNone<Lane>);
  auto nan = hn::Zero(d);  // NaN in the lanes that had one, which Max may drop
  const auto visit = [&](const T* from) HWY_ATTR {
    const auto x = load(from);
    most = hn::Max(most, x);
    nan = hn::IfThenElse(hn::Eq(x, x), nan, x);
  };
  by_vectors(static_cast<const T*>(row), count, visit, [&](const T* from, std::int64_t n) HWY_ATTR {
    visit(Tail<T>(from, n, rounded<T>(kNone<Lane>)).values);
  });
  if (!hn::AllTrue(d, hn::Eq(nan, nan))) return std::numeric_limits<Lane>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// The same as sum() for less than a vector, which is loaded once.
template <class T>
HWY_INLINE LogSum<LaneOf<T>> sum_of_few(const T* row, std::int64_t count) {
  using Lane = LaneOf<T>;
  const Tag<Lane> d;
  const T none = rounded<T>(kNone<Lane>);
  alignas(kLine) T values[kLanes<Lane>];
  for (std::int64_t c = 0; c < kLanes<Lane>; ++c) values[c] = c < count ? row[c] : none;
  const auto x = load(values);
  if (!hn::AllTrue(d, hn::Eq(x, x))) {
    const Lane nan = std::numeric_limits<Lane>::quiet_NaN();
    return {nan, nan};
  }
  const auto max = hn::MaxOfLanes(d, x);
  const Lane total = hn::GetLane(hn::SumOfLanes(d, falling_exp(d, hn::Sub(x, max))));
  return {hn::GetLane(max), static_cast<Lane>(std::log(static_cast<double>(total)))};
}

template <class T>
LogSum<LaneOf<T>> sum(const void* row, std::int64_t count) {
  using Lane = LaneOf<T>;
  const Tag<Lane> d;
  if (count < kLanes<Lane>) return sum_of_few<T>(static_cast<const T*>(row), count);
  const Lane max = largest<T>(row, count);
  const auto shift = hn::Set(d, max);
  // Four sums, because a single chain of additions would take as long as the exponentials.
  constexpr std::int64_t kStep = kLanes<Lane>;
  const auto* x = static_cast<const T*>(row);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto e = [&](const T* from) HWY_ATTR { return falling_exp(d, hn::Sub(load(from), shift)); };
  std::int64_t c = 0;
  for (; c + 4 * kStep <= count; c += 4 * kStep) {
    s0 = hn::Add(s0, e(x + c));
    s1 = hn::Add(s1, e(x + c + kStep));
    s2 = hn::Add(s2, e(x + c + 2 * kStep));
    s3 = hn::Add(s3, e(x + c + 3 * kStep));
  }
  const auto visit = [&](const T* from) HWY_ATTR { s0 = hn::Add(s0, e(from)); };
  by_vectors(x + c, count - c, visit, [&](const T* from, std::int64_t n) HWY_ATTR {
    visit(Tail<T>(from, n, rounded<T>(kNone<Lane>)).values);
  });
  const Lane total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  return {max, static_cast<Lane>(std::log(static_cast<double>(total)))};
}

// to[c] = op(row[c]); `to` may be `row`.
template <class T, class U, class Op>
HWY_INLINE void map(const T* row, std::int64_t count, U* to, const Op& op) {
  constexpr std::int64_t kStep = kLanes<LaneOf<T>>;
  by_vectors(
      row, count, [&](const T* from) HWY_ATTR { store(op(load(from)), to + (from - row)); },
      [&](const T* from, std::int64_t n) HWY_ATTR {
        alignas(kLine) U buffer[kStep];
        store(op(load(Tail<T>(from, n, T{}).values)), buffer);
        std::memcpy(to + (from - row), buffer, static_cast<std::size_t>(n) * sizeof(U));
      });
}

template <class T>
void shifted(const void* row, std::int64_t count, LaneOf<T> shift, LaneOf<T>* to) {
  const Tag<LaneOf<T>> d;
  const auto by = hn::Set(d, shift);
  map(static_cast<const T*>(row), count, to, [&](auto x) HWY_ATTR { return falling_exp(d, hn::Sub(x, by)); });
}

template <class T>
void gradient(const void* row, std::int64_t count, LaneOf<T> normalizer, LaneOf<T> weight,
              Peak<LaneOf<T>> symbol, Peak<LaneOf<T>> blank, void* to) {
  using Lane = LaneOf<T>;
  const Tag<Lane> d;
  const auto* x = static_cast<const T*>(row);
  auto* out = static_cast<T*>(to);
  const auto by = hn::Set(d, normalizer), factor = hn::Set(d, -weight);
  const auto share = [&](auto v) HWY_ATTR { return hn::Mul(factor, falling_exp(d, hn::Sub(v, by))); };
  // Computed before `row` is overwritten, with the same instructions, and rounded once, including the peaks.
  const auto with_peak = [&](std::int64_t at) HWY_ATTR {
    const Lane common = hn::GetLane(share(load(Tail<T>(x + at, 1, T{}).values)));
    return rounded<T>((at == symbol.at ? symbol.value : Lane{0}) + (at == blank.at ? blank.value : Lane{0}) +
                      common);
  };
  const T at_symbol = with_peak(symbol.at), at_blank = with_peak(blank.at);
  map(x, count, out, share);
  out[symbol.at] = at_symbol;
  out[blank.at] = at_blank;
}

template <class T>
void add(const void* row, std::int64_t count, LaneOf<T>* sum) {
  const auto* x = static_cast<const T*>(row);
  by_vectors(
      x, count,
      [&](const T* from) HWY_ATTR {
        auto* to = sum + (from - x);
        store(hn::Add(load(to), load(from)), to);
      },
      [&](const T* from, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) sum[from - x + i] += to_float(from[i]);
      });
}

template <class T>
void activate(const void* am, const void* lm, std::int64_t count, RnntActivation activation, LaneOf<T>* to) {
  using Lane = LaneOf<T>;
  const Tag<Lane> d;
  constexpr std::int64_t kStep = kLanes<Lane>;
  const auto* x = static_cast<const T*>(am);
  const auto* y = static_cast<const T*>(lm);
  const auto one = [&](const T* a, const T* b, Lane* h) HWY_ATTR {
    const auto sum = hn::Add(load(a), load(b));
    // Highway's functions do not keep NaN.
    store(activation == RnntActivation::tanh   ? hn::IfThenElse(hn::Eq(sum, sum), hn::Tanh(d, sum), sum)
          : activation == RnntActivation::relu ? hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(d)), sum)
                                               : sum,
          h);
  };
  std::int64_t c = 0;
  for (; c + kStep <= count; c += kStep) one(x + c, y + c, to + c);
  if (c == count) return;
  alignas(kLine) Lane buffer[kStep];
  one(Tail<T>(x + c, count - c, T{}).values, Tail<T>(y + c, count - c, T{}).values, buffer);
  std::memcpy(to + c, buffer, static_cast<std::size_t>(count - c) * sizeof(Lane));
}

template <class Lane>
void activation_gradient(Lane* grad, const Lane* h, std::int64_t count, RnntActivation activation) {
  const Tag<Lane> d;
  constexpr std::int64_t kStep = kLanes<Lane>;
  if (activation == RnntActivation::none) return;
  const bool is_tanh = activation == RnntActivation::tanh;
  std::int64_t c = 0;
  for (; c + kStep <= count; c += kStep) {
    const auto g = load(grad + c), v = load(h + c);
    store(is_tanh ? hn::Mul(g, hn::Sub(hn::Set(d, Lane{1}), hn::Mul(v, v)))
                  : hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), g),
          grad + c);
  }
  for (; c < count; ++c) grad[c] = is_tanh ? grad[c] * (1 - h[c] * h[c]) : h[c] > 0 ? grad[c] : 0;
}

template <class Lane>
void log(const Lane* from, std::int64_t count, Lane* to) {
  const Tag<Lane> d;
  map(from, count, to, [&](auto x) HWY_ATTR { return hn::Log(d, x); });
}

template <class Lane>
bool weights(const Lane* px_grad, const Lane* py_grad, const Lane* normalizer, Lane shift, const Lane* shifts,
             std::int64_t count, Lane* to) {
  const Tag<Lane> d;
  constexpr std::int64_t kStep = kLanes<Lane>;
  const auto least = hn::Set(d, static_cast<Lane>(kLeastLogSum)), by = hn::Set(d, shift);
  bool has_small = false;
  const auto one = [&](const Lane* px, const Lane* py, const Lane* n, const Lane* s, Lane* w) HWY_ATTR {
    const auto total = px == nullptr ? load(py) : hn::Add(load(px), load(py));
    const auto log_sum = hn::Sub(hn::Sub(load(n), by), load(s));
    const auto is_small = hn::Lt(log_sum, least);
    has_small = has_small || !hn::AllFalse(d, is_small);
    const auto weight = hn::Mul(total, falling_exp(d, hn::Neg(log_sum)));
    const auto known = hn::IfThenElse(hn::Eq(log_sum, log_sum), weight, log_sum);
    store(hn::IfThenElse(is_small, hn::Zero(d), known), w);
  };
  std::int64_t t = 0;
  for (; t + kStep <= count; t += kStep)
    one(px_grad == nullptr ? nullptr : px_grad + t, py_grad + t, normalizer + t, shifts + t, to + t);
  if (t < count) {
    const std::int64_t n = count - t;
    const Tail<Lane> px(px_grad == nullptr ? py_grad + t : px_grad + t, n, 0), py(py_grad + t, n, 0),
        logs(normalizer + t, n, shift), more(shifts + t, n, 0);
    alignas(kLine) Lane buffer[kStep];
    one(px_grad == nullptr ? nullptr : px.values, py.values, logs.values, more.values, buffer);
    std::memcpy(to + t, buffer, static_cast<std::size_t>(n) * sizeof(Lane));
  }
  return has_small;
}

template <class Lane>
void negated_product(Lane* x, const Lane* by, std::int64_t count) {
  constexpr std::int64_t kStep = kLanes<Lane>;
  std::int64_t c = 0;
  for (; c + kStep <= count; c += kStep) store(hn::Neg(hn::Mul(load(x + c), load(by + c))), x + c);
  for (; c < count; ++c) x[c] = -(x[c] * by[c]);
}

// The function of each dtype whose lanes are Lane.
#define TURNOUT_BY_DTYPE(Kernel, function)                       \
  template <class Lane>                                          \
  typename RowKernels<Lane>::Kernel function##_of(DType dtype) { \
    if constexpr (sizeof(Lane) == 8) {                           \
      return &function<double>;                                  \
    } else {                                                     \
      return dtype == DType::f16    ? &function<f16>             \
             : dtype == DType::bf16 ? &function<bf16>            \
                                    : &function<float>;          \
    }                                                            \
  }
TURNOUT_BY_DTYPE(Largest, largest)
TURNOUT_BY_DTYPE(Sum, sum)
TURNOUT_BY_DTYPE(Shifted, shifted)
TURNOUT_BY_DTYPE(Gradient, gradient)
TURNOUT_BY_DTYPE(Add, add)
TURNOUT_BY_DTYPE(Activate, activate)
#undef TURNOUT_BY_DTYPE

template <class Lane>
constexpr RowKernels<Lane> kRowKernels = {&largest_of<Lane>,          &sum_of<Lane>, &shifted_of<Lane>,
                                          &gradient_of<Lane>,         &add_of<Lane>, &activate_of<Lane>,
                                          &activation_gradient<Lane>, &log<Lane>,    &weights<Lane>,
                                          &negated_product<Lane>};
constexpr RowKernels<float> kF32 = kRowKernels<float>;
constexpr RowKernels<double> kF64 = kRowKernels<double>;

TURNOUT_ISA_END

#if HWY_ONCE
TURNOUT_KERNELS(families::rnnt_loss, RowKernels<float>, f32_row_kernels, kF32)
TURNOUT_KERNELS(families::rnnt_loss, RowKernels<double>, f64_row_kernels, kF64)
#endif
