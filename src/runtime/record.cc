// Implements the recording of calls.
#include "runtime/record.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <span>
#include <system_error>

#include "runtime/call.h"
#include "runtime/fork_mutex.h"
#include "runtime/npy.h"
#include "turnout/version.h"

namespace turnout::core {
namespace {

constexpr std::string_view kOnError = "on_error:";
// Arguments with more elements than fit in any memory are described, not read.
constexpr std::int64_t kMostElements = std::int64_t{1} << 46;

struct Target {
  Recorded what = Recorded::none;
  std::string directory;
};

Target environment_target() {
  const char* wanted = std::getenv("TURNOUT_RECORD");
  if (wanted == nullptr || *wanted == '\0') return {};
  const std::string_view value = wanted;
  if (value.substr(0, kOnError.size()) == kOnError)
    return {Recorded::failures, std::string(value.substr(kOnError.size()))};
  return {Recorded::calls, std::string(value)};
}

ForkMutex target_mutex;

// Requires target_mutex. Never destroyed: calls may arrive until the process ends.
Target& target() {
  static Target* one = nullptr;
  if (one == nullptr) one = new Target;
  return *one;
}

Recorded set_target(const Target& wanted) {
  const std::lock_guard lock(target_mutex);
  target() = wanted;
  record::state.store(wanted.what, std::memory_order_relaxed);
  return wanted.what;
}

std::string target_directory() {
  const std::lock_guard lock(target_mutex);
  return target().directory;
}

bool can_write(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  return std::filesystem::is_directory(directory, ignored) && ::access(directory.c_str(), W_OK | X_OK) == 0;
}

std::string new_folder(const std::string& op) {
  static std::atomic<std::int64_t> calls{0};
  const std::filesystem::path directory = target_directory();
  std::filesystem::create_directories(directory);
  for (;;) {  // a number may be taken: processes of different containers may have the same id
    char tail[64];
    std::snprintf(tail, sizeof(tail), ".%lld.%06lld", static_cast<long long>(::getpid()),
                  static_cast<long long>(++calls));
    const std::filesystem::path folder = directory / (op + tail);
    if (std::filesystem::create_directory(folder)) return folder.string();
  }
}

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= ' ') {
      quoted += c;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
    quoted += escape;
  }
  return quoted + "\"";
}

std::string json_list(std::span<const std::int64_t> values) {
  std::string text;
  for (const std::int64_t value : values) text += concat(text.empty() ? "" : ", ", value);
  return concat("[", text, "]");
}

// A JSON number, or one of the superset that Python reads.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return number_text(value);
}

std::string json_value(const Scalar& scalar, const ScalarValue& given) {
  if (!scalar.is_vector) return scalar.is_real ? json_number(given.real) : concat(given.value);
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(given.value, 0));
  if (!scalar.is_real) return given.values == nullptr ? "[]" : json_list({given.values, count});
  std::string text;
  for (std::size_t k = 0; k < count && given.reals != nullptr; ++k)
    text += concat(text.empty() ? "" : ", ", json_number(given.reals[k]));
  return concat("[", text, "]");
}

// Runs f. Errors only appear in the log, if it is on.
template <class F>
void quietly(const F& f) noexcept {
  try {
    f();
  } catch (const std::exception& error) {
    try {
      if (logged_lines() & kFailures) log_failure(error.what(), "");
    } catch (...) {  // no memory for a log line
    }
  }
}

}  // namespace

std::atomic<Recorded> record::state{Recorded::unread};

Recorded record::read_environment() { return set_target(environment_target()); }

void check_record_environment() {
  const Target wanted = environment_target();
  if (wanted.what != Recorded::none && !can_write(wanted.directory))
    throw Error(ErrorCode::bad_param,
                concat("TURNOUT_RECORD is '", std::getenv("TURNOUT_RECORD"),
                       "', expected a writable directory, or on_error: followed by one"));
}

void record_in(const char* wanted) {
  if (wanted == nullptr) {
    set_target(environment_target());
    return;
  }
  set_target({Recorded::calls, wanted});
}

