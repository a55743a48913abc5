// Gathers rows of at most two vectors, which stay in registers. Included once per instruction set, after
// simd.h.
#if defined(TURNOUT_SHORT_ROWS_PER_ISA) == defined(HWY_TARGET_TOGGLE)
#ifdef TURNOUT_SHORT_ROWS_PER_ISA
#undef TURNOUT_SHORT_ROWS_PER_ISA
#else
#define TURNOUT_SHORT_ROWS_PER_ISA
#endif

TURNOUT_ISA_BEGIN(rows)

using namespace core;

// The weighted sums of the rows of tokens. A row is two parts, at both of its ends, which may overlap. A sum
// begins with -0, which changes no first term; a choice without a row adds +0. kChoices: a constant number of
// choices, or 0.
template <class T, class Weight, int kLanes, int kChoices = 0>
void gather_short(const GatherTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
                  std::int64_t given_choices) {
  using Part = Few<T, kLanes>;
  using Lane = typename Block<T>::Lane;
  constexpr bool kWeighted = !std::is_same_v<Weight, void>;
  constexpr std::int64_t kAhead = 16;  // rows to prefetch
  const typename Part::D d;
  // Local copies, which stores to `to` cannot change.
  const std::int64_t choices = kChoices > 0 ? kChoices : given_choices;
  const std::int64_t hidden = task.hidden, second = kLanes == 1 ? 0 : hidden - kLanes;
  const bool has_second = second > 0;
  const std::int64_t* const end = rows + count * choices;
  const auto* const routed = static_cast<const T*>(task.routed);
  const auto* const weights = static_cast<const Weight*>(task.weights);
  const Layout layout = task.layout;
  auto* to = static_cast<T*>(task.tokens) + token * hidden;
  for (std::int64_t i = token; i < token + count; ++i, to += hidden) {
    auto a = hn::Set(d, Lane{-0.0}), b = a;
    bool add_zero = choices == 0;
    for (std::int64_t k = 0; k < choices; ++k, ++rows) {
      if (end - rows > kAhead) fetch_line(routed + std::max<std::int64_t>(rows[kAhead], 0) * hidden);
      if (*rows < 0) {
        add_zero = true;
        continue;
      }
      const T* const from = routed + *rows * hidden;
      auto factor = hn::Zero(d);
      if constexpr (kWeighted)
        factor = hn::Set(d, static_cast<Lane>(to_float(weights[i * layout.token + k * layout.choice])));
      const auto term = [&](const T* part) HWY_ATTR {
        const auto x = Part::load(part);
        return kWeighted ? hn::Mul(factor, x) : x;
      };
      a = hn::Add(a, term(from));
      if (has_second) b = hn::Add(b, term(from + second));
    }
    if (add_zero) {
      a = hn::Add(a, hn::Zero(d));
      b = hn::Add(b, hn::Zero(d));
    }
    Part::store(a, to);
    if (has_second) Part::store(b, to + second);
  }
}

// With one choice, the loop over choices would take as long as a short row.
template <class T, class Weight, int kLanes>
void gather_weighted(const GatherTask& task, const std::int64_t* rows, std::int64_t token, std::int64_t count,
                     std::int64_t choices) {
  if constexpr (sizeof(T) < 8) {
    if (choices == 1) return gather_short<T, Weight, kLanes, 1>(task, rows, token, count, choices);
  }
  gather_short<T, Weight, kLanes>(task, rows, token, count, choices);
}

// Returns whether the rows are short enough for gather_short().
template <class T, bool kWeighted>
bool is_gathered_short(const GatherTask& task, const std::int64_t* rows, std::int64_t token,
                       std::int64_t count, std::int64_t choices) {
  return with_few_lanes<T>(task.hidden, [&](auto lanes) {
    constexpr int kLanes = decltype(lanes)::value;
    if constexpr (!kWeighted) {
      gather_short<T, void, kLanes>(task, rows, token, count, choices);
    } else if (task.f32_weights) {
      gather_weighted<T, float, kLanes>(task, rows, token, count, choices);
    } else {
      gather_weighted<T, T, kLanes>(task, rows, token, count, choices);
    }
  });
}

// Rows of any dtype are copied if each token has one row.
inline void gather_copied(const GatherTask& task, const std::int64_t* rows, std::int64_t token,
                          std::int64_t count) {
  const std::int64_t bytes = task.hidden * task.element_bytes;
  const auto* const routed = static_cast<const std::byte*>(task.routed);
  auto* to = static_cast<std::byte*>(task.tokens) + token * bytes;
  with_row_copy(bytes, [&](const auto& copy) {
    for (std::int64_t i = 0; i < count; ++i, to += bytes) {
      if (rows[i] >= 0) {
        copy(to, routed + rows[i] * bytes);
      } else {
        std::memset(to, 0, static_cast<std::size_t>(bytes));
      }
    }
  });
}

TURNOUT_ISA_END
#endif  // per instruction set
