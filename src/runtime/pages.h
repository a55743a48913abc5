// Memory in whole pages. unmap_pages() returns them to the system; free() may keep memory in the process.
#pragma once

#include <cstddef>

namespace turnout::core {

void* map_pages(std::size_t bytes);  // filled with 0; nullptr if the system cannot provide them
// The same, aligned to huge pages, which it requests. For memory that is filled completely.
void* map_huge_pages(std::size_t bytes);
void unmap_pages(void* data, std::size_t bytes);

inline constexpr std::size_t kPageGranularity = std::size_t{64} << 10;  // sizes are multiples of it
constexpr std::size_t in_whole_pages(std::size_t bytes) {
  return (bytes + kPageGranularity - 1) / kPageGranularity * kPageGranularity;
}

// The default limit of the idle bytes of a cache: 512 MB, or a sixteenth of the physical memory if that is
// less.
std::size_t default_idle_bytes();

}  // namespace turnout::core