CallFolder::CallFolder(const Arguments& arguments, std::string_view function, Isa isa,
                       bool only_failures) noexcept {
  quietly([&] {
    const Signature& signature = arguments.signature();
    op_ = signature.op;
    function_ = function;
    isa_ = isa;
    for (int i = 0; i < signature.arguments.count; ++i) {
      const Slot& slot = arguments.slot(i);
      if (!slot.present) continue;
      const int extents = slot.shape == nullptr ? 0 : std::clamp(slot.rank, 0, kMaxRank);
      Part part{signature.arguments[i].name, signature.arguments[i].role, {}, false};
      part.tensor = ConstTensor(slot.data, slot.dtype, slot.shape, extents);
      for (int d = 0; d < extents; ++d) part.tensor.stride[d] = slot.stride[d];
      const bool is_shape = std::none_of(part.tensor.shape, part.tensor.shape + extents,
                                         [](std::int64_t extent) { return extent < 0; });
      const std::int64_t elements = Slot(part.tensor).elements();
      part.is_valid = slot.shape != nullptr && slot.rank == extents && is_shape && is_dtype(slot.dtype) &&
                      elements < kMostElements && (slot.data != nullptr || elements == 0);
      part.tensor.rank = slot.rank;
      parts_.push_back(part);
    }
    for (int i = 0; i < signature.scalars.count; ++i) {
      const ScalarValue& scalar = arguments.scalar(i);
      scalars_.push_back({signature.scalars[i].name, json_value(signature.scalars[i], scalar)});
    }
    if (recorded() == Recorded::calls && !only_failures) write_inputs(nullptr);
  });
}

std::string CallFolder::path(std::string_view kind, const Part& part) const {
  return concat(folder_, "/", kind, ".", part.name, ".npy");
}

void CallFolder::write_inputs(const char* error) {
  folder_ = new_folder(op_);
  for (const Part& part : parts_)
    if (part.role != Role::out && part.is_valid) write_npy(path("in", part), part.tensor);
  write_description(error);
}

void CallFolder::write_description(const char* error) const {
  std::string scalars, arguments;
  for (const Value& one : scalars_)
    scalars += concat(scalars.empty() ? "" : ", ", json_string(one.name), ": ", one.json);
  for (const Part& part : parts_) {
    const ConstTensor& tensor = part.tensor;
    const auto extents = static_cast<std::size_t>(std::clamp(tensor.rank, 0, kMaxRank));
    arguments += concat(
        arguments.empty() ? "" : ",", "\n    {\"name\": ", json_string(part.name),
        ", \"dtype\": ", json_string(is_dtype(tensor.dtype) ? name_of(tensor.dtype) : "foreign"),
        ", \"rank\": ", std::int64_t{tensor.rank}, ", \"shape\": ", json_list({tensor.shape, extents}));
    if (part.is_valid && !Slot(tensor).is_contiguous())
      arguments += concat(", \"strides\": ", json_list({tensor.stride, extents}));
    arguments += "}";
  }
  write_text(
      folder_ + "/call.json",
      concat("{\n  \"op\": ", json_string(op_), ",\n  \"function\": ", json_string(function_),
             ",\n  \"version\": ", json_string(TURNOUT_VERSION), ",\n  \"isa\": ", json_string(name_of(isa_)),
             error == nullptr ? "" : concat(",\n  \"error\": ", json_string(error)), ",\n  \"scalars\": {",
             scalars, "},\n  \"arguments\": [", arguments, "\n  ]\n}\n"));
}

void CallFolder::end(const char* error) noexcept {
  quietly([&] {
    if (op_.empty()) return;  // the arguments could not be copied
    if (error != nullptr) return folder_.empty() ? write_inputs(error) : write_description(error);
    if (folder_.empty()) return;
    for (const Part& part : parts_)
      if (part.role != Role::in && part.is_valid) write_npy(path("out", part), part.tensor);
  });
}

}  // namespace turnout::core
