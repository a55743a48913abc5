// Executors of the aclnn interface: phase 1 creates them, phase 2 runs and frees them.
#include "bindings/aclnn/executor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "bindings/aclnn/status.h"
#include "runtime/call.h"
#include "runtime/fork_mutex.h"
#include "runtime/strided.h"

struct aclOpExecutor {
  const turnout::bindings::aclnn::Operation* operation = nullptr;
  int tensor_count = 0, scalar_count = 0;
  turnout::Tensor tensors[turnout::bindings::aclnn::kMostTensors];
  std::int64_t scalars[turnout::bindings::aclnn::kMostScalars] = {};
};

namespace turnout::bindings::aclnn {

using namespace core;
namespace {

// Executors that have not run. Pointers are looked up here before they are dereferenced, so that passing an
// executor twice is an error and not a use of freed memory.
class Waiting {
 public:
  static void add(std::unique_ptr<aclOpExecutor> executor) {
    const std::lock_guard lock(mutex);
    executors().insert(executor.get());
    static_cast<void>(executor.release());
  }
  // Returns nullptr if the executor is unknown.
  static std::unique_ptr<aclOpExecutor> take(aclOpExecutor* executor) {
    const std::lock_guard lock(mutex);
    return std::unique_ptr<aclOpExecutor>(executors().erase(executor) == 1 ? executor : nullptr);
  }

 private:
  // Requires the lock. Never destroyed, because calls may arrive until the process ends.
  static std::set<aclOpExecutor*>& executors() {
    static std::set<aclOpExecutor*>* all = nullptr;
    if (all == nullptr) all = new std::set<aclOpExecutor*>;
    return *all;
  }
  static ForkMutex mutex;
};
ForkMutex Waiting::mutex;

std::array<Slot, kMostTensors> slots_of(const aclOpExecutor& executor) {
  std::array<Slot, kMostTensors> slots;
  std::copy_n(executor.tensors, kMostTensors, slots.begin());
  return slots;
}

std::array<ScalarValue, kMostScalars> scalars_of(const aclOpExecutor& executor) {
  std::array<ScalarValue, kMostScalars> scalars{0, 0, 0, 0};
  std::copy_n(executor.scalars, kMostScalars, scalars.begin());
  return scalars;
}

// The arguments of an executor for a signature. `arguments` is the last member, because its constructor reads
// the scalars.
struct Bound {
  const std::array<Slot, kMostTensors> slots;
  const std::array<ScalarValue, kMostScalars> scalars;
  Arguments arguments;

