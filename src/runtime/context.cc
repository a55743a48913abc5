// Implements Context and its scratch memory.
#include "runtime/context.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "runtime/call.h"
#include "runtime/parallel.h"
#include "runtime/record.h"
#include "simd/isa.h"
#include "turnout/error.h"

namespace turnout {

Executor::~Executor() = default;

Context::Context(const Options& options) : state_(new State) {
  core::check_log_environment();
  core::check_record_environment();
  state_->isa = core::resolve_isa(options.isa);
  state_->executor = options.executor;
  set_threads(options.threads);
}
Context::~Context() = default;

int Context::threads() const {
  const int most = state_->threads.load();
  return state_->executor == nullptr ? most : std::clamp(state_->executor->threads(), 1, most);
}

void Context::set_threads(int threads) {
  if (threads < 0 || threads > core::kMaxThreads)
    throw Error(ErrorCode::bad_param, "Context: threads is " + std::to_string(threads) +
                                          ", expected 0 (automatic) .. " + std::to_string(core::kMaxThreads));
  if (threads == 0) threads = state_->executor == nullptr ? core::automatic_threads() : core::kMaxThreads;
  state_->threads = threads;
}

Isa Context::isa() const { return state_->isa; }

void Context::set_observer(Observer observer, void* user) { state_->observer.set(observer, user); }

void Context::trim() { state_->arenas.trim(); }

Context& default_context() {
  static Context* context = new Context;  // never destroyed: static destructors may call operators
  return *context;
}

namespace core {
namespace {

// Larger arenas are mapped pages, because free() might not return them to the system.
constexpr std::size_t kMappedBytes = std::size_t{1} << 20;

void allocate(Arena& arena, std::size_t bytes) {
  arena = {};
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return;
  const std::size_t size = bytes < kMappedBytes ? padded(bytes) : in_whole_pages(bytes);
  arena.data = bytes < kMappedBytes ? std::aligned_alloc(kScratchAlignment, size) : map_pages(size);
  if (arena.data != nullptr) arena.size = size;
}

void deallocate(const Arena& arena) {
  if (arena.size < kMappedBytes) {
    std::free(arena.data);
  } else {
    unmap_pages(arena.data, arena.size);
  }
}

void destroy(Arena* arena) {
  deallocate(*arena);
  delete arena;
}

}  // namespace

bool ArenaList::put(Arena* arena) {
  for (auto& slot : idle_) {
    Arena* empty = nullptr;
    if (slot.compare_exchange_strong(empty, arena, std::memory_order_release, std::memory_order_relaxed))
      return true;
  }
  return false;
}

void ArenaList::discard(Arena* idle_one) {
  if (idle_one == nullptr) return;
  idle_bytes_.fetch_sub(idle_one->size, std::memory_order_relaxed);
  destroy(idle_one);
}

// Takes the best arena, as defined by is_better(one, other), out of its slot.
template <class IsBetter>
Arena* ArenaList::take_best(const IsBetter& is_better) {
  Arena* best = nullptr;
  for (auto& slot : idle_) {
    Arena* one = slot.exchange(nullptr, std::memory_order_acquire);
    if (one == nullptr) continue;
    if (best == nullptr || is_better(*one, *best)) std::swap(one, best);
    if (one != nullptr && !put(one)) discard(one);
  }
  return best;
}

Arena* ArenaList::take(std::size_t bytes) {
  // The smallest that is large enough, otherwise the largest. So a call that leases several arenas gets the
  // same ones each time.
  Arena* arena = take_best([&](const Arena& one, const Arena& other) {
    return one.size >= bytes && other.size >= bytes ? one.size < other.size : one.size > other.size;
  });
  if (arena != nullptr) {
    idle_bytes_.fetch_sub(arena->size, std::memory_order_relaxed);
  } else {
    arena = new (std::nothrow) Arena;
  }
  if (arena == nullptr || arena->size >= bytes) return arena;
  deallocate(*arena);
  allocate(*arena, bytes);
  if (arena->data != nullptr) return arena;
  destroy(arena);
  return nullptr;
}

void ArenaList::give_back(Arena* arena) {
  if (arena->size > limit_) return destroy(arena);  // keeping it would free all others
  const auto take_oldest = [&] {
    return take_best([](const Arena& one, const Arena& other) { return one.last_used < other.last_used; });
  };
  arena->last_used = clock_.fetch_add(1, std::memory_order_relaxed);
  idle_bytes_.fetch_add(arena->size, std::memory_order_relaxed);
  if (!put(arena)) {
    discard(take_oldest());
    if (!put(arena)) return discard(arena);
  }
  while (idle_bytes() > limit_) {
    Arena* oldest = take_oldest();
    if (oldest == nullptr)
      return;  // other threads hold the idle arenas, and will put them back or lease them
    discard(oldest);
  }
}

void ArenaList::trim() {
  for (auto& slot : idle_) discard(slot.exchange(nullptr, std::memory_order_acquire));
}

Scratch::Scratch(Context& context, std::size_t bytes) : Scratch(context, {}, bytes) {}
Scratch::Scratch(Context& context, const Workspace& workspace, std::size_t bytes) : context_(context) {
  if (bytes == 0) return;
  void* data = workspace.data;
  std::size_t size = workspace.size;
  begin_ = static_cast<std::byte*>(std::align(kScratchAlignment, bytes, data, size));
  if (begin_ == nullptr) {
    arena_ = context.state().arenas.take(bytes);
    if (arena_ == nullptr)
      throw Error(ErrorCode::alloc_failed,
                  "turnout: " + std::to_string(bytes) + " bytes of scratch memory are not available");
    begin_ = static_cast<std::byte*>(arena_->data);
  }
  next_ = begin_;
  bytes_ = bytes;
  forbid(begin_, bytes_);
}
Scratch::Scratch(Scratch&& other) noexcept
    : context_(other.context_),
      arena_(std::exchange(other.arena_, nullptr)),
      begin_(std::exchange(other.begin_, nullptr)),
      next_(std::exchange(other.next_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}
Scratch::~Scratch() {
  allow(begin_, bytes_);
  if (arena_ != nullptr) context_.state().arenas.give_back(arena_);
}

}  // namespace core
}  // namespace turnout
