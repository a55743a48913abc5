// Calls of the registry's operators from Python.
#include "bindings/python/invoke.h"

#include <string>
#include <vector>

#include "bindings/python/gil.h"
#include "bindings/python/import.h"
#include "core/check.h"
#include "registry.h"
#include "turnout/context.h"

namespace turnout::bindings {

using namespace core;

namespace {

const Operator& operator_named(std::string_view name) {
  for (const Operator& one : operators())
    if (one.signature->op == name) return one;
  throw Error(ErrorCode::bad_param, concat("invoke: op is '", name, "', expected an operator's name"));
}

DType dtype_named(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name_of(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  return kForeign;
}

std::vector<std::int64_t> integers(nb::handle list) {
  std::vector<std::int64_t> values;
  for (nb::handle one : nb::borrow<nb::sequence>(list)) values.push_back(nb::cast<std::int64_t>(one));
  return values;
}

// Also adds the array that the tensor refers to to `keep`.
Tensor tensor_of(nb::handle object, std::vector<ImportedArray>& keep) {
  Tensor tensor;
  tensor.rank = -1;
  if (object.is_none()) return tensor;
  const auto fields = nb::cast<nb::tuple>(object);
  const DType dtype = dtype_named(nb::cast<nb::str>(fields[1]).c_str());
  const std::vector<std::int64_t> shape = integers(fields[2]);
  tensor = Tensor(nullptr, dtype, shape.data(), static_cast<int>(shape.size()));
  if (!fields[3].is_none()) {
    const std::vector<std::int64_t> strides = integers(fields[3]);
    for (std::size_t d = 0; d < strides.size() && d < kMaxRank; ++d) tensor.stride[d] = strides[d];
  }
  if (!fields[0].is_none()) {
    static constexpr std::string_view kWhat[2] = {"invoke", "arguments"};
    keep.push_back(import_array(fields[0], kWhat, false));
    tensor.data = keep.back().tensor.data;
  }
  return tensor;
}

}  // namespace

void invoke(const char* op, const nb::list& arguments, const nb::list& scalars) {
  const Operator& called = operator_named(op);
  const Signature& signature = *called.signature;
  if (static_cast<int>(arguments.size()) != signature.arguments.count ||
      static_cast<int>(scalars.size()) != signature.scalars.count)
    throw Error(ErrorCode::bad_param,
                concat("invoke: ", op, ": arguments or scalars differ in number from its Signature"));
  std::vector<ImportedArray> keep;
  std::vector<Tensor> tensors;
  for (nb::handle one : arguments) tensors.push_back(tensor_of(one, keep));
  std::vector<std::vector<std::int64_t>> vectors;
  vectors.reserve(scalars.size());  // ScalarValue points into them
  std::vector<std::vector<double>> reals;
  reals.reserve(scalars.size());
  std::vector<ScalarValue> values;
  for (int i = 0; i < signature.scalars.count; ++i) {
    const nb::handle one = scalars[static_cast<std::size_t>(i)];
    if (signature.scalars[i].is_real) {
      auto& elements = reals.emplace_back();
      if (signature.scalars[i].is_vector) {
        for (nb::handle element : nb::borrow<nb::sequence>(one))
          elements.push_back(nb::cast<double>(element));
        values.emplace_back(elements.data(), static_cast<std::int64_t>(elements.size()));
      } else {
        values.emplace_back(nb::cast<double>(one));
      }
    } else if (signature.scalars[i].is_vector) {
      const auto& elements = vectors.emplace_back(integers(one));
      values.emplace_back(elements.data(), static_cast<std::int64_t>(elements.size()));
    } else {
      values.emplace_back(nb::cast<std::int64_t>(one));
    }
  }
  // A call that was refused before its results were allocated has none, so only its checks can be repeated.
  std::vector<Slot> slots(tensors.begin(), tensors.end());
  for (int i = 0; i < signature.arguments.count; ++i) {
    if (!signature.arguments[i].is_output() || signature.arguments[i].optional ||
        slots[static_cast<std::size_t>(i)].present)
      continue;
    static constexpr Renames kOwnNames;
    const CallerNames names{.op = signature.op, .renames = kOwnNames, .dtype_name = &library_name};
    Arguments(signature, slots.data(), signature.arguments.count, values.data(), signature.scalars.count, {},
              1, Isa::best, &names)
        .check_metadata();
    return;
  }
  Context& context = default_context();
  const WithoutGil release;
  called.invoke(context, tensors.data(), values.data());
}

}  // namespace turnout::bindings
