// The threads, instruction set and scratch memory that calls use; observers of calls, and the log.
#pragma once

#include <cstdint>
#include <memory>

#include "turnout/export.h"

namespace turnout {

// Instruction sets the kernels are compiled for, weakest first. `best` is the strongest one of this CPU,
// capped by the environment variable TURNOUT_ISA=sse4|avx2|avx512|avx512_dl.
enum class Isa : std::uint8_t { sse4, avx2, avx512, avx512_dl, neon, best = 255 };

TURNOUT_API const char* name_of(Isa isa);
TURNOUT_API bool is_supported(Isa isa);  // by this CPU and by this build

// Threads to run on. run() calls work(argument) at least once and at most threads() times, from any threads,
// concurrently or in sequence, and returns after all these calls have returned. work never throws.
class TURNOUT_API Executor {
 public:
  virtual ~Executor();
  virtual int threads() const = 0;
  virtual void run(void (*work)(void* argument), void* argument) = 0;
};

// One finished call, as passed to an observer. All pointers are valid only during the callback.
struct CallRecord {
  const char* op;         // "moe_dispatch_forward"
  const char* arguments;  // "gates f32[18432], ..., capacity 11520"
  const char* algorithm;  // chosen by the plan; "" if the call ended before that
  const char* error;      // the message of a failed call, else nullptr
  bool skipped;           // true if no output has an element, so nothing was computed
  Isa isa;
  int threads;  // upper limit of the threads that took part
  std::int64_t scratch_bytes;
  double microseconds;
};
using Observer = void (*)(const CallRecord& record, void* user);

struct Options {
  int threads = 0;  // 0: TURNOUT_NUM_THREADS if set, else the CPUs that this process may use
  Isa isa = Isa::best;
  Executor* executor = nullptr;  // nullptr: the library's own pool; an executor must outlive the context
};

// Several threads may use one Context at the same time. It keeps scratch memory between calls, so a repeated
// call allocates nothing.
class TURNOUT_API Context {
 public:
  explicit Context(const Options& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int threads() const;
  void set_threads(int threads);  // 0: as in Options
  Isa isa() const;
  void set_observer(Observer observer, void* user);  // nullptr removes the observer
  void trim();                                       // returns idle scratch memory to the system

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

TURNOUT_API Context& default_context();

// The log has one line per call. Levels: 0 off, 1 calls and failures, 5 skipped empty calls too. The
// environment variable TURNOUT_LOG sets the level at the start. Lines go to the sink if one is set, else to
// stderr.
using LogSink = void (*)(int level, const char* line, void* user);
TURNOUT_API void set_log(int level, LogSink sink = nullptr, void* user = nullptr);

}  // namespace turnout
