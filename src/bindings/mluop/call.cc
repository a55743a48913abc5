// The C binding, and the C functions without tensors: handle, queue, names, last error.
#include "bindings/mluop/call.h"

#include <strings.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <new>
#include <string>

#include "bindings/last_error.h"
#include "runtime/call.h"

namespace turnout::bindings {

using namespace core;
namespace {

const LastError& last_error() {
  static const LastError error;
  return error;
}

mluOpStatus_t fail(mluOpStatus_t status, std::string_view message) noexcept {
  last_error().set(message);
  return status;
}

mluOpStatus_t status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::bad_param:
      return MLUOP_STATUS_BAD_PARAM;
    case ErrorCode::not_supported:
      return MLUOP_STATUS_NOT_SUPPORTED;
    case ErrorCode::alloc_failed:
      return MLUOP_STATUS_ALLOC_FAILED;
    default:
      return MLUOP_STATUS_INTERNAL_ERROR;
  }
}

int severity(const char* text) {
  static constexpr const char* kNames[] = {"INFO", "WARNING", "ERROR", "FATAL"};
  for (int i = 0; i < 4; ++i)
    if (strcasecmp(text, kNames[i]) == 0) return i;
  return std::atoi(text);
}

// Either variable turns the log on. Calls are INFO, failures ERROR, skipped calls VLOG(5).
unsigned lines_of_environment() {
  constexpr int kInfo = 0, kError = 2, kSkippedVerbosity = 5;
  const char* least = std::getenv("MLUOP_MIN_LOG_LEVEL");
  const char* verbosity = std::getenv("MLUOP_MIN_VLOG_LEVEL");
  if (least == nullptr && verbosity == nullptr) return kNoLines;
  const int min = least == nullptr ? kInfo : severity(least);
  unsigned lines = kNoLines;
  if (min <= kInfo) lines |= kCalls;
  if (min <= kError) lines |= kFailures;
  if (verbosity != nullptr && std::atoi(verbosity) >= kSkippedVerbosity) lines |= kSkippedCalls;
  return lines;
}

void read_log_environment() {
  [[maybe_unused]] static const bool once = (set_default_log(lines_of_environment()), true);
}

void log_quietly(const char* message) noexcept {
  try {
    read_log_environment();
    if (logged_lines() & kFailures) log_failure(message, "");
  } catch (...) {  // no memory for a log line; the status is still returned
  }
}

Slot slot_of(const Described& described) {
  if (described.count != nullptr) {
    static constexpr std::int64_t kStride[1] = {1};
    return described.data == nullptr ? Slot()
                                     : Slot(described.data, described.dtype, described.count, kStride, 1);
  }
  if (described.desc == nullptr) {
    Slot absent;
    absent.data = described.data;  // for the check that refuses data without a descriptor
    return absent;
  }
  // A scalar has an empty shape; a descriptor that was never set has no shape and no elements.
  static constexpr std::int64_t kScalar[1] = {1};
  const mluOpTensorStruct& desc = *described.desc;
  const std::int64_t* shape = desc.shape.data();
  if (desc.shape.empty()) shape = desc.elements == 0 ? nullptr : kScalar;
  Slot slot(described.data, dtype_of_c(desc.dtype), shape, desc.stride.data(),
            static_cast<int>(desc.shape.size()), mluOpGetNameOfTensorLayout(desc.layout));
  slot.is_array = desc.layout == MLUOP_LAYOUT_ARRAY;
  return slot;
}

void fill(Tensor& tensor, const Slot& slot) {
  tensor.data = const_cast<void*>(slot.data);
  tensor.dtype = slot.dtype;
  tensor.rank = slot.present ? slot.rank : -1;  // absent
  for (int d = 0; d < slot.rank && d < kMaxRank; ++d) {
    tensor.shape[d] = slot.shape[d];
    tensor.stride[d] = slot.stride[d];
  }
}

}  // namespace

