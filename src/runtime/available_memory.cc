// Reads /proc/meminfo and the memory limits of control groups. A limit that cannot be read is ignored.
#include "runtime/available_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

#include "runtime/cgroups.h"

namespace turnout::core {
namespace {

// Reading the files takes 0.1 ms; filling this much memory takes some hundred times that.
constexpr std::size_t kCheckedBytes = std::size_t{256} << 20;

}  // namespace

std::size_t available_memory(const std::string& root) {
  constexpr auto kUnknown = std::numeric_limits<std::int64_t>::max();
  const std::string meminfo = root + "/proc/meminfo";
  const std::int64_t kilobytes = number_after(meminfo, "MemAvailable:");
  std::int64_t least = kilobytes > 0 ? (kilobytes + number_after(meminfo, "SwapFree:")) * 1024 : kUnknown;
  for_each_group(root, "memory", [&](const std::string& folder, bool is_v2) {
    const std::int64_t limit = number_in(folder + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"), 0);
    if (limit <= 0) return;
    const std::int64_t used = number_in(folder + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"), 0);
    // Cached files count as used, but can be evicted.
    const std::int64_t cached =
        number_after(folder + "/memory.stat", is_v2 ? "inactive_file" : "total_inactive_file");
    least = std::min(least, std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used - cached)));
  });
  return least == kUnknown ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(least);
}

bool can_provide(std::size_t bytes) {
  if (bytes < kCheckedBytes) return true;
  try {
    // A sixteenth stays free for scratch memory and for the rest of the process.
    const std::size_t available = available_memory();
    return bytes <= available - available / 16;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace turnout::core
