// Records calls as .npz files, which `turnout replay` runs again.
//
// TURNOUT_RECORD=directory records all calls, TURNOUT_RECORD=on_error:directory those that are refused. The
// file of a call, <operator>.<process>.<number>.npz, has these arrays:
//
//   call.op, call.function   the operator, and the function that was called if that has another name
//   call.error               the message of a call that failed
//   call.version, call.isa   of the library; results of some operators depend on the instruction set
//   in.NAME, out.NAME        an argument before and after the call; "in.NAME.bf16" has the bits of a bfloat16
//   shape.NAME.DTYPE         the extents of an argument without data: an output, or memory that cannot be
//   read stride.NAME              the strides, in elements, of an argument that is not contiguous scalar.NAME
//   a scalar, or the elements of a vector
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "runtime/npz.h"
#include "turnout/context.h"

namespace turnout::core {

enum class Recorded : unsigned char { none, failures, calls, unread };

namespace record {
extern std::atomic<Recorded> state;
Recorded read_environment();
}  // namespace record

// What is recorded now. Off, this is one load.
inline Recorded recorded() {
  const Recorded now = record::state.load(std::memory_order_relaxed);
  return now == Recorded::unread ? record::read_environment() : now;
}
// Throws Error if TURNOUT_RECORD names a directory that cannot be made or written.
void check_record_environment();
// Records all calls in this directory, whatever TURNOUT_RECORD says; nullptr: as TURNOUT_RECORD says.
void record_in(const char* directory);

// The record of one call. Nothing is thrown: a call does not fail because it cannot be recorded.
class CallFile {
 public:
  // Copies what the arguments are, and writes inputs now if all calls are recorded, because an output may
  // share their memory. A process that ends during the call leaves a file with the inputs.
  CallFile(const Arguments& arguments, std::string_view function, Isa isa) noexcept;
  // The call has ended, with an error or without; outputs are written if there is none.
  void end(const char* error) noexcept;

 private:
  struct Part {
    std::string_view name;
    Role role;
    ConstTensor tensor;
    bool is_strided, is_readable;
    std::vector<std::int64_t> shape;  // also with more dimensions than a tensor can have
    DType dtype;
  };
  struct Value {
    std::string_view name;
    bool is_vector;
    std::vector<std::int64_t> values;
  };
  void write_inputs();

  std::string op_, function_;
  Isa isa_ = Isa::best;
  std::vector<Part> parts_;
  std::vector<Value> scalars_;
  std::unique_ptr<NpzFile> file_;
};

}  // namespace turnout::core
