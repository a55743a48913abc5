// The smallest call that uses scratch memory, and a sink for the log.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "turnout/turnout.h"

namespace turnout::test {

// moe_dispatch_forward of 2 tokens of 3 floats. With Fill::zero it uses the table of last writers.
struct Dispatch {
  float gates[2] = {2, 3}, input[6] = {1, 2, 3, 4, 5, 6}, dispatch[6] = {};
  std::int32_t indices[2] = {1, 0}, locations[2] = {0, 0};
  void operator()(Context& context, Fill fill = Fill::zero) {
    moe_dispatch_forward(view(gates, {2}), view(indices, {2}), view(locations, {2}), view(input, {2, 3}),
                         view(dispatch, {2, 3}), {.capacity = 1, .num_experts = 2, .fill = fill}, context);
  }
};

// A log sink that keeps all lines with their levels.
struct Lines {
  std::vector<std::pair<int, std::string>> all;
  static void sink(int level, const char* line, void* user) {
    static_cast<Lines*>(user)->all.emplace_back(level, line);
  }
};

}  // namespace turnout::test
