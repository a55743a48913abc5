// Random calls, and the comparison of their results with the definition's.
#include "bindings/definition.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "bindings/call.h"
#include "bindings/schema.h"
#include "core/check.h"
#include "core/dtypes.h"
#include "core/example.h"
#include "simd/half.h"

namespace turnout::bindings {

using namespace core;

std::uint64_t SeededRandom::next() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

namespace {

bool is_floating(DType dtype) { return contains(kFloats, dtype); }

// A tensor that owns its memory.
struct OwnedTensor {
  Tensor tensor = nullptr;
  std::vector<std::uint64_t> memory;

  OwnedTensor() = default;
  OwnedTensor(DType dtype, const std::int64_t* shape, int rank) : tensor(nullptr, dtype, shape, rank) {
    memory.resize(static_cast<std::size_t>(Slot(tensor).elements() * size_of(dtype)) / 8 + 1);
    tensor.data = memory.data();
  }
  OwnedTensor(const OwnedTensor& other) : tensor(other.tensor), memory(other.memory) {
    if (!tensor.is_absent()) tensor.data = memory.data();
  }
  OwnedTensor& operator=(OwnedTensor other) {
    memory = std::move(other.memory);
    tensor = other.tensor;
    if (!tensor.is_absent()) tensor.data = memory.data();
    return *this;
  }

