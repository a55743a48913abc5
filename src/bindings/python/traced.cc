// Checks traced calls, of which only the dtypes and shapes of arguments are known.
#include "bindings/python/traced.h"

#include <algorithm>
#include <string>
#include <vector>

#include "bindings/python/import.h"
#include "core/check.h"
#include "registry.h"

namespace turnout::bindings {

using namespace core;
namespace {

// An argument of a traced call: (dtype, shape), with None for an unknown extent.
struct Description {
  std::int64_t shape[kMaxRank] = {};
  Slot slot;
};

void read_description(const Signature& signature, const Argument& argument, nb::handle object,
                      const CallerNames& names, Description& description) {
  const auto pair = nb::cast<nb::tuple>(object);
  const std::string dtype = nb::cast<std::string>(pair[0]);
  const auto shape = nb::cast<nb::tuple>(pair[1]);
  int known = 0;
  while (known < kDTypeCount && dtype != library_name(static_cast<DType>(known))) ++known;
  if (known == kDTypeCount)
    throw Error(ErrorCode::bad_param, concat(signature.op, ": ", argument.name, " has dtype ", dtype,
                                             ", expected ", dtypes_text(signature, argument, &names)));
  for (std::size_t d = 0; d < shape.size() && d < kMaxRank; ++d)
    description.shape[d] = shape[d].is_none() ? kUnknownExtent : nb::cast<std::int64_t>(shape[d]);
  description.slot =
      Slot(nullptr, static_cast<DType>(known), description.shape, nullptr, static_cast<int>(shape.size()));
}

}  // namespace

void check_metadata(const std::string& op, const nb::dict& arguments, const nb::dict& scalars,
                    const nb::dict& sizes) {
  const auto found = std::find_if(operators().begin(), operators().end(),
                                  [&](const Operator& one) { return one.signature->op == op; });
  if (found == operators().end())
    throw Error(ErrorCode::internal, concat("check_metadata: there is no operator ", op));
  const Signature& signature = found->for_bindings();
  static constexpr Renames kOwnNames;
  const CallerNames names{.op = signature.op, .renames = kOwnNames, .dtype_name = &library_name};
  Description descriptions[kMaxArguments];
  Slot slots[kMaxArguments];
  for (int i = 0; i < signature.arguments.count; ++i) {
    const nb::str name(text_of(signature.arguments[i].name).c_str());
    if (!arguments.contains(name) || arguments[name].is_none()) continue;
    read_description(signature, signature.arguments[i], arguments[name], names, descriptions[i]);
    slots[i] = descriptions[i].slot;
  }
  std::vector<std::int64_t> elements[kMaxNames];
  std::vector<double> reals[kMaxNames];
  std::vector<ScalarValue> values;
  for (int i = 0; i < signature.scalars.count; ++i) {
    const Scalar& scalar = signature.scalars[i];
    const nb::str name(text_of(scalar.name).c_str());
    const nb::object given = scalars.contains(name) ? nb::object(scalars[name]) : nb::none();
    const auto value_of = [&](nb::handle object) {
      return object.is_none() ? scalar.min : nb::cast<std::int64_t>(object);
    };
    const double legal = std::clamp(scalar.default_real, scalar.least, scalar.most);
    if (scalar.is_real && !scalar.is_vector) {  // traced values cannot leave its range
      values.emplace_back(legal);
      continue;
    }
    if (scalar.is_real) {
      for (nb::handle element : nb::cast<nb::tuple>(given))
        reals[i].push_back(element.is_none() ? legal : nb::cast<double>(element));
      values.emplace_back(reals[i].data(), static_cast<std::int64_t>(reals[i].size()));
      continue;
    }
    if (!scalar.is_vector) {
      values.emplace_back(value_of(given));
      continue;
    }
    for (nb::handle element : nb::cast<nb::tuple>(given)) elements[i].push_back(value_of(element));
    // As in torch, a list of one value stands for all elements.
    const std::int64_t length = length_of(signature, scalar, slots);
    if (scalar.has_default && elements[i].size() == 1 && length > 1)
      elements[i].resize(static_cast<std::size_t>(length), elements[i][0]);
    values.emplace_back(elements[i].data(), static_cast<std::int64_t>(elements[i].size()));
  }
  Arguments checked(signature, slots, signature.arguments.count, values.data(), signature.scalars.count, {},
                    1, Isa::best, &names);
  for (int name = signature.scalars.count; name < signature.names.count; ++name) {
    const nb::str key(text_of(signature.names[name]).c_str());
    if (!sizes.contains(key)) continue;
    const auto size = nb::cast<std::int64_t>(sizes[key]);
    if (size < 0)
      checked.fail(ErrorCode::bad_param, concat(signature.names[name], " is ", size, ", expected 0 or more"));
    checked.bind(name, size);
  }
  checked.check_metadata();
}

}  // namespace turnout::bindings
