// The CPU quota of the container.
#pragma once

#include <string>

namespace turnout::core {

// The number of CPUs that the quotas of this process's control groups amount to, rounded up: the minimum over
// all groups up to the root, for cgroups v2 (cpu.max) and v1 (cpu.cfs_quota_us). 0 means no limit. More
// threads would use up the quota early and then all pause until the next period. Tests set `root`, a prefix
// of all paths.
int cpu_quota(const std::string& root = "");

}  // namespace turnout::core