  std::int64_t elements() const { return tensor.is_absent() ? 0 : Slot(tensor).elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements() * size_of(tensor.dtype)); }
};

// The element types of a tensor, floating-point numbers and others.
template <class F>
void visit_floats(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::f16:
      return f(f16{});
    default:
      return f(bf16{});
  }
}
template <class F>
void visit_integers(std::int64_t size, const F& f) {
  switch (size) {
    case 1:
      return f(std::int8_t{});
    case 2:
      return f(std::int16_t{});
    case 4:
      return f(std::int32_t{});
    default:
      return f(std::int64_t{});
  }
}
template <class T>
T from_double(double value) {
  if constexpr (sizeof(T) == 2) {
    return from_float<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}
template <class T>
double to_double(T value) {
  if constexpr (sizeof(T) == 2) {
    return to_float(value);
  } else {
    return value;
  }
}

// The same numbers as f64, or as i64 if they are not floating-point numbers.
OwnedTensor widened(const OwnedTensor& from) {
  if (from.tensor.is_absent()) return {};
  const Tensor& t = from.tensor;
  OwnedTensor wide(is_floating(t.dtype) ? DType::f64 : DType::i64, t.shape, t.rank);
  const auto copy = [&](auto type, auto* to, const auto& convert) {
    const auto* elements = static_cast<const decltype(type)*>(t.data);
    for (std::int64_t i = 0; i < from.elements(); ++i) to[i] = convert(elements[i]);
  };
  if (is_floating(t.dtype)) {
    visit_floats(t.dtype, [&](auto type) {
      copy(type, static_cast<double*>(wide.tensor.data), [](auto v) { return to_double(v); });
    });
  } else {
    visit_integers(size_of(t.dtype), [&](auto type) {
      copy(type, static_cast<std::int64_t*>(wide.tensor.data), [](auto v) { return std::int64_t{v}; });
    });
  }
  return wide;
}

// Multiples of 1/8, whose sums and products are exact in most types, or all kinds of fractions.
void fill(const OwnedTensor& to, Random& random, std::int64_t lowest, std::int64_t bound) {
  const bool is_coarse = random.one_in(2);
  if (is_floating(to.tensor.dtype)) {
    visit_floats(to.tensor.dtype, [&](auto type) {
      auto* elements = static_cast<decltype(type)*>(to.tensor.data);
      for (std::int64_t i = 0; i < to.elements(); ++i) {
        const std::int64_t steps = is_coarse ? 16 : 20000;
        const double fraction =
            static_cast<double>(random.below(2 * steps + 1) - steps) / static_cast<double>(steps);
        elements[i] = from_double<decltype(type)>(2 * fraction);
      }
    });
  } else {
    visit_integers(size_of(to.tensor.dtype), [&](auto type) {
      auto* elements = static_cast<decltype(type)*>(to.tensor.data);
      const bool is_flag = to.tensor.dtype == DType::boolean;
      for (std::int64_t i = 0; i < to.elements(); ++i)
        elements[i] = static_cast<decltype(type)>(is_flag ? random.below(2) : lowest + random.below(bound));
    });
  }
}

// What a caller passes: values by position in the lists of the Signature.
struct Drawn {
  Example values;
  std::vector<OwnedTensor> inputs;  // by argument; outputs are absent
  std::vector<bool> requests;       // by argument
  std::vector<bool> size_flags;     // by position in Signature::size_flags

  Drawn(const Operator& op, Random& random) : values(*op.signature, op.example, random.one_in(3)) {
    const Signature& signature = *op.signature;
    draw_values(signature, random);
    for (int i = 0; i < signature.size_flags.count; ++i) size_flags.push_back(random.one_in(2));
    std::vector<DType> dtypes(static_cast<std::size_t>(signature.arguments.count), kForeign);
    for (int i = 0; i < signature.arguments.count; ++i) draw_dtype(signature, i, dtypes, random);
    for (int i = 0; i < signature.arguments.count; ++i) {
      const Argument& argument = signature.arguments[i];
      requests.push_back(!argument.request.empty() && random.one_in(2));
      const bool is_input = !argument.is_output();
      if (!is_input || (argument.optional && random.one_in(2))) {
        inputs.emplace_back();
      } else {
        const std::vector<std::int64_t> shape = values.shape(i);
        inputs.emplace_back(dtypes[static_cast<std::size_t>(i)], shape.data(),
                            static_cast<int>(shape.size()));
        // Indices are below an extent of the call, so that most are valid; some are not.
        const auto name = static_cast<std::size_t>(random.below(signature.names.count));
        const std::int64_t bound = std::clamp<std::int64_t>(values.sizes[name], 1, 100);
        fill(inputs.back(), random, random.one_in(4) ? -1 : 0, random.one_in(4) ? bound + 1 : bound);
      }
    }
    if (op.prepare == nullptr) return;
    std::vector<Tensor> views;
    for (const OwnedTensor& input : inputs) views.push_back(input.tensor);
    op.prepare(views.data());
  }

 private:
  void draw_values(const Signature& signature, Random& random) {
    static constexpr std::int64_t kExtents[] = {0, 1, 2, 3, 5, 8, 17, 33};
    for (int i = 0; i < signature.names.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      std::int64_t& size = values.sizes[at];
      if (i >= signature.scalars.count) {
        const bool is_dropped = values.drops_dimensions && is_optional(signature, i);
        if (!is_dropped && random.one_in(2)) size = kExtents[random.below(std::size(kExtents))];
        continue;
      }
      const Scalar& scalar = signature.scalars[i];
      if (scalar.is_real) {
        for (double& value : values.reals[at])
          if (random.one_in(3))
            value = std::clamp(value * static_cast<double>(random.below(5)) / 2, scalar.least, scalar.most);
      } else if (scalar.is_vector) {
        size = 1;
        for (std::int64_t& value : values.vectors[at]) {
          if (random.one_in(3)) value = std::min(scalar.max, scalar.min + random.below(3));
          size *= value;
        }
      } else if (!scalar.values.empty()) {
        size = scalar.min + random.below(scalar.max - scalar.min + 1);
      } else if (random.one_in(3)) {
        size = std::min(scalar.max, std::max<std::int64_t>(scalar.min, 0) + random.below(6));
      }
    }
  }

  static bool is_optional(const Signature& signature, int name) {
    for (const Argument& argument : signature.arguments)
      for (const Extent& dim : argument.dims)
        if (dim.optional && dim.names[0] == name) return true;
    return false;
  }

  static DType draw_dtype(const Signature& signature, int position, std::vector<DType>& dtypes,
                          Random& random) {
    DType& dtype = dtypes[static_cast<std::size_t>(position)];
    if (dtype != kForeign) return dtype;
    const Argument& argument = signature.arguments[position];
    if (argument.like >= 0 && (argument.dtypes == 0 || random.one_in(2))) {
      const DType like = draw_dtype(signature, argument.like, dtypes, random);
      return dtype = argument.is_lane ? lane_dtype(like) : like;
    }
    for (std::int64_t skip = random.below(std::popcount(argument.dtypes)), i = 0; dtype == kForeign; ++i)
      if (contains(argument.dtypes, static_cast<DType>(i)) && skip-- == 0) dtype = static_cast<DType>(i);
    return dtype;
  }
};

// An adapter of OperatorCall for a drawn call.
class DrawnCall {
 public:
  DrawnCall(const Operator& op, const Schema& schema, const Drawn& drawn, Context& context)
      : schema_(schema), signature_(*op.signature), drawn_(drawn), context_(context) {
    results.resize(schema.results().size());
    rooms.resize(schema.results().size());
    gives_results.assign(schema.results().size(), false);
  }

  bool is_passed(int i) const { return is_given(i); }
  bool is_given(int i) const {
    const Parameter& parameter = at(i);
    if (parameter.kind == Parameter::Kind::tensor) return !input(parameter).tensor.is_absent();
    if (parameter.kind != Parameter::Kind::size) return true;
    return signature_.size_kinds[parameter.position - signature_.scalars.count] != SizeKind::either;
  }
  Tensor tensor(int i, int, bool) const { return input(at(i)).tensor; }
  std::int64_t integer(int i) const { return drawn_.values.sizes[static_cast<std::size_t>(at(i).position)]; }
  double real(int i) const { return drawn_.values.reals[static_cast<std::size_t>(at(i).position)][0]; }
  bool flag(int i) const {
    const Parameter& parameter = at(i);
    const auto position = static_cast<std::size_t>(parameter.position);
    if (parameter.kind == Parameter::Kind::request) return drawn_.requests[position];
    if (parameter.kind == Parameter::Kind::size_flag) return drawn_.size_flags[position];
    return drawn_.values.sizes[position] != 0;
  }
  std::int64_t choice(int i, const Scalar&) const { return integer(i); }
  std::vector<std::int64_t> integers(int i, std::int64_t, bool) const {
    return drawn_.values.vectors[static_cast<std::size_t>(at(i).position)];
  }
  std::vector<double> reals(int i, std::int64_t) const {
    return drawn_.values.reals[static_cast<std::size_t>(at(i).position)];
  }
  bool has_out(int r) const { return gives_results[static_cast<std::size_t>(r)]; }
  Tensor out(int r, int) const { return results[static_cast<std::size_t>(r)].tensor; }
  Tensor new_result(int r, int, DType dtype, const std::int64_t* shape, int rank) {
    OwnedTensor& result = results[static_cast<std::size_t>(r)] = OwnedTensor(dtype, shape, rank);
    std::memset(result.memory.data(), 0x5A, result.memory.size() * 8);
    rooms[static_cast<std::size_t>(r)] = result;
    return result.tensor;
  }
  void no_result(int r, int, DType) { results[static_cast<std::size_t>(r)] = {}; }
  void check_rows(int) const {}
  void shorten(int r, Tensor& tensor, std::int64_t rows) {
    tensor.shape[0] = results[static_cast<std::size_t>(r)].tensor.shape[0] = rows;
  }
  CallerNames names() const {
    static constexpr Renames kOwnNames;
    return {.op = signature_.op, .renames = kOwnNames};
  }
  template <class Body>
  void run(const Body& body, bool is_last) {
    const CallDetails details{.steps = &steps_, .is_last = is_last};
    body(details.caller(context_));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::bad_param, concat(signature_.op, ": ", why));
  }

  std::vector<OwnedTensor> results;
  std::vector<OwnedTensor> rooms;  // the new results before they are shortened
  std::vector<bool> gives_results;

 private:
  const Parameter& at(int i) const { return schema_.parameters()[static_cast<std::size_t>(i)]; }
  const OwnedTensor& input(const Parameter& parameter) const {
    return drawn_.inputs[static_cast<std::size_t>(parameter.position)];
  }

  const Schema& schema_;
  const Signature& signature_;
  const Drawn& drawn_;
  Context& context_;
  Steps steps_;
};

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-11;
    case DType::f32:
      return 4e-5;
    case DType::f16:
      return 4e-3;
    default:
      return 3e-2;
  }
}

