// The threads, instruction set and scratch memory that calls use; observers of calls, and the log.
#pragma once

#include <cstdint>
#include <memory>

#include "turnout/export.h"

namespace turnout {

// Instruction sets the kernels are compiled for, weakest first. `best` is what this CPU has, capped by
// TURNOUT_ISA=sse4|avx2|avx512|avx512_dl|avx512_bf16|neon. If this CPU lacks the named set, the
// variable has no effect, and the log notes it once. Any other value is an Error when a context is created.
enum class Isa : std::uint8_t { sse4, avx2, avx512, avx512_dl, avx512_bf16, neon, best = 255 };

TURNOUT_API const char* name_of(Isa isa);
TURNOUT_API bool is_supported(Isa isa);  // by this CPU and by this build

// A thread pool supplied by the caller. run() calls work(argument) at least once and at most `count` times,
// on any threads, concurrently or sequentially, and returns when all these calls have returned. `count` is at
// least 2 and at most the context's number of threads. work never throws.
class TURNOUT_API Executor {
 public:
  virtual ~Executor();
  virtual int threads() const = 0;
  virtual void run(int count, void (*work)(void* argument), void* argument) = 0;
};

// One finished call, as passed to an observer. All pointers are valid only during the callback.
struct CallRecord {
  const char* op;         // "moe_dispatch_forward"
  const char* arguments;  // "gates f32[18432], ..., capacity 11520"
  const char* algorithm;  // chosen by the plan; "" if the call ended before that
  const char* error;      // the message of a failed call, otherwise nullptr
  bool skipped;           // true if no output has an element, so nothing was computed
  Isa isa;                // of the kernels: avx512 also in a context of a later set that adds nothing
  int threads;            // upper limit of the threads that took part
  std::int64_t scratch_bytes;
  double microseconds;
  double serial_microseconds;  // of these, outside of loops that several threads can share
};
using Observer = void (*)(const CallRecord& record, void* user);

struct Options {
  // The maximum number of threads of a call. 0 means TURNOUT_NUM_THREADS or, if that is not set, the CPUs
  // that the affinity mask and the container's CPU quota allow. With an executor, 0 means all its threads.
  int threads = 0;
  Isa isa = Isa::best;
  Executor* executor = nullptr;  // nullptr means the library's own pool. Must outlive the context
};

// Safe to use from several threads at once. Scratch memory is kept between calls, so that a repeated call
// allocates nothing. A context keeps at most 512 MB, or a sixteenth of the memory if that is less, and frees
// the least recently used first.
class TURNOUT_API Context {
 public:
  explicit Context(const Options& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int threads() const;            // the number of threads that a call may use
  void set_threads(int threads);  // as in Options
  Isa isa() const;
  void set_observer(Observer observer, void* user);  // nullptr removes the observer
  void trim();                                       // returns idle scratch memory to the system

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

TURNOUT_API Context& default_context();

// The log has one line per call (wrapped here):
//
//   [turnout] op(gates f32[3], ..., capacity 2): algorithm="last writers" isa=avx2 threads=1 scratch=64
//   us=1.5 serial_us=1.5
//
// The pairs after "): " are in logfmt: a value that is not one word is quoted. `scratch` is in bytes, `us` is
// the time in microseconds, and `serial_us` the part of it that only one thread can do. The line of a failing
// call begins with "[turnout] failed: " and the message. Level 1 logs calls and failures, level 5 also empty
// calls that are skipped, and 0 turns the log off. TURNOUT_LOG=1 starts the log on stderr; a sink, when set,
// gets the lines instead. If TURNOUT_LOG is not a level, creating a context throws an Error.
using LogSink = void (*)(int level, const char* line, void* user);
TURNOUT_API void set_log(int level, LogSink sink = nullptr, void* user = nullptr);

}  // namespace turnout
