// Reads the CPU quota of each control group. If a file is missing or malformed, there is no limit, and the
// library uses the CPUs of the affinity mask.
#include "runtime/cpu_quota.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/cgroups.h"

namespace turnout::core {

int cpu_quota(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  for_each_group(root, "cpu", [&](const std::string& folder, bool is_v2) {
    const std::int64_t quota = number_in(folder + (is_v2 ? "/cpu.max" : "/cpu.cfs_quota_us"), 0);
    const std::int64_t period =
        number_in(folder + (is_v2 ? "/cpu.max" : "/cpu.cfs_period_us"), is_v2 ? 1 : 0);
    // Version 1 has -1 for no limit.
    if (quota > 0 && period > 0)
      least = std::min(least, static_cast<double>(quota) / static_cast<double>(period));
  });
  return std::isfinite(least) ? static_cast<int>(std::clamp(std::ceil(least), 1.0, 1e6)) : 0;
}

}  // namespace turnout::core
