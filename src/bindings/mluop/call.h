// The binding of the C interface: takes descriptors, returns a status and sets the last error. No exception
// leaves it.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "runtime/caller.h"
#include "turnout/context.h"
#include "turnout/mluop/mlu_op.h"

// Some clients read members through MLU-OPS' own declaration, so all members before `context` are those of
// MLU-OPS 1.11.1, in its order. mlu_op.h documents their values.
struct mluOpContext {
  std::int32_t device = 0;
  cnrtQueue_t queue = nullptr;
  std::int32_t arch = 592;  // MLUOP_MLU590 of MLU-OPS
  char device_name[64] = "CPU";
  std::int32_t cluster_num = 1;
  std::int32_t core_num_per_cluster = 0;
  std::int32_t nram_size = 0, wram_size = 0, sram_size = 0;
  std::int32_t capability_cluster_num = 1;
  std::int32_t capability_job_limit = 1;
  std::int32_t clock_rate = 0;
  std::int32_t l2cache_size = 0, persisting_l2cache_maxsize = 0;
  double memory_band_width = 0;
  mluOpQuantizeRoundMode_t round_mode = MLUOP_ROUND_HALF_TO_EVEN;
  mluOpAtomicsMode_t atomics_mode = MLUOP_ATOMICS_NOT_ALLOWED;
  std::int32_t job_num[6] = {};
  turnout::Context context;

  explicit mluOpContext(const turnout::Options& options = {}) : context(options) {
    core_num_per_cluster = job_num[0] = context.threads();
  }
};

struct mluOpTensorStruct {
  mluOpTensorLayout_t layout = MLUOP_LAYOUT_ARRAY;
  mluOpDataType_t dtype = MLUOP_DTYPE_FLOAT;
  mluOpDataType_t onchip_dtype = MLUOP_DTYPE_INVALID;
  mluOpPointerMode_t pointer_mode = MLUOP_POINTER_MODE_DEVICE;
  std::int32_t position = 0;
  float scale = 1;
  std::int32_t offset = 0;
  std::size_t elements = 0;
  std::vector<std::int64_t> shape, stride;
};

