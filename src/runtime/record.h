// Records calls, each in its own folder, which `turnout replay` runs again.
//
// TURNOUT_RECORD=directory records all calls, TURNOUT_RECORD=on_error:directory those that fail. The folder
// of a call, <operator>.<process>.<number>, has these files:
//
//   in.NAME.npy, out.NAME.npy   the elements of an argument before and after the call, in row-major order;
//                               bfloat16 and 8-bit floats, which NumPy lacks, as unsigned integers
//   call.json                   the rest, written after the inputs:
//     op, function              the operator, and the function that the user called
//     version, isa              of the library; the results of some operators depend on the instruction set
//     error                     the message, if the call failed
//     scalars                   a number or a list for each name
//     arguments                 name, dtype, rank, shape; strides, in elements, if it is not contiguous
//
// A call is recorded before its arguments are checked, so that a call that is rejected or crashes can be
// replayed. Therefore the arguments may be invalid: at most kMaxRank extents are recorded (a tensor has no
// more; `rank` is the number that it claims), and an argument has no in.NAME.npy if its description is
// invalid or its memory cannot be read.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "turnout/context.h"

namespace turnout::core {

enum class Recorded : unsigned char { none, failures, calls, unread };

namespace record {
extern std::atomic<Recorded> state;
Recorded read_environment();
}  // namespace record

// What is being recorded. Costs one load if recording is off.
inline Recorded recorded() {
  const Recorded now = record::state.load(std::memory_order_relaxed);
  return now == Recorded::unread ? record::read_environment() : now;
}
// Throws Error if TURNOUT_RECORD names a directory that cannot be created or written.
void check_record_environment();
// Records all calls in this directory, whatever TURNOUT_RECORD is; nullptr returns to TURNOUT_RECORD.
void record_in(const char* directory);

// The record of one call. Never throws: a call must not fail because it cannot be recorded.
class CallFolder {
 public:
  // Copies the descriptions of the arguments. If all calls are recorded, writes the inputs now, because an
  // output may share their memory. A process that crashes during the call leaves a folder with the inputs.
  // only_failures: records nothing unless the call fails, whatever TURNOUT_RECORD is.
  CallFolder(const Arguments& arguments, std::string_view function, Isa isa,
             bool only_failures = false) noexcept;
  // Called when the call has ended. Writes the outputs, or the error if there is one.
  void end(const char* error) noexcept;

 private:
  struct Part {
    std::string_view name;
    Role role;
    ConstTensor tensor;  // a rank above kMaxRank is that of the argument
    bool is_valid;       // the description; the memory may still be unreadable
  };
  struct Value {
    std::string_view name;
    std::string json;
  };
  void write_inputs(const char* error);
  void write_description(const char* error) const;
  std::string path(std::string_view kind, const Part& part) const;

  std::string op_, function_;
  Isa isa_ = Isa::best;
  std::vector<Part> parts_;
  std::vector<Value> scalars_;
  std::string folder_;  // empty until something is written
};

}  // namespace turnout::core
