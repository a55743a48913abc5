// The functions of MLU-OPS that record calls.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "bindings/mluop/call.h"
#include "runtime/fork_mutex.h"
#include "runtime/record.h"

namespace turnout::bindings {

using namespace core;
namespace {

// Where calls are recorded, for the whole process. It is never destroyed, so that threads may use it while
// the process ends.
struct GenCases {
  ForkMutex mutex;
  std::string directory;  // "": `gen_case` in the working directory
  int mode = 0;           // 0: TURNOUT_RECORD decides

  static GenCases& get() { return the_only_one; }
  // Requires that the caller does not hold the mutex, as record_in() has one of its own.
  void record() {
    std::unique_lock lock(mutex);
    const std::string name = directory.empty() ? "gen_case" : directory;
    const bool is_on = mode != 0;
    lock.unlock();
    record_in(is_on ? name.c_str() : nullptr);
  }

 private:
  // Created when the library is loaded: a thread that forks while another one initializes a function-local
  // static would leave the child waiting for it forever.
  static GenCases& the_only_one;
};
GenCases& GenCases::the_only_one = *new GenCases;

// The directory with the placeholders of MLU-OPS replaced. The only device is 0.
std::string resolved_directory(std::string path) {
  const auto replace = [&](std::string_view placeholder, const std::string& text) {
    if (const std::size_t at = path.find(placeholder); at != std::string::npos)
      path.replace(at, placeholder.size(), text);
  };
  replace("{pid}", "pid" + std::to_string(::getpid()));
  replace("{deviceid}", "deviceid0");
  return path;
}

std::string working_directory(const char* function) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  if (error)
    throw Error(ErrorCode::internal, concat(function, ": there is no working directory: ", error.message()));
  return path.string();
}

}  // namespace
}  // namespace turnout::bindings

using namespace turnout::bindings;

// As in MLU-OPS, 0 turns recording off; the other modes all record the data.
void mluOpSetGenCaseMode(int mode) {
  try {
    GenCases& cases = GenCases::get();
    std::unique_lock lock(cases.mutex);
    cases.mode = mode;
    lock.unlock();
    cases.record();
  } catch (...) {  // out of memory: calls are recorded as before
  }
}

mluOpStatus_t mluOpSetGenCaseDirectory(const char* path) {
  if (path == nullptr) return refuse_null(__func__, "path");
  try {
    std::string directory = resolved_directory(path);
    GenCases& cases = GenCases::get();
    std::unique_lock lock(cases.mutex);
    cases.directory.swap(directory);
    lock.unlock();
    cases.record();
    return succeed();
  } catch (...) {
    return fail_as_thrown();
  }
}

const char* mluOpGetGenCaseDirectory(char* buffer, size_t bufferSize, size_t* pathLen,
                                     mluOpStatus_t* status) {
  char* result = nullptr;
  std::size_t length = 0;
  mluOpStatus_t end;
  try {
    GenCases& cases = GenCases::get();
    std::unique_lock lock(cases.mutex);
    std::string path = cases.directory;
    lock.unlock();
    if (path.empty()) path = working_directory(__func__);
    if (buffer != nullptr && path.size() >= bufferSize) {
      end = refuse(__func__, "bufferSize is %zu, expected %zu or more", bufferSize, path.size() + 1);
      result = buffer;
    } else {
      result = buffer != nullptr ? buffer : static_cast<char*>(std::malloc(path.size() + 1));
      if (result == nullptr) throw std::bad_alloc();
      length = path.size();
      std::memcpy(result, path.c_str(), length + 1);
      end = succeed();
    }
  } catch (...) {
    end = fail_as_thrown();
  }
  if (pathLen != nullptr) *pathLen = length;
  if (status != nullptr) *status = end;
  return result;
}