mluOpStatus_t succeed() noexcept {
  last_error().clear();
  return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t refuse(std::string_view function, const char* what, ...) noexcept {
  char message[LastError::kBytes];
  const int length =
      std::snprintf(message, sizeof(message), "%.*s: ", static_cast<int>(function.size()), function.data());
  va_list values;
  va_start(values, what);
  std::vsnprintf(message + length, sizeof(message) - static_cast<std::size_t>(length), what, values);
  va_end(values);
  log_quietly(message);
  return fail(MLUOP_STATUS_BAD_PARAM, message);
}

mluOpStatus_t refuse_null(std::string_view function, const char* argument, mluOpStatus_t status) noexcept {
  refuse(function, "%s is NULL", argument);
  return status;
}

mluOpStatus_t fail_as_thrown(bool logged) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    if (!logged) log_quietly(error.what());
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(MLUOP_STATUS_ALLOC_FAILED, "turnout: out of memory");
  } catch (const std::exception& error) {
    log_quietly(error.what());
    return fail(MLUOP_STATUS_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(MLUOP_STATUS_INTERNAL_ERROR, "turnout: an exception of unknown type");
  }
}

void note_deprecation(std::atomic<bool>& noted, const char* function, const char* instead) noexcept {
  try {
    read_log_environment();
    if ((logged_lines() & kCalls) == 0 || noted.exchange(true)) return;
    log_note(concat(function, " is deprecated, call ", instead, " instead"));
  } catch (...) {  // no memory for a log line
  }
}

namespace {

// Refuses a call without a handle, unless a step that precedes Check::handle does.
mluOpStatus_t refuse_handle(const Signature& signature, const Slot* slots, int count,
                            std::initializer_list<ScalarValue> scalars) noexcept {
  try {
    Arguments(signature, slots, count, scalars.begin(), static_cast<int>(scalars.size()))
        .check_before_handle();
  } catch (...) {
    return fail_as_thrown();
  }
  return refuse_null(signature.op, "handle");
}

}  // namespace

mluOpStatus_t call_erased(mluOpHandle_t handle, const Signature& signature, const Renames& renames,
                          const Described* described, int count, std::initializer_list<ScalarValue> scalars,
                          const Workspace& workspace, Slot* slots, Tensor* tensors, ErasedBody run,
                          const void* body) noexcept {
  for (int i = 0; i < count; ++i) slots[i] = slot_of(described[i]);
  if (handle == nullptr) return refuse_handle(signature, slots, count, scalars);
  try {
    Arguments arguments(signature, slots, count, scalars.begin(), static_cast<int>(scalars.size()), workspace,
                        handle->context.threads(), handle->context.isa());
    if (!check_and_log(arguments)) return succeed();
    for (int i = 0; i < count; ++i) fill(tensors[i], slots[i]);
    const CallerNames names{.op = signature.op, .renames = renames, .arguments = &arguments};
    // A workspace whose size is not compared with what a plan needs may overlap tensors, and is not used.
    const Workspace checked = signature.scratch.bytes == nullptr ? Workspace{} : workspace;
    const CallDetails details{.workspace = checked, .names = &names};
    run(body, details.caller(handle->context), tensors);
    return succeed();
  } catch (...) {
    return fail_as_thrown(/*logged=*/true);
  }
}

mluOpStatus_t query_erased(mluOpHandle_t handle, const Signature& signature, const Described* described,
                           int count, std::initializer_list<ScalarValue> scalars, Slot* slots,
                           const SizeResult& size) noexcept {
  if (handle == nullptr) return refuse_null(signature.op, "handle");
  if (size.to == nullptr && size.refused == NullSize::first) return refuse_null(signature.op, size.name);
  try {
    for (int i = 0; i < count; ++i) slots[i] = slot_of(described[i]);
    Arguments arguments(signature, slots, count, scalars.begin(), static_cast<int>(scalars.size()), {},
                        handle->context.threads(), handle->context.isa());
    const bool needs_memory = check_and_log(arguments);
    if (needs_memory && size.to == nullptr) return refuse_null(signature.op, size.name);
    if (size.to != nullptr) *size.to = needs_memory ? arguments.workspace_bytes() : 0;
    return succeed();
  } catch (...) {
    return fail_as_thrown(/*logged=*/true);
  }
}

}  // namespace turnout::bindings

