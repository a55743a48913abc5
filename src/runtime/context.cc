// Contexts and their scratch memory.
#include "runtime/context.h"

#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "runtime/parallel.h"
#include "simd/isa.h"
#include "turnout/error.h"

namespace turnout {

Executor::~Executor() = default;

Context::Context(const Options& options) : state_(new State) {
  state_->isa = core::resolve_isa(options.isa);
  state_->executor = options.executor;
  set_threads(options.threads);
}
Context::~Context() = default;

int Context::threads() const {
  return state_->executor != nullptr ? state_->executor->threads() : state_->threads.load();
}

void Context::set_threads(int threads) {
  if (threads < 0 || threads > core::kMaxThreads)
    throw Error(ErrorCode::bad_param, "Context: threads is " + std::to_string(threads) +
                                          ", expected 0 (automatic) .. " + std::to_string(core::kMaxThreads));
  state_->threads = threads > 0 ? threads : core::automatic_threads();
}

Isa Context::isa() const { return state_->isa; }

void Context::set_observer(Observer observer, void* user) { state_->observer.set(observer, user); }

void Context::trim() { state_->arenas.trim(); }

Context& default_context() {
  static Context* context = new Context;  // never destroyed: calls may come from static destructors
  return *context;
}

namespace core {
namespace {

void destroy(Arena* arena) {
  std::free(arena->data);
  delete arena;
}

thread_local Arena lent;

// An aligned part of what is lent, once; nullptr: nothing is, or too little.
void* take_lent(std::size_t bytes) {
  Arena loan = lent;
  void* aligned = std::align(kScratchAlignment, bytes, loan.data, loan.size);
  if (aligned != nullptr) lent = {};
  return aligned;
}

}  // namespace

Loan::Loan(void* data, std::size_t size) : before_(lent) { lent = {data, size}; }
Loan::~Loan() { lent = before_; }

Arena* ArenaList::take(std::size_t bytes) {
  // The smallest that is large enough, else the largest: calls that lease several times get the same ones
  // again.
  Arena* arena = nullptr;
  const auto is_better = [&](const Arena& one, const Arena& other) {
    return one.size >= bytes && other.size >= bytes ? one.size < other.size : one.size > other.size;
  };
  for (auto& slot : idle_) {
    Arena* one = slot.exchange(nullptr, std::memory_order_acquire);
    if (one == nullptr) continue;
    if (arena == nullptr || is_better(*one, *arena)) std::swap(one, arena);
    if (one != nullptr) give_back(one);
  }
  if (arena == nullptr) arena = new (std::nothrow) Arena;
  if (arena == nullptr || arena->size >= bytes) return arena;
  std::free(arena->data);
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    arena->data = nullptr;
  } else {
    arena->data = std::aligned_alloc(kScratchAlignment, padded(bytes));
  }
  arena->size = arena->data == nullptr ? 0 : padded(bytes);
  if (arena->data != nullptr) return arena;
  destroy(arena);
  return nullptr;
}

void ArenaList::give_back(Arena* arena) {
  for (auto& slot : idle_) {
    Arena* empty = nullptr;
    if (slot.compare_exchange_strong(empty, arena, std::memory_order_release, std::memory_order_relaxed))
      return;
  }
  destroy(arena);
}

void ArenaList::trim() {
  for (auto& slot : idle_)
    if (Arena* arena = slot.exchange(nullptr, std::memory_order_acquire)) destroy(arena);
}

Scratch::Scratch(Context& context, std::size_t bytes)
    : context_(context), next_(static_cast<std::byte*>(take_lent(bytes))) {
  if (next_ != nullptr) return;
  arena_ = context.state().arenas.take(bytes);
  if (arena_ == nullptr)
    throw Error(ErrorCode::alloc_failed,
                "turnout: " + std::to_string(bytes) + " bytes of scratch memory are not available");
  next_ = static_cast<std::byte*>(arena_->data);
}
Scratch::Scratch(Scratch&& other) noexcept
    : context_(other.context_),
      arena_(std::exchange(other.arena_, nullptr)),
      next_(std::exchange(other.next_, nullptr)) {}
Scratch::~Scratch() {
  if (arena_ != nullptr) context_.state().arenas.give_back(arena_);
}

}  // namespace core
}  // namespace turnout
