// Internals of a Context: threads, instruction set, and scratch memory that calls lease.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/check.h"
#include "core/padding.h"
#include "core/sanitizer.h"
#include "runtime/pages.h"
#include "turnout/context.h"

namespace turnout::core {

struct Arena {
  void* data = nullptr;
  std::size_t size = 0;
  std::uint64_t last_used = 0;
};

// Idle arenas, at most `limit` bytes of them; the least recently used are freed first. Slots are exchanged
// atomically, so there is no lock that a fork() could leave locked.
class ArenaList {
 public:
  explicit ArenaList(std::size_t limit = default_idle_bytes()) : limit_(limit) {}
  ~ArenaList() { trim(); }
  Arena* take(std::size_t bytes);  // at least `bytes`, 64-byte aligned; nullptr if out of memory
  void give_back(Arena* arena);
  void trim();
  std::size_t idle_bytes() const { return idle_bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kSlots = 16;

  bool put(Arena* arena);  // into an empty slot; false if there is none
  template <class IsBetter>
  Arena* take_best(const IsBetter& is_better);  // nullptr if none is idle
  void discard(Arena* idle_one);                // frees it; may be nullptr

  const std::size_t limit_;
  std::atomic<std::uint64_t> clock_{0};
  std::atomic<std::size_t> idle_bytes_{0};  // includes arenas that take_best() has taken from their slots
  std::atomic<Arena*> idle_[kSlots] = {};
};

// A callback and its user data. They are replaced together, while other threads may be calling: each thread
// sees the old pair or the new one. A replaced pair is freed with the slot, because a thread may still use
// it.
template <class Callback>
class WatcherSlot {
 public:
  struct Watcher {
    Callback call;
    void* user;
    const Watcher* replaced;
  };

  WatcherSlot() = default;
  WatcherSlot(const WatcherSlot&) = delete;
  WatcherSlot& operator=(const WatcherSlot&) = delete;
  ~WatcherSlot() {
    for (const Watcher* watcher = newest_.load(); watcher != nullptr;) {
      const Watcher* replaced = watcher->replaced;
      delete watcher;
      watcher = replaced;
    }
  }

  void set(Callback call, void* user) {
    auto* fresh = new Watcher{call, user, newest_.load()};
    while (!newest_.compare_exchange_weak(fresh->replaced, fresh, std::memory_order_acq_rel)) {
    }
  }
  // nullptr if there is no callback.
  const Watcher* get() const {
    const Watcher* watcher = newest_.load(std::memory_order_acquire);
    return watcher == nullptr || watcher->call == nullptr ? nullptr : watcher;
  }

 private:
  std::atomic<const Watcher*> newest_{nullptr};
};

}  // namespace turnout::core

namespace turnout {

struct TURNOUT_HIDDEN Context::State {
  std::atomic<int> threads{1};  // with an executor, the maximum number of its threads
  Isa isa = Isa::best;
  Executor* executor = nullptr;
  core::ArenaList arenas;
  core::WatcherSlot<Observer> observer;
};

}  // namespace turnout

namespace turnout::core {

// Temporary memory. It is taken before the first write of a call, so that a call that runs out of memory has
// written nothing. The address sanitizer reports accesses between arrays and to memory that was not taken.
class Scratch {
 public:
  // Leased from the context until the destructor; throws Error(alloc_failed).
  Scratch(Context& context, std::size_t bytes);
  // In the workspace if `bytes` fit there after alignment, otherwise leased from the context.
  Scratch(Context& context, const Workspace& workspace, std::size_t bytes);
  ~Scratch();
  Scratch(Scratch&& other) noexcept;  // leaves `other` empty
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // The next `count` elements. The sum of the padded sizes must not exceed the requested bytes.
  template <class T>
  T* take(std::int64_t count) {
    T* begin = reinterpret_cast<T*>(next_);
    allow(begin, static_cast<std::size_t>(count) * sizeof(T));
    next_ += padded(static_cast<std::size_t>(count) * sizeof(T));
    return begin;
  }
  // All remaining memory.
  std::byte* rest() {
    allow(next_, static_cast<std::size_t>(begin_ + bytes_ - next_));
    return std::exchange(next_, begin_ + bytes_);
  }

 private:
  Context& context_;
  Arena* arena_ = nullptr;  // nullptr if the memory is a workspace
  std::byte *begin_ = nullptr, *next_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace turnout::core
