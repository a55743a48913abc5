// Reads /proc/self/cgroup and /proc/self/mountinfo. If a file is missing or malformed, there is no group.
#include "runtime/cgroups.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

namespace turnout::core {
namespace {

bool has_word(std::string_view list, std::string_view word) {  // the list is comma-separated
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (list.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

std::int64_t number_of(const std::string& word) {
  std::int64_t number = 0;
  const char* const end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? number : 0;
}

struct Mount {
  std::string point, root;  // the mount point, and the group that is mounted there
};

// The mount of version 2, or that of a controller of version 1. If there is none, point is empty.
Mount find_mount(const std::string& root, std::string_view controller, bool is_v2) {
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
    if (is_v2 ? type == "cgroup2" : type == "cgroup" && has_word(options, controller)) return mount;
  }
  return {};
}

}  // namespace

std::int64_t number_in(const std::string& file, int position) {
  std::ifstream in(file);
  std::string word;
  for (int i = 0; i <= position; ++i)
    if (!(in >> word)) return 0;
  return number_of(word);
}

std::int64_t number_after(const std::string& file, std::string_view key) {
  std::ifstream in(file);
  std::string word;
  while (in >> word)
    if (word == key) return in >> word ? number_of(word) : 0;
  return 0;
}

// In a container the path may be that of the host, which does not exist here. Then only the groups at the end
// of the path count; the topmost of these is the container's.
void for_each_group(const std::string& root, std::string_view controller,
                    const std::function<void(const std::string& folder, bool is_v2)>& f) {
  std::ifstream in(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    // number:controllers:group; version 2 has the number 0 and no controllers.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && !has_word(controllers, controller)) continue;
    const Mount mount = find_mount(root, controller, is_v2);
    if (mount.point.empty()) continue;
    std::string group = line.substr(second + 1);
    // The mount may show only the groups below its root.
    if (mount.root != "/" && group.rfind(mount.root, 0) == 0) group.erase(0, mount.root.size());
    while (!group.empty() && group.back() == '/') group.pop_back();
    for (;;) {
      std::string path = root;
      path.append(mount.point).append(group);
      f(path, is_v2);
      const std::size_t slash = group.rfind('/');
      if (slash == std::string::npos) break;
      group.resize(slash);
    }
  }
}

}  // namespace turnout::core
