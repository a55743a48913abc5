// Compares the results of random calls with the definition's.
#include "bindings/definition.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "bindings/call.h"
#include "bindings/drawn_call.h"
#include "bindings/schema.h"
#include "core/check.h"
#include "core/dtypes.h"
#include "simd/half.h"

namespace turnout::bindings {

using namespace core;
namespace {

// The same numbers as f64, or as i64 if they are not floating-point numbers.
OwnedTensor widened(const OwnedTensor& from) {
  if (from.tensor.is_absent()) return {};
  const Tensor& t = from.tensor;
  OwnedTensor wide(is_floating(t.dtype) ? DType::f64 : DType::i64, t.shape, t.rank);
  const auto copy = [&]<class T, class To>(Type<T>, To* to) {
    const auto* elements = static_cast<const T*>(t.data);
    for (std::int64_t i = 0; i < from.elements(); ++i) {
      if constexpr (std::is_floating_point_v<To>) {
        to[i] = to_float(elements[i]);
      } else {
        to[i] = To{elements[i]};
      }
    }
  };
  if (is_floating(t.dtype)) {
    visit_float(t.dtype, [&](auto type) { copy(type, static_cast<double*>(wide.tensor.data)); });
  } else {
    visit_integer(size_of(t.dtype),
                  [&](auto type) { copy(type, static_cast<std::int64_t*>(wide.tensor.data)); });
  }
  return wide;
}

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

// The first difference between a result and the definition's, or an empty string. NaN equals NaN; an exact
// result also has the same sign of zero. A shortened result has fewer rows than the definition had room for.
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
  // The first call finds the shapes of the results. The others may be passed results with content, which some
  // operators keep.
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
