// The recorder of calls.
#include "runtime/record.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "runtime/call.h"
#include "turnout/version.h"

namespace turnout::core {
namespace {

constexpr std::string_view kOnError = "on_error:";
// Arguments with more bytes than any memory has are described, not read.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 46;

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

// Never destroyed: calls may come until the process ends.
struct Shared {
  std::mutex mutex;
  Target target;
};
Shared& shared() {
  static auto& one = *new Shared;
  return one;
}

Recorded set_target(const Target& target) {
  const std::lock_guard lock(shared().mutex);
  shared().target = target;
  record::state.store(target.what, std::memory_order_relaxed);
  return target.what;
}

std::string directory() {
  const std::lock_guard lock(shared().mutex);
  return shared().target.directory;
}

bool can_write(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  return std::filesystem::is_directory(directory, ignored) && ::access(directory.c_str(), W_OK | X_OK) == 0;
}

std::string new_path(const std::string& op) {
  static std::atomic<long long> calls{0};
  char tail[64];
  std::snprintf(tail, sizeof(tail), ".%lld.%06lld.npz", static_cast<long long>(::getpid()), ++calls);
  const std::filesystem::path folder = directory();
  std::error_code ignored;  // the file that cannot be opened tells
  std::filesystem::create_directories(folder, ignored);
  return (folder / (op + tail)).string();
}

// Runs f. What goes wrong is in the log, if there is one, and nowhere else.
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
  const Target target = environment_target();
  if (target.what != Recorded::none && !can_write(target.directory))
    throw Error(ErrorCode::bad_param,
                concat("TURNOUT_RECORD is '", std::getenv("TURNOUT_RECORD"),
                       "', expected a directory that can be written, or on_error: and one"));
}

void record_in(const char* wanted) {
  if (wanted == nullptr) {
    set_target(environment_target());
    return;
  }
  set_target({Recorded::calls, wanted});
}

CallFile::CallFile(const Arguments& arguments, std::string_view function, Isa isa) noexcept {
  quietly([&] {
    const Signature& signature = arguments.signature();
    op_ = signature.op;
    function_ = function;
    isa_ = isa;
    for (int i = 0; i < signature.arguments.count; ++i) {
      const Slot& slot = arguments.slot(i);
      if (!slot.present) continue;
      Part part{signature.arguments[i].name, signature.arguments[i].role, {}, false, false, {}, slot.dtype};
      if (slot.shape != nullptr) part.shape.assign(slot.shape, slot.shape + slot.rank);
      bool is_counted = slot.rank <= kMaxRank && is_dtype(slot.dtype) && slot.shape != nullptr;
      for (const std::int64_t extent : part.shape) is_counted = is_counted && extent >= 0;
      if (is_counted && slot.elements() < kMostBytes) {
        part.tensor = ConstTensor(slot.data, slot.dtype, slot.shape, slot.rank);
        part.is_strided = !slot.is_contiguous();
        for (int d = 0; d < slot.rank; ++d) part.tensor.stride[d] = slot.stride[d];
        part.is_readable = slot.data != nullptr || slot.elements() == 0;
      }
      parts_.push_back(std::move(part));
    }
    for (int i = 0; i < signature.scalars.count; ++i) {
      const ScalarValue& scalar = arguments.scalar(i);
      Value value{signature.scalars[i].name, signature.scalars[i].is_vector, {}};
      if (!value.is_vector) {
        value.values = {scalar.value};
      } else if (scalar.values != nullptr) {
        value.values.assign(scalar.values, scalar.values + scalar.value);
      }
      scalars_.push_back(std::move(value));
    }
    if (recorded() == Recorded::calls) write_inputs();
  });
}

void CallFile::write_inputs() {
  file_ = std::make_unique<NpzFile>(new_path(op_));
  file_->add_text("call.op", op_);
  if (function_ != op_) file_->add_text("call.function", function_);
  file_->add_text("call.version", TURNOUT_VERSION);
  file_->add_text("call.isa", name_of(isa_));
  for (const Value& one : scalars_) {
    const std::string name = concat("scalar.", one.name);
    one.is_vector ? file_->add_integers(name, one.values) : file_->add_integer(name, one.values[0]);
  }
  for (const Part& part : parts_) {
    const bool is_input = part.role != Role::out && part.is_readable;
    if (is_input && file_->add(concat("in.", part.name), part.tensor)) {
      if (part.is_strided)
        file_->add_integers(concat("stride.", part.name), {part.tensor.stride, part.shape.size()});
    } else {
      const char* dtype = is_dtype(part.dtype) ? name_of(part.dtype) : "foreign";
      file_->add_integers(concat("shape.", part.name, ".", dtype), part.shape);
    }
  }
  file_->finish();
}

void CallFile::end(const char* error) noexcept {
  quietly([&] {
    if (file_ == nullptr && error != nullptr && !op_.empty()) write_inputs();
    if (file_ == nullptr) return;
    if (error != nullptr) {
      file_->add_text("call.error", error);
    } else {
      for (const Part& part : parts_)
        if (part.role != Role::in && part.is_readable) file_->add(concat("out.", part.name), part.tensor);
    }
    file_->finish();
    file_.reset();
  });
}

}  // namespace turnout::core
