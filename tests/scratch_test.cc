// Tests scratch memory: leases, the limit of idle memory, trim().
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/context.h"
#include "runtime/pages.h"
#include "sanitizer.h"
#include "turnout/turnout.h"

namespace turnout {
namespace {

TEST(Scratch, FailsCleanlyWhenOutOfMemory) {
  Context context;
  try {
    core::Scratch scratch(context, std::numeric_limits<std::size_t>::max() - 100);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::alloc_failed);
  }
  core::Scratch works(context, 100);
  int* ints = works.take<int>(10);
  ints[9] = 1;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ints) % core::kScratchAlignment, 0u);
}

#if defined(TURNOUT_ADDRESS_SANITIZER)
TEST(ScratchDeathTest, TheSanitizerReportsMemoryThatWasNotTaken) {
  Context context;
  core::Scratch scratch(context, 512);
  int* ints = scratch.take<int>(10);
  ints[9] = 1;
  EXPECT_DEATH(ints[10] = 1, "use-after-poison");
  EXPECT_DEATH(ints[100] = 1, "use-after-poison");
  std::byte* rest = scratch.rest();
  rest[512 - 64 - 1] = std::byte{1};
}
#endif

TEST(Scratch, ManyLeasesAtOnceAreSeparate) {
  Context context;
  std::vector<std::unique_ptr<core::Scratch>> leases;
  std::vector<int*> memory;
  for (int i = 0; i < 40; ++i) {
    leases.push_back(std::make_unique<core::Scratch>(context, 64));
    memory.push_back(leases.back()->take<int>(16));
    *memory.back() = i;
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(*memory[static_cast<std::size_t>(i)], i);
}

// Idle arenas stay within the limit; the least recently used is freed first.
TEST(Scratch, IdleArenasAreBounded) {
  constexpr std::size_t kUnit = 64 << 10;
  core::ArenaList arenas(10 * kUnit);
  core::Arena* leased[4];
  const std::size_t sizes[] = {5 * kUnit, 1 * kUnit, 4 * kUnit, 3 * kUnit};
  for (int i = 0; i < 4; ++i) leased[i] = arenas.take(sizes[i]);
  for (core::Arena* arena : leased) arenas.give_back(arena);
  EXPECT_EQ(arenas.idle_bytes(), 8 * kUnit);  // all except the first one given back
  core::Arena* four = arenas.take(4 * kUnit);
  EXPECT_EQ(four, leased[2]);
  EXPECT_EQ(arenas.idle_bytes(), 4 * kUnit);
  arenas.give_back(four);
  arenas.give_back(arenas.take(1 * kUnit));     // now the arena of 3 units is the least recently used
  core::Arena* most = arenas.take(10 * kUnit);  // grows the largest arena
  EXPECT_EQ(arenas.idle_bytes(), 4 * kUnit);
  arenas.give_back(most);
  EXPECT_EQ(arenas.idle_bytes(), 10 * kUnit);  // only this one
  arenas.give_back(arenas.take(11 * kUnit));   // above the limit, so it is not kept
  EXPECT_EQ(arenas.idle_bytes(), 0u);
}

// Threads give back more arenas than the list keeps: the others are freed, and no arena is lost or shared.
TEST(Scratch, IdleArenasAreBoundedWhenManyThreadsLease) {
  core::ArenaList arenas(6 << 20);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int repeat = 0; repeat < 300; ++repeat) {
        core::Arena* held[8];
        for (int i = 0; i < 8; ++i) {
          held[i] = arenas.take(static_cast<std::size_t>((i + repeat) % 8 + 1) << 18);
          *static_cast<int*>(held[i]->data) = t * 8 + i;
        }
        for (int i = 0; i < 8; ++i) wrong += *static_cast<int*>(held[i]->data) != t * 8 + i;
        for (core::Arena* arena : held) arenas.give_back(arena);
        if (repeat % 50 == 49) arenas.trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(arenas.idle_bytes(), std::size_t{6 << 20});
  arenas.trim();
  EXPECT_EQ(arenas.idle_bytes(), 0u);
}

TEST(Scratch, TrimFreesAllThatIsIdle) {
  Context context;
  { const core::Scratch small(context, 100), large(context, 3 << 20); }
  EXPECT_GT(context.state().arenas.idle_bytes(), std::size_t{3 << 20});
  context.trim();
  EXPECT_EQ(context.state().arenas.idle_bytes(), 0u);
}

// Memory for results of the Python package.
TEST(Pages, AreAlignedToHugePagesAndZero) {
  constexpr std::size_t kHugePage = 2 << 20, kBytes = 3 * kHugePage;
  auto* memory = static_cast<unsigned char*>(core::map_huge_pages(kBytes));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kHugePage, 0u);
  EXPECT_EQ(memory[0] + memory[kBytes - 1], 0);
  std::fill_n(memory, kBytes, static_cast<unsigned char>(1));
  core::unmap_pages(memory, kBytes);
  EXPECT_EQ(core::map_huge_pages(std::size_t{1} << 60), nullptr);
}

}  // namespace
}  // namespace turnout