// What is wrong with a result, given that of the definition; empty: nothing. NaN equals NaN; an exact result
// has the same sign of zero, too. A shortened result has fewer rows than the definition had room for.
std::string difference(std::string_view name, const OwnedTensor& found, const OwnedTensor& expected,
                       bool is_exact) {
  const OwnedTensor wide = widened(found);
  const auto message = [&](std::int64_t i, const std::string& is, const std::string& should) {
    return concat(name, "[", i, "] is ", is, ", expected ", should);
  };
  if (wide.tensor.dtype == DType::i64) {
    const auto* a = static_cast<const std::int64_t*>(wide.tensor.data);
    const auto* b = static_cast<const std::int64_t*>(expected.tensor.data);
    for (std::int64_t i = 0; i < wide.elements(); ++i)
      if (a[i] != b[i]) return message(i, concat(a[i]), concat(b[i]));
    return "";
  }
  const auto* a = static_cast<const double*>(wide.tensor.data);
  const auto* b = static_cast<const double*>(expected.tensor.data);
  double scale = 1;
  for (std::int64_t i = 0; i < wide.elements(); ++i)
    if (std::isfinite(b[i])) scale = std::max(scale, std::abs(b[i]));
  for (std::int64_t i = 0; i < wide.elements(); ++i) {
    const bool is_same = (a[i] == b[i] && (!is_exact || std::signbit(a[i]) == std::signbit(b[i]))) ||
                         (std::isnan(a[i]) && std::isnan(b[i]));
    const double tolerance = is_exact ? -1 : scale * tolerance_of(found.tensor.dtype);
    if (!is_same && !(std::abs(a[i] - b[i]) <= tolerance))
      return message(i, number_text(a[i]), number_text(b[i]));
  }
  return "";
}

}  // namespace

