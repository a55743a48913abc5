// The control groups of this process, for cgroups v1 and v2.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace turnout::core {

// Calls f(folder, is_v2) for this process's group that has the controller ("cpu", "memory"), and for all its
// ancestors. Tests set `root`, a prefix of all paths.
void for_each_group(const std::string& root, std::string_view controller,
                    const std::function<void(const std::string& folder, bool is_v2)>& f);

// The word at this position of a file as a number; 0 if it is missing or not a number, such as "max".
std::int64_t number_in(const std::string& file, int position);
// The number that follows the word `key` in a file; 0 if there is none.
std::int64_t number_after(const std::string& file, std::string_view key);

}  // namespace turnout::core