  Bound(const aclOpExecutor& executor, const Signature& signature, const Workspace& workspace,
        const Context& context)
      : slots(slots_of(executor)),
        scalars(scalars_of(executor)),
        arguments(signature, slots.data(), executor.tensor_count, scalars.data(), executor.scalar_count,
                  workspace, context.threads(), context.isa()) {}
};

// Replaces strided inputs by contiguous copies in `memory`, which has room for bytes_of_copies().
void copy_strided_inputs(Context& context, const Signature& signature, aclOpExecutor& executor,
                         Scratch& memory) {
  for (int i = 0; i < executor.tensor_count; ++i) {
    Tensor& tensor = executor.tensors[i];
    if (tensor.is_absent() || signature.arguments[i].is_output() || Slot(tensor).is_contiguous()) continue;
    const std::int64_t size = size_of(tensor.dtype);
    std::int64_t stride[kMaxRank] = {};
    for (int d = 0; d < tensor.rank; ++d)
      if (tensor.shape[d] > 1) stride[d] = tensor.stride[d] * size;
    auto* copy = memory.take<std::byte>(Slot(tensor).elements() * size);
    copy_strided(context, tensor.data, tensor.shape, stride, tensor.rank, size, copy);
    tensor = Tensor(copy, tensor.dtype, tensor.shape, tensor.rank);
  }
}

// The first argument that is NULL or has no data although it is required, or -1.
int null_argument(const Signature& signature, const aclOpExecutor& executor) {
  for (int i = 0; i < executor.tensor_count; ++i) {
    const Argument& argument = signature.arguments[i];
    const Tensor& tensor = executor.tensors[i];
    const bool required = !argument.optional || (argument.required_with >= 0 &&
                                                 !executor.tensors[argument.required_with].is_absent());
    if (tensor.is_absent() ? required : tensor.data == nullptr && !Slot(tensor).is_empty()) return i;
  }
  return -1;
}

}  // namespace

std::size_t bytes_of_copies(const Arguments& arguments) {
  constexpr std::int64_t kMost = kSizeMax / (2 * kMostTensors);  // so that the sum does not overflow
  std::size_t bytes = 0;
  for (int i = 0; i < arguments.signature().arguments.count; ++i) {
    const Slot& slot = arguments.slot(i);
    if (!slot.present || arguments.signature().arguments[i].is_output() || slot.is_contiguous()) continue;
    bytes += padded(static_cast<std::size_t>(std::min(slot.elements(), kMost / 8) * size_of(slot.dtype)));
  }
  return bytes;
}

aclnnStatus prepare(const Operation& operation, std::initializer_list<const aclTensor*> tensors,
                    std::initializer_list<std::int64_t> scalars, std::uint64_t* workspace_size,
                    aclOpExecutor** executor) noexcept {
  try {
    const Signature& signature = operation.query;
    const auto refuse_null = [&](std::string_view name, std::string_view what) {
      return refuse(ACLNN_ERR_PARAM_NULLPTR, concat(signature.op, ": ", name, what));
    };
    auto made = std::make_unique<aclOpExecutor>();
    made->operation = &operation;
    for (const aclTensor* tensor : tensors)
      made->tensors[made->tensor_count++] = tensor == nullptr ? Tensor(nullptr) : tensor->view;
    for (const std::int64_t value : scalars) made->scalars[made->scalar_count++] = value;
    if (const int null = null_argument(signature, *made); null >= 0)
      return refuse_null(signature.arguments[null].name,
                         made->tensors[null].is_absent() ? " is NULL" : " has no data: its pointer is NULL");
    if (workspace_size == nullptr) return refuse_null("workspaceSize", " is NULL");
    if (executor == nullptr) return refuse_null("executor", " is NULL");

    Bound bound(*made, signature, {}, default_context());
    check_and_log(bound.arguments);
    *workspace_size = bound.arguments.workspace_bytes();
    *executor = made.get();
    Waiting::add(std::move(made));
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}

aclnnStatus execute(const Operation& operation, const Workspace& workspace,
                    aclOpExecutor* executor) noexcept {
  try {
    const Signature& signature = operation.run;
    if (executor == nullptr)
      return refuse(ACLNN_ERR_PARAM_NULLPTR, concat(signature.op, ": executor is NULL"));
    const std::unique_ptr<aclOpExecutor> taken = Waiting::take(executor);
    if (taken == nullptr || taken->operation != &operation)
      return refuse(ACLNN_ERR_PARAM_INVALID, concat(signature.op, ": executor was not created by ",
                                                    operation.query.op, ", or has already run"));
    Context& context = default_context();
    Bound bound(*taken, signature, workspace, context);
    check_and_log(bound.arguments);
    Workspace of_plan = workspace;
    std::optional<Scratch> memory;
    if (const std::size_t copies = bytes_of_copies(bound.arguments); copies > 0) {
      const std::size_t bytes = signature.scratch.bytes(bound.arguments, signature.scratch.at);
      memory.emplace(context, workspace, bytes);
      copy_strided_inputs(context, signature, *taken, *memory);
      of_plan = {memory->rest(), bytes - copies};
    }
    const CallerNames names{.op = signature.op, .renames = operation.renames, .arguments = &bound.arguments};
    const CallDetails details{.workspace = of_plan, .names = &names};
    operation.body(details.caller(context), taken->tensors, taken->scalars);
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}

}  // namespace turnout::bindings::aclnn

using namespace turnout::core;
using namespace turnout::bindings::aclnn;

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  constexpr std::string_view kName = "aclDestroyAclOpExecutor: executor";
  try {
    if (executor == nullptr) return refuse(ACLNN_ERR_PARAM_NULLPTR, concat(kName, " is NULL"));
    if (Waiting::take(executor) == nullptr)
      return refuse(ACLNN_ERR_PARAM_INVALID, concat(kName, " is unknown, or has already run"));
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}
