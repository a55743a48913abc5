// Where calls run: how many threads, which instruction set, whose threads, who watches.
#pragma once

#include <cstdint>
#include <memory>

#include "turnout/export.h"

namespace turnout {

// Instruction sets the kernels are compiled for, weakest first. `best` is what this CPU has, capped by
// TURNOUT_ISA=sse4|avx2|avx512|avx512_dl.
enum class Isa : std::uint8_t { sse4, avx2, avx512, avx512_dl, neon, best = 255 };

TURNOUT_API const char* name_of(Isa isa);
TURNOUT_API bool is_supported(Isa isa);  // by this CPU and by this build

// Threads to run on. run() calls work(argument) at most threads() times, from any threads, at the same time
// or one after the other, at least once, and returns when all calls have returned. work never throws.
class TURNOUT_API Executor {
 public:
  virtual ~Executor();
  virtual int threads() const = 0;
  virtual void run(void (*work)(void* argument), void* argument) = 0;
};

// One finished call, as an observer sees it. All pointers are valid during the callback only.
struct CallRecord {
  const char* op;         // "moe_dispatch_forward"
  const char* arguments;  // "gates f32[18432], ..., capacity 11520"
  const char* algorithm;  // what the plan chose; "" when it did not get that far
  const char* error;      // the sentence of a failed call, else nullptr
  bool skipped;           // nothing to do: no output has an element
  Isa isa;
  int threads;  // at most this many took part
  std::int64_t scratch_bytes;
  double microseconds;
};
using Observer = void (*)(const CallRecord& record, void* user);

struct Options {
  int threads = 0;  // 0: TURNOUT_NUM_THREADS, or the CPUs this process may use
  Isa isa = Isa::best;
  Executor* executor = nullptr;  // nullptr: the library's own pool; else must outlive the context
};

// Safe to use from several threads at once. Scratch memory is kept between calls, so that a repeated call
// allocates nothing.
class TURNOUT_API Context {
 public:
  explicit Context(const Options& options = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int threads() const;
  void set_threads(int threads);  // 0: as in Options
  Isa isa() const;
  void set_observer(Observer observer, void* user);  // nullptr: none
  void trim();                                       // gives idle scratch memory back to the system

  struct TURNOUT_HIDDEN State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

TURNOUT_API Context& default_context();

// The log: one line per call. TURNOUT_LOG=1 starts it on stderr; a sink, when set, gets the lines instead.
// Levels: 1 calls and failures, 5 also skipped empty calls. 0 is off.
using LogSink = void (*)(int level, const char* line, void* user);
TURNOUT_API void set_log(int level, LogSink sink = nullptr, void* user = nullptr);

}  // namespace turnout
