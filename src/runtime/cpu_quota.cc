// Reads /proc/self/cgroup, /proc/self/mountinfo and the quota of each control group. A file that is missing,
// or has other contents than expected, means no limit: the library then uses the CPUs of the affinity mask.
#include "runtime/cpu_quota.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>

namespace turnout::core {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

bool has_word(std::string_view list, std::string_view word) {  // separated by commas
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (list.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

// A number of a file; 0 if it is missing or something else, as "max" is.
std::int64_t number_in(const std::string& file, int position) {
  std::ifstream in(file);
  std::string word;
  for (int i = 0; i <= position; ++i)
    if (!(in >> word)) return 0;
  std::int64_t number = 0;
  const char* const end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? number : 0;
}

double quota_of_group(const std::string& folder, bool is_v2) {
  const std::int64_t quota = number_in(folder + (is_v2 ? "/cpu.max" : "/cpu.cfs_quota_us"), 0);
  const std::int64_t period = number_in(folder + (is_v2 ? "/cpu.max" : "/cpu.cfs_period_us"), is_v2 ? 1 : 0);
  // Version 1 says -1 for no limit.
  return quota > 0 && period > 0 ? static_cast<double>(quota) / static_cast<double>(period) : kNoLimit;
}

// The least quota of the group and of all groups above it. In a container the path may be that of the host,
// which does not exist here: then only the groups at the end of the path count, the topmost of which is the
// container's.
double least_quota(const std::string& mount, std::string group, bool is_v2) {
  double least = kNoLimit;
  for (;;) {
    least = std::min(least, quota_of_group(mount + group, is_v2));
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

struct Mount {
  std::string point, root;  // where it is, and which group is there
};

// The mount of version 2, or that of the controller `cpu` of version 1; an empty point: there is none.
Mount find_mount(const std::string& root, bool is_v2) {
  std::ifstream in(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(in, line)) {
    // 36 35 0:26 /root /point options .. - type source options
    std::istringstream words(line);
    std::string id, parent, device, word;
    Mount mount;
    words >> id >> parent >> device >> mount.root >> mount.point;
    while (words >> word && word != "-") {
    }
    std::string type, source, options;
    words >> type >> source >> options;
    if (is_v2 ? type == "cgroup2" : type == "cgroup" && has_word(options, "cpu")) return mount;
  }
  return {};
}

}  // namespace

int cpu_quota(const std::string& root) {
  double least = kNoLimit;
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    // number:controllers:group; version 2 has the number 0 and no controllers.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && !has_word(controllers, "cpu")) continue;
    const Mount mount = find_mount(root, is_v2);
    if (mount.point.empty()) continue;
    std::string group = line.substr(second + 1);
    // The mount may show only the groups below its root.
    if (mount.root != "/" && group.rfind(mount.root, 0) == 0) group.erase(0, mount.root.size());
    while (!group.empty() && group.back() == '/') group.pop_back();
    least = std::min(least, least_quota(root + mount.point, group, is_v2));
  }
  return std::isfinite(least) ? static_cast<int>(std::clamp(std::ceil(least), 1.0, 1e6)) : 0;
}

}  // namespace turnout::core