namespace turnout::bindings {

// One tensor of a C call. A null descriptor means that the argument is absent.
struct Described {
  mluOpTensorDescriptor_t desc;
  const void* data;
  const std::int64_t* count = nullptr;  // if set, `desc` is unused and `data` is an array of *count elements
  DType dtype = DType::i64;             // of that array
};

// Fills a result whose elements the checks do not look at with `byte` (0 or 0xFF); does nothing if the
// pointer is null or an extent is negative. Bytes, because the alignment of the pointer is not checked.
void fill_result(const Described& result, int byte) noexcept;

// Returns kForeign for a type that the library does not have.
DType dtype_of_c(mluOpDataType_t dtype);
// The bytes of all elements, without gaps; 0 for a type that is not in mluOpDataType_t.
std::size_t bytes_of(const mluOpTensorStruct& desc);

// How the functions of the interface end: with a status, and with the thread's last error set. Only those
// that destroy something leave the last error alone.
mluOpStatus_t succeed() noexcept;
// BAD_PARAM with the message "function: what".
[[gnu::format(printf, 2, 3)]] mluOpStatus_t refuse(std::string_view function, const char* what, ...) noexcept;
mluOpStatus_t refuse_null(std::string_view function, const char* argument,
                          mluOpStatus_t status = MLUOP_STATUS_BAD_PARAM) noexcept;
// Requires a catch block: returns the status of the current exception. `logged`: an Error is already in the
// log.
mluOpStatus_t fail_as_thrown(bool logged = false) noexcept;

// Logs, at the first call, that a function is deprecated. `noted` belongs to the function.
void note_deprecation(std::atomic<bool>& noted, const char* function, const char* instead) noexcept;

// Setters and getters of a member of a handle or descriptor.
template <class Owner, class T>
mluOpStatus_t keep(const char* function, const char* owner_name, Owner* owner, T Owner::*member,
                   T value) noexcept {
  if (owner == nullptr) return refuse_null(function, owner_name);
  owner->*member = value;
  return succeed();
}
template <class Owner, class T>
mluOpStatus_t give(const char* function, const char* owner_name, const Owner* owner, T Owner::*member,
                   const char* name, T* value, mluOpStatus_t when_null = MLUOP_STATUS_BAD_PARAM) noexcept {
  if (owner == nullptr) return refuse_null(function, owner_name, when_null);
  if (value == nullptr) return refuse_null(function, name, when_null);
  *value = owner->*member;
  return succeed();
}

using ErasedBody = void (*)(const void* body, const Caller& caller, const Tensor* tensors);
mluOpStatus_t call_erased(mluOpHandle_t handle, const core::Signature& signature,
                          const core::Renames& renames, const Described* described, int count,
                          std::initializer_list<core::ScalarValue> scalars, const core::Workspace& workspace,
                          core::Slot* slots, Tensor* tensors, ErasedBody run, const void* body) noexcept;

// Checks the arguments by the signature, in its order of steps, and then runs body(caller, tensors) with one
// Tensor per argument, of which some may be absent. The body does not run if a check fails or finds that
// there is nothing to do. The caller hands the workspace to the operator that the body calls, and the names
// of the signature, by `renames`, to its log line and errors.
template <int kCount, class Body>
mluOpStatus_t call(mluOpHandle_t handle, const core::Signature& signature, const core::Renames& renames,
                   const Described (&described)[kCount], std::initializer_list<core::ScalarValue> scalars,
                   const Body& body, const core::Workspace& workspace = {}) noexcept {
  // Arrays of exactly this size. call_erased() does not know the number, and initialising arrays of the
  // largest size would take as long as all checks of a call.
  core::Slot slots[kCount];
  Tensor tensors[kCount];
  const ErasedBody run = [](const void* erased, const Caller& caller, const Tensor* t) {
    (*static_cast<const Body*>(erased))(caller, t);
  };
  return call_erased(handle, signature, renames, described, kCount, scalars, workspace, slots, tensors, run,
                     &body);
}

// When a query refuses a null pointer to the size. `last`: only if there is something to do.
enum class NullSize : std::uint8_t { first, last };

// Where a query writes the size, and what the parameter is called.
struct SizeResult {
  std::size_t* to;
  const char* name;
  NullSize refused;

  SizeResult(std::size_t* pointer, const char* its_name = "workspace_size",
             NullSize when_refused = NullSize::first)  // NOLINT: a pointer is a result
      : to(pointer), name(its_name), refused(when_refused) {}
};

// Functions that ask for the size of a workspace: the arguments are checked likewise, and the size is what
// the signature's plan needs, or 0 when there is nothing to do.
mluOpStatus_t query_erased(mluOpHandle_t handle, const core::Signature& signature, const Described* described,
                           int count, std::initializer_list<core::ScalarValue> scalars, core::Slot* slots,
                           const SizeResult& size) noexcept;
template <int kCount>
mluOpStatus_t query(mluOpHandle_t handle, const core::Signature& signature,
                    const Described (&described)[kCount], std::initializer_list<core::ScalarValue> scalars,
                    const SizeResult& size) noexcept {
  core::Slot slots[kCount];
  return query_erased(handle, signature, described, kCount, scalars, slots, size);
}
template <int kCount>
mluOpStatus_t query(mluOpHandle_t handle, const core::Signature& signature,
                    const mluOpTensorDescriptor_t (&descriptors)[kCount],
                    std::initializer_list<core::ScalarValue> scalars, const SizeResult& size) noexcept {
  Described described[kCount];
  for (int i = 0; i < kCount; ++i) described[i] = {descriptors[i], nullptr};
  return query(handle, signature, described, scalars, size);
}

}  // namespace turnout::bindings
