// The exception that a failing call throws: a code, and a message that names the argument, position, value
// and limit.
#pragma once

#include <exception>
#include <string>

#include "turnout/export.h"

namespace turnout {

enum class ErrorCode { bad_param, not_supported, alloc_failed, internal };

class TURNOUT_API Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message);
  ~Error() override;
  ErrorCode code() const noexcept { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorCode code_;
  std::string message_;
};

}  // namespace turnout
