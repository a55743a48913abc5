// Memory in whole pages. They go back to the system when they are unmapped; free() may keep what it gets.
#pragma once

#include <cstddef>

namespace turnout::core {

void* map_pages(std::size_t bytes);  // nullptr when memory is out; the content is zero
// The same for memory that is filled from end to end: it starts at a huge page, and asks for those.
void* map_huge_pages(std::size_t bytes);
void unmap_pages(void* data, std::size_t bytes);

inline constexpr std::size_t kPageGranularity = std::size_t{64} << 10;  // sizes are multiples of it
constexpr std::size_t in_whole_pages(std::size_t bytes) {
  return (bytes + kPageGranularity - 1) / kPageGranularity * kPageGranularity;
}

// How many bytes a cache keeps idle unless it is told otherwise: 512 MB, or a sixteenth of the memory if that
// is less.
std::size_t default_idle_bytes();

}  // namespace turnout::core
