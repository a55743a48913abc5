// A C++ program that uses only the installed headers.
#include <turnout/turnout.h>

#include <cstdio>

int main() {
  const float gates[] = {2, 3}, input[] = {1, 2, 3, 4};
  const std::int64_t indices[] = {1, 0}, locations[] = {0, 0};
  float dispatch[4] = {};
  try {
    turnout::moe_dispatch_forward(turnout::view(gates, {2}), turnout::view(indices, {2}),
                                  turnout::view(locations, {2}), turnout::view(input, {2, 2}),
                                  turnout::view(dispatch, {2, 2}), {.capacity = 1, .num_experts = 2});
  } catch (const turnout::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  const bool right = dispatch[0] == 9 && dispatch[1] == 12 && dispatch[2] == 2 && dispatch[3] == 4;
  std::printf("C++ %s: %s\n", TURNOUT_VERSION, right ? "ok" : "wrong result");
  return right ? 0 : 1;
}