Comparison compare_with_definition(const Operator& op, Random& random, std::span<Context* const> contexts) {
  const Signature& signature = *op.signature;
  const Schema schema(signature);
  const Drawn drawn(op, random);
  const auto run = [&](DrawnCall& adapter) {
    OperatorCall call(op, schema, adapter);
    call.run();
  };
  // A first call finds the shapes of results. Others then get memory with content, which some keep.
  DrawnCall first(op, schema, drawn, *contexts[0]);
  try {
    run(first);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_param) return {true, "", error.what()};
    return {false, error.what(), ""};
  }
  std::vector<OwnedTensor> painted = first.rooms;
  const bool gives = random.one_in(2);
  for (OwnedTensor& result : painted)
    if (!result.tensor.is_absent()) fill(result, random, 0, 100);

  const auto position = [&](std::size_t r) { return static_cast<std::size_t>(schema.results()[r]); };
  std::vector<OwnedTensor> wide(static_cast<std::size_t>(signature.arguments.count));
  std::vector<Tensor> arguments;
  arguments.reserve(wide.size());
  const auto given = [&](const OwnedTensor& one) { return op.is_exact ? one : widened(one); };
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = given(drawn.inputs[i]);
  for (std::size_t r = 0; r < painted.size(); ++r) wide[position(r)] = given(painted[r]);
  for (const OwnedTensor& one : wide) arguments.push_back(one.tensor);
  std::vector<ScalarValue> scalars = drawn.values.scalar_values();
  for (int i = 0; i < signature.scalars.count; ++i)
    if (signature.scalars[i].is_fill)
      scalars[static_cast<std::size_t>(i)] = signature.scalars[i].min + (gives ? 0 : 1);
  const std::int64_t rows = op.definition(arguments.data(), scalars.data());
  if (op.is_exact)
    for (const int result : schema.results()) {
      OwnedTensor& one = wide[static_cast<std::size_t>(result)];
      one = widened(one);
    }

  std::vector<std::vector<OwnedTensor>> results;
  for (Context* context : contexts) {
    DrawnCall call(op, schema, drawn, *context);
    if (gives) {
      call.results = painted;
      for (std::size_t r = 0; r < painted.size(); ++r) call.gives_results[r] = !painted[r].tensor.is_absent();
    }
    run(call);
    results.push_back(call.results);
    for (std::size_t r = 0; r < painted.size(); ++r) {
      if (painted[r].tensor.is_absent()) continue;
      const std::string_view name = signature.arguments[schema.results()[r]].name;
      const auto where = [&] {
        return concat(" with ", std::int64_t{context->threads()}, " threads and ", name_of(context->isa()));
      };
      if (signature.arguments[schema.results()[r]].is_shortened && call.results[r].tensor.shape[0] != rows)
        return {true, "",
                concat(signature.op, ": ", name, " has ", call.results[r].tensor.shape[0], " rows, expected ",
                       rows, where())};
      const std::string wrong = difference(name, call.results[r], wide[position(r)], op.is_exact);
      if (!wrong.empty()) return {true, "", concat(signature.op, ": ", wrong, where())};
      for (std::size_t c = 0; c + 1 < results.size(); ++c)
        if (contexts[c]->isa() == context->isa() &&
            std::memcmp(results[c][r].tensor.data, call.results[r].tensor.data, call.results[r].bytes()) != 0)
          return {true, "",
                  concat(signature.op, ": ", name, " has other bits than with ",
                         std::int64_t{contexts[c]->threads()}, " threads", where())};
    }
  }
  return {true, "", ""};
}

}  // namespace turnout::bindings
