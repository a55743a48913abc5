// Names of dtypes, views of containers, and the error type.
#include "turnout/tensor.h"

#include <string>
#include <utility>

#include "turnout/error.h"

namespace turnout {

const char* name_of(DType dtype) {
  static constexpr const char* kNames[kDTypeCount] = {"f32",  "f64",       "f16",     "bf16",   "i8",  "u8",
                                                      "i16",  "u16",       "i32",     "u32",    "i64", "u64",
                                                      "bool", "f8_e4m3fn", "f8_e5m2", "f8_e8m0"};
  const auto i = static_cast<unsigned>(dtype);
  return i < kDTypeCount ? kNames[i] : "unknown";
}

void expect_elements(std::size_t count, std::initializer_list<Size> shape) {
  bool overflow = false, is_empty = false, negative = false;
  std::int64_t elements = 1;
  std::string text;
  for (const Size size : shape) {
    is_empty |= size.value == 0;
    negative |= size.value < 0;
    overflow |= __builtin_mul_overflow(elements, size.value, &elements);
    text += (text.empty() ? "" : ", ") + std::to_string(size.value);
  }
  if (is_empty) elements = 0;
  if (negative || (overflow && !is_empty) || static_cast<std::size_t>(elements) != count)
    throw Error(ErrorCode::bad_param, "view: the container has " + std::to_string(count) +
                                          " elements, expected as many as in shape [" + text + "]");
}

Error::Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
Error::~Error() = default;

}  // namespace turnout
