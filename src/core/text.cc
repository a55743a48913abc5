// Shapes, dtypes and numbers as text, for error messages and argument tables.
#include <algorithm>
#include <charconv>

#include "core/check.h"

namespace turnout::core {

std::string shape_text(const Slot& slot) {
  std::string text = "[";
  for (int d = 0; d < slot.rank && d < kMaxRank; ++d) text += concat(d ? ", " : "", slot.shape[d]);
  return text + "]";
}

std::string element_text(std::string_view name, const Slot& slot, std::int64_t position) {
  std::string text = concat(name, "[");
  for (int d = 0; d < slot.rank; ++d) {
    std::int64_t inner = 1;
    for (int e = d + 1; e < slot.rank; ++e) inner *= slot.shape[e];
    text += concat(d > 0 ? ", " : "", position / inner % slot.shape[d]);
  }
  return text + "]";
}

std::string dims_text(const Argument& argument) {
  std::string text = "[";
  for (int d = 0; d < argument.dims.count; ++d)
    text += concat(d ? ", " : "", argument.dims[d].text, argument.dims[d].is_folded ? ".." : "",
                   argument.dims[d].optional ? "?" : "");
  return text + "]";
}

std::string dtypes_text(const Signature& signature, const Argument& argument, const CallerNames* names) {
  const auto dtype_name = [&](DType dtype) {
    return names == nullptr ? name_of(dtype) : names->dtype_name(dtype);
  };
  std::string text;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (contains(argument.dtypes, static_cast<DType>(i)))
      text += concat(text.empty() ? "" : ", ", dtype_name(static_cast<DType>(i)));
  }
  if (argument.like < 0) return text;
  const std::string_view own = signature.arguments[argument.like].name;
  const std::string_view other = names == nullptr ? own : names->renames(own);
  if (argument.is_lane)
    return concat(dtype_name(DType::f64), " if ", other, " is ", dtype_name(DType::f64), ", else ",
                  dtype_name(DType::f32));
  return concat("that of ", other, text.empty() ? "" : ", or ", text);
}

std::string_view value_name(const Scalar& scalar, std::int64_t value) {
  std::string_view found;
  std::int64_t next = scalar.min;
  split(scalar.values, ' ', [&](std::string_view name) {
    if (next++ == value) found = name;
  });
  return found;
}

namespace {

template <class Real>
std::string shortest(Real v) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), v).ptr};
}

}  // namespace

std::string number_text(float v) { return shortest(v); }
std::string number_text(double v) { return shortest(v); }

std::string concat_parts(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

}  // namespace turnout::core
