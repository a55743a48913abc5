// The thread pool of the process, shared by all contexts. No other file starts threads.
#include "runtime/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "runtime/cpu_quota.h"
#include "runtime/thread_pointer.h"
#include "turnout/error.h"

namespace turnout::core {
namespace {

// An idle worker spins this long before it sleeps: long enough for back-to-back calls, too short to show as
// CPU load. A caller that waits for workers does the same.
constexpr std::chrono::microseconds kSpin{5};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class Done>
bool spin_until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// One run_on_pool call. It is on the caller's stack, and in the pool's list while workers may join it.
struct Job {
  void (*work)(void*);
  void* argument;
  int open_places;              // number of workers that may still join
  int inside;                   // number of workers in work()
  std::atomic<int> unfinished;  // mirrors `inside` for the caller's spin
  std::condition_variable done;
  Job* next;
};

class Pool {
 public:
  void run(int wanted, Job& job) {
    int workers;
    {
      std::lock_guard lock(mutex_);
      job.next = jobs_;
      jobs_ = &job;
      start_workers(wanted);
      workers = std::min(wanted, workers_);
      pending_.fetch_add(1, std::memory_order_release);
    }
    for (; workers > 0; --workers) wake_.notify_one();
    job.work(job.argument);

    std::unique_lock lock(mutex_);
    remove(job);
    if (job.inside == 0) return;
    lock.unlock();
    // The last range of a worker usually ends within microseconds of ours.
    spin_until([&] { return job.unfinished.load(std::memory_order_acquire) == 0; });
    lock.lock();
    const auto is_done = [&] { return job.inside == 0; };
    Interruption* const stop = Interruption::of_this_thread();
    if (stop == nullptr) return job.done.wait(lock, is_done);
    while (!job.done.wait_for(lock, Interruption::kInterval, is_done)) {  // a worker runs a long range
      lock.unlock();
      stop->look();
      lock.lock();
    }
  }

 private:
  void start_workers(int wanted) {
    if (workers_ >= wanted) return;
    sigset_t all, before;  // these threads must not receive the application's signals
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    // If a thread cannot be started, the caller uses the existing ones.
    for (pthread_t worker; workers_ < wanted; ++workers_) {
      if (pthread_create(&worker, nullptr, &start, this) != 0) break;
      pthread_detach(worker);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void remove(Job& job) {
    Job** link = &jobs_;
    while (*link != nullptr && *link != &job) link = &(*link)->next;
    if (*link == nullptr) return;
    *link = job.next;
    pending_.fetch_sub(1, std::memory_order_relaxed);
  }

  static void* start(void* pool) noexcept {
    static_cast<Pool*>(pool)->serve();
    return nullptr;
  }

  void serve() {
    const InsideParallel mark;
    std::unique_lock lock(mutex_);
    if (!mark.is_marked()) {  // out of memory: a later call tries again
      --workers_;
      return;
    }
    for (;;) {
      while (jobs_ != nullptr) {
        Job& job = *jobs_;
        if (--job.open_places == 0) remove(job);
        ++job.inside;
        job.unfinished.fetch_add(1, std::memory_order_relaxed);
        lock.unlock();
        job.work(job.argument);
        lock.lock();
        remove(job);  // no range is left
        job.unfinished.fetch_sub(1, std::memory_order_release);
        if (--job.inside == 0) job.done.notify_one();  // under the lock: the caller's stack still exists
      }
      lock.unlock();
      spin_until([&] { return pending_.load(std::memory_order_acquire) > 0; });
      lock.lock();
      if (jobs_ == nullptr) wake_.wait(lock, [&] { return jobs_ != nullptr; });
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  Job* jobs_ = nullptr;          // newest first
  std::atomic<int> pending_{0};  // length of that list, readable without the lock
  int workers_ = 0;
};

const ThreadPointer& inside() {  // an InsideParallel, or nullptr
  static const ThreadPointer mark;
  return mark;
}

// A forked child has no workers and perhaps a locked mutex, so it abandons the pool and creates a new one.
std::atomic<Pool*> the_pool{nullptr};

// nullptr if out of memory.
Pool* pool() {
  Pool* current = the_pool.load(std::memory_order_acquire);
  if (current != nullptr) return current;
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr, std::memory_order_release); });
  static_cast<void>(registered);
  auto* fresh = new (std::nothrow) Pool;  // never destroyed: its threads outlive main()
  if (fresh == nullptr) return nullptr;
  if (the_pool.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;
  return current;
}

}  // namespace

InsideParallel::InsideParallel() : is_marked_(inside().get() == nullptr && inside().set(this)) {}
InsideParallel::~InsideParallel() {
  if (is_marked_) inside().set(nullptr);
}

namespace {

const ThreadPointer& newest_loops() {
  static const ThreadPointer pointer;
  return pointer;
}
SharedLoops* loops_of_this_thread() { return static_cast<SharedLoops*>(newest_loops().get()); }

}  // namespace

// If the pointer cannot be stored, all time counts as serial.
SharedLoops::SharedLoops() : outer_(loops_of_this_thread()) { newest_loops().set(this); }
SharedLoops::~SharedLoops() { newest_loops().set(outer_); }

SharedLoops::Loop::Loop(bool is_shared) {
  SharedLoops* const of = is_shared ? loops_of_this_thread() : nullptr;
  if (of == nullptr || of->is_inside_) return;
  of_ = of;
  of_->is_inside_ = true;
  start_ = std::chrono::steady_clock::now();
}
SharedLoops::Loop::~Loop() {
  if (of_ == nullptr) return;
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start_;
  of_->is_inside_ = false;
  of_->microseconds_ += spent.count();
}

int automatic_threads() {
  const char* wanted = std::getenv("TURNOUT_NUM_THREADS");
  if (wanted != nullptr && *wanted != '\0') {
    char* end = nullptr;
    const long threads = std::strtol(wanted, &end, 10);
    if (end == wanted || *end != '\0' || threads < 1 || threads > kMaxThreads)
      throw Error(ErrorCode::bad_param, std::string("TURNOUT_NUM_THREADS is '") + wanted +
                                            "', expected 1 .. " + std::to_string(kMaxThreads));
    return static_cast<int>(threads);
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const int allowed = sched_getaffinity(0, sizeof(cpus), &cpus) == 0
                          ? CPU_COUNT(&cpus)
                          : static_cast<int>(std::thread::hardware_concurrency());
  const int quota = cpu_quota();
  return std::clamp(quota > 0 ? std::min(allowed, quota) : allowed, 1, kMaxThreads);
}

void run_on_pool(int threads, void (*work)(void*), void* argument) {
  Pool* const workers = pool();
  if (workers == nullptr) return work(argument);
  Job job{work, argument, threads - 1, 0, 0, {}, nullptr};
  workers->run(threads - 1, job);
}

}  // namespace turnout::core