using namespace turnout::core;
using namespace turnout::bindings;

const char* turnoutLastError(void) { return last_error().text(); }

mluOpStatus_t mluOpCreate(mluOpHandle_t* handle) {
  if (handle == nullptr) return refuse_null(__func__, "handle");
  try {
    read_log_environment();
    *handle = new mluOpContext;
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}

mluOpStatus_t mluOpDestroy(mluOpHandle_t handle) {
  if (handle == nullptr) return refuse_null(__func__, "handle");
  delete handle;
  return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpUpdateContextInformation(mluOpHandle_t handle) {
  return handle == nullptr ? refuse_null(__func__, "handle") : succeed();
}

mluOpStatus_t mluOpSetQueue(mluOpHandle_t handle, cnrtQueue_t queue) {
  return keep(__func__, "handle", handle, &mluOpContext::queue, queue);
}
mluOpStatus_t mluOpGetQueue(mluOpHandle_t handle, cnrtQueue_t* queue) {
  return give(__func__, "handle", handle, &mluOpContext::queue, "queue", queue);
}
mluOpStatus_t mluOpSetQuantizeRoundMode(mluOpHandle_t handle, mluOpQuantizeRoundMode_t round_mode) {
  if (handle != nullptr && (round_mode < MLUOP_ROUND_HALF_TO_EVEN || round_mode > MLUOP_ROUND_HALF_OFF_ZERO))
    return refuse(__func__, "round_mode is %d, expected 0 .. 2", round_mode);
  return keep(__func__, "handle", handle, &mluOpContext::round_mode, round_mode);
}
mluOpStatus_t mluOpGetQuantizeRoundMode(mluOpHandle_t handle, mluOpQuantizeRoundMode_t* round_mode) {
  return give(__func__, "handle", handle, &mluOpContext::round_mode, "round_mode", round_mode);
}
mluOpStatus_t mluOpSetAtomicsMode(mluOpHandle_t handle, mluOpAtomicsMode_t atomics_mode) {
  return keep(__func__, "handle", handle, &mluOpContext::atomics_mode, atomics_mode);
}
mluOpStatus_t mluOpGetAtomicsMode(mluOpHandle_t handle, mluOpAtomicsMode_t* atomics_mode) {
  return give(__func__, "handle", handle, &mluOpContext::atomics_mode, "atomics_mode", atomics_mode);
}

const char* mluOpGetErrorString(mluOpStatus_t status) {
  static constexpr const char* kNames[] = {
      "MLUOP_STATUS_SUCCESS",          "MLUOP_STATUS_NOT_INITIALIZED", "MLUOP_STATUS_ALLOC_FAILED",
      "MLUOP_STATUS_BAD_PARAM",        "MLUOP_STATUS_INTERNAL_ERROR",  "MLUOP_STATUS_ARCH_MISMATCH",
      "MLUOP_STATUS_EXECUTION_FAILED", "MLUOP_STATUS_NOT_SUPPORTED",   "MLUOP_STATUS_NUMERICAL_OVERFLOW"};
  const auto i = static_cast<unsigned>(status);
  return i < std::size(kNames) ? kNames[i] : "MLUOP_STATUS_UNKNOWN";
}

void mluOpGetLibVersion(int* major, int* minor, int* patch) {
  if (major != nullptr) *major = MLUOP_MAJOR;
  if (minor != nullptr) *minor = MLUOP_MINOR;
  if (patch != nullptr) *patch = MLUOP_PATCHLEVEL;
}
