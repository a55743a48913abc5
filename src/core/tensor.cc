// Names of dtypes, and the error type.
#include "turnout/tensor.h"

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

Error::Error(ErrorCode code, std::string sentence) : code_(code), sentence_(std::move(sentence)) {}
Error::~Error() = default;

}  // namespace turnout
