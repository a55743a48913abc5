// The status and the last error of the aclnn interface.
#include "bindings/aclnn/status.h"

#include <exception>
#include <new>

#include "bindings/last_error.h"
#include "turnout/error.h"

namespace turnout::bindings::aclnn {
namespace {
const LastError& last_error() {
  static const LastError error;
  return error;
}
}  // namespace

aclnnStatus succeed() noexcept {
  last_error().clear();
  return ACLNN_SUCCESS;
}

aclnnStatus refuse(aclnnStatus status, std::string_view message) noexcept {
  last_error().set(message);
  return status;
}

aclnnStatus fail_as_thrown() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    const bool of_caller = error.code() == ErrorCode::bad_param || error.code() == ErrorCode::not_supported;
    return refuse(of_caller ? ACLNN_ERR_PARAM_INVALID : ACLNN_ERR_INNER, error.what());
  } catch (const std::bad_alloc&) {
    return refuse(ACLNN_ERR_INNER, "turnout: out of memory");
  } catch (const std::exception& error) {
    return refuse(ACLNN_ERR_INNER, error.what());
  } catch (...) {
    return refuse(ACLNN_ERR_INNER, "turnout: an exception of unknown type");
  }
}

}  // namespace turnout::bindings::aclnn

const char* aclGetRecentErrMsg(void) { return turnout::bindings::aclnn::last_error().text(); }
