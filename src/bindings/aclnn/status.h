// How the functions of the aclnn interface end: with a status, and with the thread's last error set.
#pragma once

#include <string_view>

#include "turnout/aclnn/acl_meta.h"

namespace turnout::bindings::aclnn {

aclnnStatus succeed() noexcept;
aclnnStatus refuse(aclnnStatus status, std::string_view message) noexcept;
// Requires a catch block: returns the status of the current exception.
aclnnStatus fail_as_thrown() noexcept;

}  // namespace turnout::bindings::aclnn
