// The binding of CANN's two-phase interface (aclnn). Phase 1 checks tensors and returns an executor, phase 2
// runs it; both return a status and set the last error. No exception leaves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/check.h"
#include "runtime/caller.h"
#include "turnout/aclnn/acl_meta.h"
#include "turnout/tensor.h"

struct aclTensor {
  turnout::Tensor view;  // its dtype is kForeign if the library has no such type
  aclDataType type = ACL_DT_UNDEFINED;
};

namespace turnout::bindings::aclnn {

// An operator of the interface. Both signatures have the same arguments and scalars; an argument that may be
// NULL is optional there. The steps of `query` are those of phase 1; `run` has all of them again, because the
// tensors' memory may have been shared in between, and the check of the workspace.
struct Operation {
  const core::Signature& query;
  const core::Signature& run;
  const core::Renames& renames;  // from the operator's names to those of the signatures
  // tensors: one per argument; optional ones may be absent.
  void (*body)(const Caller& caller, const Tensor* tensors, const std::int64_t* scalars);
};

// Whether the library has no DType for this type but can move it as bytes. Views of it have dtype kForeign
// until the operation accepts them.
bool is_type_of_bytes(aclDataType type);

// The scratch memory for contiguous copies of strided inputs. An operation that accepts them adds it to the
// scratch memory of its signatures; execute() makes the copies.
std::size_t bytes_of_copies(const core::Arguments& arguments);

// Phase 1. An executor has at most kMostTensors tensors and kMostScalars scalars.
inline constexpr int kMostTensors = 9, kMostScalars = 4;
aclnnStatus prepare(const Operation& operation, std::initializer_list<const aclTensor*> tensors,
                    std::initializer_list<std::int64_t> scalars, std::uint64_t* workspace_size,
                    aclOpExecutor** executor) noexcept;

// Phase 2: runs and frees an executor of this operation that has not run.
aclnnStatus execute(const Operation& operation, const core::Workspace& workspace,
                    aclOpExecutor* executor) noexcept;

}  // namespace turnout::bindings::aclnn
