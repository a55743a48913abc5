// The CPU time that a container allows its processes.
#pragma once

#include <string>

namespace turnout::core {

// How many CPUs' worth of time the control groups of this process allow it, rounded up: the least of all
// groups up to the root, in version 2 of cgroups (cpu.max) and in version 1 (cpu.cfs_quota_us). 0: no limit.
// More threads than that would use the time up early and then all stand still until the next period.
// `root` is put before all paths, for tests.
int cpu_quota(const std::string& root = "");

}  // namespace turnout::core
